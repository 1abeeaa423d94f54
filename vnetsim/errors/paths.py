"""Paths that users give, and names that become paths."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError, one_line

PLUGIN_FILES = frozenset(
    (table, "file")
    for table in ("selection", "pace", "aggregation", "radio", "source", "data", "encoder", "codec", "conduct")
)
"""Settings of plug-ins that contain paths; a plug-in need not have them."""
FILES = frozenset({("traffic", "net"), ("traffic", "rsu"), ("data", "root"), ("data", "partition")}) | PLUGIN_FILES
"""All settings that contain paths, except ``scenario`` and ``learner``."""
_LONGEST = 40
_SHOWN = 60
"""Number of characters of a bad path that a message quotes."""


def resolve_path(path: Path | str) -> Path:
    """Return an absolute path without links, existing or not; InputError: a circle of links, too long, or not UTF-8."""
    try:
        found = Path(path).resolve()
        str(found).encode()
        found.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{str(path)[:_SHOWN]!r}: not a path of a file or folder: {one_line(error)}.") from None
    return found


def is_rsu_file(spec: object) -> bool:
    """Return whether a value of ``traffic.rsu`` names a file: it is text that ends in ``.xml``."""
    return isinstance(spec, str) and spec.endswith(".xml")


def is_partition_file(partition: str) -> bool:
    """Return whether a value of ``data.partition`` names a file: it ends in ``.csv``."""
    return partition.endswith(".csv")


def with_paths(key: tuple[str, ...], value: Any, change: Callable[[str], str]) -> Any:
    """Return the value of a setting in ``FILES`` with ``change`` applied to each path in it; ``key`` is not checked.

    In a list, only items that name an RSU file are paths. Values that are no path are returned unchanged: an empty
    text, a ``data.partition`` that names no file, and anything but text.
    """
    if key == ("data", "partition") and not (isinstance(value, str) and is_partition_file(value)):
        return value
    if isinstance(value, list | tuple):
        return type(value)(change(one) if is_rsu_file(one) else one for one in value)
    return change(value) if isinstance(value, str) and value else value


def from_folder(key: tuple[str, ...], value: Any, folder: Path) -> Any:
    """Return a setting's value, its relative paths joined to ``folder``; unchanged unless ``key`` is in ``FILES``."""
    return with_paths(key, value, lambda path: str(folder / path)) if key in FILES else value


def path_name(*words: str) -> str:
    """Return words, each cut to 40 letters, joined by hyphens as a file's name of ASCII letters, digits and ``.-_``."""
    parts = (re.sub(r"[^A-Za-z0-9._-]+", "-", word).strip("-.")[:_LONGEST] for word in words)
    return "-".join(filter(None, parts)) or "unnamed"
