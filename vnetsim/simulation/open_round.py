"""An aggregator's open round, and the outbox that reports to the event loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from vnetsim.experiment.camera import Camera
from vnetsim.learning import Participant, Peer
from vnetsim.simulation.log import RoundResult, RoundSummary
from vnetsim.simulation.participation import Participation
from vnetsim.simulation.vehicle import Vehicle
from vnetsim.simulation.world import World


@dataclass(kw_only=True)
class Outbox:
    """What aggregators report to the event loop, which empties it after every event; false while it is empty."""

    idle: list[Vehicle] = field(default_factory=list)  # participation has ended, or may be invited again
    closed: list[RoundSummary] = field(default_factory=list)  # rounds that have closed and are recorded
    mixed: bool = False  # whether models of several aggregators were averaged

    def __bool__(self) -> bool:
        return bool(self.idle or self.closed or self.mixed)

    def take_all(self) -> Outbox:
        """Return a new outbox with all reports, and empty this one."""
        contents = replace(self)
        self.idle, self.closed, self.mixed = [], [], False
        return contents


@dataclass(slots=True, kw_only=True)
class OpenRound:
    """The round that is open."""

    index: int  # from 0; -1 before the first
    open_s: float  # when it began (s); if it is held, when it was opened
    close_s: float = math.inf  # when it closes at the latest (s)
    invited: int = 0  # number of participations invited in it
    silos: set[int] = field(default_factory=set)  # silos that take part in it
    # the row number of each committed participation in the log, and its participant, in order of arrival
    committed: list[tuple[int, Participant]] = field(default_factory=list)
    held: bool = False  # whether it waits for the cloud's model: it invites nobody and does not close

    def accepted_updates(self, result: RoundResult) -> list[tuple[int, float | None]]:
        """Return (silo, ``figure``) of each update that was not rejected; a figure that is not reported is None."""
        figures = result.figures or [None] * len(self.committed)
        pairs = enumerate(zip(self.committed, figures, strict=True))
        return [(one.silo, figure) for place, ((_, one), figure) in pairs if place not in result.rejected]


def make_participant(participation: Participation, round_index: int, world: World) -> Participant:
    """Return what the learner receives of a finished participation, whose update arrived in round ``round_index``."""
    camera = world.experiment.camera
    window, (seconds, _) = participation.window, participation.stage_totals()
    last, work_share = participation.segments[-1], participation.work.planned_share
    base, handover = participation.training_base()
    return Participant(
        round=round_index,
        base=base,
        rsu_id=window.rsu.id,
        start_s=participation.start_s,
        peers=tuple(Peer(**_peer_fields(peer, camera)) for peer in participation.peers),
        **_peer_fields(participation, camera),
        download_s=seconds["download"],
        train_s=participation.work.trained_s,
        upload_s=seconds["upload"],
        stay_s=last.begin_s + last.seconds - window.enter_s,
        work_share=1.0 if work_share is None else work_share,
        handover=handover,
        chance=window.chance,
        passed=world.share_passed(base.version, participation.start_s),
    )


def _peer_fields(participation: Participation, camera: Camera) -> dict[str, Any]:
    """Return by name the fields that ``Peer`` and ``Participant`` share, for a participation's vehicle."""
    vehicle, speed_mps = participation.window.vehicle, participation.speed_mps
    return {
        "vehicle_id": vehicle.id,
        "silo": vehicle.silo,
        "earlier": vehicle.earlier,
        "speed_mps": speed_mps,
        "level_px": camera.level_px(speed_mps),
        "neighbours": participation.neighbours,
    }
