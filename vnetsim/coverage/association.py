"""Association: which RSU serves a vehicle inside several discs, to the exact instant of a change.

The vehicle's path between two samples is the straight segment, so that where another RSU becomes better is the root of
a function of time; it is found to the last bit of the clock, and nothing is rounded to the step. What begins and ends
between the same two samples is not seen; of two distances and no hysteresis there is no such thing.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import CoverageEvent, Entered, VehiclePath, position_m

READ_AHEAD_S = 20.0
"""Vehicles are looked at once in so much traffic (s): in Python one after the other, but not at each of their steps."""

AtPlace = Callable[[Any, Any], Any]
"""How well the RSU of a window would serve its vehicle: the more, the better. It is asked for one place, x and y as
numbers (m), or for many, as arrays, and returns the like."""
Quality = Callable[[VehiclePath], AtPlace]
"""Gives that for a window that opens."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Serves:
    """The RSU of ``path`` serves its vehicle from ``time_s`` on."""

    time_s: float
    path: VehiclePath


def nearness(rsus: Sequence[Rsu]) -> Quality:
    """Return the quality that makes the nearest RSU the best: the distance with a minus sign (m)."""
    by_id = {rsu.id: rsu for rsu in rsus}

    def quality(path: VehiclePath) -> AtPlace:
        rsu = by_id[path.rsu_id]
        return lambda x_m, y_m: -np.hypot(x_m - rsu.x_m, y_m - rsu.y_m)

    return quality


@dataclass(slots=True, kw_only=True, eq=False)
class _Served:
    """A vehicle in coverage.

    Args:
        serving: the window whose RSU serves it; None until one does, and after that one was left.
        windows: those that are open, the earliest first: since when (s) each has been better than the one that serves.
        qualities: of them; none where nobody asks.
        now_s: until when it has been looked at (s).
    """

    serving: VehiclePath | None
    now_s: float
    windows: dict[VehiclePath, float | None] = field(default_factory=dict)
    qualities: dict[VehiclePath, AtPlace] = field(default_factory=dict)

    def hand_to(self, window: VehiclePath, time_s: float) -> Serves:
        self.serving, self.windows = window, dict.fromkeys(self.windows)
        # later than now: rounding may have each of three RSUs better than the next where they are equally far
        self.now_s = math.nextafter(time_s, math.inf)
        return Serves(time_s=time_s, path=window)


