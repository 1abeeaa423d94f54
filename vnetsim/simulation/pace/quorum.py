"""Rounds of a quorum and a deadline, and rounds of everyone in coverage."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar, Literal

from vnetsim.simulation.pace import RoundState


@dataclass(frozen=True, kw_only=True)
class QuorumPace:
    """Invites at most ``round.invited`` at once; closes with the ``round.quorum``-th upload or at the deadline."""

    name: ClassVar[str] = "quorum"
    source: ClassVar[str] = "Bonawitz et al., Towards federated learning at scale: system design, MLSys 2019"
    exchange: ClassVar[bool] = True
    closed_by: ClassVar[Literal["quorum", "everyone"]] = "quorum"

    def places(self, state: RoundState) -> int:
        """Return how many may be in flight besides those who are."""
        return state.rules.invited - state.in_flight

    def closes(self, state: RoundState) -> bool:
        """Return whether the quorum is there."""
        return state.committed >= state.rules.quorum


@dataclass(frozen=True, kw_only=True)
class CoveragePace:
    """Invites everyone until the first upload; closes when nobody is in flight any more, or at the deadline."""

    name: ClassVar[str] = "coverage"
    source: ClassVar[str] = "FLSimCo (arXiv:2408.00256): every vehicle in coverage downloads and takes part"
    exchange: ClassVar[bool] = False
    closed_by: ClassVar[Literal["quorum", "everyone"]] = "everyone"

    def places(self, state: RoundState) -> int:
        """Return room for all until somebody is done."""
        return 0 if state.committed else sys.maxsize

    def closes(self, state: RoundState) -> bool:
        """Return whether somebody committed and nobody is in flight."""
        return state.committed > 0 and state.in_flight == 0
