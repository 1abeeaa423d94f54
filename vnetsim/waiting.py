"""Who waits for an invitation, and who is invited next."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from vnetsim.participation import Stay


class WaitingList:
    """Vehicles that may be invited, each by one of its open windows, in order of entry.

    A sorted list: who waits is who is inside coverage, so it is short, and its order does not depend on how it came
    about.

    Args:
        generator: draws who is next, all equally likely; None invites by entry time.
    """

    def __init__(self, generator: np.random.Generator | None = None) -> None:
        self._generator = generator
        self._waiting: list[tuple[float, int, Stay]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, stay: Stay) -> None:
        """Let ``stay`` wait; nothing happens when it waits already."""
        if self._find(stay) is None:
            insort(self._waiting, (stay.enter_s, stay.index, stay))

    def discard(self, stay: Stay) -> None:
        """Let ``stay`` wait no longer; nothing happens when it does not wait."""
        place = self._find(stay)
        if place is not None:
            del self._waiting[place]

    def pop(self) -> Stay:
        """Take out who is invited next; the list must not be empty."""
        place = 0 if self._generator is None else int(self._generator.integers(len(self._waiting)))
        return self._waiting.pop(place)[2]

    def _find(self, stay: Stay) -> int | None:
        place = bisect_left(self._waiting, (stay.enter_s, stay.index))
        found = place < len(self._waiting) and self._waiting[place][2] is stay
        return place if found else None
