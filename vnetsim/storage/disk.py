"""All functions that change the disk: write, remove, synchronise.

A file is safe from a power cut only when it and its folder were synchronised. The crash tests replace these functions
by a simulated disk that loses all that was not synchronised.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

Content = bytes | Callable[[Path], None]
"""Content of a file, or a function that writes it to a path."""


def write(path: Path, content: Content) -> None:
    """Write a new file without synchronising it; FileExistsError if the file, or a link of its name, exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        if isinstance(content, bytes):
            file.write(content)
    if not isinstance(content, bytes):
        content(path)


def sync(path: Path) -> None:
    """Wait until a file's content is on the disk, or for a folder's path, the names of the files in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Rename a file, replacing any file of the new name."""
    os.replace(source, target)  # noqa: PTH105 - one call, one change


def unlink(path: Path) -> None:
    """Remove a file or a link (not its target), if it exists."""
    path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make one folder, whose parent exists; do nothing if the folder exists already."""
    path.mkdir(exist_ok=True)


def remove_folder(path: Path) -> None:
    """Remove an empty folder; OSError if it is not empty or is missing."""
    path.rmdir()
