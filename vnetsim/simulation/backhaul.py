"""The wires of the RSUs: how long models and updates take between RSUs, aggregator and cloud, and how much they carry.

Each direction of an RSU's wire is a channel of its own, which all transfers share equally like the radio's
(``vnetsim.radio.channel``); the latency follows. A transfer between two RSUs uses both wires. A wire with an infinite
rate and no latency takes no time at all: no event of the loop is spent on it.
"""

from __future__ import annotations

import math
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
    """Raise InputError if a hierarchy's models take as long to the cloud as the traffic lasts, or longer."""
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
        """Wait until a model may cross, and return True; return False as soon as a newer model waits in its place."""
        if self.busy:
            former, self.waiting = self.waiting, (turn := Signal())
            if former is not None:
                former()
            yield turn
            if self.waiting is not turn:
                return False
        self.busy, self.waiting = True, None
        return True

    def leave(self) -> None:
        """End a crossing, and let the waiting model cross, if there is one."""
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
        self._fired = Signal()
        self._fired()
        # an RSU's copies of an aggregator's models, by version
        self._copies: dict[tuple[str, str], dict[int, Signal]] = defaultdict(dict)
        self._queues: dict[tuple[str | None, str | None, str], _Queue] = defaultdict(_Queue)

    def fetch(self, rsu_id: str, model: ModelKey, size_bytes: float) -> Signal:
        """Bring a model to an RSU; return a signal that fires when the model is there, or has fired already.

        A model crosses an RSU's wire once, however often it is fetched.
        """
        if model.aggregator == rsu_id:
            return self._fired
        copies = self._copies[rsu_id, model.aggregator]
        if model.version not in copies:
            copies[model.version] = Task(self._fetch_copy(rsu_id, model, size_bytes))
        return copies[model.version]

    def deliver(self, rsu_id: str, aggregator: str, size_bytes: float) -> Signal:
        """Send an update from an RSU to an aggregator; return a signal that fires on arrival, or has fired already.

        The update arrives even if its participation is cut meanwhile.
        """
        if aggregator == rsu_id:
            return self._fired
        return Task(self.send(size_bytes, rsu_id, _rsu_of(aggregator)))

    def send(self, size_bytes: float, source: str | None, target: str | None, *, newest_only: bool = False) -> Activity:
        """Send bytes up the wire of ``source`` and down that of ``target``, also if both are the same RSU.

        Each is an RSU's id, or None for what is above all RSUs, which has no wire. The activity returns True when the
        bytes have arrived. With ``newest_only`` a model waits at each wire until the model before has crossed, and
        returns False if a newer one of the same source and target arrives meanwhile. A model that has begun to cross is
        never stopped: otherwise nothing would arrive if models come faster than they cross.
        """
        latency_s = 0.0 if source and target else self._wire.cloud_latency_s
        latency_s += self._wire.latency_s * ((source is not None) + (target is not None))
        for rsu_id, direction in ((source, "up"), (target, "down")):
            if rsu_id is not None:
                queue = self._queues[source, target, direction]
                if newest_only and not (yield from queue.enter()):
                    return False
                yield from self._cross_wire(rsu_id, direction, size_bytes)
                if newest_only:
                    queue.leave()
            if direction == "up" and latency_s > 0:
                yield self._env.timeout(latency_s)
        return True

    def _fetch_copy(self, rsu_id: str, model: ModelKey, size_bytes: float) -> Activity:
        """Send a model to an RSU; then forget arrived copies that are over ``max_staleness`` versions older than it."""
        yield from self.send(size_bytes, _rsu_of(model.aggregator), rsu_id)
        copies = self._copies[rsu_id, model.aggregator]
        oldest = model.version - self._max_staleness
        for old in [old for old, copy in copies.items() if old < oldest and copy.fired]:
            del copies[old]

    def _cross_wire(self, rsu_id: str, direction: str, size_bytes: float) -> Activity:
        """Move a message over an RSU's wire, and count it at once; no time passes for 0 bytes or an infinite rate."""
        wire = self.wires[rsu_id]
        if direction == "up":
            wire.up_bytes += size_bytes
            wire.up_messages += 1
            channel, rate_bps = wire.up, self._wire.up_bps
        else:
            wire.down_bytes += size_bytes
            wire.down_messages += 1
            channel, rate_bps = wire.down, self._wire.down_bps
        if size_bytes > 0 and rate_bps < math.inf:
            crossed = Signal()
            channel.send(size_bytes, lambda _: rate_bps, crossed)
            yield crossed


def _rsu_of(aggregator: str) -> str | None:
    """Return the id of the RSU where an aggregator is: its own name; None for the aggregator above all RSUs."""
    return None if aggregator == AGGREGATOR else aggregator
