"""Drawn images on disk, so that each process of a user need not draw them again.

They are in ``vnetsim/images`` in the user's cache folder: ``$XDG_CACHE_HOME``, by default ``~/.cache``. Anyone may
remove it at any time. Without a folder that can be written, images are drawn each time.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LEAST_IMAGES = 1000
"""Fewer images are drawn each time: that takes less than half a second."""
LIMIT_BYTES = 2**30
"""Most bytes on disk: 30 default sets of signs. Files that were not used for longest are removed first."""
_DIGEST_BYTES = 32

Images = NDArray[np.uint8]


def cached(draw: Callable[[], Images], shape: tuple[int, ...], *key: object, code: Sequence[str]) -> Images:
    """Return the images of ``draw``, uint8 of ``shape``, from a cache on disk if they were drawn before.

    The cache is looked up by the ``repr`` of ``key``, which must contain all values that the images depend on, by the
    contents of the modules at the paths ``code``, and by NumPy, its libraries and the processor, which round
    differently. A damaged file is replaced; if the cache cannot be written, the images are drawn each time.
    """
    if shape[0] < LEAST_IMAGES:
        return draw()
    try:
        sources = [Path(path).read_bytes() for path in code]
        folder = _user_cache() / "vnetsim" / "images"
    except (OSError, RuntimeError):  # in an archive; a user without a home
        return draw()
    # texts of a fixed length, so that no two keys run together
    parts = [*sources, repr(np.show_config(mode="dicts")).encode(), repr((shape, key)).encode()]
    name = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    images = _read(folder / name, shape)
    if images is None:
        images = draw()
        with suppress(OSError):
            _write(folder / name, images)
    return images


def _user_cache() -> Path:
    """Return the user's cache folder; RuntimeError if there is none."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return given if given.is_absolute() else Path.home() / ".cache"


def _digest(name: str, images: Images) -> bytes:
    """Return a checksum of the images in a file and of the file's name."""
    found = hashlib.sha256(name.encode())
    found.update(np.ascontiguousarray(images).data)
    return found.digest()


def _read(path: Path, shape: tuple[int, ...]) -> Images | None:
    """Return the images of a file and set its modification time to now; None if it is missing or damaged."""
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError:
        return None
    if content.size != _DIGEST_BYTES + np.prod(shape):
        return None
    images = content[_DIGEST_BYTES:].reshape(shape)
    if content[:_DIGEST_BYTES].tobytes() != _digest(path.name, images):
        return None
    with suppress(OSError):
        os.utime(path)
    return images


def _write(path: Path, images: Images) -> None:
    """Write images to a file, atomically, then remove the oldest files over the limit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(_digest(path.name, images))
            file.write(np.ascontiguousarray(images).data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _remove_oldest(path.parent)


def _remove_oldest(folder: Path) -> None:
    """Remove the least recently used files until the others take at most ``LIMIT_BYTES``."""
    found = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process removed it
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = 0
    for _, size, path in sorted(found, reverse=True):
        total += size
        if total > LIMIT_BYTES:
            path.unlink(missing_ok=True)
