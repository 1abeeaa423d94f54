"""From sampled positions to coverage windows: the exact crossings of each RSU's circle.

Between two samples a vehicle is taken to drive the straight segment at linearly changing speed. Where the segment
crosses the circle is the root of a quadratic; nothing is rounded to the step. A disc is open: a vehicle on the circle
is outside.

A vehicle that vanishes inside a disc was last seen one sample earlier, and its window ends there. The events of an
instant are therefore handed out only after the following sample: only then is it known who was still there.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import Protocol

from vnetsim.coverage.circle import crossings
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.window_of_path import window_of
from vnetsim.coverage.windows import CoverageEvent, Entered, EntryCause, ExitCause, Left, VehiclePath

Sample = tuple[str, float, float, float]
"""A vehicle near an RSU: id, x (m), y (m), speed (m/s)."""


class Observer(Protocol):
    """What a source knows of a vehicle at the current sample, asked only when a window opens or closes."""

    def vehicle_type(self, vehicle_id: str) -> str:
        """Return its type, ``""`` where unknown."""
        ...

    def edge(self, vehicle_id: str) -> str:
        """Return the edge it is on, ``""`` where unknown."""
        ...

    def appeared(self, vehicle_id: str) -> EntryCause:
        """Return why a vehicle not seen near the RSU one sample ago is now inside its disc."""
        ...

    def vanished(self, vehicle_id: str) -> ExitCause:
        """Return why a vehicle inside the disc one sample ago is no longer near the RSU."""
        ...


def largest_move_m(speed_mps: float, step_s: float) -> float:
    """Return the displacement (m) beyond which a vehicle did not drive but jump, at most ``speed_mps`` fast.

    It leaves room for acceleration of 5 m/s^2 within a long step, for lanes whose drawn length differs from their
    nominal one, for lane changes and for junctions without internal lanes.
    """
    return 1.5 * speed_mps * step_s + 2.5 * step_s * step_s + 50.0


def events_order(event: CoverageEvent) -> tuple[float, bool, str, str]:
    """Return the sorting key of events: time, departures from a disc before entries, RSU, vehicle."""
    return event.time_s, isinstance(event, Entered), event.path.rsu_id, event.path.vehicle_id


class Tracker:
    """Turns samples of vehicles near several RSUs into coverage events.

    Args:
        rsus: the RSUs.
    """

    def __init__(self, rsus: Sequence[Rsu]) -> None:
        self._discs = [_Disc(rsu) for rsu in rsus]
        self._held: list[CoverageEvent] = []
        self._time_s = -math.inf

    def advance(
        self,
        time_s: float,
        near: Iterable[Iterable[Sample]],
        observer: Observer,
        teleported: Container[str] = frozenset(),
    ) -> list[CoverageEvent]:
        """Take the samples of one instant and return, in order, the events before that instant.

        Args:
            time_s: later than the instant before (s).
            near: for each RSU the vehicles in its disc, and at least those outside that could have been inside one
                step earlier or can be one step later.
            observer: the source at this instant.
            teleported: the vehicles that did not drive since the instant before, as far as the source knows; a
                displacement that no speed explains tells of others.
        """
        for disc, samples in zip(self._discs, near, strict=True):
            disc.advance(self._time_s, time_s, samples, observer, self._held, teleported)
        self._time_s = time_s
        if not self._held:
            return []
        due = sorted((event for event in self._held if event.time_s < time_s), key=events_order)
        self._held = [event for event in self._held if event.time_s >= time_s]
        return due

    def finish(self, observer: Observer) -> list[CoverageEvent]:
        """Close every open window at the last instant with cause ``end`` and return all events still held."""
        for disc in self._discs:
            disc.finish(self._time_s, observer, self._held)
        held, self._held = sorted(self._held, key=events_order), []
        return held


class _Disc:
    """The vehicles around one RSU at the newest instant."""

    def __init__(self, rsu: Rsu) -> None:
        self._rsu = rsu
        self._inside: dict[str, VehiclePath] = {}
        self._outside: dict[str, Sample] = {}

    def advance(  # noqa: C901, PLR0912 - the one hot loop: a call per vehicle and step would cost as much as its body
        self,
        before_s: float,
        now_s: float,
        samples: Iterable[Sample],
        observer: Observer,
        events: list[CoverageEvent],
        teleported: Container[str],
    ) -> None:
        """Move to the instant ``now_s`` and append what happened since ``before_s`` to ``events``."""
        x0_m, y0_m, square_m2 = self._rsu.x_m, self._rsu.y_m, self._rsu.range_m * self._rsu.range_m
        was_inside, was_outside = self._inside, self._outside
        inside: dict[str, VehiclePath] = {}
        outside: dict[str, Sample] = {}
        for sample in samples:
            vehicle_id, x_m, y_m, speed_mps = sample
            dx_m, dy_m = x_m - x0_m, y_m - y0_m
            is_inside = dx_m * dx_m + dy_m * dy_m < square_m2
            path = was_inside.pop(vehicle_id, None)
            if path is not None:
                xs_m, ys_m = path.x_m, path.y_m
                moved = abs(x_m - xs_m[-1]) > 50.0 or abs(y_m - ys_m[-1]) > 50.0
                if vehicle_id in teleported or (
                    moved and _jumped((xs_m[-1], ys_m[-1], path.speed_mps[-1]), sample, now_s - before_s)
                ):
                    self._close(path, before_s, "teleport", "", events)
                    if is_inside:
                        inside[vehicle_id] = self._open_at_sample(sample, now_s, "teleport", observer, events)
                    else:
                        outside[vehicle_id] = sample
                elif is_inside:
                    path.time_s.append(now_s)
                    xs_m.append(x_m)
                    ys_m.append(y_m)
                    path.speed_mps.append(speed_mps)
                    inside[vehicle_id] = path
                else:
                    self._leave(path, before_s, now_s, sample, observer, events)
                    outside[vehicle_id] = sample
                continue
            before = was_outside.get(vehicle_id)
            if is_inside:
                if before is None:
                    # The very first instant cannot tell who departs from who was there all along.
                    cause = observer.appeared(vehicle_id) if before_s > -math.inf else "begin"
                elif vehicle_id in teleported or _jumped(before[1:], sample, now_s - before_s):
                    cause = "teleport"
                else:
                    inside[vehicle_id] = self._enter(before, sample, before_s, now_s, observer, events)
                    continue
                inside[vehicle_id] = self._open_at_sample(sample, now_s, cause, observer, events)
            else:
                outside[vehicle_id] = sample
                if before is None or vehicle_id in teleported:
                    continue
                step_x_m, step_y_m = x_m - before[1], y_m - before[2]
                receding = dx_m * step_x_m + dy_m * step_y_m
                # Only where the closest approach lies within the step can the segment have cut the disc.
                if receding > 0 and receding < step_x_m * step_x_m + step_y_m * step_y_m:
                    self._pass_through(before, sample, before_s, now_s, observer, events)
        for vehicle_id, path in was_inside.items():
            self._close(path, before_s, observer.vanished(vehicle_id), "", events)
        self._inside, self._outside = inside, outside

    def finish(self, now_s: float, observer: Observer, events: list[CoverageEvent]) -> None:
        """Close every open window at the newest instant."""
        for vehicle_id, path in self._inside.items():
            self._close(path, now_s, "end", observer.edge(vehicle_id), events)
        self._inside, self._outside = {}, {}

    def _open(
        self,
        vehicle_id: str,
        point: tuple[float, float, float, float],
        cause: EntryCause,
        observer: Observer,
        events: list[CoverageEvent],
    ) -> VehiclePath:
        time_s, x_m, y_m, speed_mps = point
        path = VehiclePath(
            vehicle_id=vehicle_id,
            vehicle_type=observer.vehicle_type(vehicle_id),
            rsu_id=self._rsu.id,
            entry_cause=cause,
            entry_edge=observer.edge(vehicle_id),
            time_s=[time_s],
            x_m=[x_m],
            y_m=[y_m],
            speed_mps=[speed_mps],
        )
        events.append(Entered(time_s=time_s, path=path))
        return path

    def _open_at_sample(
        self, sample: Sample, now_s: float, cause: EntryCause, observer: Observer, events: list[CoverageEvent]
    ) -> VehiclePath:
        return self._open(sample[0], (now_s, *sample[1:]), cause, observer, events)

    def _enter(
        self,
        before: Sample,
        sample: Sample,
        before_s: float,
        now_s: float,
        observer: Observer,
        events: list[CoverageEvent],
    ) -> VehiclePath:
        entry, _ = _crossings(before, sample, self._rsu)
        point = _between(before[1:], sample, before_s, now_s, entry)
        if point[0] >= now_s:
            return self._open_at_sample(sample, now_s, "crossing", observer, events)
        path = self._open(sample[0], point, "crossing", observer, events)
        _extend(path, (now_s, *sample[1:]))
        return path

    def _leave(
        self,
        path: VehiclePath,
        before_s: float,
        now_s: float,
        sample: Sample,
        observer: Observer,
        events: list[CoverageEvent],
    ) -> None:
        start = path.vehicle_id, path.x_m[-1], path.y_m[-1], path.speed_mps[-1]
        _, leaving = _crossings(start, sample, self._rsu)
        point = _between(start[1:], sample, before_s, now_s, leaving)
        if point[0] > path.time_s[-1]:
            _extend(path, point)
        self._close(path, point[0], "crossing", observer.edge(path.vehicle_id), events)

    def _pass_through(
        self,
        before: Sample,
        sample: Sample,
        before_s: float,
        now_s: float,
        observer: Observer,
        events: list[CoverageEvent],
    ) -> None:
        """Record a vehicle that entered and left within one step."""
        entry, leaving = _crossings(before, sample, self._rsu)
        # Both ends are outside and the closest approach is between them: the chord lies within the step, and a share
        # a hair outside [0, 1] (an end on the circle) is rounding, which _between takes back.
        if entry >= leaving or _jumped(before[1:], sample, now_s - before_s):
            return
        first = _between(before[1:], sample, before_s, now_s, entry)
        last = _between(before[1:], sample, before_s, now_s, leaving)
        if first[0] >= last[0]:
            return
        path = self._open(sample[0], first, "crossing", observer, events)
        _extend(path, last)
        self._close(path, last[0], "crossing", path.entry_edge, events)

    def _close(
        self, path: VehiclePath, exit_s: float, cause: ExitCause, edge: str, events: list[CoverageEvent]
    ) -> None:
        if exit_s <= path.time_s[0]:
            # Its entry was at the newest instant and is still held.
            events[:] = [event for event in events if event.path is not path]
            return
        events.append(Left(time_s=exit_s, path=path, window=window_of(path, cause, edge)))


def _jumped(start: tuple[float, float, float], sample: Sample, step_s: float) -> bool:
    distance_m = math.hypot(sample[1] - start[0], sample[2] - start[1])
    return distance_m > largest_move_m(max(start[2], sample[3]), step_s)


def _between(
    start: tuple[float, float, float], sample: Sample, before_s: float, now_s: float, share: float
) -> tuple[float, float, float, float]:
    """Return time, x, y and speed at ``share`` of the segment, clamped to it."""
    share = min(max(share, 0.0), 1.0)
    x_m, y_m, speed_mps = start
    return (
        min(before_s + share * (now_s - before_s), now_s),
        x_m + share * (sample[1] - x_m),
        y_m + share * (sample[2] - y_m),
        speed_mps + share * (sample[3] - speed_mps),
    )


def _extend(path: VehiclePath, point: tuple[float, float, float, float]) -> None:
    path.time_s.append(point[0])
    path.x_m.append(point[1])
    path.y_m.append(point[2])
    path.speed_mps.append(point[3])


def _crossings(start: Sample, end: Sample, rsu: Rsu) -> tuple[float, float]:
    """Return at which shares of the segment its line enters and leaves the disc; equal when it misses."""
    return crossings(start[1] - rsu.x_m, start[2] - rsu.y_m, end[1] - start[1], end[2] - start[2], rsu.range_m)
