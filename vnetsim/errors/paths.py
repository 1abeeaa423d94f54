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
    """Return an absolute path without symbolic links.

    Raises:
        InputError: the links form a circle, the name is too long for a file, or it is not UTF-8 and so cannot be
            recorded.
    """
    try:
        found = Path(path).resolve()
        str(found).encode()
        found.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{str(path)[:_SHOWN]!r}: not a path of a file or folder: {one_line(error)}.") from None
    return found


def is_rsu_file(spec: object) -> bool:
    """Return whether a value of ``traffic.rsu`` names a file."""
    return isinstance(spec, str) and spec.endswith(".xml")


def is_partition_file(partition: str) -> bool:
    """Return whether a value of ``data.partition`` names a file."""
    return partition.endswith(".csv")


def with_paths(key: tuple[str, ...], value: Any, place: Callable[[str], str]) -> Any:
    """Return a setting's value with ``place`` applied to its paths; the caller checks that ``key`` is in ``FILES``.

    In a list, only items that name an RSU file are paths. An empty value, and a ``data.partition`` that names no file,
    are unchanged.
    """
    if key == ("data", "partition") and not (isinstance(value, str) and is_partition_file(value)):
        return value
    if isinstance(value, list | tuple):
        return type(value)(place(one) if is_rsu_file(one) else one for one in value)
    return place(value) if isinstance(value, str) and value else value


def from_folder(key: tuple[str, ...], value: Any, folder: Path) -> Any:
    """Return a setting's value from a file in ``folder``, its relative paths (if any) joined to ``folder``.

    Settings that are not in ``FILES`` are returned unchanged.
    """
    return with_paths(key, value, lambda path: str(folder / path)) if key in FILES else value


def path_name(*words: str) -> str:
    """Return a safe name of a file or folder made from any words: never a path, hidden, empty or too long."""
    plainly = (re.sub(r"[^A-Za-z0-9._-]+", "-", word).strip("-.")[:_LONGEST] for word in words)
    return "-".join(part for part in plainly if part) or "unnamed"
