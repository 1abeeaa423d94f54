"""Selection at random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext


class RandomSelection:
    """Draws who is next, all who wait equally likely."""

    name = "random"
    source = "McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """No settings."""

    @classmethod
    def create(cls, settings: Settings) -> RandomSelection:  # noqa: ARG003 - the protocol's argument
        """Return the policy with these settings."""
        return cls()

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Iterator[Candidate]:  # noqa: ARG002 - the protocol's arguments
        """Yield one drawn candidate after the other."""
        first = int(context.generator.integers(len(candidates)))
        yield candidates[first]  # often the only one that is asked for, of hundreds
        left = [*candidates[:first], *candidates[first + 1 :]]
        while left:
            yield left.pop(int(context.generator.integers(len(left))))

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Learn nothing."""
