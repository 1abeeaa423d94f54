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

# how often the range of two vehicles is checked (s): every 56 m for two that approach each other at 100 km/h
RANGE_UPDATE_S = 1.0


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
    look_again: Signal = field(default_factory=Signal, repr=False)  # fires when contact is to be checked again
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
            for sender, receiver in self._list_pairs()
        ]
        self._under_way = Counter(member for e in self._exchanges for member in (e.sender, e.receiver))

    def count_neighbours(self, member: Participation) -> int:
        """Return the number of vehicles with which a member has an exchange, in either direction, with any outcome."""
        return len({e.receiver if e.sender is member else e.sender for e in self._exchanges_of(member)})

    def begin(self) -> None:
        """Start all exchanges now, and cut them after ``exchange.limit_s``. Members without any proceed at once."""
        for exchange in self._exchanges:
            exchange.task = Task(self._carry_out(exchange))
        Deadline(self.world.env).set(self._settings.limit_s, partial(self._cut, self._exchanges))
        Task(self._check_ranges())
        for member in self.members:
            self._release_if_done(member)

    def leave(self, member: Participation) -> Peers:
        """Cut the exchanges of a member that leaves coverage, and return its peers; its ``proceed`` is not called."""
        del self._present[member]
        self._cut(self._exchanges_of(member))
        return self.peers_of(member)

    def stop(self) -> None:
        """Cut the exchanges that are still under way; the ``proceed`` of their vehicles is not called."""
        self._present.clear()
        self._cut(self._exchanges)

    def peers_of(self, member: Participation) -> Peers:
        """Return those with which a member has completed an exchange so far, in the order of ``members``.

        These are the vehicles whose model has arrived at the member or, if receivers compute or send something back,
        that have returned a result to the member. With ``Exchange.mutual`` both directions must be complete.
        """
        done = {(e.sender, e.receiver) for e in self._exchanges if e.outcome == "completed"}
        sent_to = {receiver for sender, receiver in done if sender is member}
        received_from = {sender for sender, receiver in done if receiver is member}
        if self._plan.mutual:
            found = sent_to & received_from
        else:
            found = sent_to if self._plan.return_bytes > 0 or self._plan.work_flop > 0 else received_from
        return tuple(other for other in self.members if other in found)

    def _exchanges_of(self, member: Participation) -> list[DirectedExchange]:
        """Return a member's exchanges, in either direction and with any outcome."""
        return [exchange for exchange in self._exchanges if member in (exchange.sender, exchange.receiver)]

    def _list_pairs(self) -> list[tuple[Participation, Participation]]:
        """Return (sender, receiver) of each exchange: pairs in contact now, next ones in the ring, or all pairs."""
        members, topology = self.members, self._settings.topology
        if topology == "ring":
            following = [*members[1:], *members[:1]] if len(members) > 1 else []
            pairs = dict.fromkeys(zip(members, following, strict=False))
            if self._plan.mutual:
                pairs.update(dict.fromkeys((receiver, sender) for sender, receiver in tuple(pairs)))
            return list(pairs)
        all_pairs = itertools.permutations(members, 2)
        return [pair for pair in all_pairs if topology != "contact" or self._find_connection(*pair)]

    def _are_in_range(self, one: Participation, other: Participation) -> bool:
        """Return whether two members are now closer than ``exchange.range_m``."""
        offset_m = _offset_m(one.window.path, other.window.path, self.world.env.now)
        return math.hypot(*offset_m) < self._settings.range_m

    def _find_connection(self, one: Participation, other: Participation) -> Literal["sidelink", "relay", ""]:
        """Return how two members can reach each other now: directly or over the RSU; empty if they cannot."""
        settings = self._settings
        if settings.topology == "star":
            return "relay"
        if self._are_in_range(one, other):
            return "sidelink"
        return "relay" if settings.relay else ""

    def _carry_out(self, exchange: DirectedExchange) -> Activity:
        """Wait for contact, send the model, let the receiver compute, send the result back; record the end or cut."""
        plan, sender, receiver = self._plan, exchange.sender, exchange.receiver
        try:
            while not (via := self._find_connection(sender, receiver)):
                yield exchange.look_again
                exchange.look_again = Signal()
            exchange.via = via
            yield from self._send_data(exchange, sender, plan.send_bytes)
            if plan.work_flop or plan.return_bytes:
                with self._computers[receiver].request() as turn:
                    yield turn
                    yield from self._compute_result(receiver)
                yield from self._send_data(exchange, receiver, plan.return_bytes)
            exchange.outcome = "completed"
        except _Cut:
            exchange.outcome = "cut"
        exchange.end_s = self.world.env.now
        exchange.contact_s = self._contact_s(exchange)
        sender.exchange_bytes += exchange.moved_bytes
        self.record(exchange, self.model)
        for member in (sender, receiver):
            self._under_way[member] -= 1
            self._release_if_done(member)

    def _compute_result(self, host: Participation) -> Activity:
        """Compute the result on a receiver's computer, and add the time to its ``worked_s`` even if cut before."""
        begin_s = self.world.env.now
        try:
            yield self.world.env.timeout(self._plan.work_flop / self.world.computer(host.window).flops)
        finally:
            host.worked_s += self.world.env.now - begin_s

    def _send_data(self, exchange: DirectedExchange, source: Participation, size_bytes: int) -> Activity:
        """Send bytes from ``source`` to the other vehicle over ``exchange.via``; raise ``_Cut`` if contact is lost."""
        target = exchange.receiver if source is exchange.sender else exchange.sender
        if exchange.via == "sidelink":
            sidelink, rate_bps = self.world.sidelinks[source.window.rsu.id], partial(self._sidelink_bps, source, target)
            yield from self._send_over_channel(exchange, sidelink, rate_bps, size_bytes)
        else:
            up, down = source.invitation.coverage, target.invitation.coverage
            yield from self._send_over_channel(exchange, up.channel, up.link.uplink_bps, size_bytes)
            yield from self._send_over_channel(exchange, down.channel, down.link.downlink_bps, size_bytes)

    def _send_over_channel(
        self, exchange: DirectedExchange, channel: Channel, rate_bps: Callable[[float], float], size_bytes: int
    ) -> Activity:
        """Send bytes over a channel, and count those that arrived; raise ``_Cut`` if contact is lost at the end."""
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
        if not self._is_in_contact(exchange):
            raise _Cut

    def _cut(self, exchanges: Sequence[DirectedExchange]) -> None:
        """Cut each of the exchanges that is still under way, at once."""
        for exchange in exchanges:
            if exchange.outcome is None:
                exchange.task.interrupt(_Cut())

    def _release_if_done(self, member: Participation) -> None:
        """Call a member's ``proceed``, once, if it has no exchange under way any more and has not left."""
        if member in self._present and not self._under_way[member]:
            del self._present[member]
            member.proceed(self.peers_of(member))

    def _is_in_contact(self, exchange: DirectedExchange) -> bool:
        """Return whether an exchange can go on now: it goes over the RSU, or the vehicles are in range."""
        return exchange.via == "relay" or self._are_in_range(exchange.sender, exchange.receiver)

    def _contact_s(self, exchange: DirectedExchange) -> float:
        """Return how long the vehicles of an ended exchange were in contact (s); the whole time if RSUs may relay."""
        settings = self._settings
        if settings.relay or settings.topology == "star":
            return exchange.end_s - exchange.start_s
        paths = exchange.sender.window.path, exchange.receiver.window.path
        return contact_time_s(*paths, settings.range_m, exchange.start_s, exchange.end_s)

    def _check_ranges(self) -> Activity:
        """Every ``RANGE_UPDATE_S``, cut transfers out of range and begin exchanges that waited for contact."""
        env = self.world.env
        for count in itertools.count(1):
            yield env.timeout(max(math.ulp(env.now), self._start_s + count * RANGE_UPDATE_S - env.now))
            if all(exchange.outcome for exchange in self._exchanges):
                return
            for exchange in self._exchanges:
                if exchange.outcome is None and not exchange.via:
                    exchange.look_again()
                elif exchange.on_air and not self._is_in_contact(exchange):
                    self._cut([exchange])

    def _sidelink_bps(self, source: Participation, target: Participation, time_s: float) -> float:
        """Return the rate between two members at a time (bit/s); draw the pair's radio state at its first call."""
        one, other = source.window, target.window
        pair = frozenset((one.vehicle.id, other.vehicle.id))
        if pair not in self._pair_states:
            self._pair_states[pair] = self.world.radio.pair_state(self.model.version, one.path, other.path)
        return self.world.radio.sidelink_bps(one.rsu, one.path, other.path, time_s, self._pair_states[pair])


