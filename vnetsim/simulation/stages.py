"""Parts of a participation: where it is served, its finished stages, its handovers and its training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vnetsim.radio.channel import Channel
from vnetsim.simulation.backhaul import Backhaul
from vnetsim.simulation.links import Link
from vnetsim.simulation.vehicle import OpenWindow
from vnetsim.storage.rows import Stage


class HandoverStep(NamedTuple):
    """A handover of a participation."""

    time_s: float  # when ``from_rsu_id`` ended to serve the vehicle (s)
    from_rsu_id: str
    to_rsu_id: str
    stage: Stage  # what the participation was doing before
    moved_bytes: float | None  # what the interrupted stage had moved (B); None if the handover ends the participation
    gap_s: float  # how long no RSU served the vehicle (s)
    policy: str  # the ``handover.policy`` that was applied: ``forward`` where another one could not be


class Segment(NamedTuple):
    """A finished or cut stage of a participation."""

    stage: Stage
    rsu_id: str  # the RSU that served it when the segment began; empty outside coverage
    begin_s: float
    seconds: float
    # received in a download, sent in an upload, or sent to other vehicles in an exchange (B); of a cut transfer, what
    # arrived
    moved_bytes: float


class Coverage(NamedTuple):
    """Where a vehicle is served: its window, the RSU's channel and backhaul, and the radio link."""

    window: OpenWindow
    channel: Channel
    backhaul: Backhaul
    link: Link
    from_s: float  # when it may begin to send and receive there (s), after the interruption of a handover


@dataclass(slots=True, eq=False)
class Work:
    """A vehicle's training on board, which can be interrupted; several participations may share it."""

    planned_share: float | None = None  # share of the whole training to be done; None before it begins
    total_s: float = 0.0  # how long that takes (s)
    trained_s: float = 0.0  # how long the vehicle has trained (s), without a stretch of training under way
    _done_s: float = 0.0
    _begin_s: float = 0.0

    @property
    def share(self) -> float:
        """Share that is done, in [0, 1]; 1 if there is nothing to do."""
        return self._done_s / self.total_s if self.total_s > 0 else 1.0

    def start(self, now_s: float) -> float:
        """Continue the training now (s), and return how long the rest takes (s)."""
        self._begin_s = now_s
        return self.total_s - self._done_s

    def stop(self, now_s: float) -> None:
        """Interrupt the training now (s); only after ``start``."""
        self._done_s = min(self.total_s, self._done_s + now_s - self._begin_s)
