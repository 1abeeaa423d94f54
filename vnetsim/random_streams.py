"""Named random streams: one seed per experiment, one independent stream per use.

A stream depends only on the seed and its name, so adding a draw in one place changes nothing elsewhere.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Streams:
    """A tree of random streams below one seed.

    Args:
        seed: the experiment's seed, >= 0.
        path: names from the root to this node.
    """

    seed: int
    path: tuple[str, ...] = ()

    def child(self, *names: object) -> Streams:
        """Return the node below this one at the path ``names`` (converted to text)."""
        return Streams(seed=self.seed, path=(*self.path, *(str(name) for name in names)))

    def sequence(self, *names: object) -> np.random.SeedSequence:
        """Return the seed sequence of the stream at ``names`` (converted to text) below this node."""
        name = "\x1f".join((*self.path, *map(str, names)))
        # the same entropy as SeedSequence(seed, spawn_key=words of the name), in a third of the time
        return np.random.SeedSequence(np.frombuffer(self._head + hashlib.sha256(name.encode()).digest(), dtype="<u4"))

    @functools.cached_property
    def _head(self) -> bytes:
        """The seed as little-endian 32-bit words, at least four: the size of a SeedSequence's pool."""
        words = max(4, -(-self.seed.bit_length() // 32))
        return self.seed.to_bytes(4 * words, "little")

    def generator(self, *names: object) -> np.random.Generator:
        """Return a new NumPy generator at the start of the stream ``names``; each call gives the same draws."""
        return np.random.Generator(np.random.PCG64(self.sequence(*names)))  # default_rng without its checks

    def integer(self, *names: object) -> int:
        """Return an integer in [0, 2**63) from the stream ``names``, for generators with one seed (torch, SUMO)."""
        return int(self.sequence(*names).generate_state(1, np.uint64)[0] >> np.uint64(1))
