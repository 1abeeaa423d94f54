"""Measures the wall time of a run's stages."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Wall time by stage (s): successive stages, and parts inside them that are counted separately."""

    def __init__(self) -> None:
        self._stages: dict[str, float] = defaultdict(float)
        self._last = time.perf_counter()

    @property
    def stages(self) -> dict[str, float]:
        """The time of each stage so far (s), rounded to milliseconds."""
        return {stage: round(seconds, 3) for stage, seconds in self._stages.items()}

    def mark(self, stage: str) -> None:
        """End a stage that began at the previous mark; its parts are not included."""
        now = time.perf_counter()
        self._stages[stage] += now - self._last
        self._last = now

    @contextmanager
    def part(self, stage: str) -> Iterator[None]:
        """Count the time of a block as a separate stage; times of a stage add up. Parts must not be nested."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begin
            self._stages[stage] += seconds
            self._last += seconds
