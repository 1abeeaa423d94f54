"""Between the rounds and a pace: asks it, and refuses nonsense by its name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from vnetsim.errors import RunError
from vnetsim.plugins import plugin_errors
from vnetsim.simulation.pace import Pace, RoundState, WorkPace
from vnetsim.simulation.selection.candidate import Candidate

_ROUNDING = 1e-9
"""So much below a whole number of steps is that number."""


class CheckedPace:
    """Asks a pace; each question raises ``RunError`` where the pace fails or gives nonsense."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    @property
    def closed_by(self) -> Literal["quorum", "everyone"]:
        """How the record says that it closed a round."""
        return self._pace.closed_by

    def places(self, state: RoundState) -> int:
        """Return how many more may be invited."""
        with plugin_errors("pace", self._pace.name, f"in round {state.round}"):
            return int(self._pace.places(state))

    def closes(self, state: RoundState) -> bool:
        """Return whether the round closes now."""
        with plugin_errors("pace", self._pace.name, f"in round {state.round}"):
            return bool(self._pace.closes(state))

    def deadline_s(self, state: RoundState) -> float:
        """Return how long a round may last (s)."""
        with plugin_errors("pace", self._pace.name, f"in round {state.round}"):
            given = float(self._pace.deadline_s(state))
        return self._checked_deadline(given, state)

    @property
    def work(self) -> WorkPace | None:
        """The pace where it decides how much vehicles train; None where they do it all."""
        return self._pace if isinstance(self._pace, WorkPace) else None

    @property
    def planned_share(self) -> float:
        """The share of the training that selection policies are to count with."""
        if self.work is None:
            return 1.0
        with plugin_errors("pace", self._pace.name, "when asked for its planned share"):
            return self._checked_share(float(self.work.planned_share), "planned")

    def plan(self, candidates: Sequence[Candidate], state: RoundState) -> float | None:
        """Let it plan a round; return how much longer that may last (s), None for what ``deadline_s`` said."""
        if self.work is None:
            return None
        with plugin_errors("pace", self._pace.name, f"in round {state.round}"):
            planned = self.work.plan(candidates, state)
            given = None if planned is None else float(planned)
        return None if given is None else self._checked_deadline(given, state)

    def takes(self, candidate: Candidate, state: RoundState) -> bool:
        """Return whether a candidate may be invited."""
        if self.work is None:
            return True
        with plugin_errors("pace", self._pace.name, f"in round {state.round}"):
            return bool(self.work.takes(candidate, state))

    def share(self, candidate: Candidate, state: RoundState) -> float:
        """Return the share of its training that a vehicle does: whole local steps, at least one; all without steps."""
        if self.work is None or candidate.steps == 0:
            return 1.0
        with plugin_errors("pace", self._pace.name, f"in round {state.round}"):
            given = float(self.work.share(candidate, state))
        share = self._checked_share(given, f"gave vehicle '{candidate.vehicle_id}'", state)
        return max(1, math.floor(share * candidate.steps * (1 + _ROUNDING))) / candidate.steps

    def _checked_deadline(self, given_s: float, state: RoundState) -> float:
        if not 0 < given_s < math.inf:
            raise RunError(
                f"pace '{self._pace.name}' gave a deadline of {given_s} s in round {state.round}; it must be above 0."
            )
        return given_s

    def _checked_share(self, given: float, what: str, state: RoundState | None = None) -> float:
        if not 0 <= given <= 1:
            when = "" if state is None else f" in round {state.round}"
            raise RunError(
                f"pace '{self._pace.name}' {what} a share of {given} of the training{when}; it must be from 0 to 1."
            )
        return given
