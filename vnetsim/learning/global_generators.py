"""The global random generators of torch, NumPy and Python, from which a user's network may draw.

Dropout always does. All threads share them, so code that seeds them must run alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def seeded(seed: int, device: Any = "cpu") -> Iterator[None]:
    """Seed the global generators of torch (CPU and ``device``), NumPy and Python for a block, then restore them.

    ``seed`` is in [0, 2**63); NumPy takes its last 32 bits.
    """
    before = GlobalGenerators(device)
    for generator in before.of_torch:
        generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the global one
    random.seed(seed)
    try:
        yield
    finally:
        before.restore()


class GlobalGenerators:
    """A copy of the state of the global generators of torch (CPU and ``device``), NumPy and Python, taken when made."""

    def __init__(self, device: Any = "cpu") -> None:
        import torch  # noqa: PLC0415 - two seconds that only runs with a learner spend

        self.of_torch: list[torch.Generator] = [torch.default_generator]
        if torch.device(device).type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]
            index = torch.device(device).index
            self.of_torch.append(torch.cuda.default_generators[torch.cuda.current_device() if index is None else index])
        self._states = [generator.get_state() for generator in self.of_torch]
        self._numpy: Any = np.random.get_state()  # noqa: NPY002
        self._python = random.getstate()

    @property
    def moved(self) -> bool:
        """Whether the state of a global generator differs from the copy: somebody drew from it or seeded it."""
        torch_moved = any(
            not bool((generator.get_state() == state).all())
            for generator, state in zip(self.of_torch, self._states, strict=True)
        )
        now: Any = np.random.get_state()  # noqa: NPY002
        numpy_moved = now[2:] != self._numpy[2:] or not np.array_equal(now[1], self._numpy[1])
        return torch_moved or numpy_moved or random.getstate() != self._python

    def restore(self) -> None:
        """Set the global generators back to the copied state."""
        for generator, state in zip(self.of_torch, self._states, strict=True):
            generator.set_state(state)
        np.random.set_state(self._numpy)  # noqa: NPY002
        random.setstate(self._python)
