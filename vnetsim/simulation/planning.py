"""Between the rounds and a pace that decides how much vehicles train: whom it takes, how long, with how much work."""

from __future__ import annotations

import math
from collections.abc import Callable

from vnetsim.simulation.pace import Pace, RoundState, WorkPace
from vnetsim.simulation.participation import Predicted
from vnetsim.simulation.selection.candidate import Candidate
from vnetsim.simulation.selection.knowledge import Knowledge
from vnetsim.simulation.vehicle import OpenWindow

_ROUNDING = 1e-9
"""So much below a whole number of steps is that number."""


class Planning:
    """Shows a pace the vehicles as the RSUs know them.

    Args:
        pace: the pace.
        knowledge: of vehicles.
        state: how the open round stands now.
    """

    def __init__(self, pace: Pace, knowledge: Knowledge, state: Callable[[], RoundState]) -> None:
        self._work = pace if isinstance(pace, WorkPace) else None
        self._knowledge = knowledge
        self._state = state

    @property
    def planned_share(self) -> float:
        """The share of the training that selection policies are to count with."""
        return 1.0 if self._work is None else self._work.planned_share

    def length_s(self, windows: list[OpenWindow], now_s: float) -> float | None:
        """Return how long the open round is to last from now (s) at most, where the pace plans that now."""
        state = self._state()
        if self._work is None or state.invited:
            return None
        known = self._knowledge.at(now_s)
        return self._work.plan([Candidate(window, known) for window in windows], state)

    def taken(self, windows: list[OpenWindow], now_s: float) -> list[OpenWindow]:
        """Return those of the windows that the pace takes now."""
        if self._work is None:
            return windows
        known, state = self._knowledge.at(now_s, self.planned_share), self._state()
        return [window for window in windows if self._work.takes(Candidate(window, known), state)]

    def share(self, window: OpenWindow, now_s: float) -> float:
        """Return the share of its training that a vehicle does, which begins it now (s).

        Whole local steps, at least one; all where the learner names no steps.
        """
        if self._work is None:
            return 1.0
        candidate = Candidate(window, self._knowledge.at(now_s))
        if candidate.steps == 0:
            return 1.0
        share = self._work.share(candidate, self._state())
        return max(1, math.floor(share * candidate.steps * (1 + _ROUNDING))) / candidate.steps

    def predicted(self, window: OpenWindow, now_s: float) -> Predicted:
        """Return how long the rest of a window is predicted to last (s)."""
        return Candidate(window, self._knowledge.at(now_s)).predicted()
