"""A pace: rounds are small at first, while any update helps, and gather more uploads later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vnetsim.errors.bounds import Within
from vnetsim.simulation.pace import RoundState


@dataclass(frozen=True, kw_only=True)
class GrowingRounds:
    """Closes round r with its q_r-th upload, and invites as many beyond it as ``round.invited`` has beyond the quorum.

    One upload more every ``every`` rounds::

        q_r = min(round.quorum, 1 + floor(r / every))

    Args:
        every: rounds until one upload more is gathered.
    """

    name = "growing"
    source = "an example"
    exchange = False
    closed_by = "quorum"

    every: Annotated[int, Within(1, 1_000_000, "rounds", "no run has more rounds")] = 2

    def _quorum(self, state: RoundState) -> int:
        return min(state.rules.quorum, 1 + state.round // self.every)

    def places(self, state: RoundState) -> int:
        """Return how many more may be invited now."""
        return self._quorum(state) + state.rules.invited - state.rules.quorum - state.in_flight

    def closes(self, state: RoundState) -> bool:
        """Return whether the uploads are there."""
        return state.committed >= self._quorum(state)
