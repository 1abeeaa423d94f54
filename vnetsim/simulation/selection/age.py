"""Selection of those whose data were absent for longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.simulation.selection.draws import shuffled


class AgeSelection:
    """Takes the silo first whose last update lies furthest back.

    In round r, with r_n the last round that took an update of the silo, -1 before the first; drawn among equals,
    as all are that never took part::

        argmax_n a_n,  a_n = r - r_n
    """

    name = "age"
    source = "a rule of vnetsim's own: longest absent first"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """No settings."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    @classmethod
    def create(cls, settings: Settings) -> AgeSelection:  # noqa: ARG003 - the protocol's argument
        """Return the policy with these settings."""
        return cls()

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Return all, the longest absent first."""
        return sorted(shuffled(candidates, context.generator), key=lambda candidate: self._last.get(candidate.silo, -1))

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Note whose updates were taken."""
        self._last.update({record.silo: record.round for record in records if record.outcome == "committed"})
