"""Drawn images in the user's cache folder, so that each process of a user need not draw them again.

Without a folder that can be written, images are drawn each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vnetsim.user_cache import cache_folder, read_cached, write_cached

LEAST_IMAGES = 1000
"""Fewer images are drawn each time: that takes less than half a second."""
LIMIT_BYTES = 2**30
"""Most bytes on disk: 30 default sets of signs."""
Images = NDArray[np.uint8]


def load_or_draw(draw: Callable[[], Images], shape: tuple[int, ...], *key: object, code: Sequence[str]) -> Images:
    """Return the images of ``draw``, uint8 of ``shape``, from a cache on disk if they were drawn before.

    Images are the same if these are: the ``repr`` of ``key``, which must contain all values that the images depend on;
    the files at the paths ``code``; and what rounds differently: NumPy, its libraries and the processor. Fewer than
    LEAST_IMAGES are drawn each time, and so are all if the cache cannot be used.
    """
    if shape[0] < LEAST_IMAGES:
        return draw()
    try:
        sources = [Path(path).read_bytes() for path in code]
        folder = cache_folder("images")
    except (OSError, RuntimeError):  # in an archive; a user without a home
        return draw()
    # texts of a fixed length, so that no two keys run together
    parts = [*sources, repr(np.show_config(mode="dicts")).encode(), repr((shape, key)).encode()]
    name = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    stored = read_cached(folder / name)
    if stored is not None and len(stored) == prod(shape):
        return np.frombuffer(stored, dtype=np.uint8).reshape(shape)
    images = draw()
    with suppress(OSError):
        write_cached(folder / name, np.ascontiguousarray(images).data, limit_bytes=LIMIT_BYTES)
    return images
