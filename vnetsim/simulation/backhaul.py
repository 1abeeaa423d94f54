"""The wires of the RSUs: how long models and updates take between RSUs and what stands behind them, and their volume.

Each direction of an RSU's wire is a channel of its own, shared equally by all that moves at a time like the radio's
(``vnetsim.radio.channel``), then comes the latency. Between two RSUs the way is along both wires. A wire without
latency and of infinite rate takes no time at all, not even a turn of the event loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import simpy

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import BackhaulSettings, Experiment
from vnetsim.learning import AGGREGATOR, ModelKey
from vnetsim.radio.channel import Channel

Done = Callable[[], None]


def refuse_slow_wires(experiment: Experiment, lasts_s: float, model_bytes: int) -> None:
    """Refuse a hierarchy whose models need longer to the cloud than the traffic lasts.

    Raises:
        InputError: naming both times.
    """
    wire = experiment.backhaul.wire
    least_s = wire.latency_s + wire.cloud_latency_s + 8 * model_bytes / wire.up_bps
    if experiment.topology.kind == "hierarchical" and least_s >= lasts_s:
        raise InputError(
            f"backhaul: a model takes at least {least_s:g} s to the cloud, and the traffic lasts {lasts_s:g} s: no "
            "round of the cloud would close. Take a faster preset, or a smaller latency_s or cloud_latency_s."
        )


@dataclass(kw_only=True)
class RsuWire:
    """One RSU's wire.

    Args:
        down: its channel towards the RSU.
        up: that away from it.
        down_bytes: what was sent to the RSU so far, also what has not arrived yet (B).
        up_bytes: what was sent from it, likewise.
        down_messages: number of models and updates sent to it.
        up_messages: from it.
    """

    down: Channel
    up: Channel
    down_bytes: float = 0.0
    up_bytes: float = 0.0
    down_messages: int = 0
    up_messages: int = 0


@dataclass(slots=True, kw_only=True)
class _Queue:
    """One model crosses a wire between two RSUs; of those that came after it only the newest waits."""

    busy: bool = False
    waiting: tuple[Done, Done] | None = None

    def join(self, start: Done, on_superseded: Done) -> None:
        """Start now, or wait in place of the one that waits."""
        if not self.busy:
            self.busy = True
            start()
            return
        if self.waiting is not None:
            self.waiting[1]()
        self.waiting = start, on_superseded

    def leave(self) -> None:
        """Start the one that waits."""
        waiting, self.waiting = self.waiting, None
        self.busy = waiting is not None
        if waiting is not None:
            waiting[0]()


class Backhaul:
    """Moves models and updates between RSUs, the aggregator over all of them and the cloud.

    Args:
        max_staleness: an RSU keeps so many models older than the newest of an aggregator that it was sent.

    Attributes:
        wires: by the RSU's id.
    """

    def __init__(
        self, env: simpy.Environment, settings: BackhaulSettings, rsus: Sequence[Rsu], max_staleness: int
    ) -> None:
        self._env = env
        self._wire = settings.wire
        self.wires = {rsu.id: RsuWire(down=Channel(env), up=Channel(env)) for rsu in rsus}
        self._max_staleness = max_staleness
        # of an RSU's copies by version: who waits for it; None once it is there
        self._copies: dict[tuple[str, str], dict[int, list[Done] | None]] = defaultdict(dict)
        self._queues: dict[tuple[str | None, str | None, str], _Queue] = defaultdict(_Queue)

    def fetch(self, rsu_id: str, model: ModelKey, size_bytes: float, on_done: Done) -> None:
        """Have a model at an RSU, and say so: at once where it is there, else when it has arrived, once for all."""
        if model.aggregator == rsu_id:
            on_done()
            return
        copies = self._copies[rsu_id, model.aggregator]
        waiting = copies.setdefault(model.version, [])
        if waiting is None:
            on_done()
            return
        waiting.append(on_done)
        if len(waiting) == 1:
            arrived = partial(self._fetched, copies, model.version)
            self.send(size_bytes, self._home(model.aggregator), rsu_id, arrived)

    def deliver(self, rsu_id: str, aggregator: str, size_bytes: float, on_done: Done) -> None:
        """Bring an update that an RSU received to an aggregator, and say so: at once where that is at this RSU."""
        if aggregator == rsu_id:
            on_done()
        else:
            self.send(size_bytes, rsu_id, self._home(aggregator), on_done)

    def send(
        self,
        size_bytes: float,
        source: str | None,
        target: str | None,
        on_done: Done,
        on_superseded: Done | None = None,
    ) -> None:
        """Send so much (B) from an RSU to another, or to or from what stands behind all of them, which is None.

        With ``on_superseded`` it is one of a series between two RSUs of which only the newest is wanted: on each wire
        it waits until the one before has crossed, and is dropped where a newer one comes meanwhile. What has begun to
        cross does so: were it broken off for each newer one, none would arrive where they come faster than they cross.
        """
        latency_s = 0.0 if source and target else self._wire.cloud_latency_s
        latency_s += self._wire.latency_s * ((source is not None) + (target is not None))

        def arrive() -> None:
            if target is None:
                on_done()
            else:
                self._in_turn((source, target, "down"), partial(self._down, target, size_bytes), on_done, on_superseded)

        def across() -> None:
            if latency_s > 0:
                self._env.timeout(latency_s).callbacks.append(lambda _: arrive())
            else:
                arrive()

        if source is None:
            across()
        else:
            self._in_turn((source, target, "up"), partial(self._up, source, size_bytes), across, on_superseded)

    def _in_turn(
        self,
        key: tuple[str | None, str | None, str],
        start: Callable[[Done], None],
        then: Done,
        on_superseded: Done | None,
    ) -> None:
        if on_superseded is None:
            start(then)
            return
        queue = self._queues[key]

        def crossed() -> None:
            queue.leave()
            then()

        queue.join(partial(start, crossed), on_superseded)

    def _up(self, rsu_id: str, size_bytes: float, then: Done) -> None:
        wire = self.wires[rsu_id]
        wire.up_bytes += size_bytes
        wire.up_messages += 1
        _move(wire.up, size_bytes, self._wire.up_bps, then)

    def _down(self, rsu_id: str, size_bytes: float, then: Done) -> None:
        wire = self.wires[rsu_id]
        wire.down_bytes += size_bytes
        wire.down_messages += 1
        _move(wire.down, size_bytes, self._wire.down_bps, then)

    def _home(self, aggregator: str) -> str | None:
        return None if aggregator == AGGREGATOR else aggregator

    def _fetched(self, copies: dict[int, list[Done] | None], version: int) -> None:
        waiting, copies[version] = copies[version], None
        for old in [old for old in copies if old < version - self._max_staleness and copies[old] is None]:
            del copies[old]
        for on_done in waiting or ():
            on_done()


def _move(channel: Channel, size_bytes: float, rate_bps: float, on_done: Done) -> None:
    if size_bytes == 0 or rate_bps == float("inf"):
        on_done()
    else:
        channel.send(size_bytes, lambda _: rate_bps, on_done)
