"""Named random streams: one seed per experiment, one independent stream per use.

A stream is found by its name alone, so that adding a draw in one place changes nothing elsewhere.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Streams:
    """A tree of random streams below one seed.

    Args:
        seed: the experiment's seed, >= 0.
        path: names that lead from the root to this node.
    """

    seed: int
    path: tuple[str, ...] = ()

    def child(self, *names: object) -> Streams:
        """Return the node below this one that ``names`` (converted to text) lead to."""
        return Streams(seed=self.seed, path=(*self.path, *(str(name) for name in names)))

    def sequence(self, *names: object) -> np.random.SeedSequence:
        """Return the seed sequence of the stream called ``names``."""
        digest = hashlib.sha256("\x1f".join((*self.path, *(str(name) for name in names))).encode()).digest()
        return np.random.SeedSequence(self.seed, spawn_key=tuple(np.frombuffer(digest, dtype="<u4").tolist()))

    def generator(self, *names: object) -> np.random.Generator:
        """Return a fresh NumPy generator at the start of the stream called ``names``."""
        return np.random.default_rng(self.sequence(*names))

    def integer(self, *names: object) -> int:
        """Return a 63-bit integer for generators that take one seed (torch, SUMO)."""
        return int(self.sequence(*names).generate_state(1, np.uint64)[0] >> np.uint64(1))
