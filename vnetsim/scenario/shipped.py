"""The scenarios that come with the package, and the learner to begin with."""

from __future__ import annotations

import keyword
import re
import shutil
import sysconfig
from pathlib import Path

from vnetsim.errors import InputError, RunError

FIRST = "intersection.sumocfg"
"""The scenario to begin with."""

_TO_DOCUMENTATION = re.compile(r"\[([^\]\n]*)\]\((?:\.\./)+docs/[^)\n]*\)")
"""A link to the documentation; copied pages keep its text without the link."""


def shipped_scenarios() -> Path:
    """Return the folder of shipped scenarios, of the source tree or the installation; RunError if there is none."""
    source = Path(__file__).resolve().parents[2] / "scenarios"
    installed = Path(sysconfig.get_path("data")) / "share" / "vnetsim" / "scenarios"
    for folder in (source, installed):
        if (folder / FIRST).is_file():
            return folder
    raise RunError(f"{installed}: the shipped scenarios are missing from this installation; install vnetsim again.")


def copy_scenarios(folder: Path) -> list[Path]:
    """Copy the shipped scenarios to a new or empty folder; return the sorted paths of the files that can be run.

    InputError if ``folder`` is a file or not empty, RunError if it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: not an empty folder; name a new one.")
    try:
        shutil.copytree(shipped_scenarios(), folder, dirs_exist_ok=True)
        for page in folder.rglob("*.md"):
            text = page.read_text(encoding="utf-8")
            page.write_text(_TO_DOCUMENTATION.sub(r"\1", text), encoding="utf-8")
    except OSError as error:
        # shutil.Error has a list of (from, to, reason), one for each file
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        raise RunError(f"{folder}: cannot copy the scenarios there: {reason}.") from error
    return sorted(path for path in folder.iterdir() if path.suffix in {".sumocfg", ".toml"})


def copy_learner(name: str) -> Path:
    """Write the shipped learner SCAFFOLD as class ``name`` to ``name.py`` in the working directory; return the path.

    InputError if ``name`` cannot name a class or the file exists, RunError if it cannot be written.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InputError(f"{name}: cannot name a class; take letters, digits and _, no digit first, such as MyMethod.")
    file = Path(f"{name}.py")
    text = (shipped_scenarios() / "scaffold.py").read_text(encoding="utf-8")
    text = text.replace('"scaffold"', f'"{name}"').replace("ScaffoldSettings", f"{name}Settings")
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text.replace("class Scaffold(", f"class {name}("))
    except FileExistsError as error:
        raise InputError(f"{file}: exists; take another name, or move it away.") from error
    except OSError as error:
        raise RunError(f"{file}: cannot be written: {error.strerror}.") from error
    return file
