"""Vehicle selection: whom the RSUs invite when more vehicles wait than may take part.

A policy orders the candidates; the simulator invites them in that order as long as there are free places, and answers
for places, repeats and conservation. A policy's state is rebuilt when a run is resumed, for the rounds that were
finished are then simulated again with their recorded results, and what it learns from is what is recorded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar, Protocol

import numpy as np

from vnetsim.experiment import DEFAULT_NAMES
from vnetsim.plugins import Kind, optional
from vnetsim.simulation.selection.candidate import Candidate
from vnetsim.storage.rows import ParticipationRecord

__all__ = ["SELECTIONS", "Candidate", "SelectionContext", "SelectionPolicy"]


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
        cloud_round: the round that began with the cloud's last model at this aggregator; 0 without a cloud.
        memory: what the policy's ``begin`` returned; None without that method.
        chances: where a policy whose updates are to weigh 1 / q writes each q, the probability with which it draws a
            vehicle, by the vehicle, before it returns it; together they sum to ``free``.
    """

    now_s: float
    round: int
    open_s: float
    deadline_s: float
    in_flight: int
    generator: np.random.Generator
    cloud_round: int
    memory: Any = None
    chances: dict[str, float] = field(default_factory=dict)

    def shuffled(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return candidates in random order: sorted afterwards, equals are drawn, where else the first would win."""
        return [candidates[place] for place in self.generator.permutation(len(candidates)).tolist()]

    def drawn(self, weights: Sequence[float]) -> int:
        """Return one index in proportion to ``weights``, at least 0."""
        sums = list(accumulate(weights))
        return bisect_right(sums, self.generator.random() * sums[-1], hi=len(sums) - 1)


class SelectionPolicy(Protocol):
    """Chooses who is invited: a frozen keyword-only dataclass, whose fields stand in the table ``selection``.

    Class attributes name it: ``name``; ``source``, a citation. Two more are optional: ``uses_losses = True`` where the
    choice depends on training losses, or on what follows, so that learners differ in whom they invite and no schedule
    can be equal; and ``figure``, what a learner is to tell of each update (``LearnerContext.figure``), which candidates
    then show as ``figures``.
    """

    name: ClassVar[str]
    source: ClassVar[str]

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Iterable[Candidate]:
        """Return candidates in the order in which they are to be invited; those left out go on waiting.

        It is asked whenever there is a free place and a candidate. What it returns is read as far as there are places:
        a generator does no more work than that.

        Args:
            candidates: who may be invited, in order of entry into coverage; at least one.
            free: how many can be invited now, >= 1.
            context: time, round, random stream and memory.
        """
        ...

    @optional
    def begin(self) -> Any:
        """Return the memory of one run, which ``context`` and ``after_round`` bring back; None without this method."""
        ...

    @optional
    def after_round(self, records: Sequence[ParticipationRecord], memory: Any) -> None:
        """Learn from what ended since the last round closed: rows of the table ``participations``, losses included."""
        ...


SELECTIONS = Kind(
    name="selection policy",
    group="vnetsim.selections",
    protocol=SelectionPolicy,
    key="selection.name",
    table="selection",
    default=DEFAULT_NAMES["selection"],
    built_in={
        "random": "vnetsim.simulation.selection.rules:RandomSelection",
        "arrival": "vnetsim.simulation.selection.rules:ArrivalSelection",
        "fastest": "vnetsim.simulation.selection.rules:FastestSelection",
        "feasible": "vnetsim.simulation.selection.rules:FeasibleSelection",
        "fedcs": "vnetsim.simulation.selection.rules:FedCsSelection",
        "oort": "vnetsim.simulation.selection.oort:OortSelection",
        "power-of-choice": "vnetsim.simulation.selection.rules:PowerOfChoiceSelection",
        "age": "vnetsim.simulation.selection.rules:AgeSelection",
        "least-similar": "vnetsim.simulation.selection.uploads:LeastSimilarSelection",
        "mach": "vnetsim.simulation.selection.uploads:MachSelection",
        "sharpest": "vnetsim.simulation.selection.rules:SharpestSelection",
    },
)
