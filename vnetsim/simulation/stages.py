"""What a participation is at: a transfer that may move from one RSU to the next, and training with breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import simpy

from vnetsim.learning import ModelKey
from vnetsim.radio.channel import Channel, Transfer
from vnetsim.simulation.backhaul import Backhaul
from vnetsim.simulation.links import Link
from vnetsim.simulation.vehicle import OpenWindow
from vnetsim.storage.rows import Stage


class Handed(NamedTuple):
    """A handover of a participation, which goes on or ends; in the latter case the bytes are not known yet."""

    time_s: float
    from_rsu_id: str
    to_rsu_id: str
    stage: Stage
    moved_bytes: float | None
    gap_s: float
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
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
class Delivery:
    """A download or upload, over one RSU after the other."""

    env: simpy.Environment
    _waits: simpy.Timeout | None = None
    _channel: Channel | None = None
    _transfer: Transfer | None = None
    _arrived: float = 0.0
    _start: int = 0  # counts, so that a model that reaches the RSU later finds nobody

    def start(self, size_bytes: float, coverage: Coverage, done: Callable[[], None], model: ModelKey | None) -> None:
        """Send what has not arrived before, as soon as the vehicle may, and call ``done`` with the last byte.

        A ``model`` is downloaded, once the RSU has it; without one it is an upload.
        """
        link, start = coverage.link, self._start
        rate_bps = link.uplink_bps if model is None else link.downlink_bps

        def send() -> None:
            if self._start == start:
                self._channel, missing_bytes = coverage.channel, size_bytes - self._arrived
                self._transfer = coverage.channel.send(missing_bytes, rate_bps, done, update_s=link.update_s)

        def begin(_: object = None) -> None:
            self._waits = None
            if model is None:
                send()
            else:
                coverage.backhaul.fetch(coverage.window.rsu.id, model, size_bytes, send)

        if coverage.from_s > self.env.now:
            self._waits = self.env.timeout(coverage.from_s - self.env.now)
            self._waits.callbacks.append(begin)
        else:
            begin()

    def stop(self, *, keep: bool) -> float:
        """Stop sending, if it does, and return what has arrived since ``start`` (B), which counts on with ``keep``."""
        moved_bytes = 0.0
        if self._waits is not None:
            self._waits.callbacks.clear()
        elif self._transfer is not None:
            assert self._channel is not None
            moved_bytes = self._channel.abort(self._transfer)
        self._waits = self._transfer = None
        self._start += 1
        self._arrived = self._arrived + moved_bytes if keep else 0.0
        return moved_bytes


@dataclass(slots=True, eq=False)
class Work:
    """Training on board, which may be interrupted; ``total_s`` is how long all of it takes (s)."""

    env: simpy.Environment
    total_s: float = field(init=False)
    _done_s: float = 0.0
    _began_s: float = 0.0
    _timer: simpy.Timeout | None = None

    @property
    def share(self) -> float:
        """The share of it that is done, in [0, 1]; nothing of no training is all."""
        return self._done_s / self.total_s if self.total_s > 0 else 1.0

    def go_on(self, done: Callable[[object], None]) -> None:
        """Do the rest, then call ``done``."""
        self._began_s = self.env.now
        self._timer = self.env.timeout(self.total_s - self._done_s)
        self._timer.callbacks.append(done)

    def stop(self) -> None:
        """Stop here, if it is under way."""
        timer, self._timer = self._timer, None
        if timer is not None and not timer.processed:
            timer.callbacks.clear()  # it stays in SimPy's queue, but keeps nothing alive
            self._done_s = min(self.total_s, self._done_s + self.env.now - self._began_s)
