"""Learning as the simulation sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vnetsim.learning import Cost, Participant
from vnetsim.simulation.log import RoundResult, RoundSummary


class RoundHandler(Protocol):
    """Learning as the simulation sees it."""

    def cost(self, silo: int) -> Cost:
        """Return payload and work of a participation by a vehicle that holds ``silo``."""
        ...

    def close_round(self, summary: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        """Train the committed participants (perhaps none), in order of commit, and aggregate them."""
        ...
