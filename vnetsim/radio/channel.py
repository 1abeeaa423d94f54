"""The radio channel of one RSU: active transfers share its airtime equally.

This is a fluid model of processor sharing: with n active transfers each moves at rate / n, in both directions alike.
*Virtual time* is the airtime that one transfer has received since the channel was last idle; it advances by dt / n. A
transfer of b bits at r bit/s ends when virtual time has grown by b / r, whatever other transfers join or leave. So a
join or leave changes no other transfer, and rounding does not accumulate (A. K. Parekh and R. G. Gallager, IEEE/ACM
Trans. Networking 1(3), 1993, define virtual time this way).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush

import simpy


@dataclass(kw_only=True)
class RateUse:
    """Counts the rates that transfers look up."""

    cap_bps: float | None = None  # the highest possible rate (bit/s); None if there is none
    looked_up: int = 0  # number of rates: one at the start of a transfer and one at each of its updates
    capped: int = 0  # how many of them were the cap
    # how many of them were for a link in each state; empty if the model has no states
    states: Counter[str] = field(default_factory=Counter, compare=False)
    # returns the state of the link whose rate was returned last, empty for none
    state: Callable[[], str] = field(default=str, compare=False)
    notes: Sequence[str] = ()  # the model's notes for the user

    def count(self, rate_bps: float) -> float:
        """Count a rate (bit/s) that was just looked up, and the state of its link; return the rate."""
        self.looked_up += 1
        self.capped += self.cap_bps is not None and rate_bps >= self.cap_bps
        if state := self.state():
            self.states[state] += 1
        return rate_bps


@dataclass(slots=True, eq=False)
class Transfer:
    """A transfer over a channel; made by ``Channel.send``."""

    size_bytes: float
    # rate with the whole airtime as a function of simulated time (s), in bit/s, >= 0
    rate_bps: Callable[[float], float]
    on_done: Callable[[], None] | None  # called once, when the last byte arrives; None after an abort
    active: bool = True  # whether the transfer uses the channel now
    due_s: float = math.inf  # virtual time at which the last byte arrives (s); infinite while the rate is 0
    arrived_bytes: float = 0.0  # bytes that had arrived at the last change of the rate, or at the end
    _bytes_per_s: float = 0.0
    _mark_s: float = 0.0  # virtual time up to which arrived_bytes counts

    def moved_bytes(self, virtual_s: float) -> float:
        """Return the bytes that have arrived by a virtual time of the channel (s); after the end, those at the end."""
        if not self.active:
            return self.arrived_bytes
        return min(self.size_bytes, self.arrived_bytes + self._bytes_per_s * (virtual_s - self._mark_s))

    def update_rate(self, virtual_s: float, time_s: float) -> bool:
        """Look up the rate at ``time_s`` (s), with the channel's virtual time (s); return whether the rate changed.

        If so, updates ``arrived_bytes`` and ``due_s``, and the caller must queue the transfer again.
        """
        bytes_per_s = self.rate_bps(time_s) / 8
        if bytes_per_s == self._bytes_per_s:
            return False
        self.arrived_bytes = self.moved_bytes(virtual_s)
        self._bytes_per_s = bytes_per_s
        self._mark_s = virtual_s
        missing_bytes = self.size_bytes - self.arrived_bytes
        self.due_s = virtual_s + missing_bytes / bytes_per_s if bytes_per_s > 0 else math.inf
        return True


class Channel:
    """One RSU's airtime.

    The clock of ``env`` is in seconds. ``rates`` counts the rates that transfers look up; channels may share it.
    Callbacks run inside the SimPy event that ends a transfer, so the event loop raises their exceptions unchanged. They
    may send and abort on the same channel.
    """

    def __init__(self, env: simpy.Environment, rates: RateUse | None = None) -> None:
        self._rates = RateUse() if rates is None else rates
        self.carried_bytes = 0.0  # by transfers that have ended, completed or not
        self.busy_s = 0.0  # airtime used
        self._env = env
        self.active = 0  # number of transfers that share the airtime now
        self._virtual_s = 0.0
        self._now_s: float = env.now
        self._due: list[tuple[float, int, Transfer]] = []  # also contains outdated entries, see _next
        self._entries = 0
        self._alarm = 0

    def send(
        self,
        size_bytes: float,
        rate_bps: Callable[[float], float],
        on_done: Callable[[], None],
        *,
        update_s: float | None = None,
    ) -> Transfer:
        """Start a transfer of 0 bytes or more now.

        ``rate_bps`` returns the rate with the whole airtime (bit/s) at a simulated time (s); at 0 nothing moves. It is
        called now, and every ``update_s`` (s) unless that is None. ``on_done`` is called once, when the last byte
        arrives; for a transfer without bytes in a later event of this instant.
        """
        self._advance()
        count = self._rates.count
        transfer = Transfer(float(size_bytes), lambda time_s: count(rate_bps(time_s)), on_done)
        self.active += 1
        transfer.update_rate(self._virtual_s, self._env.now)
        self._enqueue(transfer)
        if update_s is not None:
            self._schedule_update(transfer, self._env.now, 1, update_s)
        return transfer

    def abort(self, transfer: Transfer) -> float:
        """End a transfer now, if it has not ended, and return its bytes that arrived; ``on_done`` is not called."""
        transfer.on_done = None
        if transfer.active:
            self._advance()
            self._remove(transfer, transfer.moved_bytes(self._virtual_s))
            self._set_alarm()
        return transfer.moved_bytes(self._virtual_s)

    def _advance(self) -> None:
        """Bring the used airtime and the virtual time up to now; call it before the number of transfers changes."""
        elapsed_s = self._env.now - self._now_s
        self._now_s = self._env.now
        if self.active:
            self.busy_s += elapsed_s
            self._virtual_s += elapsed_s / self.active

    def _enqueue(self, transfer: Transfer) -> None:
        """Queue a transfer by its ``due_s``, which makes its earlier entries outdated, and set the alarm."""
        self._entries += 1
        heappush(self._due, (transfer.due_s, self._entries, transfer))
        self._set_alarm()

    def _remove(self, transfer: Transfer, moved_bytes: float) -> None:
        """End a transfer with ``moved_bytes``; without any other active transfer, virtual time begins again at 0."""
        transfer.arrived_bytes, transfer.active = moved_bytes, False
        self.carried_bytes += moved_bytes
        self.active -= 1
        if self.active == 0:  # restart virtual time: differences of small numbers are more exact
            self._virtual_s = 0.0
            self._due.clear()

    def _next(self) -> Transfer | None:
        """Return the active transfer that is due first, None if there is none; remove outdated entries before it."""
        while self._due:
            due_s, _, transfer = self._due[0]
            if transfer.active and transfer.due_s == due_s:
                return transfer
            heappop(self._due)
        return None

    def _set_alarm(self) -> None:
        """Schedule ``_end_due`` for when the next transfer ends, if any will; earlier alarms become outdated."""
        self._alarm += 1
        transfer = self._next()
        if transfer is not None and transfer.due_s < math.inf:
            delay_s = max(0.0, transfer.due_s - self._virtual_s) * self.active
            self._env.timeout(delay_s).callbacks.append(partial(self._end_due, self._alarm))

    def _end_due(self, alarm: int, _: object) -> None:
        """End all transfers that are due, then call their ``on_done``; do nothing if ``alarm`` is outdated."""
        if alarm != self._alarm:
            return
        self._advance()
        transfer = self._next()
        assert transfer is not None
        # the clock rounds, but the alarm was set for this transfer: its last byte has arrived
        self._virtual_s = virtual_s = max(self._virtual_s, transfer.due_s)
        done = []
        while transfer is not None and transfer.due_s <= virtual_s:
            done.append(transfer)
            self._remove(transfer, transfer.size_bytes)
            transfer = self._next()
        self._set_alarm()
        for transfer in done:
            if transfer.on_done is not None:
                transfer.on_done()

    def _schedule_update(self, transfer: Transfer, start_s: float, count: int, update_s: float) -> None:
        """Schedule the ``count``-th update of a transfer's rate, ``count * update_s`` (s) after ``start_s``."""
        delay_s = max(math.ulp(self._env.now), start_s + count * update_s - self._env.now)
        self._env.timeout(delay_s).callbacks.append(partial(self._update, transfer, start_s, count, update_s))

    def _update(self, transfer: Transfer, start_s: float, count: int, update_s: float, _: object) -> None:
        """Look up a transfer's rate again and schedule the next look-up, unless it has ended."""
        if not transfer.active:
            return
        self._advance()
        if transfer.update_rate(self._virtual_s, self._env.now):
            self._enqueue(transfer)
        self._schedule_update(transfer, start_s, count + 1, update_s)
