"""Selection in order of entry into coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext


class ArrivalSelection:
    """Takes whoever entered coverage first, and so has least time left."""

    name = "arrival"
    source = "first come, first served"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """No settings."""

    @classmethod
    def create(cls, settings: Settings) -> ArrivalSelection:  # noqa: ARG003 - the protocol's argument
        """Return the policy with these settings."""
        return cls()

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's arguments
        """Return the candidates as they are."""
        return candidates

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Learn nothing."""
