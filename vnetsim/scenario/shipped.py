"""The scenarios that come with the package."""

from __future__ import annotations

import re
import shutil
import sysconfig
from pathlib import Path

from vnetsim.errors import InputError, RunError

FIRST = "intersection.sumocfg"
"""The scenario to begin with."""

_TO_DOCUMENTATION = re.compile(r"\[([^\]\n]*)\]\((?:\.\./)+docs/[^)\n]*\)")
"""Links of pages to the documentation, which a copy has not beside it; their words stay."""


def shipped_scenarios() -> Path:
    """Return the folder of the shipped scenarios: the source tree's, or the one the wheel put below ``share/``.

    Raises:
        RunError: neither is there.
    """
    source = Path(__file__).resolve().parents[2] / "scenarios"
    installed = Path(sysconfig.get_path("data")) / "share" / "vnetsim" / "scenarios"
    for folder in (source, installed):
        if (folder / FIRST).is_file():
            return folder
    raise RunError(f"{installed}: the shipped scenarios are missing from this installation; install vnetsim again.")


def copy_scenarios(folder: Path) -> list[Path]:
    """Copy the shipped scenarios into ``folder`` and return the paths of those to run.

    Pages lose their links to the documentation, which is not copied.

    Raises:
        InputError: the folder exists and is not empty, or is a file.
        RunError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: not an empty folder; name a new one.")
    try:
        shutil.copytree(shipped_scenarios(), folder, dirs_exist_ok=True)
        for page in folder.rglob("*.md"):
            text = page.read_text(encoding="utf-8")
            page.write_text(_TO_DOCUMENTATION.sub(r"\1", text), encoding="utf-8")
    except shutil.Error as error:  # a list of (from, to, why), one a file
        raise RunError(f"{folder}: cannot copy the scenarios there: {error.args[0][0][2]}.") from error
    except OSError as error:
        raise RunError(f"{folder}: cannot copy the scenarios there: {error.strerror}.") from error
    return sorted(path for path in folder.iterdir() if path.suffix in {".sumocfg", ".toml"})
