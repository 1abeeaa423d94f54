"""Selection of other silos than in recent rounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.simulation.selection.draws import shuffled

RECENT = 3
"""Rounds whose silos are to be avoided: 15 of the default 95 silos, so that others are left to choose from."""


class VariabilitySelection:
    """Takes the silos that overlap least with those of recent rounds.

    The sum of Dice coefficients of the m silos that are chosen, S, and those whose updates each of the last three
    rounds took, S_k, is least for the m candidates with the least share in it; drawn among equals, as all are that
    took no part lately::

        sum_k 2 |S and S_k| / (|S| + |S_k|) = sum_n in S sum_k 2 [n in S_k] / (m + |S_k|)
    """

    name = "variability"
    source = (
        "a rule of vnetsim's own, on the coefficient of Dice, Measures of the amount of ecologic association between "
        "species, Ecology 26 (1945)"
    )

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """No settings."""

    def __init__(self) -> None:
        self._recent: deque[frozenset[int]] = deque(maxlen=RECENT)

    @classmethod
    def create(cls, settings: Settings) -> VariabilitySelection:  # noqa: ARG003 - the protocol's argument
        """Return the policy with these settings."""
        return cls()

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:
        """Return all, the least overlap first."""
        return sorted(
            shuffled(candidates, context.generator),
            key=lambda c: sum(2 / (free + len(silos)) for silos in self._recent if c.silo in silos),
        )

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Note the silos of the round."""
        self._recent.append(frozenset(record.silo for record in records if record.outcome == "committed"))
