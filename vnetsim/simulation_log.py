"""What a simulation leaves: one row for each participation and each round, and how rows are made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from vnetsim.blur import Camera
from vnetsim.coverage import Window
from vnetsim.exchange import Exchanged
from vnetsim.participation import Participation, Stay

Outcome = Literal[
    "committed",
    "left_download",
    "left_training",
    "left_upload",
    "left_exchange",
    "deadline",
    "stale",
    "not_selected",
    "rejected",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
ClosedBy = Literal["quorum", "deadline", "traffic_end"]


class ParticipationRecord(NamedTuple):
    """A row of the table ``participations``; ``vnetsim.tables`` gives units and meanings."""

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


class ExchangeRecord(NamedTuple):
    """A row of the table ``exchanges``; ``vnetsim.tables`` gives units and meanings."""

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


class RoundRecord(NamedTuple):
    """A row of the table ``rounds``; ``vnetsim.tables`` gives units and meanings."""

    round: int
    open_s: float
    close_s: float
    closed_by: ClosedBy
    invited: int
    committed: int
    rejected: int
    loss: float | None


@dataclass(frozen=True, kw_only=True)
class SimulationLog:
    """What has happened so far: rows of three tables, in their order. The lists grow; callers only read them.

    Every window has at least one participation, every participation exactly one outcome. A participation whose
    ``round`` has no record belongs to a round that was still open when the traffic ended.

    Args:
        windows: coverage windows in order of exit.
        participations: in order of end; those of a finished round carry their weight and loss.
        exchanges: between vehicles, in order of end; those of a finished round carry the learner's figure.
        rounds: finished rounds.
    """

    windows: list[Window] = field(default_factory=list)
    participations: list[ParticipationRecord] = field(default_factory=list)
    exchanges: list[ExchangeRecord] = field(default_factory=list)
    rounds: list[RoundRecord] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RoundSummary:
    """A round at the instant it closes.

    Args:
        round: its index.
        open_s: when it opened (s).
        close_s: now (s).
        closed_by: why it closes.
        invited: participations invited while it was open.
        final: whether no further round can follow.
    """

    round: int
    open_s: float
    close_s: float
    closed_by: ClosedBy
    invited: int
    final: bool


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """What learning made of a round; sequences follow the order of the participants.

    Args:
        weights: weight of each update in the aggregate, None where it was not aggregated.
        losses: mean training loss of each visit, None where it was not trained.
        rejected: positions of the updates with non-finite values.
        exchanges: the learner's figure for completed exchanges, by sender and receiver.
    """

    weights: Sequence[float | None] = ()
    losses: Sequence[float | None] = ()
    rejected: Sequence[int] = ()
    exchanges: Mapping[tuple[str, str], float] = field(default_factory=dict)


class Recorder:
    """Writes the log's participations and rounds.

    Args:
        log: receives the rows.
        camera: gives the blur level.
    """

    def __init__(self, log: SimulationLog, camera: Camera) -> None:
        self._log = log
        self._camera = camera

    def ended(self, participation: Participation, outcome: Outcome, round_index: int, end_s: float) -> int:
        """Record a participation that ended at ``end_s`` (s) while a round was open; return the row's index."""
        return self._append(participation.stay, participation, outcome, round_index, end_s)

    def uninvited(self, stay: Stay, round_index: int, end_s: float) -> None:
        """Record that a window ended at ``end_s`` (s) without an invitation."""
        self._append(stay, None, "not_selected", round_index, end_s)

    def exchanged(self, exchange: Exchanged, round_index: int) -> None:
        """Record an exchange between two vehicles that is complete or cut."""
        assert exchange.outcome is not None
        sender, receiver = exchange.sender.stay.vehicle, exchange.receiver.stay.vehicle
        self._log.exchanges.append(
            ExchangeRecord(
                exchange=len(self._log.exchanges),
                round=round_index,
                sender_id=sender.id,
                receiver_id=receiver.id,
                sender_silo=sender.binding.silo,
                receiver_silo=receiver.binding.silo,
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
            )
        )

    def closed(self, summary: RoundSummary, rows: Sequence[int], result: RoundResult) -> None:
        """Record a round that closed, and complete the rows of its committed participations and its exchanges."""
        exchanges = self._log.exchanges
        for row in range(len(exchanges) - 1, -1, -1):
            exchange = exchanges[row]
            if exchange.round != summary.round:
                break
            value = result.exchanges.get((exchange.sender_id, exchange.receiver_id))
            if value is not None and exchange.outcome == "completed" and math.isfinite(value):
                exchanges[row] = exchange._replace(value=value)
        records = self._log.participations
        rejected = frozenset(result.rejected)
        losses = []
        for position, (row, weight, loss) in enumerate(zip(rows, result.weights, result.losses, strict=True)):
            known = loss if loss is not None and math.isfinite(loss) else None
            if position in rejected:
                records[row] = records[row]._replace(outcome="rejected", loss=known)
                continue
            records[row] = records[row]._replace(weight=weight, loss=known)
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
            )
        )

    def _append(self, stay: Stay, used: Participation | None, outcome: Outcome, round_index: int, end_s: float) -> int:
        row = len(self._log.participations)
        binding = stay.vehicle.binding
        self._log.participations.append(
            ParticipationRecord(
                participation=row,
                round=round_index,
                base_round=used.base_round if used else round_index,
                vehicle_id=stay.vehicle.id,
                rsu_id=stay.rsu.id,
                silo=binding.silo,
                approach=binding.approach,
                enter_s=stay.enter_s,
                outcome=outcome,
                start_s=used.start_s if used else stay.enter_s,
                end_s=end_s,
                download_s=used.download_s if used else 0.0,
                train_s=used.train_s if used else 0.0,
                upload_s=used.upload_s if used else 0.0,
                wait_s=used.wait_s if used else 0.0,
                exchange_s=used.exchange_s if used else 0.0,
                download_bytes=used.download_bytes if used else 0.0,
                upload_bytes=used.upload_bytes if used else 0.0,
                exchange_bytes=used.exchange_bytes if used else 0.0,
                speed_mps=stay.speed_mps,
                level_px=self._camera.level_px(stay.speed_mps),
                weight=None,
                loss=None,
            )
        )
        return row
