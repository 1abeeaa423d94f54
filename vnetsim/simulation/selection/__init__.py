"""Vehicle selection: which vehicles are invited when more of them wait than may take part.

A policy orders the candidates; the simulator invites them in that order while there are free places. A policy's memory
needs no checkpoint: a resumed run simulates the finished rounds again with their recorded results.
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
        round: index of the open round, from 0.
        open_s: when it opened (s).
        deadline_s: when it closes at the latest (s).
        in_flight: participations under way inside coverage.
        generator: the policy's own random stream.
        cloud_round: the round that began with the cloud's last model at this aggregator; 0 without a cloud.
        memory: what the policy's ``begin`` returned; None without that method.
        chances: for policies whose updates are weighted by 1 / q: before the policy returns a vehicle, it writes here,
            by the vehicle's id, the probability q of drawing it. The probabilities of all candidates sum to ``free``.
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
        """Return the candidates in random order, in a new list; a sort afterwards then orders equal ones at random."""
        return [candidates[place] for place in self.generator.permutation(len(candidates)).tolist()]

    def drawn(self, weights: Sequence[float]) -> int:
        """Draw an index with probabilities in proportion to ``weights``, which are at least 0 and not all 0."""
        sums = list(accumulate(weights))
        return bisect_right(sums, self.generator.random() * sums[-1], hi=len(sums) - 1)


class SelectionPolicy(Protocol):
    """Chooses which vehicles are invited: a frozen keyword-only dataclass; its fields are settings in ``[selection]``.

    Class attributes: ``name``, and ``source``, a citation. Two more are optional. ``uses_losses = True`` if the choice
    depends on training losses or figures: learners then invite different vehicles, and cannot share a schedule.
    ``figure`` names a number that the learner reports of each update (``LearnerContext.figure``); candidates have it as
    ``figures``.
    """

    name: ClassVar[str]
    source: ClassVar[str]

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Iterable[Candidate]:
        """Return candidates in the order in which to invite them; those left out go on waiting.

        Called whenever there are a free place and a candidate. The result is read only as far as there are places, so
        a generator need not order the rest.

        Args:
            candidates: vehicles that may be invited, in order of entry into coverage; at least one.
            free: number of free places, >= 1.
            context: time, round, random stream and memory.
        """
        ...

    @optional
    def begin(self) -> Any:
        """Return the policy's memory of one run, passed to ``select`` (in ``context``) and ``after_round``."""
        ...

    @optional
    def after_round(self, records: Sequence[ParticipationRecord], memory: Any) -> None:
        """Update ``memory`` when a round closed; ``records`` are participations that ended since the round before."""
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
        "least-similar": "vnetsim.simulation.selection.middle:LeastSimilarSelection",
        "mach": "vnetsim.simulation.selection.mach:MachSelection",
        "sharpest": "vnetsim.simulation.selection.rules:SharpestSelection",
    },
)
