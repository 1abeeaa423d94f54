"""Files that save work for later processes, in the user's cache folder.

They are below ``$XDG_CACHE_HOME/vnetsim``, by default ``~/.cache/vnetsim``. Anyone may remove them at any time.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

_DIGEST_BYTES = 32


def cache_folder(name: str) -> Path:
    """Return vnetsim's folder of this name in the user's cache; it may not exist. RuntimeError if there is no home."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "vnetsim" / name


def read_cached(path: Path) -> memoryview | None:
    """Return what ``write_cached`` stored, writable, and record the use; None if it is missing or damaged."""
    try:
        with path.open("rb") as file:
            stored = memoryview(bytearray(os.fstat(file.fileno()).st_size))
            file.readinto(stored)
    except OSError:
        return None
    content = stored[_DIGEST_BYTES:]
    if stored[:_DIGEST_BYTES] != _digest(path.name, content):
        return None
    with suppress(OSError):
        os.utime(path)  # the time by which write_cached finds the least recently used files
    return content


def write_cached(path: Path, content: bytes | memoryview, *, limit_bytes: int) -> None:
    """Write a file and its folder, atomically and with a checksum; OSError if that fails.

    Then remove least recently used files of the folder until the others take at most ``limit_bytes``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(_digest(path.name, content))
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _remove_oldest(path.parent, limit_bytes)


def _digest(name: str, content: bytes | memoryview) -> bytes:
    """Return the SHA-256 of a file's name and content."""
    found = hashlib.sha256(name.encode())
    found.update(content)
    return found.digest()


def _remove_oldest(folder: Path, limit_bytes: int) -> None:
    """Remove the least recently used files of a folder until the others take at most ``limit_bytes``."""
    found = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process removed it
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = 0
    for _, size, path in sorted(found, reverse=True):
        total += size
        if total > limit_bytes:
            path.unlink(missing_ok=True)
