"""Between the rounds and a pace that decides how much vehicles train: whom it takes, how long, with how much work."""

from __future__ import annotations

from collections.abc import Callable

from vnetsim.simulation.pace import RoundState
from vnetsim.simulation.pace.checked import CheckedPace
from vnetsim.simulation.participation import Predicted
from vnetsim.simulation.selection.candidate import Candidate
from vnetsim.simulation.selection.knowledge import Knowledge
from vnetsim.simulation.vehicle import OpenWindow


class Planning:
    """Shows a pace the vehicles as the RSUs know them.

    Args:
        pace: the pace.
        knowledge: of vehicles.
        state: how the open round stands now.
    """

    def __init__(self, pace: CheckedPace, knowledge: Knowledge, state: Callable[[], RoundState]) -> None:
        self._pace = pace
        self._knowledge = knowledge
        self._state = state

    def length_s(self, windows: list[OpenWindow], now_s: float) -> float | None:
        """Return how long the open round is to last from now (s) at most, where the pace plans that now."""
        state = self._state()
        if self._pace.work is None or state.invited:
            return None
        known = self._knowledge.at(now_s)
        return self._pace.plan([Candidate(window, known) for window in windows], state)

    def taken(self, windows: list[OpenWindow], now_s: float) -> list[OpenWindow]:
        """Return those of the windows that the pace takes now."""
        if self._pace.work is None:
            return windows
        known, state = self._knowledge.at(now_s, self._pace.planned_share), self._state()
        return [window for window in windows if self._pace.takes(Candidate(window, known), state)]

    def share(self, window: OpenWindow, now_s: float) -> float:
        """Return the share of its training that a vehicle does, which begins it now (s)."""
        if self._pace.work is None:
            return 1.0
        return self._pace.share(Candidate(window, self._knowledge.at(now_s)), self._state())

    def predicted(self, window: OpenWindow, now_s: float) -> Predicted:
        """Return how long the rest of a window is predicted to last (s)."""
        return Candidate(window, self._knowledge.at(now_s)).predicted()
