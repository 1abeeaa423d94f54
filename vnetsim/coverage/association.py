"""Association: decides which RSU serves a vehicle inside several discs, with exact times of changes.

Between two samples a vehicle moves in a straight line, so the time at which another RSU becomes better is the root of a
function, found to the last bit. An advantage that begins and ends between the same two samples is not seen; by
distance without hysteresis there is none.
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
"""Traffic (s) that is processed at a time: Python loops over vehicles, but not over all their steps."""

AtPlace = Callable[[Any, Any], Any]
"""Returns the quality of a window's RSU (larger is better) at x and y (m): numbers for one place, arrays for many."""
Quality = Callable[[VehiclePath], AtPlace]
"""Returns the ``AtPlace`` function of a new window."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Serves:
    """The RSU of ``path`` serves its vehicle from ``time_s`` on."""

    time_s: float
    path: VehiclePath


def nearness(rsus: Sequence[Rsu]) -> Quality:
    """Return a ``Quality`` by which the nearest RSU is best: minus the distance (m) to the path's RSU, in ``rsus``."""
    by_id = {rsu.id: rsu for rsu in rsus}

    def quality(path: VehiclePath) -> AtPlace:
        """Return the function that returns minus the distance (m) of places x, y (m) to the RSU of ``path``."""
        rsu = by_id[path.rsu_id]
        return lambda x_m, y_m: -np.hypot(x_m - rsu.x_m, y_m - rsu.y_m)

    return quality


@dataclass(slots=True, kw_only=True, eq=False)
class _Vehicle:
    """A vehicle in coverage."""

    serving: VehiclePath | None  # the window whose RSU serves it; None before the first and after leaving its disc
    now_s: float  # time up to which it was processed
    # open windows, the earliest first, with the time since when each is better than the serving one (None if it is not)
    windows: dict[VehiclePath, float | None] = field(default_factory=dict)
    qualities: dict[VehiclePath, AtPlace] = field(default_factory=dict)  # empty without a quality

    def hand_over_to(self, window: VehiclePath, time_s: float) -> Serves:
        """Make ``window`` the serving one from ``time_s`` on, forget since when others are better, return the event."""
        self.serving, self.windows = window, dict.fromkeys(self.windows)
        # strictly later: at equal distances rounding may make each of three RSUs better than the next
        self.now_s = math.nextafter(time_s, math.inf)
        return Serves(time_s=time_s, path=window)


