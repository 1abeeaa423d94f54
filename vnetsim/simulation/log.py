"""The records of a simulation, and what passes between the simulation and learning at the close of a round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from vnetsim.coverage.windows import Window
from vnetsim.learning import AGGREGATOR, Cost, ModelKey, Participant
from vnetsim.storage.rows import (
    ClosedBy,
    ExchangeRecord,
    HandoverRecord,
    MergeRecord,
    Outcome,
    ParticipationRecord,
    RoundRecord,
    Stage,
)

LEFT: Mapping[Stage, Outcome] = {
    "download": "left_download",
    "waiting": "left_exchange",
    "exchange": "left_exchange",
    "training": "left_training",
    "outside": "left_training",
    "upload": "left_upload",
    "backhaul": "left_upload",
}
"""Outcome of a participation that ends because the vehicle left coverage, by its stage."""
Row = TypeVar("Row")


class Rows(list[Row]):
    """Rows of a growing table. Indices count rows left in memory; ``at``, ``replace`` and ``since`` count all."""

    def __init__(self) -> None:
        super().__init__()
        self._forgotten = 0

    @property
    def total(self) -> int:
        """Number of rows, including forgotten ones."""
        return self._forgotten + len(self)

    def at(self, row: int) -> Row:
        """Return row number ``row`` of all rows so far; it must not be forgotten."""
        return self[row - self._forgotten]

    def replace(self, row: int, value: Row) -> None:
        """Replace row number ``row`` of all rows so far; it must not be forgotten."""
        self[row - self._forgotten] = value

    def since(self, row: int) -> list[Row]:
        """Return the rows from number ``row`` on that are not forgotten; ``row`` counts all rows so far."""
        return self[max(0, row - self._forgotten) :]

    def forget(self, before: int) -> None:
        """Delete all rows before number ``before``; the numbers of later rows do not change."""
        del self[: max(0, before - self._forgotten)]
        self._forgotten = max(before, self._forgotten)


@dataclass(frozen=True, kw_only=True)
class SimulationLog:
    """The rows of the tables so far, in their order; callers may read them, and forget some.

    Every window has at least one participation, every participation exactly one outcome. A participation whose
    ``round`` has no record belongs to a round that was still open when the traffic ended.
    """

    windows: Rows[Window] = field(default_factory=Rows)  # coverage windows, in order of exit
    # in order of end; weight and loss are filled in when their round closes
    participations: Rows[ParticipationRecord] = field(default_factory=Rows)
    # between vehicles, in order of end; ``value`` is filled in when their round closes
    exchanges: Rows[ExchangeRecord] = field(default_factory=Rows)
    # of participations that have ended, in order of their end
    handovers: Rows[HandoverRecord] = field(default_factory=Rows)
    rounds: list[RoundRecord] = field(default_factory=list)  # closed rounds
    merges: list[MergeRecord] = field(default_factory=list)  # averages of several aggregators' models, in order of time


@dataclass(frozen=True, kw_only=True)
class RoundSummary:
    """A round at the instant it closes."""

    round: int  # its index
    open_s: float
    close_s: float
    closed_by: ClosedBy
    invited: int  # participations invited while it was open
    final: bool  # whether it is its aggregator's last
    aggregator: str = AGGREGATOR
    mixed: bool  # whether its model is averaged with those of other aggregators
    # training samples of the aggregated updates, known after ``close_round``; an update counts 1 if the task does not
    # report them
    samples: int = 0
    # returns the models that will still be trained or averaged; valid only during ``close_round``
    needed: Callable[[], Collection[ModelKey]] = field(default=tuple, compare=False)


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """Models of several aggregators that are averaged at one instant."""

    aggregator: str  # the name of the aggregator, or the cloud, that averages; ``round`` is the index of its round
    round: int
    time_s: float
    # in order, each new model and the weights, which sum to 1, of the models whose mean it is
    means: Sequence[tuple[ModelKey, Mapping[ModelKey, float]]]
    final: bool
    needed: tuple[ModelKey, ...] = ()  # models that will still be trained or averaged


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """What learning returns for a round; sequences follow the order of the participants."""

    weights: Sequence[float | None] = ()  # weight of each update in the aggregate; None if it was not aggregated
    losses: Sequence[float | None] = ()  # mean training loss of each participant; None if it was not trained
    rejected: Sequence[int] = ()  # positions of updates with non-finite values
    # the number that the learner reports of an exchange (column ``value``), by ids of sender and receiver
    exchanges: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # number that the selection policy asks for by its ``figure``, of each update; None if not reported, and empty if
    # none is
    figures: Sequence[float | None] = ()


class RoundHandler(Protocol):
    """Learning, as the simulation calls it."""

    def cost(self, silo: int) -> Cost:
        """Return payload and work of a participation by a vehicle with the data of ``silo``."""
        ...

    def close_round(self, summary: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        """Train the committed participants (perhaps none), in order of commit, and aggregate their updates."""
        ...

    def mix(self, mixing: Mixing) -> None:
        """Compute the models in ``mixing.means`` from other models; not called if there is only one aggregator."""
        ...
