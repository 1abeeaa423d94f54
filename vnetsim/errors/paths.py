"""Paths that users give, and names that become paths."""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError

PLUGIN_FILES = frozenset(
    (table, "file") for table in ("selection", "pace", "aggregation", "radio", "source", "data", "encoder")
)
"""Settings of plug-ins whose values are paths, where a plug-in has them."""
FILES = frozenset({("traffic", "net"), ("traffic", "rsu"), ("data", "root"), ("data", "partition")}) | PLUGIN_FILES
"""Settings, besides scenario and learner, whose values are paths."""
_LONGEST = 40
_SHOWN = 60
"""Characters that a message shows of a path that is too long."""


_KINDS = {
    stat.S_IFIFO: "pipe",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFSOCK: "socket",
}


def resolved(path: Path | str) -> Path:
    """Return an absolute path without links.

    Raises:
        InputError: links that lead in a circle, a name longer than a file may have, or one that is no UTF-8, which no
            record could hold.
    """
    try:
        found = Path(path).resolve()
        str(found).encode()
        found.stat()
    except UnicodeEncodeError:
        raise InputError(f"{str(found)!r}: the path is no UTF-8 text; rename it.") from None
    except ValueError as error:
        raise InputError(f"{path!r}: not a path: {error}.") from None
    except (OSError, RuntimeError) as error:
        fault = error.errno if isinstance(error, OSError) else errno.ELOOP  # of a circle, in some versions of Python
        if fault == errno.ENAMETOOLONG:
            raise InputError(f"{str(path)[:_SHOWN]}...: longer than the name of a file or folder may be.") from None
        if fault == errno.ELOOP:
            raise InputError(f"{path}: a link that leads to itself.") from None
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


def refuse_other_than_text(arguments: Sequence[str]) -> None:
    """Refuse arguments of the command line that are no UTF-8: the record of the command could not hold them.

    Raises:
        InputError: naming the first.
    """
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise InputError(f"{argument!r}: the argument is no UTF-8 text; rename it.") from None


def path_name(*words: str) -> str:
    """Return words as the name of one file or folder, whatever is in them: never a path, hidden, empty or too long."""
    plainly = (re.sub(r"[^A-Za-z0-9._-]+", "-", word).strip("-.")[:_LONGEST] for word in words)
    return "-".join(part for part in plainly if part) or "unnamed"


def refuse_special(path: Path) -> None:
    """Refuse a pipe, device or socket, before it is opened; links are followed.

    A pipe waits until somebody writes, a device may give bytes for ever.

    What is missing, may not be looked at or is a folder is left to the reader, who knows what it should be.

    Raises:
        InputError: names the path and what it is.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if (kind := _KINDS.get(stat.S_IFMT(mode))) is not None:
        raise InputError(f"{path}: unreadable: not a file but a {kind}; name a file.")
