"""From participations, which are of the event loop, to participants, which are told to the learner."""

from __future__ import annotations

from vnetsim.blur import Camera
from vnetsim.learning import Participant, Peer
from vnetsim.simulation.participation import Participation


def participant_of(participation: Participation, round_index: int, camera: Camera) -> Participant:
    """Return what the learner is told of a participation that committed.

    Args:
        participation: complete.
        round_index: the round for which it counts.
        camera: gives the blur level.
    """
    window = participation.window
    return Participant(
        round=round_index,
        base_round=participation.base_round,
        vehicle_id=window.vehicle.id,
        rsu_id=window.rsu.id,
        silo=window.vehicle.binding.silo,
        speed_mps=window.speed_mps,
        level_px=camera.level_px(window.speed_mps),
        peers=tuple(_peer(peer, camera) for peer in participation.peers),
        neighbours=participation.neighbours,
        download_s=participation.download_s,
        train_s=participation.train_s,
        upload_s=participation.upload_s,
        work_share=1.0 if participation.work_share is None else participation.work_share,
    )


def _peer(participation: Participation, camera: Camera) -> Peer:
    window = participation.window
    return Peer(
        vehicle_id=window.vehicle.id,
        silo=window.vehicle.binding.silo,
        speed_mps=window.speed_mps,
        level_px=camera.level_px(window.speed_mps),
        neighbours=participation.neighbours,
    )
