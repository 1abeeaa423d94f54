"""Rounds of a quorum and a deadline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from vnetsim.experiment import RoundSettings
from vnetsim.simulation.pace import RoundState


class QuorumPace:
    """Invites at most ``round.invited`` at once; closes with the ``round.quorum``-th upload or at the deadline."""

    name = "quorum"
    source = "Bonawitz et al., Towards federated learning at scale: system design, MLSys 2019"
    exchange = True
    closed_by: ClassVar[Literal["quorum", "everyone"]] = "quorum"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """There are none besides those of ``round``."""

    def __init__(self, rules: RoundSettings) -> None:
        self._rules = rules

    @classmethod
    def create(cls, settings: Settings, round_settings: RoundSettings) -> QuorumPace:  # noqa: ARG003 - the protocol's
        """Make it."""
        return cls(round_settings)

    def places(self, state: RoundState) -> int:
        """Return how many may be in flight besides those who are."""
        return self._rules.invited - state.in_flight

    def closes(self, state: RoundState) -> bool:
        """Return whether the quorum is there."""
        return state.committed >= self._rules.quorum

    def deadline_s(self, state: RoundState) -> float:  # noqa: ARG002 - the protocol's argument
        """Return ``round.deadline_s``."""
        return self._rules.deadline_s
