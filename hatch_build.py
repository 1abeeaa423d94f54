"""What the wheel has besides the code: the README without what leads into the source tree, and the documentation."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


def long_description(readme: str) -> str:
    """Return the README without its picture, and with the words of relative links in their place."""
    without_picture = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n", "", readme, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", without_picture)


class Readme(MetadataHookInterface):
    """Gives the metadata their long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``readme``."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text)}


class Documentation(BuildHookInterface):
    """Puts the documentation into the wheel, as ``vnetsim/documentation.html``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the page; a source tree that is installed editable has its own."""
        if version == "editable":
            return
        path = Path(self.root) / "build" / "documentation.html"
        path.parent.mkdir(exist_ok=True)
        page = runpy.run_path(str(Path(self.root) / "docs" / "one_page.py"))["documentation"](Path(self.root))
        path.write_text(page, encoding="utf-8")
        build_data["force_include"][str(path)] = "vnetsim/documentation.html"
