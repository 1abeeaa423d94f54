"""What a simulation leaves: one row for each participation and each round, and how rows are made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, NamedTuple, Protocol, TypeVar

from vnetsim.coverage.windows import Window, cut_window
from vnetsim.experiment.camera import Camera
from vnetsim.learning import AGGREGATOR, Cost, ModelKey, Participant
from vnetsim.simulation.compute import Energy, energy
from vnetsim.simulation.exchange import Exchanged
from vnetsim.simulation.participation import Participation
from vnetsim.simulation.stages import HandoverRecord, Outcome, Stage
from vnetsim.simulation.vehicle import OpenWindow

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
_NOTHING: tuple[Mapping[Stage, float], ...] = dict.fromkeys(LEFT, 0.0), dict.fromkeys(LEFT, 0.0)
Row = TypeVar("Row")
ClosedBy = Literal["quorum", "everyone", "deadline", "traffic_end"]


class ParticipationRecord(NamedTuple):
    """A row of the table ``participations``; ``vnetsim.storage.tables`` gives units and meanings."""

    participation: int
    round: int
    base_round: int
    vehicle_id: str
    rsu_id: str
    silo: int
    approach: int
    enter_s: float
    outcome: Outcome
    start_s: float
    end_s: float
    download_s: float
    train_s: float
    upload_s: float
    wait_s: float
    exchange_s: float
    download_bytes: float
    upload_bytes: float
    exchange_bytes: float
    speed_mps: float
    level_px: float
    weight: float | None
    loss: float | None
    work_share: float | None
    outside_s: float
    upload_rsu_id: str | None
    remaining_straight_s: float | None
    remaining_history_s: float | None
    download_j: float | None = None
    train_j: float | None = None
    upload_j: float | None = None
    wait_j: float | None = None
    exchange_j: float | None = None
    aggregator: str = AGGREGATOR
    base_aggregator: str = AGGREGATOR
    backhaul_s: float = 0.0


class ExchangeRecord(NamedTuple):
    """A row of the table ``exchanges``; ``vnetsim.storage.tables`` gives units and meanings."""

    exchange: int
    round: int
    sender_id: str
    receiver_id: str
    sender_silo: int
    receiver_silo: int
    via: Literal["sidelink", "relay", ""]
    outcome: Literal["completed", "cut"]
    start_s: float
    end_s: float
    contact_s: float
    bytes: float
    sender_x_m: float
    sender_y_m: float
    receiver_x_m: float
    receiver_y_m: float
    value: float | None
    aggregator: str = AGGREGATOR


class RoundRecord(NamedTuple):
    """A row of the table ``rounds``; ``vnetsim.storage.tables`` gives units and meanings."""

    round: int
    open_s: float
    close_s: float
    closed_by: ClosedBy
    invited: int
    committed: int
    rejected: int
    loss: float | None
    aggregator: str = AGGREGATOR


class MergeRecord(NamedTuple):
    """A row of the table ``merges``; ``vnetsim.storage.tables`` gives units and meanings."""

    time_s: float
    aggregator: str
    version: int
    source: str
    source_version: int
    weight: float
    closed_by: str


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
        needed: models that somebody will still train or average, however old.
    """

    round: int
    open_s: float
    close_s: float
    closed_by: ClosedBy
    invited: int
    final: bool
    aggregator: str = AGGREGATOR
    mixed: bool = False
    samples: int = 0
    needed: tuple[ModelKey, ...] = ()


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


