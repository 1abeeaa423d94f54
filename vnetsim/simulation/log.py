"""What a simulation leaves: one row for each participation and each round, and how rows are made."""

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
"""The outcome of a participation that ends because the vehicle left coverage, by what it was doing."""
Row = TypeVar("Row")


class Rows(list[Row]):
    """Rows of a growing table; those that were written elsewhere may be forgotten, so that memory does not grow.

    Indices of the list are those of the rows that are left; ``at``, ``replace`` and ``since`` count all.
    """

    def __init__(self) -> None:
        super().__init__()
        self._forgotten = 0

    @property
    def total(self) -> int:
        """How many rows there were."""
        return self._forgotten + len(self)

    def at(self, row: int) -> Row:
        """Return a row that was not forgotten."""
        return self[row - self._forgotten]

    def replace(self, row: int, value: Row) -> None:
        """Put another value in the place of a row that was not forgotten."""
        self[row - self._forgotten] = value

    def since(self, row: int) -> list[Row]:
        """Return the rows from ``row`` on that were not forgotten."""
        return self[max(0, row - self._forgotten) :]

    def forget(self, before: int) -> None:
        """Drop all rows before ``before``."""
        del self[: max(0, before - self._forgotten)]
        self._forgotten = max(before, self._forgotten)


@dataclass(frozen=True, kw_only=True)
class SimulationLog:
    """What has happened so far: rows of the tables, in their order. The lists grow; callers read them, and may forget.

    Every window has at least one participation, every participation exactly one outcome. A participation whose
    ``round`` has no record belongs to a round that was still open when the traffic ended.

    Args:
        windows: coverage windows in order of exit.
        participations: in order of end; those of a finished round carry their weight and loss.
        exchanges: between vehicles, in order of end; those of a finished round carry the learner's figure.
        handovers: of participations that ended, in order of their end.
        rounds: finished rounds.
        merges: models that were averaged, or sent back, in order of time.
    """

    windows: Rows[Window] = field(default_factory=Rows)
    participations: Rows[ParticipationRecord] = field(default_factory=Rows)
    exchanges: Rows[ExchangeRecord] = field(default_factory=Rows)
    handovers: Rows[HandoverRecord] = field(default_factory=Rows)
    rounds: list[RoundRecord] = field(default_factory=list)
    merges: list[MergeRecord] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RoundSummary:
    """A round at the instant it closes.

    Args:
        round: its index.
        open_s: when it opened (s).
        close_s: now (s).
        closed_by: why it closes.
        invited: participations invited while it was open.
        final: whether none of its aggregator can follow.
        aggregator: whose it is.
        mixed: whether the model that it makes is averaged with others'.
        samples: training samples of the updates that it aggregates, once they were looked at; an update counts one
            where the task does not tell.
        needed: returns the models that somebody will still train or average, however old; asked now or never.
    """

    round: int
    open_s: float
    close_s: float
    closed_by: ClosedBy
    invited: int
    final: bool
    aggregator: str = AGGREGATOR
    mixed: bool
    samples: int = 0
    needed: Callable[[], Collection[ModelKey]] = field(default=tuple, compare=False)


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """Models of several aggregators that are averaged at one instant.

    Args:
        aggregator: who averages.
        round: index of its round.
        time_s: now (s).
        means: in order, the model that is made, and those whose weighted mean it is; their weights sum to 1.
        final: whether none of its rounds can follow.
        needed: models that somebody will still train or average, however old.
    """

    aggregator: str
    round: int
    time_s: float
    means: Sequence[tuple[ModelKey, Mapping[ModelKey, float]]]
    final: bool
    needed: tuple[ModelKey, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """What learning made of a round; sequences follow the order of the participants.

    Args:
        weights: weight of each update in the aggregate, None where it was not aggregated.
        losses: mean training loss of each participant, None where it was not trained.
        rejected: positions of the updates with non-finite values.
        exchanges: the learner's figure for completed exchanges, by sender and receiver.
        figures: what the selection policy asked of each update, None where it is not told; empty for all None.
    """

    weights: Sequence[float | None] = ()
    losses: Sequence[float | None] = ()
    rejected: Sequence[int] = ()
    exchanges: Mapping[tuple[str, str], float] = field(default_factory=dict)
    figures: Sequence[float | None] = ()


class RoundHandler(Protocol):
    """Learning as the simulation sees it."""

    def cost(self, silo: int) -> Cost:
        """Return payload and work of a participation by a vehicle that holds ``silo``."""
        ...

    def close_round(self, summary: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        """Train the committed participants (perhaps none), in order of commit, and aggregate them."""
        ...

    def mix(self, mixing: Mixing) -> None:
        """Average models of several aggregators; not called where there is one."""
        ...
