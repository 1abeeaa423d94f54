"""Where a run's wall time goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Wall time by stage (s): stages one after the other, and parts of them that count by themselves."""

    def __init__(self) -> None:
        self._stages: dict[str, float] = defaultdict(float)
        self._last = time.perf_counter()

    @property
    def stages(self) -> dict[str, float]:
        """The time of each stage so far, to the millisecond."""
        return {stage: round(seconds, 3) for stage, seconds in self._stages.items()}

    def mark(self, stage: str) -> None:
        """End a stage that began at the previous mark; its parts do not count."""
        now = time.perf_counter()
        self._stages[stage] += now - self._last
        self._last = now

    @contextmanager
    def part(self, stage: str) -> Iterator[None]:
        """Count what is done inside as a stage of its own, however often; no part lies inside another."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begin
            self._stages[stage] += seconds
            self._last += seconds
