"""What changes a disk: every write, removal and synchronisation of vnetsim goes through these few functions.

Nothing counts as written before it and the folder that names it were synchronised: what a power cut may do to anything
else is anybody's guess. The tests of crashes put a disk of their own behind these functions that forgets all that was
not synchronised.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

Content = bytes | Callable[[Path], None]
"""What is to stand in a file, or a function that writes it to a path."""


def write(path: Path, content: Content) -> None:
    """Write a file that does not exist yet; it is not synchronised."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        if isinstance(content, bytes):
            file.write(content)
    if not isinstance(content, bytes):
        content(path)


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Give a file another name, in the place of what has that name."""
    os.replace(source, target)  # noqa: PTH105 - one call, one change


def unlink(path: Path) -> None:
    """Remove a file, or a link itself, if it is there."""
    path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make one folder, unless another process has just made it."""
    path.mkdir(exist_ok=True)


def remove_folder(path: Path) -> None:
    """Remove an empty folder."""
    path.rmdir()
