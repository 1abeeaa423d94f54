"""Selection of the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.simulation.selection.draws import shuffled


class FastestSelection:
    """Takes the smallest predicted duration first.

    Of download, training and upload with the whole airtime; drawn among equals::

        argmin_n T_n,  T_n = t_down + t_train + t_up

    Where one place is free, `fedcs` chooses the same vehicle as long as its participation ends before the deadline.
    """

    name = "fastest"
    source = "greedy on predicted durations, as FedCS (arXiv:1804.08333) without its shared channel"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """No settings."""

    @classmethod
    def create(cls, settings: Settings) -> FastestSelection:  # noqa: ARG003 - the protocol's argument
        """Return the policy with these settings."""
        return cls()

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Return all, the fastest first."""
        return sorted(shuffled(candidates, context.generator), key=lambda candidate: candidate.duration_s)

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Learn nothing."""
