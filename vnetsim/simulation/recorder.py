"""Writes the rows of a simulation's log: windows, participations, exchanges, handovers and rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from vnetsim.experiment.camera import Camera
from vnetsim.learning import ModelKey
from vnetsim.simulation.compute import energy_j
from vnetsim.simulation.exchange import DirectedExchange
from vnetsim.simulation.log import LEFT, RoundResult, RoundSummary, SimulationLog
from vnetsim.simulation.participation import Participation, Segment
from vnetsim.simulation.vehicle import OpenWindow
from vnetsim.storage.rows import ExchangeRecord, HandoverRecord, Outcome, ParticipationRecord, RoundRecord, Stage

_NOTHING: tuple[Mapping[Stage, float], ...] = dict.fromkeys(LEFT, 0.0), dict.fromkeys(LEFT, 0.0)


@dataclass
class Recorder:
    """Writes the rows of the log; ``camera`` gives the blur levels."""

    log: SimulationLog
    camera: Camera

    def count_closed_since(self, aggregator: str, time_s: float) -> int:
        """Return how many rounds of an aggregator closed after a time (s)."""
        late = takewhile(lambda closed: closed.close_s > time_s, reversed(self.log.rounds))
        return sum(closed.aggregator == aggregator for closed in late)

    def record_exchange(self, exchange: DirectedExchange, model: ModelKey) -> None:
        """Record an exchange that has ended; ``model`` is the one with which its round began."""
        assert exchange.outcome is not None
        sender, receiver = exchange.sender.window.vehicle, exchange.receiver.window.vehicle
        self.log.exchanges.append(
            ExchangeRecord(
                exchange=self.log.exchanges.total,
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

    def record_round(self, summary: RoundSummary, rows: Sequence[int], result: RoundResult) -> None:
        """Record a round that closed, and fill in results in the rows of its participations, exchanges and handovers.

        Rejected updates get the outcome ``rejected``. Losses and values that are not finite become None. The round's
        loss is the mean over accepted updates with a loss, None without any. ``rows`` has the row number of each
        committed participation, in the order of ``result``.
        """
        exchanges = self.log.exchanges
        for row in reversed(range(len(exchanges))):
            exchange = exchanges[row]
            if exchange.aggregator != summary.aggregator:
                continue
            if exchange.round != summary.round:
                break
            value = result.exchanges.get((exchange.sender_id, exchange.receiver_id))
            if value is not None and exchange.outcome == "completed" and math.isfinite(value):
                exchanges[row] = exchange._replace(value=value)
        records, handovers = self.log.participations, self.log.handovers
        rejected_rows = {rows[position] for position in result.rejected}
        for place, handed in enumerate(handovers):
            if handed.participation in rejected_rows:
                handovers[place] = handed._replace(fate="rejected")
        losses = []
        for row, weight, loss in zip(rows, result.weights, result.losses, strict=True):
            known = loss if loss is not None and math.isfinite(loss) else None
            if row in rejected_rows:
                records.replace(row, records.at(row)._replace(outcome="rejected", loss=known))
                continue
            records.replace(row, records.at(row)._replace(weight=weight, loss=known))
            if known is not None:
                losses.append(known)
        self.log.rounds.append(
            RoundRecord(
                round=summary.round,
                open_s=summary.open_s,
                close_s=summary.close_s,
                closed_by=summary.closed_by,
                invited=summary.invited,
                committed=len(rows) - len(rejected_rows),
                rejected=len(rejected_rows),
                loss=math.fsum(losses) / len(losses) if losses else None,
                aggregator=summary.aggregator,
            )
        )

    def record_participation(
        self, window: OpenWindow, participation: Participation | None, outcome: Outcome, model: ModelKey, end_s: float
    ) -> int:
        """Record a participation that ended at ``end_s`` (s), and its handovers; return its row number.

        ``participation`` is None if none began in the window. ``model`` is the one with which the open round began.
        """
        row, vehicle = self.log.participations.total, window.vehicle
        base, segments = (participation.base, participation.segments) if participation else (model, [])
        seconds, moved_bytes = participation.stage_totals() if participation else _NOTHING
        speed_mps = participation.speed_mps if participation else window.speed_mps
        joules: dict[str, float] = {}
        if participation and vehicle.computer:
            waiting = {} if participation.waiting_needs_energy else {"waiting": 0.0}
            joules = energy_j({**_NOTHING[0], **seconds, **waiting}, vehicle.computer.watts, participation.worked_s)
        self.log.participations.append(
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
                speed_mps=speed_mps,
                level_px=self.camera.level_px(speed_mps),
                weight=None,
                loss=None,
                work_share=participation.work.planned_share if participation else None,
                outside_s=seconds["outside"],
                upload_rsu_id=next((part.rsu_id for part in reversed(segments) if part.stage == "upload"), None),
                remaining_straight_s=participation.invitation.predicted.straight_s if participation else None,
                remaining_history_s=participation.invitation.predicted.history_s if participation else None,
                aggregator=model.aggregator,
                base_aggregator=base.aggregator,
                backhaul_s=seconds["backhaul"],
                **joules,
            )
        )
        handovers = participation.handovers if participation else []
        links = _link_bytes(segments) if handovers else []
        for place, handed in enumerate(handovers):
            # a handover that ended the participation interrupted its last segment
            moved = segments[-1].moved_bytes if handed.moved_bytes is None else handed.moved_bytes
            self.log.handovers.append(
                HandoverRecord(
                    handover=self.log.handovers.total,
                    participation=row,
                    round=model.version,
                    vehicle_id=vehicle.id,
                    fate=outcome,
                    aggregator=model.aggregator,
                    link_bytes=links[place],
                    backhaul_s=seconds["backhaul"] if handed is handovers[-1] else 0.0,
                    **handed._replace(moved_bytes=moved)._asdict(),
                )
            )
        return row


def _link_bytes(segments: Iterable[Segment]) -> list[float]:
    """Return the bytes over the link of each RSU that served, in order of service; without exchanges of vehicles."""
    runs = groupby((part for part in segments if part.rsu_id), key=lambda part: part.rsu_id)
    return [sum(part.moved_bytes for part in run if part.stage != "exchange") for _, run in runs]