class Association:
    """Adds to coverage events the events at which another RSU begins to serve a vehicle.

    A vehicle that enters coverage is served at once, by the best RSU if it enters several discs at one instant. Another
    RSU takes over when its quality has exceeded the serving one's by more than ``hysteresis`` (>= 0), without a break,
    for ``trigger_s`` (s, >= 0). When a vehicle leaves the disc of its serving RSU, the best of the others takes over at
    once. Among equal RSUs, the one with the earliest entry is chosen. If ``quality`` is None, the RSU of the earliest
    entry serves until its disc is left.
    """

    def __init__(self, quality: Quality | None, *, hysteresis: float = 0.0, trigger_s: float = 0.0) -> None:
        self._quality = quality
        self._hysteresis = hysteresis
        self._trigger_s = trigger_s
        self._vehicles: dict[str, _Vehicle] = {}

    def follow(self, events: Iterable[CoverageEvent]) -> Iterator[CoverageEvent | Serves]:
        """Yield all ``events``, which must be sorted by time, and a ``Serves`` whenever an RSU begins to serve.

        A ``Serves`` comes before the events of its instant if the vehicle left the disc of the RSU that served it,
        otherwise after them. A vehicle that leaves coverage gets no ``Serves``. With a quality, events are read 20 s
        ahead.
        """
        batch: list[CoverageEvent] = []
        ahead_s = 0.0 if self._quality is None else READ_AHEAD_S
        for event in events:
            if batch and event.time_s - batch[0].time_s > ahead_s:
                yield from self._add_serves(batch)
                batch = []
            batch.append(event)
        yield from self._add_serves(batch)

    def _add_serves(self, batch: Sequence[CoverageEvent]) -> Iterator[CoverageEvent | Serves]:
        """Return the events of ``batch``, which ends with a whole instant, and their ``Serves``, sorted by time."""
        found: list[Serves] = []  # for vehicles that entered coverage, or another RSU became better
        taken_over: list[Serves] = []  # for vehicles that left their serving RSU's disc
        for time_s, together in groupby(batch, key=attrgetter("time_s")):
            touched: dict[str, _Vehicle] = {}
            for event in together:
                vehicle_id = event.path.vehicle_id
                if vehicle_id not in self._vehicles:
                    self._vehicles[vehicle_id] = _Vehicle(serving=None, now_s=time_s)
                touched[vehicle_id] = vehicle = self._vehicles[vehicle_id]
                found += self._apply_takeovers(vehicle, time_s)
                self._update_windows(vehicle, event)
            for vehicle_id, vehicle in touched.items():
                if not vehicle.windows:
                    del self._vehicles[vehicle_id]
                elif vehicle.serving is None:
                    best = self._find_best_window(vehicle, time_s)
                    (taken_over if best.time_s[0] < time_s else found).append(vehicle.hand_over_to(best, time_s))
        if batch and self._quality is not None:  # without a quality there is no other handover
            for vehicle in self._vehicles.values():
                found += self._apply_takeovers(vehicle, batch[-1].time_s)
        found.sort(key=lambda serves: (serves.time_s, serves.path.vehicle_id))
        taken_over.sort(key=lambda serves: (serves.time_s, serves.path.vehicle_id))
        return merge(taken_over, batch, found, key=attrgetter("time_s"))  # at equal times, the first list comes first

    def _update_windows(self, vehicle: _Vehicle, event: CoverageEvent) -> None:
        """Open or close the event's window; if it was the serving one, set ``vehicle.serving`` to None."""
        path = event.path
        if isinstance(event, Entered):
            vehicle.windows[path] = None
            if self._quality is not None:
                vehicle.qualities[path] = self._quality(path)
        else:
            del vehicle.windows[path]
            vehicle.qualities.pop(path, None)
            if vehicle.serving is path:
                vehicle.serving = None

    def _find_best_window(self, vehicle: _Vehicle, time_s: float) -> VehiclePath:
        """Return the open window of the best RSU at a time (s); the first entered among equals or without a quality."""
        first = next(iter(vehicle.windows))
        if not vehicle.qualities:
            return first
        place = position_m(first, time_s)
        return max(vehicle.windows, key=lambda path: vehicle.qualities[path](*place))

    def _apply_takeovers(self, vehicle: _Vehicle, time_s: float) -> Iterator[Serves]:
        """Apply and yield takeovers before ``time_s`` (s); windows must not have changed since ``vehicle.now_s``."""
        while vehicle.qualities and len(vehicle.windows) > 1 and vehicle.now_s < time_s:
            others = [path for path in vehicle.windows if path is not vehicle.serving]
            found = {path: self._find_takeover(vehicle, path, time_s) for path in others}
            best = min(found, key=lambda path: found[path][0])
            due_s = found[best][0]
            if due_s < time_s:
                yield vehicle.hand_over_to(best, due_s)
            else:
                vehicle.windows |= {path: since_s for path, (_, since_s) in found.items()}
                vehicle.now_s = time_s
        vehicle.now_s = max(vehicle.now_s, time_s)

    def _find_takeover(self, vehicle: _Vehicle, other: VehiclePath, until_s: float) -> tuple[float, float | None]:
        """Return when ``other`` takes over (s; inf: not by ``until_s``) and since when it is better (s; None: not)."""
        assert vehicle.serving is not None
        path = next(iter(vehicle.windows))
        points = slice(max(bisect_right(path.time_s, vehicle.now_s) - 1, 0), bisect_left(path.time_s, until_s) + 1)
        time_s, x_m, y_m = (np.array(values[points]) for values in (path.time_s, path.x_m, path.y_m))
        pair = vehicle.qualities[vehicle.serving], vehicle.qualities[other]
        better = self._is_better(pair, x_m, y_m)
        turned = np.flatnonzero(better[1:] != better[:-1]).tolist()
        sampled_s = [*time_s.tolist(), math.inf]

        def find_turn_s(at: int) -> float:
            """Return when ``other`` gets better or worse after point ``at`` (s): -inf for -1, inf for the last + 1."""
            if at in (-1, len(time_s)):
                return -math.inf if at < 0 else math.inf
            return self._find_turn_s(path, pair, sampled_s[at], sampled_s[at + 1])

        def turns_after(at: int, bound_s: float) -> bool:
            """Return ``find_turn_s(at) > bound_s``, without that search if point ``at`` is late enough."""
            return sampled_s[at] >= bound_s or find_turn_s(at) > bound_s

        edges = [*([-1] if better[0] else []), *turned, len(time_s)]
        for begin, end in zip(edges[::2], edges[1::2], strict=False):
            if not turns_after(end, vehicle.now_s):
                continue
            if (begin_s := find_turn_s(begin)) >= until_s:
                break
            since_s = vehicle.windows[other] if begin_s <= vehicle.now_s else begin_s
            since_s = vehicle.now_s if since_s is None else since_s
            due_s = since_s + self._trigger_s
            if due_s < until_s and turns_after(end, due_s):
                return due_s, since_s
            if find_turn_s(end) >= until_s:
                return math.inf, since_s
        return math.inf, None

    def _is_better(self, pair: tuple[AtPlace, AtPlace], x_m: Any, y_m: Any) -> Any:
        """Return whether the second RSU is better by more than the hysteresis: a bool, or an array for arrays (m)."""
        serving, other = pair
        return other(x_m, y_m) - serving(x_m, y_m) > self._hysteresis

    def _find_turn_s(self, path: VehiclePath, pair: tuple[AtPlace, AtPlace], low_s: float, high_s: float) -> float:
        """Return the first instant (s) up to ``high_s`` at which ``_is_better`` is not as at ``low_s``."""
        before = self._is_better(pair, *position_m(path, low_s))
        while low_s < (middle_s := low_s + (high_s - low_s) / 2) < high_s:
            if self._is_better(pair, *position_m(path, middle_s)) == before:
                low_s = middle_s
            else:
                high_s = middle_s
        return high_s
