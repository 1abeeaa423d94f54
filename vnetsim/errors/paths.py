"""Paths that users give, and names that become paths."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError, one_line

PLUGIN_FILES = frozenset(
    (table, "file") for table in ("selection", "pace", "aggregation", "radio", "source", "data", "encoder")
)
"""Settings of plug-ins whose values are paths, where a plug-in has them."""
FILES = frozenset({("traffic", "net"), ("traffic", "rsu"), ("data", "root"), ("data", "partition")}) | PLUGIN_FILES
"""Settings, besides scenario and learner, whose values are paths."""
_LONGEST = 40
_SHOWN = 60
"""Characters that a message shows of a path that is too long."""


def resolved(path: Path | str) -> Path:
    """Return an absolute path without links.

    Raises:
        InputError: links that lead in a circle, a name longer than a file may have, or one that is no UTF-8, which no
            record could hold.
    """
    try:
        found = Path(path).resolve()
        str(found).encode()
        found.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{str(path)[:_SHOWN]!r}: not a path of a file or folder: {one_line(error)}.") from None
    return found


def is_rsu_file(spec: object) -> bool:
    """Return whether what names RSUs is a file of them."""
    return isinstance(spec, str) and spec.endswith(".xml")


def is_partition_file(partition: str) -> bool:
    """Return whether what deals images to silos is a file."""
    return partition.endswith(".csv")


def with_paths(key: tuple[str, ...], value: Any, place: Callable[[str], str]) -> Any:
    """Return the value of one of ``FILES`` with its paths changed; in a list those of files of RSUs."""
    if key == ("data", "partition") and not (isinstance(value, str) and is_partition_file(value)):
        return value
    if isinstance(value, list | tuple):
        return type(value)(place(one) if is_rsu_file(one) else one for one in value)
    return place(value) if isinstance(value, str) and value else value


def from_folder(key: tuple[str, ...], value: Any, folder: Path) -> Any:
    """Return a setting's value of a file in ``folder``; a path in it is the file's, not the working directory's."""
    return with_paths(key, value, lambda path: str(folder / path)) if key in FILES else value


def path_name(*words: str) -> str:
    """Return words as the name of one file or folder, whatever is in them: never a path, hidden, empty or too long."""
    plainly = (re.sub(r"[^A-Za-z0-9._-]+", "-", word).strip("-.")[:_LONGEST] for word in words)
    return "-".join(part for part in plainly if part) or "unnamed"
