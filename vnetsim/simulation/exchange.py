"""One round's exchange between vehicles: who is in contact, what moves over the air, what completes in time.

All exchanges of a round begin at the same instant. A directed exchange takes the sender's bytes to the receiver, lets
the receiver work on them where the learner asks for that (one job after the other, in order of arrival), and takes the
result back. Over the sidelink both vehicles must be within range; through the RSU, inside coverage.

Sidelink resources are scheduled by the RSU whose coverage the sender is in (3GPP sidelink mode 1): the airtime is
shared among its vehicles, and different RSUs do not interfere. Range is looked up when a transfer begins, every
``RANGE_UPDATE_S`` and when its last byte arrives; ``contact_s`` is exact for the recorded paths.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import simpy

from vnetsim.coverage.windows import VehiclePath, crossings, position_m
from vnetsim.learning import Exchange
from vnetsim.radio.channel import Channel, Transfer
from vnetsim.simulation.participation import Participation
from vnetsim.simulation.world import World

Peers = tuple[Participation, ...]


RANGE_UPDATE_S = 1.0
"""How often the range of two vehicles is looked up (s): of two that meet at 100 km/h every 56 m."""


@dataclass(slots=True, kw_only=True, eq=False)
class Exchanged:
    """A directed exchange that is over, or still under way.

    Args:
        sender: whose model it is.
        receiver: who gets it.
        start_s: when the round's exchange began.
        sender_m: position of the sender then (m), likewise ``receiver_m``.
        receiver_m: see ``sender_m``.
        via: how they are connected; empty while they never were in contact.
        outcome: None while it is under way.
        end_s: when it was complete or cut.
        contact_s: time in contact until then (s).
        moved_bytes: bytes over the air (B).
    """

    sender: Participation
    receiver: Participation
    start_s: float
    sender_m: tuple[float, float]
    receiver_m: tuple[float, float]
    via: Literal["sidelink", "relay", ""] = ""
    outcome: Literal["completed", "cut"] | None = None
    end_s: float = math.nan
    contact_s: float = field(init=False)
    moved_bytes: float = 0.0
    channel: Channel | None = field(default=None, repr=False)
    transfer: Transfer | None = field(default=None, repr=False)


@dataclass(kw_only=True)
class ExchangePhase:
    """The exchanges of one round, from their common beginning to the last one's end.

    Args:
        members: the vehicles, in order of arrival; all inside coverage now.
        round_index: the round; names the streams of what is drawn for pairs.
        on_ended: called with every exchange that is over, in order of end.
        on_done: called with a member all of whose exchanges are over, and its peers; not for members that left.
    """

    world: World
    plan: Exchange
    members: Sequence[Participation]
    round_index: int
    on_ended: Callable[[Exchanged], None]
    on_done: Callable[[Participation, Peers], None]

    def __post_init__(self) -> None:
        self._settings = self.world.experiment.exchange
        self._present = dict.fromkeys(self.members)
        self._work: dict[Participation, list[Exchanged]] = {member: [] for member in self.members}
        self._timers: dict[Participation, tuple[float, simpy.Timeout]] = {}  # since when (s)
        self._pair_states: dict[frozenset[str], Any] = {}
        self._start_s: float = self.world.env.now
        self._exchanges = [self._new(sender, receiver) for sender, receiver in self._pairs()]
        self._under_way = Counter(member for e in self._exchanges for member in (e.sender, e.receiver))

    def neighbours(self, member: Participation) -> int:
        """Return with how many others ``member`` has an exchange, in whichever direction and however it ends."""
        pairs = ({e.sender, e.receiver} for e in self._exchanges)
        return len(set().union(*(pair for pair in pairs if member in pair)) - {member})

    def begin(self) -> None:
        """Start what can start now; members without any exchange are done at once."""
        for exchange in self._exchanges:
            self._connect(exchange)
        self.world.env.timeout(self._settings.limit_s).callbacks.append(self._limit)
        self._tick_after(1)
        for member in self.members:
            self._settle(member)

    def leave(self, member: Participation) -> Peers:
        """Cut the exchanges of a member that leaves coverage now, and return its peers."""
        del self._present[member]
        self._cut([exchange for exchange in self._exchanges if member in (exchange.sender, exchange.receiver)])
        return self.peers(member)

    def stop(self) -> None:
        """Cut whatever is still under way and report to nobody who is done."""
        self._present.clear()
        self._cut(self._exchanges)

    def peers(self, member: Participation) -> Peers:
        """Return the members with which ``member`` completed what the learner counts, in order of arrival."""
        done = {(e.sender, e.receiver) for e in self._exchanges if e.outcome == "completed"}
        returns = self.plan.return_bytes > 0 or self.plan.work_flop > 0

        def counts(other: Participation) -> bool:
            to, back = (member, other) in done, (other, member) in done
            return (to and back) if self.plan.mutual else to if returns else back

        return tuple(other for other in self.members if counts(other))

    def _pairs(self) -> list[tuple[Participation, Participation]]:
        members, topology = self.members, self._settings.topology
        if topology == "ring":
            following = [*members[1:], *members[:1]] if len(members) > 1 else []
            pairs = dict.fromkeys(zip(members, following, strict=False))
            if self.plan.mutual:
                pairs.update(dict.fromkeys((receiver, sender) for sender, receiver in tuple(pairs)))
            return list(pairs)
        everybody = itertools.permutations(members, 2)
        if topology == "contact":
            return [pair for pair in everybody if self._via(*pair)]
        return list(everybody)

    def _new(self, sender: Participation, receiver: Participation) -> Exchanged:
        now_s = self.world.env.now
        return Exchanged(
            sender=sender,
            receiver=receiver,
            start_s=now_s,
            sender_m=position_m(sender.window.path, now_s),
            receiver_m=position_m(receiver.window.path, now_s),
        )

    def _distance_m(self, one: Participation, other: Participation, time_s: float) -> float:
        (x1_m, y1_m), (x2_m, y2_m) = (position_m(member.window.path, time_s) for member in (one, other))
        return math.hypot(x1_m - x2_m, y1_m - y2_m)

    def _via(self, one: Participation, other: Participation) -> Literal["sidelink", "relay", ""]:
        """Return how two members can reach each other now."""
        settings = self._settings
        if settings.topology == "star":
            return "relay"
        if self._distance_m(one, other, self.world.env.now) < settings.range_m:
            return "sidelink"
        return "relay" if settings.relay else ""

    def _connect(self, exchange: Exchanged) -> None:
        exchange.via = self._via(exchange.sender, exchange.receiver)
        if exchange.via:
            self._send(exchange, exchange.sender, exchange.receiver, self.plan.send_bytes, self._arrived)

    def _send(
        self,
        exchange: Exchanged,
        source: Participation,
        target: Participation,
        size_bytes: int,
        then: Callable[[Exchanged], None],
    ) -> None:
        """Move bytes from one vehicle to the other, over one hop or through the RSU, and then go on."""
        if exchange.via == "sidelink":
            channel, rate = self.world.sidelinks[source.window.rsu.id], partial(self._sidelink_bps, source, target)
            self._hop(exchange, channel, rate, size_bytes, then)
        else:
            up, down = source.invitation.coverage, target.invitation.coverage
            second = partial(
                self._hop, channel=down.channel, rate_bps=down.link.downlink_bps, size_bytes=size_bytes, then=then
            )
            self._hop(exchange, up.channel, up.link.uplink_bps, size_bytes, second)

    def _hop(
        self,
        exchange: Exchanged,
        channel: Channel,
        rate_bps: Callable[[float], float],
        size_bytes: int,
        then: Callable[[Exchanged], None],
    ) -> None:
        exchange.channel = channel
        update_s = self.world.radio.update_s
        exchange.transfer = channel.send(
            size_bytes, rate_bps, partial(self._hopped, exchange, size_bytes, then), update_s=update_s
        )

    def _hopped(self, exchange: Exchanged, size_bytes: int, then: Callable[[Exchanged], None]) -> None:
        exchange.moved_bytes += size_bytes
        exchange.channel = exchange.transfer = None
        if self._in_contact(exchange):
            then(exchange)
        else:
            self._cut([exchange])

    def _arrived(self, exchange: Exchanged) -> None:
        if self.plan.work_flop == 0 and self.plan.return_bytes == 0:
            self._complete(exchange)
            return
        queue = self._work[exchange.receiver]
        queue.append(exchange)
        if len(queue) == 1:
            self._start_work(exchange.receiver)

    def _start_work(self, host: Participation) -> None:
        flops = self.world.computer(host.window).flops
        timer = self.world.env.timeout(self.plan.work_flop / flops)
        timer.callbacks.append(partial(self._worked, host))
        self._timers[host] = self.world.env.now, timer

    def _worked(self, host: Participation, _: object) -> None:
        exchange = self._work[host][0]
        self._dequeue(exchange)
        self._send(exchange, host, exchange.sender, self.plan.return_bytes, self._complete)

    def _dequeue(self, exchange: Exchanged) -> None:
        """Take a job from its host, finished or not, and let the host begin its next one."""
        host = exchange.receiver
        queue = self._work[host]
        if exchange not in queue:
            return
        was_first = queue[0] is exchange
        queue.remove(exchange)
        if was_first:
            began_s, timer = self._timers.pop(host)
            timer.callbacks = []
            host.worked_s += self.world.env.now - began_s
            if queue:
                self._start_work(host)

    def _complete(self, exchange: Exchanged) -> None:
        self._end(exchange, "completed")

    def _cut(self, exchanges: Sequence[Exchanged]) -> None:
        for exchange in exchanges:
            if exchange.outcome is None:
                if exchange.channel is not None and exchange.transfer is not None:
                    exchange.moved_bytes += exchange.channel.abort(exchange.transfer)
                self._end(exchange, "cut")
                self._dequeue(exchange)

    def _end(self, exchange: Exchanged, outcome: Literal["completed", "cut"]) -> None:
        exchange.outcome = outcome
        exchange.end_s = self.world.env.now
        exchange.contact_s = self._contact_s(exchange)
        exchange.sender.exchange_bytes += exchange.moved_bytes
        self.on_ended(exchange)
        for member in (exchange.sender, exchange.receiver):
            self._under_way[member] -= 1
            self._settle(member)

    def _settle(self, member: Participation) -> None:
        """Report a member that is still there and has nothing under way any more, once."""
        if member in self._present and not self._under_way[member]:
            del self._present[member]
            self.on_done(member, self.peers(member))

    def _in_contact(self, exchange: Exchanged) -> bool:
        return (
            exchange.via == "relay"
            or self._distance_m(exchange.sender, exchange.receiver, self.world.env.now) < self._settings.range_m
        )

    def _contact_s(self, exchange: Exchanged) -> float:
        settings = self._settings
        if settings.relay or settings.topology == "star":
            return exchange.end_s - exchange.start_s
        paths = exchange.sender.window.path, exchange.receiver.window.path
        return contact_time_s(*paths, settings.range_m, exchange.start_s, exchange.end_s)

    def _tick_after(self, count: int) -> None:
        now_s = self.world.env.now
        delay_s = max(math.ulp(now_s), self._start_s + count * RANGE_UPDATE_S - now_s)
        self.world.env.timeout(delay_s).callbacks.append(partial(self._tick, count))

    def _tick(self, count: int, _: object) -> None:
        """Look up who is in range now."""
        waiting = [exchange for exchange in self._exchanges if exchange.outcome is None]
        if not waiting:
            return
        for exchange in waiting:
            if exchange.outcome is not None:  # cut together with one before
                continue
            if not exchange.via:
                self._connect(exchange)
            elif exchange.transfer is not None and not self._in_contact(exchange):
                self._cut([exchange])
        self._tick_after(count + 1)

    def _limit(self, _: object) -> None:
        self._cut(self._exchanges)

    def _sidelink_bps(self, source: Participation, target: Participation, time_s: float) -> float:
        one, other = source.window, target.window
        pair = frozenset((one.vehicle.id, other.vehicle.id))
        if pair not in self._pair_states:
            self._pair_states[pair] = self.world.radio.pair_state(self.round_index, one.path, other.path)
        return self.world.radio.sidelink_bps(one.rsu, one.path, other.path, time_s, self._pair_states[pair])


def contact_time_s(one: VehiclePath, other: VehiclePath, range_m: float, start_s: float, end_s: float) -> float:
    """Return how long two vehicles were closer than ``range_m`` (m) between two instants (s) that both paths cover.

    Between the points of either path both drive straight at constant speed, so their distance is below the range
    between the roots of a quadratic; nothing is rounded to a step.
    """
    inside = {time_s for path in (one, other) for time_s in path.time_s if start_s < time_s < end_s}
    instants = [start_s, *sorted(inside), end_s]
    return math.fsum(
        _close_s(_offset_m(one, other, before_s), _offset_m(one, other, after_s), range_m) * (after_s - before_s)
        for before_s, after_s in itertools.pairwise(instants)
    )


def _offset_m(one: VehiclePath, other: VehiclePath, time_s: float) -> tuple[float, float]:
    (x1_m, y1_m), (x2_m, y2_m) = position_m(one, time_s), position_m(other, time_s)
    return x2_m - x1_m, y2_m - y1_m


def _close_s(start_m: tuple[float, float], end_m: tuple[float, float], range_m: float) -> float:
    """Return the share of a segment of the offset that lies inside the circle of radius ``range_m``."""
    (x_m, y_m), (to_x_m, to_y_m) = start_m, end_m
    if start_m == end_m:
        return float(math.hypot(x_m, y_m) < range_m)
    first, last = crossings(x_m, y_m, to_x_m - x_m, to_y_m - y_m, range_m)
    return max(0.0, min(1.0, last) - max(0.0, first))
