"""One round's exchange between vehicles: who is in contact, what moves over the air, what completes in time.

A directed exchange takes the sender's bytes to the receiver. If the learner asks for it, the receiver works on them,
one job after the other, and sends the result back. ``docs/explanation/exchange.md`` has the rules.
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
from vnetsim.learning import ModelKey
from vnetsim.radio.channel import Channel
from vnetsim.simulation.participation import Participation
from vnetsim.simulation.tasks import Activity, Deadline, Interrupt, Signal, Task
from vnetsim.simulation.world import World

Peers = tuple[Participation, ...]

RANGE_UPDATE_S = 1.0
"""How often the range of two vehicles is checked (s): every 56 m for two that approach each other at 100 km/h."""


class _Cut(Interrupt):
    """Ends an exchange before it is complete."""


@dataclass(slots=True, kw_only=True, eq=False)
class DirectedExchange:
    """An exchange from one vehicle to another, under way or over."""

    sender: Participation
    receiver: Participation
    start_s: float  # when the round's exchange began (s)
    sender_m: tuple[float, float] = field(init=False)  # position of the sender then (m); ``receiver_m`` likewise
    receiver_m: tuple[float, float] = field(init=False)
    via: Literal["sidelink", "relay", ""] = ""  # how they are connected; empty if they have not been in contact yet
    outcome: Literal["completed", "cut"] | None = None  # None while it is under way
    end_s: float = math.nan  # when it was completed or cut (s); NaN while it is under way
    contact_s: float = field(init=False)  # time in contact from ``start_s`` to ``end_s`` (s); set when it has ended
    moved_bytes: float = 0.0  # bytes over the air so far (B)
    on_air: bool = False  # whether a transfer is under way
    # fires when vehicles out of contact are to check again
    look_again: Signal = field(default_factory=Signal, repr=False)
    task: Task = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.sender_m = position_m(self.sender.window.path, self.start_s)
        self.receiver_m = position_m(self.receiver.window.path, self.start_s)


@dataclass(kw_only=True)
class ExchangePhase:
    """The exchanges of one round."""

    world: World
    members: Sequence[Participation]  # the vehicles, in order of arrival; all are inside coverage now
    model: ModelKey  # with which the round began; its version is part of the names of the pairs' random streams
    record: Callable[[DirectedExchange, ModelKey], None]  # called with every exchange that has ended, in order of end

    def __post_init__(self) -> None:
        plan = self.members[0].invitation.cost.exchange
        assert plan is not None
        self._plan = plan  # bytes and work of each exchange, from the learner
        self._settings = self.world.experiment.exchange
        self._present = dict.fromkeys(self.members)
        self._computers = {member: simpy.Resource(self.world.env) for member in self.members}
        self._pair_states: dict[frozenset[str], Any] = {}
        self._start_s: float = self.world.env.now
        self._exchanges = [
            DirectedExchange(sender=sender, receiver=receiver, start_s=self._start_s)
            for sender, receiver in self._pairs()
        ]
        self._under_way = Counter(member for e in self._exchanges for member in (e.sender, e.receiver))

    def neighbours(self, member: Participation) -> int:
        """Return with how many others a member has an exchange, in either direction and with any outcome."""
        return len({e.receiver if e.sender is member else e.sender for e in self._of(member)})

    def begin(self) -> None:
        """Start all exchanges now; they are cut after ``exchange.limit_s``. Members without any are done at once."""
        for exchange in self._exchanges:
            exchange.task = Task(self._carry_out(exchange))
        Deadline(self.world.env).set(self._settings.limit_s, partial(self._cut, self._exchanges))
        Task(self._watch())
        for member in self.members:
            self._settle(member)

    def leave(self, member: Participation) -> Peers:
        """Cut the exchanges of a member that leaves coverage, and return its peers; it does not go on by itself."""
        del self._present[member]
        self._cut(self._of(member))
        return self.peers(member)

    def stop(self) -> None:
        """Cut the exchanges that are still under way; their vehicles do not go on by themselves."""
        self._present.clear()
        self._cut(self._exchanges)

    def peers(self, member: Participation) -> Peers:
        """Return the peers of a member so far, in the order of ``members``: those whose model has arrived at it.

        If receivers compute or send something back, a peer is a member that has returned a result to it. With
        ``Exchange.mutual`` the exchanges in both directions must be complete.
        """
        done = {(e.sender, e.receiver) for e in self._exchanges if e.outcome == "completed"}
        returns = self._plan.return_bytes > 0 or self._plan.work_flop > 0

        def counts(other: Participation) -> bool:
            """Return whether a member is a peer."""
            to, back = (member, other) in done, (other, member) in done
            return (to and back) if self._plan.mutual else to if returns else back

        return tuple(other for other in self.members if counts(other))

    def _of(self, member: Participation) -> list[DirectedExchange]:
        """Return the exchanges of a member, in either direction."""
        return [exchange for exchange in self._exchanges if member in (exchange.sender, exchange.receiver)]

    def _pairs(self) -> list[tuple[Participation, Participation]]:
        """Return sender and receiver of each exchange of the topology; with ``contact``, of pairs in contact now."""
        members, topology = self.members, self._settings.topology
        if topology == "ring":
            following = [*members[1:], *members[:1]] if len(members) > 1 else []
            pairs = dict.fromkeys(zip(members, following, strict=False))
            if self._plan.mutual:
                pairs.update(dict.fromkeys((receiver, sender) for sender, receiver in tuple(pairs)))
            return list(pairs)
        everybody = itertools.permutations(members, 2)
        if topology == "contact":
            return [pair for pair in everybody if self._via(*pair)]
        return list(everybody)

    def _in_range(self, one: Participation, other: Participation) -> bool:
        """Return whether two members are within range of each other now."""
        offset_m = _offset_m(one.window.path, other.window.path, self.world.env.now)
        return math.hypot(*offset_m) < self._settings.range_m

    def _via(self, one: Participation, other: Participation) -> Literal["sidelink", "relay", ""]:
        """Return how two members can reach each other now; empty if they cannot."""
        settings = self._settings
        if settings.topology == "star":
            return "relay"
        if self._in_range(one, other):
            return "sidelink"
        return "relay" if settings.relay else ""

    def _carry_out(self, exchange: DirectedExchange) -> Activity:
        """Wait for contact, send the model, let the receiver work, send the result back; report the end or the cut."""
        plan, sender, receiver = self._plan, exchange.sender, exchange.receiver
        try:
            while not (via := self._via(sender, receiver)):
                yield exchange.look_again
                exchange.look_again = Signal()
            exchange.via = via
            yield from self._send(exchange, sender, receiver, plan.send_bytes)
            if plan.work_flop or plan.return_bytes:
                with self._computers[receiver].request() as turn:
                    yield turn
                    yield from self._work(receiver)
                yield from self._send(exchange, receiver, sender, plan.return_bytes)
            exchange.outcome = "completed"
        except _Cut:
            exchange.outcome = "cut"
        exchange.end_s = self.world.env.now
        exchange.contact_s = self._contact_s(exchange)
        sender.exchange_bytes += exchange.moved_bytes
        self.record(exchange, self.model)
        for member in (sender, receiver):
            self._under_way[member] -= 1
            self._settle(member)

    def _work(self, host: Participation) -> Activity:
        """Compute on a receiver's computer; the time is added to its ``worked_s`` even if the exchange is cut."""
        begin_s = self.world.env.now
        try:
            yield self.world.env.timeout(self._plan.work_flop / self.world.computer(host.window).flops)
        finally:
            host.worked_s += self.world.env.now - begin_s

    def _send(
        self, exchange: DirectedExchange, source: Participation, target: Participation, size_bytes: int
    ) -> Activity:
        """Send bytes from one vehicle to the other, over the sidelink or through the RSU."""
        if exchange.via == "sidelink":
            sidelink = self.world.sidelinks[source.window.rsu.id]
            yield from self._hop(exchange, sidelink, partial(self._sidelink_bps, source, target), size_bytes)
        else:
            up, down = source.invitation.coverage, target.invitation.coverage
            yield from self._hop(exchange, up.channel, up.link.uplink_bps, size_bytes)
            yield from self._hop(exchange, down.channel, down.link.downlink_bps, size_bytes)

    def _hop(
        self, exchange: DirectedExchange, channel: Channel, rate_bps: Callable[[float], float], size_bytes: int
    ) -> Activity:
        """Move bytes over a channel, and count those that arrived; raise ``_Cut`` if contact is lost at the end."""
        done = Signal()
        transfer = channel.send(size_bytes, rate_bps, done, update_s=self.world.radio.update_s)
        exchange.on_air = True
        try:
            yield done
        except _Cut:
            exchange.moved_bytes += channel.abort(transfer)
            raise
        exchange.on_air = False
        exchange.moved_bytes += size_bytes
        if not self._in_contact(exchange):
            raise _Cut

    def _cut(self, exchanges: Sequence[DirectedExchange]) -> None:
        """Cut those of the exchanges that are still under way."""
        for exchange in exchanges:
            if exchange.outcome is None:
                exchange.task.interrupt(_Cut())

    def _settle(self, member: Participation) -> None:
        """Let a member go on that is still present and has no exchange under way, once."""
        if member in self._present and not self._under_way[member]:
            del self._present[member]
            member.proceed(self.peers(member))

    def _in_contact(self, exchange: DirectedExchange) -> bool:
        """Return whether an exchange can go on: the vehicles are in range now, or it goes through the RSU."""
        return exchange.via == "relay" or self._in_range(exchange.sender, exchange.receiver)

    def _contact_s(self, exchange: DirectedExchange) -> float:
        """Return how long the vehicles of an ended exchange were in contact (s); all the time if RSUs may relay."""
        settings = self._settings
        if settings.relay or settings.topology == "star":
            return exchange.end_s - exchange.start_s
        paths = exchange.sender.window.path, exchange.receiver.window.path
        return contact_time_s(*paths, settings.range_m, exchange.start_s, exchange.end_s)

    def _watch(self) -> Activity:
        """Every ``RANGE_UPDATE_S``, cut transfers out of range and resume exchanges that wait for contact."""
        env = self.world.env
        for count in itertools.count(1):
            yield env.timeout(max(math.ulp(env.now), self._start_s + count * RANGE_UPDATE_S - env.now))
            if all(exchange.outcome for exchange in self._exchanges):
                return
            for exchange in self._exchanges:
                if exchange.outcome is None and not exchange.via:
                    exchange.look_again()
                elif exchange.on_air and not self._in_contact(exchange):
                    self._cut([exchange])

    def _sidelink_bps(self, source: Participation, target: Participation, time_s: float) -> float:
        """Return the rate between two members at a time (bit/s); the link's state is drawn once for both directions."""
        one, other = source.window, target.window
        pair = frozenset((one.vehicle.id, other.vehicle.id))
        if pair not in self._pair_states:
            self._pair_states[pair] = self.world.radio.pair_state(self.model.version, one.path, other.path)
        return self.world.radio.sidelink_bps(one.rsu, one.path, other.path, time_s, self._pair_states[pair])