@dataclass(kw_only=True)
class RoundExchange:
    """The exchange of the open round; ``gathered`` are the participations that wait for it, in order of arrival."""

    world: World
    record: Callable[[DirectedExchange, ModelKey], None]  # see ``ExchangePhase``
    gathered: dict[Participation, None] = field(default_factory=dict)  # an ordered set
    _members: dict[Participation, None] = field(default_factory=dict)  # members in flight, also after the exchange
    _phase: ExchangePhase | None = None
    _opened_by: Literal["quorum", "deadline"] = "quorum"

    @property
    def under_way(self) -> bool:
        """Whether the round's exchange has begun; False again once ``stop`` was called."""
        return self._phase is not None

    @property
    def closed_by(self) -> Literal["quorum", "deadline"] | None:
        """What began the exchange, once all participations in it have ended; None before, and without an exchange."""
        return None if self._phase is None or self._members else self._opened_by

    def begin(self, model: ModelKey, opened_by: Literal["quorum", "deadline"]) -> None:
        """Begin the exchange of ``gathered`` (at least one) and empty it; the round began with ``model``."""
        self._opened_by = opened_by
        self._members, self.gathered = self.gathered, {}
        members = tuple(self._members)
        self._phase = ExchangePhase(world=self.world, members=members, model=model, record=self.record)
        for participation in self._members:
            participation.begin_exchange(self._phase.count_neighbours(participation))
        self._phase.begin()

    def leave(self, participation: Participation) -> bool:
        """Cut a leaving member's exchanges; return whether it needs no more coverage, in which case it proceeds now."""
        assert self._phase is not None
        peers = self._phase.leave(participation)
        if participation.needs_coverage:
            return False
        participation.proceed(peers)  # it has nothing left to send
        return True

    def remove(self, participation: Participation) -> None:
        """Forget a participation that has ended; does nothing if it neither waited nor took part."""
        self.gathered.pop(participation, None)
        self._members.pop(participation, None)

    def stop(self) -> Callable[[Participation], None] | None:
        """Cut the exchange; return a function that lets one of its members proceed, or None if none had begun."""
        phase, self._phase = self._phase, None
        if phase is None:
            return None
        phase.stop()
        return lambda participation: participation.proceed(phase.peers_of(participation))