class Recorder:
    """Writes the log's participations and rounds.

    Args:
        log: receives the rows.
        camera: gives the blur level.
    """

    def __init__(self, log: SimulationLog, camera: Camera) -> None:
        self._log = log
        self._camera = camera

    @property
    def participations(self) -> Rows[ParticipationRecord]:
        """The rows of participations so far."""
        return self._log.participations

    def closed_since(self, aggregator: str, time_s: float) -> int:
        """Return how many rounds of an aggregator have closed after a time (s)."""
        late = takewhile(lambda closed: closed.close_s > time_s, reversed(self._log.rounds))
        return sum(closed.aggregator == aggregator for closed in late)

    def left(self, window: Window) -> None:
        """Record a window that closed."""
        self._log.windows.append(window)

    def cut_off(self, open_windows: Iterable[OpenWindow], end_s: float) -> None:
        """Record windows that the end of the run, at ``end_s`` (s), leaves open, as far as their paths are known."""
        windows = [cut_window(window.path, end_s) for window in open_windows]
        self._log.windows.extend(sorted(windows, key=lambda cut: cut.exit_s))

    def exchanged(self, exchange: Exchanged, model: ModelKey) -> None:
        """Record an exchange between two vehicles, complete or cut; ``model`` is that with which its round began."""
        assert exchange.outcome is not None
        sender, receiver = exchange.sender.window.vehicle, exchange.receiver.window.vehicle
        self._log.exchanges.append(
            ExchangeRecord(
                exchange=self._log.exchanges.total,
                round=model.version,
                sender_id=sender.id,
                receiver_id=receiver.id,
                sender_silo=sender.silo,
                receiver_silo=receiver.silo,
                via=exchange.via,
                outcome=exchange.outcome,
                start_s=exchange.start_s,
                end_s=exchange.end_s,
                contact_s=exchange.contact_s,
                bytes=exchange.moved_bytes,
                sender_x_m=exchange.sender_m[0],
                sender_y_m=exchange.sender_m[1],
                receiver_x_m=exchange.receiver_m[0],
                receiver_y_m=exchange.receiver_m[1],
                value=None,
                aggregator=model.aggregator,
            )
        )

    def closed(self, summary: RoundSummary, rows: Sequence[int], result: RoundResult) -> None:
        """Record a round that closed, and complete the rows of its committed participations and its exchanges."""
        exchanges = self._log.exchanges
        for row in range(len(exchanges) - 1, -1, -1):
            exchange = exchanges[row]
            if exchange.aggregator != summary.aggregator:
                continue
            if exchange.round != summary.round:
                break
            value = result.exchanges.get((exchange.sender_id, exchange.receiver_id))
            if value is not None and exchange.outcome == "completed" and math.isfinite(value):
                exchanges[row] = exchange._replace(value=value)
        records = self._log.participations
        rejected = frozenset(result.rejected)
        handovers, refused = self._log.handovers, {rows[position] for position in rejected}
        for place, handed in enumerate(handovers):
            if handed.participation in refused:
                handovers[place] = handed._replace(fate="rejected")
        losses = []
        for position, (row, weight, loss) in enumerate(zip(rows, result.weights, result.losses, strict=True)):
            known = loss if loss is not None and math.isfinite(loss) else None
            if position in rejected:
                records.replace(row, records.at(row)._replace(outcome="rejected", loss=known))
                continue
            records.replace(row, records.at(row)._replace(weight=weight, loss=known))
            if known is not None:
                losses.append(known)
        self._log.rounds.append(
            RoundRecord(
                round=summary.round,
                open_s=summary.open_s,
                close_s=summary.close_s,
                closed_by=summary.closed_by,
                invited=summary.invited,
                committed=len(rows) - len(rejected),
                rejected=len(rejected),
                loss=math.fsum(losses) / len(losses) if losses else None,
                aggregator=summary.aggregator,
            )
        )

    def ended(
        self, window: OpenWindow, used: Participation | None, outcome: Outcome, model: ModelKey, end_s: float
    ) -> int:
        """Record how it ended at a time (s), while a round was open, and return the row's index.

        Args:
            window: where it was invited, or was not.
            used: the participation; None for a window that ended without an invitation.
            outcome: how it ended.
            model: with which the aggregator's open round began.
            end_s: the time (s).
        """
        row = self._log.participations.total
        vehicle = window.vehicle
        base = used.origin.base if used else model
        segments = used.segments if used else []
        seconds, moved_bytes = used.spent() if used else _NOTHING
        joules = energy(seconds, vehicle.computer.watts, used.worked_s) if used and vehicle.computer else Energy()
        self._log.participations.append(
            ParticipationRecord(
                participation=row,
                round=model.version,
                base_round=base.version,
                vehicle_id=vehicle.id,
                rsu_id=window.rsu.id,
                silo=vehicle.silo,
                approach=vehicle.approach,
                enter_s=window.enter_s,
                outcome=outcome,
                start_s=segments[0].begin_s if segments else window.enter_s,
                end_s=end_s,
                download_s=seconds["download"],
                train_s=seconds["training"],
                upload_s=seconds["upload"],
                wait_s=seconds["waiting"],
                exchange_s=seconds["exchange"],
                download_bytes=moved_bytes["download"],
                upload_bytes=moved_bytes["upload"],
                exchange_bytes=moved_bytes["exchange"],
                speed_mps=window.speed_mps,
                level_px=self._camera.level_px(window.speed_mps),
                weight=None,
                loss=None,
                work_share=used.work_share if used else None,
                outside_s=seconds["outside"],
                upload_rsu_id=next((part.rsu_id for part in reversed(segments) if part.stage == "upload"), None),
                remaining_straight_s=used.invitation.predicted.straight_s if used else None,
                remaining_history_s=used.invitation.predicted.history_s if used else None,
                aggregator=model.aggregator,
                base_aggregator=base.aggregator,
                backhaul_s=seconds["backhaul"],
                **joules._asdict(),
            )
        )
        for handed in used.origin.handovers if used else ():
            # what a handover ended is the last that the vehicle did
            moved = segments[-1].moved_bytes if handed.moved_bytes is None else handed.moved_bytes
            wires_s = seconds["backhaul"] if used and handed is used.origin.handovers[-1] else 0.0
            self._log.handovers.append(
                HandoverRecord(
                    handover=self._log.handovers.total,
                    participation=row,
                    round=model.version,
                    vehicle_id=vehicle.id,
                    fate=outcome,
                    aggregator=model.aggregator,
                    **handed._replace(moved_bytes=moved, backhaul_s=wires_s)._asdict(),
                )
            )
        return row
