"""The package's long description: the README without what leads into the source tree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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
