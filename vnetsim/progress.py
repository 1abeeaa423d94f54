"""Where long work says how far it is, and how long the rest takes; who shows it is another matter."""

from __future__ import annotations

import time
from typing import Protocol


class ProgressDisplay(Protocol):
    """Where long work says how far it is."""

    def stage(self, text: str) -> None:
        """Name what is being done now."""
        ...

    def note(self, text: str) -> None:
        """Tell the user something that stays on the screen."""
        ...

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Report the simulated time (s) and how much of the work is done, in rounds or seconds."""
        ...


class TimeLeft:
    """What was done since this began, or since other work began, for which ``done`` starts anew."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self._first: tuple[float, float, float | None] | None = None
        self.share: float | None = None
        self.left_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Wall time since the beginning (s)."""
        return time.monotonic() - self.began_s

    def see(self, done: float, total: float | None) -> None:
        """Note how much is done; ``left_s`` (s) is known once a round, a run or a second of traffic is."""
        now_s = time.monotonic()
        if self._first is None or done < self._first[1] or total != self._first[2]:
            self._first = now_s, done, total
        first_s, first, _ = self._first
        self.share = done / total if total else None
        self.left_s = (now_s - first_s) * (total - done) / (done - first) if total and done >= first + 1 else None


def clock(seconds: float) -> str:
    """Return a wall time as a person says it."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