@dataclass(kw_only=True)
class RoundExchange:
    """The exchange of the open round; ``gathered`` are the participations that wait for it, in order of arrival."""

    world: World
    record: Callable[[DirectedExchange, ModelKey], None]  # called with every exchange that has ended, and the model
    gathered: dict[Participation, None] = field(default_factory=dict)  # an ordered set
    _members: dict[Participation, None] = field(default_factory=dict)  # those in flight
    _phase: ExchangePhase | None = None
    _opened_by: Literal["quorum", "deadline"] = "quorum"

    @property
    def under_way(self) -> bool:
        """Whether the round's exchange has begun."""
        return self._phase is not None

    @property
    def closed_by(self) -> Literal["quorum", "deadline"] | None:
        """What began the exchange, once all participations in it have ended; None before."""
        return None if self._phase is None or self._members else self._opened_by

    def begin(self, model: ModelKey, opened_by: Literal["quorum", "deadline"]) -> None:
        """Begin the exchange of ``gathered`` (at least one), in the round that began with ``model``."""
        self._opened_by = opened_by
        self._members, self.gathered = self.gathered, {}
        members = tuple(self._members)
        self._phase = ExchangePhase(world=self.world, members=members, model=model, record=self.record)
        for participation in self._members:
            participation.begin_exchange(self._phase.neighbours(participation))
        self._phase.begin()

    def leave(self, participation: Participation) -> bool:
        """Cut the exchanges of a member that leaves coverage; return whether it goes on, needing no coverage."""
        assert self._phase is not None
        peers = self._phase.leave(participation)
        if participation.needs_coverage:
            return False
        participation.proceed(peers)  # it has nothing left to send
        return True

    def remove(self, participation: Participation) -> None:
        """Forget a participation that has ended, whether it waited or was a member, or neither."""
        self.gathered.pop(participation, None)
        self._members.pop(participation, None)

    def stop(self) -> Callable[[Participation], None] | None:
        """End the exchange as the round closes.

        Returns:
            a function that lets a member go on that was still in the exchange; None if no exchange was under way.
        """
        phase, self._phase = self._phase, None
        if phase is None:
            return None
        phase.stop()
        return lambda participation: participation.proceed(phase.peers(participation))


