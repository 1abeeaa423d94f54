"""Vehicle selection: whom the RSUs invite when more vehicles wait than may take part.

A policy orders the candidates; the simulator invites them in that order as long as there are free places, and answers
for places, repeats and conservation. A policy's state is rebuilt when a run is resumed, for the rounds that were
finished are then simulated again with their recorded results, and what it learns from is what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from vnetsim.plugins import Kind
from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection.candidate import PREDICTORS, Candidate, DwellHistory

__all__ = ["PREDICTORS", "SELECTIONS", "Candidate", "DwellHistory", "SelectionContext", "SelectionPolicy"]


@dataclass(frozen=True, kw_only=True)
class SelectionContext:
    """The moment of a selection.

    Args:
        now_s: simulated time (s).
        round: index of the open round.
        open_s: when it opened (s).
        deadline_s: when it closes at the latest (s).
        in_flight: participations under way inside coverage.
        generator: the policy's own random stream.
    """

    now_s: float
    round: int
    open_s: float
    deadline_s: float
    in_flight: int
    generator: np.random.Generator


@runtime_checkable
class SelectionPolicy(Protocol):
    """Chooses who is invited.

    Class attributes name it: ``name``; ``source``, a citation; ``Settings``, a frozen keyword-only dataclass whose
    fields stand in the table ``selection`` of an experiment. One more is optional: ``uses_losses = True`` where the
    choice depends on training losses, so that learners differ in whom they invite and no schedule can be equal.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    Settings: ClassVar[type]

    @classmethod
    def create(cls, settings: Any) -> SelectionPolicy:
        """Make the policy of one run from its ``Settings``."""
        ...

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Iterable[Candidate]:
        """Return candidates in the order in which they are to be invited; those left out go on waiting.

        It is asked whenever there is a free place and a candidate. What it returns is read as far as there are places:
        a generator does no more work than that.

        Args:
            candidates: who may be invited, in order of entry into coverage; at least one.
            free: how many can be invited now, >= 1.
            context: time, round and random stream.
        """
        ...

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Learn from what ended since the last round closed: rows of the table ``participations``, losses included."""
        ...


SELECTIONS = Kind(
    name="selection policy",
    group="vnetsim.selections",
    protocol=SelectionPolicy,
    key="round.selection",
    table="selection",
)
