"""Files that may never end: a pipe waits until somebody writes, a device may give bytes for ever."""

from __future__ import annotations

import stat
from pathlib import Path

from vnetsim.errors import InputError

_KINDS = {
    stat.S_IFIFO: "pipe",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFSOCK: "socket",
}


def refuse_special(path: Path) -> None:
    """Refuse a pipe, device or socket, before it is opened; links are followed.

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