def contact_time_s(one: VehiclePath, other: VehiclePath, range_m: float, start_s: float, end_s: float) -> float:
    """Return how long two vehicles were closer than ``range_m`` (m) between two instants (s) that both paths cover.

    Between path points both drive straight at constant speed, so the distance is below the range between the roots of
    a quadratic: the result is exact, not rounded to a step.
    """
    inside = {time_s for path in (one, other) for time_s in path.time_s if start_s < time_s < end_s}
    instants = [start_s, *sorted(inside), end_s]
    return math.fsum(
        _close_share(_offset_m(one, other, before_s), _offset_m(one, other, after_s), range_m) * (after_s - before_s)
        for before_s, after_s in itertools.pairwise(instants)
    )


def _offset_m(one: VehiclePath, other: VehiclePath, time_s: float) -> tuple[float, float]:
    """Return the vector from one vehicle to the other at a time (m)."""
    (x1_m, y1_m), (x2_m, y2_m) = position_m(one, time_s), position_m(other, time_s)
    return x2_m - x1_m, y2_m - y1_m


def _close_share(start_m: tuple[float, float], end_m: tuple[float, float], range_m: float) -> float:
    """Return the share, in [0, 1], of a straight way from start to end (m) that is within ``range_m`` of the origin."""
    (x_m, y_m), (to_x_m, to_y_m) = start_m, end_m
    if start_m == end_m:
        return float(math.hypot(x_m, y_m) < range_m)
    first, last = crossings(x_m, y_m, to_x_m - x_m, to_y_m - y_m, range_m)
    return max(0.0, min(1.0, last) - max(0.0, first))
