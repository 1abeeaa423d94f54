"""The wires of the RSUs: how long models and updates take between RSUs, aggregator and cloud, and how much they carry.

Each direction of an RSU's wire is a channel of its own, which all transfers share equally like the radio's
(``vnetsim.radio.channel``); the latency follows. A transfer between two RSUs uses both wires. A wire with an infinite
rate and no latency takes no time at all: no event of the loop is spent on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import simpy

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import BackhaulSettings, Experiment
from vnetsim.learning import AGGREGATOR, ModelKey
from vnetsim.radio.channel import Channel
from vnetsim.simulation.tasks import Activity, Signal, Task


def refuse_slow_wires(experiment: Experiment, lasts_s: float, model_bytes: int) -> None:
    """Refuse a hierarchy whose models take longer to the cloud than the traffic lasts: InputError with both times."""
    wire = experiment.backhaul.wire
    least_s = wire.latency_s + wire.cloud_latency_s + 8 * model_bytes / wire.up_bps
    if experiment.topology.kind == "hierarchical" and least_s >= lasts_s:
        raise InputError(
            f"backhaul: a model takes at least {least_s:g} s to the cloud, and the traffic lasts {lasts_s:g} s: no "
            "round of the cloud would close. Take a faster preset, or a smaller latency_s or cloud_latency_s."
        )


@dataclass(kw_only=True)
class RsuWire:
    """One RSU's wire: ``down`` leads to the RSU. Bytes and messages count from when they are sent."""

    down: Channel
    up: Channel
    down_bytes: float = 0.0
    up_bytes: float = 0.0
    down_messages: int = 0
    up_messages: int = 0


@dataclass(slots=True, kw_only=True)
class _Queue:
    """Lets one model at a time cross a wire; of the models that come meanwhile only the newest waits."""

    busy: bool = False
    waiting: Signal | None = None

    def enter(self) -> Activity:
        """Wait until a model may cross, and return True; False as soon as a newer one waits in its place."""
        if self.busy:
            former, turn = self.waiting, Signal()
            self.waiting = turn
            if former is not None:
                former()
            yield turn
            if self.waiting is not turn:
                return False
        self.busy, self.waiting = True, None
        return True

    def leave(self) -> None:
        """End a crossing: let the model that waits cross, if there is one."""
        self.busy = False
        if self.waiting is not None:
            self.waiting()


class Backhaul:
    """Moves models and updates between RSUs, the aggregator above them and the cloud; ``wires`` are by the RSU's id.

    An RSU keeps models of up to ``max_staleness`` versions before an aggregator's newest.
    """

    def __init__(
        self, env: simpy.Environment, settings: BackhaulSettings, rsus: Sequence[Rsu], max_staleness: int
    ) -> None:
        self._env = env
        self._wire = settings.wire
        self.wires = {rsu.id: RsuWire(down=Channel(env), up=Channel(env)) for rsu in rsus}
        self._max_staleness = max_staleness
        self._here = Signal()
        self._here()
        # an RSU's copies of an aggregator's models, by version
        self._copies: dict[tuple[str, str], dict[int, Signal]] = defaultdict(dict)
        self._queues: dict[tuple[str | None, str | None, str], _Queue] = defaultdict(_Queue)

    def fetch(self, rsu_id: str, model: ModelKey, size_bytes: float) -> Signal:
        """Bring a model of some bytes to an RSU; each model crosses the wire once, however often it is fetched.

        Returns:
            a signal that fires when the model is there, or has fired before.
        """
        if model.aggregator == rsu_id:
            return self._here
        copies = self._copies[rsu_id, model.aggregator]
        if model.version not in copies:
            copies[model.version] = Task(self._copy(rsu_id, model, size_bytes))
        return copies[model.version]

    def deliver(self, rsu_id: str, aggregator: str, size_bytes: float) -> Signal:
        """Send an update from the RSU that received it to an aggregator, even if its participation is cut meanwhile.

        Returns:
            a signal that fires when the update has arrived, or has fired before.
        """
        if aggregator == rsu_id:
            return self._here
        return Task(self.send(size_bytes, rsu_id, _home(aggregator)))

    def send(self, size_bytes: float, source: str | None, target: str | None, *, newest_only: bool = False) -> Activity:
        """Send bytes from one place to another.

        Args:
            size_bytes: how much (B).
            source: an RSU's id; None for the aggregator above all RSUs, or the cloud.
            target: likewise.
            newest_only: at each wire, wait until the model before has crossed, and give up if a newer one arrives
                meanwhile. A model that has begun to cross is never stopped: otherwise nothing would arrive if models
                come faster than they cross.

        Returns:
            whether it has arrived.
        """
        latency_s = 0.0 if source and target else self._wire.cloud_latency_s
        latency_s += self._wire.latency_s * ((source is not None) + (target is not None))
        for rsu_id, direction in ((source, "up"), (target, "down")):
            if rsu_id is not None:
                queue = self._queues[source, target, direction]
                if newest_only and not (yield from queue.enter()):
                    return False
                yield from self._cross(rsu_id, direction, size_bytes)
                if newest_only:
                    queue.leave()
            if direction == "up" and latency_s > 0:
                yield self._env.timeout(latency_s)
        return True

    def _copy(self, rsu_id: str, model: ModelKey, size_bytes: float) -> Activity:
        """Bring a model to an RSU, then drop the RSU's older copies beyond ``max_staleness`` versions."""
        yield from self.send(size_bytes, _home(model.aggregator), rsu_id)
        copies = self._copies[rsu_id, model.aggregator]
        oldest = model.version - self._max_staleness
        for old in [old for old, copy in copies.items() if old < oldest and copy.fired]:
            del copies[old]

    def _cross(self, rsu_id: str, direction: str, size_bytes: float) -> Activity:
        """Count a message, and move it over an RSU's wire; takes no time for 0 bytes or an infinite rate."""
        wire = self.wires[rsu_id]
        if direction == "up":
            wire.up_bytes += size_bytes
            wire.up_messages += 1
            channel, rate_bps = wire.up, self._wire.up_bps
        else:
            wire.down_bytes += size_bytes
            wire.down_messages += 1
            channel, rate_bps = wire.down, self._wire.down_bps
        if size_bytes > 0 and rate_bps < float("inf"):
            crossed = Signal()
            channel.send(size_bytes, lambda _: rate_bps, crossed)
            yield crossed


def _home(aggregator: str) -> str | None:
    """Return the id of an aggregator's RSU; None for the aggregator above all RSUs."""
    return None if aggregator == AGGREGATOR else aggregator
