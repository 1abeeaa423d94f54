"""Who waits for an invitation."""

from __future__ import annotations

from bisect import bisect_left, insort

from vnetsim.simulation.vehicle import OpenWindow


class WaitingList:
    """Vehicles that may be invited, each by one of its open windows, in order of entry.

    A sorted list: who waits is who is inside coverage, so it is short, and its order does not depend on how it came
    about.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, OpenWindow]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, window: OpenWindow) -> None:
        """Let ``window`` wait; nothing happens when it waits already."""
        if self._find(window) is None:
            insort(self._waiting, (window.enter_s, window.index, window))

    def discard(self, window: OpenWindow) -> None:
        """Let ``window`` wait no longer; nothing happens when it does not wait."""
        place = self._find(window)
        if place is not None:
            del self._waiting[place]

    def windows(self) -> list[OpenWindow]:
        """Return those who wait, in order of entry."""
        return [window for _, _, window in self._waiting]

    def _find(self, window: OpenWindow) -> int | None:
        place = bisect_left(self._waiting, (window.enter_s, window.index))
        found = place < len(self._waiting) and self._waiting[place][2] is window
        return place if found else None
