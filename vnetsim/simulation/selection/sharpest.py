"""Selection of the sharpest images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.simulation.selection.draws import shuffled


class SharpestSelection:
    """Takes the lowest blur level first: whose images motion blurs least.

    With L_n the blur level of the speed that the vehicle reports; drawn among equals::

        argmin_n L_n
    """

    name = "sharpest"
    source = "a rule of vnetsim's own, on the blur level of FLSimCo (arXiv:2408.00256)"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """No settings."""

    @classmethod
    def create(cls, settings: Settings) -> SharpestSelection:  # noqa: ARG003 - the protocol's argument
        """Return the policy with these settings."""
        return cls()

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Return all, the sharpest first."""
        return sorted(shuffled(candidates, context.generator), key=lambda candidate: candidate.level_px)

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Learn nothing."""