def contact_time_s(one: VehiclePath, other: VehiclePath, range_m: float, start_s: float, end_s: float) -> float:
    """Return how long two vehicles were closer than ``range_m`` (m) between two instants (s) that both paths cover.

    The result is exact: between path points vehicles drive straight at constant speed.
    """
    inside = {time_s for path in (one, other) for time_s in path.time_s if start_s < time_s < end_s}
    instants = [start_s, *sorted(inside), end_s]
    return math.fsum(
        _share_in_range(_offset_m(one, other, before_s), _offset_m(one, other, after_s), range_m) * (after_s - before_s)
        for before_s, after_s in itertools.pairwise(instants)
    )


def _offset_m(one: VehiclePath, other: VehiclePath, time_s: float) -> tuple[float, float]:
    """Return the vector (x, y) in m from one vehicle to the other at ``time_s`` (s), which both paths must cover."""
    (x1_m, y1_m), (x2_m, y2_m) = position_m(one, time_s), position_m(other, time_s)
    return x2_m - x1_m, y2_m - y1_m


def _share_in_range(start_m: tuple[float, float], end_m: tuple[float, float], range_m: float) -> float:
    """Return the share, in [0, 1], of the straight way from start to end that is within ``range_m`` (m) of (0, 0)."""
    (x_m, y_m), (to_x_m, to_y_m) = start_m, end_m
    if start_m == end_m:
        return float(math.hypot(x_m, y_m) < range_m)
    first, last = crossings(x_m, y_m, to_x_m - x_m, to_y_m - y_m, range_m)
    return max(0.0, min(1.0, last) - max(0.0, first))
