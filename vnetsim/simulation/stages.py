"""What a participation consists of: where it is covered, what it did in each stage, and its training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vnetsim.radio.channel import Channel
from vnetsim.simulation.backhaul import Backhaul
from vnetsim.simulation.links import Link
from vnetsim.simulation.vehicle import OpenWindow
from vnetsim.storage.rows import Stage


class HandoverStep(NamedTuple):
    """A handover of a participation, which goes on or ends; in the latter case the bytes are not known yet."""

    time_s: float
    from_rsu_id: str
    to_rsu_id: str
    stage: Stage
    moved_bytes: float | None
    gap_s: float
    policy: str


class Segment(NamedTuple):
    """A piece of a participation that was spent in one stage.

    Args:
        stage: what it was doing.
        rsu_id: the RSU that covered it when the segment began; empty outside coverage.
        begin_s: when it began (s).
        seconds: how long it took, or took until it was cut (s).
        moved_bytes: received in a download, sent in an upload, or sent to other vehicles in an exchange (B); also what
            arrived of a transfer that was cut.
    """

    stage: Stage
    rsu_id: str
    begin_s: float
    seconds: float
    moved_bytes: float


class Coverage(NamedTuple):
    """Where a vehicle takes part: the window it is in, the RSU's airtime, and the rates between the two.

    Args:
        from_s: from when on it may send and receive there (s); until then a handover interrupts it.
    """

    window: OpenWindow
    channel: Channel
    backhaul: Backhaul
    link: Link
    from_s: float


@dataclass(slots=True, eq=False)
class Work:
    """Training on board, with breaks: of one vehicle, for one aggregator or several.

    Args:
        total_s: how long all of it takes (s).
        done: whether several participations need it no more.
    """

    total_s: float = 0.0
    done: bool = False
    _done_s: float = 0.0
    _begin_s: float = 0.0

    @property
    def share(self) -> float:
        """The share of it that is done, in [0, 1]; 1 where there is nothing to do."""
        return self._done_s / self.total_s if self.total_s > 0 else 1.0

    def start(self, now_s: float) -> float:
        """Go on with it now, and return how long the rest takes (s)."""
        self._begin_s = now_s
        return self.total_s - self._done_s

    def stop(self, now_s: float) -> None:
        """Interrupt it now (s)."""
        self._done_s = min(self.total_s, self._done_s + now_s - self._begin_s)