class Association:
    """Adds to coverage events who serves whom.

    A vehicle that enters coverage is served at once, by the best where it enters several discs together. Another RSU
    takes over once it has been better by more than the hysteresis for the time to trigger, without a break; when the
    disc of the one that serves is left, the best of the others does at once. Of equals it is the one whose disc was
    entered first.

    Args:
        quality: of a window's RSU; None where it is served by the RSU whose disc it entered first, as long as it stays.
        hysteresis: by how much another one must be better, in the unit of the quality, >= 0.
        trigger_s: for how long (s), >= 0.
    """

    def __init__(self, quality: Quality | None, *, hysteresis: float = 0.0, trigger_s: float = 0.0) -> None:
        self._quality = quality
        self._hysteresis = hysteresis
        self._trigger_s = trigger_s
        self._vehicles: dict[str, _Served] = {}

    def follow(self, events: Iterable[CoverageEvent]) -> Iterator[CoverageEvent | Serves]:
        """Yield the events in their order, and who serves whom from some instant on.

        Where a disc is left it stands before the events of its instant, and else after them. Qualities have some
        seconds of the events be read before the first of them is handed on.
        """
        batch: list[CoverageEvent] = []
        ahead_s = 0.0 if self._quality is None else READ_AHEAD_S
        for event in events:
            if batch and event.time_s - batch[0].time_s > ahead_s:
                yield from self._followed(batch)
                batch = []
            batch.append(event)
        yield from self._followed(batch)

    def _followed(self, batch: Sequence[CoverageEvent]) -> Iterator[CoverageEvent | Serves]:
        """Return events, the last of which are all of their instant, and who serves whom until then."""
        found: list[Serves] = []  # anew, or since another one became better
        taken_over: list[Serves] = []  # where a disc was left
        for time_s, together in groupby(batch, key=attrgetter("time_s")):
            touched: dict[str, _Served] = {}
            for event in together:
                vehicle_id = event.path.vehicle_id
                if vehicle_id not in self._vehicles:
                    self._vehicles[vehicle_id] = _Served(serving=None, now_s=time_s)
                touched[vehicle_id] = vehicle = self._vehicles[vehicle_id]
                found += self._until(vehicle, time_s)
                self._take_note(vehicle, event)
            for vehicle_id, vehicle in touched.items():
                if not vehicle.windows:
                    del self._vehicles[vehicle_id]
                elif vehicle.serving is None:
                    best = self._best(vehicle, time_s)
                    (taken_over if best.time_s[0] < time_s else found).append(vehicle.hand_to(best, time_s))
        if batch and self._quality is not None:  # without one nobody is handed over, however many are in coverage
            for vehicle in self._vehicles.values():
                found += self._until(vehicle, batch[-1].time_s)
        found.sort(key=lambda serves: (serves.time_s, serves.path.vehicle_id))
        taken_over.sort(key=lambda serves: (serves.time_s, serves.path.vehicle_id))
        return merge(taken_over, batch, found, key=attrgetter("time_s"))  # of equals, the first list's come first

    def _take_note(self, vehicle: _Served, event: CoverageEvent) -> None:
        """Open or close a window."""
        path = event.path
        if isinstance(event, Entered):
            vehicle.windows[path] = None
            if self._quality is not None:
                vehicle.qualities[path] = self._quality(path)
        else:
            del vehicle.windows[path]
            vehicle.qualities.pop(path, None)
            vehicle.serving = None if vehicle.serving is path else vehicle.serving

    def _best(self, vehicle: _Served, time_s: float) -> VehiclePath:
        """Return the window whose RSU is the best at a time (s)."""
        first = next(iter(vehicle.windows))
        if not vehicle.qualities:
            return first
        place = position_m(first, time_s)
        return max(vehicle.windows, key=lambda path: vehicle.qualities[path](*place))

    def _until(self, vehicle: _Served, time_s: float) -> Iterator[Serves]:
        """Yield the changes before a time (s), until which no window of the vehicle opens or closes."""
        while vehicle.qualities and len(vehicle.windows) > 1 and vehicle.now_s < time_s:
            found = {path: self._due(vehicle, path, time_s) for path in vehicle.windows if path is not vehicle.serving}
            best = min(found, key=lambda path: found[path][0])
            due_s = found[best][0]
            if due_s < time_s:
                yield vehicle.hand_to(best, due_s)
            else:
                vehicle.windows |= {path: since_s for path, (_, since_s) in found.items()}
                vehicle.now_s = time_s
        vehicle.now_s = max(vehicle.now_s, time_s)

    def _due(self, vehicle: _Served, other: VehiclePath, until_s: float) -> tuple[float, float | None]:
        """Return when another RSU is to take over (s), infinite where it is not to before a time (s).

        Returns:
            that, and since when it is better at that time (s), None where it is not.
        """
        assert vehicle.serving is not None
        path = next(iter(vehicle.windows))
        points = slice(max(bisect_right(path.time_s, vehicle.now_s) - 1, 0), bisect_left(path.time_s, until_s) + 1)
        time_s, x_m, y_m = (np.array(values[points]) for values in (path.time_s, path.x_m, path.y_m))
        pair = vehicle.qualities[vehicle.serving], vehicle.qualities[other]
        better = self._better(pair, x_m, y_m)
        turned = np.flatnonzero(better[1:] != better[:-1]).tolist()
        sampled_s = [*time_s.tolist(), math.inf]

        def turn_s(at: int) -> float:
            if at in (-1, len(time_s)):
                return -math.inf if at < 0 else math.inf
            return self._turn_s(path, pair, sampled_s[at], sampled_s[at + 1])

        def after(at: int, bound_s: float) -> bool:
            """Return whether a turn comes after a time (s); where the sample before it does, it is not looked for."""
            return sampled_s[at] >= bound_s or turn_s(at) > bound_s

        edges = [*([-1] if better[0] else []), *turned, len(time_s)]
        for begin, end in zip(edges[::2], edges[1::2], strict=False):
            if not after(end, vehicle.now_s):
                continue
            if (begin_s := turn_s(begin)) >= until_s:
                break
            since_s = vehicle.windows[other] if begin_s <= vehicle.now_s else begin_s
            since_s = vehicle.now_s if since_s is None else since_s
            due_s = since_s + self._trigger_s
            if due_s < until_s and after(end, due_s):
                return due_s, since_s
            if turn_s(end) >= until_s:
                return math.inf, since_s
        return math.inf, None

    def _better(self, pair: tuple[AtPlace, AtPlace], x_m: Any, y_m: Any) -> Any:
        """Return whether the second RSU is better than the first, at one place or many (m)."""
        serving, other = pair
        return other(x_m, y_m) - serving(x_m, y_m) > self._hysteresis

    def _turn_s(self, path: VehiclePath, pair: tuple[AtPlace, AtPlace], low_s: float, high_s: float) -> float:
        """Return the first instant between two points of a path (s) at which ``_better`` is no longer what it was."""
        before = self._better(pair, *position_m(path, low_s))
        while low_s < (middle_s := low_s + (high_s - low_s) / 2) < high_s:
            if self._better(pair, *position_m(path, middle_s)) == before:
                low_s = middle_s
            else:
                high_s = middle_s
        return high_s
