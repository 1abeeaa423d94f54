"""From sampled positions to coverage windows: the exact crossings of each RSU's circle.

Between two samples a vehicle is taken to drive the straight segment at linearly changing speed. Where the segment
crosses the circle is the root of a quadratic; nothing is rounded to the step. A disc is open: a vehicle on the circle
is outside.

A vehicle that vanishes inside a disc was last seen one sample earlier, and its window ends there. The events of the
last instant are therefore handed out only with the frames that follow: only then is it known who was still there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.circle import crossings
from vnetsim.coverage.frames import Frames, Integers, Observer
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.window_of_path import window_of
from vnetsim.coverage.windows import CoverageEvent, Entered, EntryCause, ExitCause, Floats, Left, VehiclePath

_FEW_DISCS = 4
"""With more of them, rows are sorted into squares first, so that a disc looks at those nearby alone."""


def largest_move_m(speed_mps: Floats | float, step_s: Floats | float) -> Floats | float:
    """Return the displacement (m) beyond which a vehicle did not drive but jump, at most ``speed_mps`` fast.

    It leaves room for acceleration of 5 m/s^2 within a long step, for lanes whose drawn length differs from their
    nominal one, for lane changes and for junctions without internal lanes.
    """
    return 1.5 * speed_mps * step_s + 2.5 * step_s * step_s + 50.0


def events_order(event: CoverageEvent) -> tuple[float, bool, str, str]:
    """Return the sorting key of events: time, departures from a disc before entries, RSU, vehicle."""
    return event.time_s, isinstance(event, Entered), event.path.rsu_id, event.path.vehicle_id


class Tracker:
    """Turns frames into coverage events; however they are cut into pieces, the events are the same.

    Args:
        rsus: the RSUs.
    """

    def __init__(self, rsus: Sequence[Rsu]) -> None:
        self._rsus = tuple(rsus)
        self._open: list[dict[int, VehiclePath]] = [{} for _ in rsus]
        self._held: list[CoverageEvent] = []
        self._last: Frames | None = None

    def advance(self, frames: Frames, observer: Observer) -> list[CoverageEvent]:
        """Take the frames that follow and return, in order, the events before their last instant.

        Args:
            frames: at least one instant, later than those before; of every vehicle that is in a disc, and at least of
                those that could have been in one an instant earlier or can be in one an instant later.
            observer: the source, when it has read these frames.
        """
        drives = _Drives.of(self._last, frames)
        near = drives.near(self._rsus)
        for rsu, open_paths, rows in zip(self._rsus, self._open, near, strict=True):
            _Disc(rsu, open_paths, drives, observer, self).cross(rows)
        last = len(frames.time_s) - 1
        rows = np.flatnonzero(frames.instant == last)
        self._last = Frames(
            time_s=frames.time_s[last:],
            instant=rows,  # where they are among the rows of these frames
            vehicle=frames.vehicle[rows],
            x_m=frames.x_m[rows],
            y_m=frames.y_m[rows],
            speed_mps=frames.speed_mps[rows],
            moved=frames.moved[rows],
        )
        now_s = float(frames.time_s[last])
        due = sorted((event for event in self._held if event.time_s < now_s), key=events_order)
        self._held = [event for event in self._held if event.time_s >= now_s]
        return due

    def finish(self, observer: Observer) -> list[CoverageEvent]:
        """Close every open window at the last instant with cause ``end`` and return all events still held."""
        if self._last is not None:
            row_of = dict(zip(self._last.vehicle.tolist(), self._last.instant.tolist(), strict=True))
            for open_paths in self._open:
                for vehicle, path in open_paths.items():
                    self.close(path, float(self._last.time_s[0]), "end", observer.edge(row_of[vehicle]))
                open_paths.clear()
        held, self._held = sorted(self._held, key=events_order), []
        return held

    def enter(self, path: VehiclePath) -> None:
        """Take note of a path that begins."""
        self._held.append(Entered(time_s=path.time_s[0], path=path))

    def close(self, path: VehiclePath, exit_s: float, cause: ExitCause, edge: str) -> None:
        """Take note of a path that ends at ``exit_s`` (s); one without extent never was."""
        if exit_s > path.time_s[0]:
            self._held.append(Left(time_s=exit_s, path=path, window=window_of(path, cause, edge)))
        else:  # it began at the newest instant, and that is still held
            self._held = [event for event in self._held if event.path is not path]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Drives:
    """All rows of some frames and of the instant before them, vehicle by vehicle in order of time.

    Args:
        instants: how many instants there are; that before them is number -1.
        begins: whether there was none before them.
        instant: of a row, likewise the rest.
        time_s: time (s).
        vehicle: which vehicle.
        row: where it is among the rows of the frames; those of the instant before are not asked for.
        point: x, y and speed, shape (N, 3).
        seen: whether its vehicle was there an instant before, in the row before.
        driven: whether it drove from there.
        reach_m: the longest drive within a step (m).
    """

    instants: int
    begins: bool
    instant: Integers
    time_s: Floats
    vehicle: Integers
    row: Integers
    point: Floats
    seen: NDArray[np.bool_]
    driven: NDArray[np.bool_]
    reach_m: float

    @classmethod
    def of(cls, before: Frames | None, frames: Frames) -> _Drives:
        both = [frames] if before is None else [before, frames]
        vehicle = np.concatenate([part.vehicle for part in both])
        at_before = len(vehicle) - len(frames.vehicle)
        instant = np.concatenate((np.full(at_before, -1), frames.instant))
        row = np.concatenate((np.full(at_before, -1), np.arange(len(frames.vehicle))))
        order = np.lexsort((instant, vehicle))
        vehicle, instant, row = vehicle[order], instant[order], row[order]
        times_s = np.concatenate(([math.nan if before is None else before.time_s[0]], frames.time_s))
        time_s = times_s[instant + 1]
        point = np.concatenate([np.column_stack((part.x_m, part.y_m, part.speed_mps)) for part in both])[order]
        moved = np.concatenate([part.moved for part in both])[order]
        seen = np.zeros(len(vehicle), dtype=np.bool_)
        seen[1:] = (vehicle[1:] == vehicle[:-1]) & (instant[1:] == instant[:-1] + 1)
        length_m, allowed_m = np.zeros(len(vehicle)), np.zeros(len(vehicle))
        length_m[1:] = np.hypot(*(point[1:, :2] - point[:-1, :2]).T)
        allowed_m[1:] = largest_move_m(np.maximum(point[1:, 2], point[:-1, 2]), time_s[1:] - time_s[:-1])
        driven = seen & ~moved & (length_m <= allowed_m)
        return cls(
            instants=len(frames.time_s),
            begins=before is None,
            instant=instant,
            time_s=time_s,
            vehicle=vehicle,
            row=row,
            point=point,
            seen=seen,
            driven=driven,
            reach_m=float(length_m[driven].max(initial=0.0)),
        )

    def near(self, rsus: Sequence[Rsu]) -> Iterator[Integers]:
        """Yield, for each RSU, the rows that may be in its disc, or one step away from it, in order."""
        if len(rsus) <= _FEW_DISCS or not len(self.vehicle):
            for _ in rsus:
                yield np.arange(len(self.vehicle))
            return
        side_m = max(rsu.range_m for rsu in rsus) + self.reach_m
        corner = self.point[:, :2].min(axis=0)
        columns, lines = ((self.point[:, :2] - corner) // side_m).astype(np.int64).T
        height = int(lines.max()) + 1
        square = columns * height + lines
        order = np.argsort(square, kind="stable")
        square = square[order]
        for rsu in rsus:
            column, line = (int((at - low) // side_m) for at, low in zip((rsu.x_m, rsu.y_m), corner, strict=True))
            low, high = max(line - 1, 0), min(line + 1, height - 1)
            found = [
                order[slice(*np.searchsorted(square, (beside * height + low, beside * height + high + 1)))]
                for beside in (column - 1, column, column + 1)
                if beside >= 0 and low <= high
            ]
            yield np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class _Disc:
    """One RSU's disc, and what is known while drives through it are looked at."""

    rsu: Rsu
    open_paths: dict[int, VehiclePath]
    drives: _Drives
    observer: Observer
    tracker: Tracker

    def cross(self, rows: Integers) -> None:
        """Find who enters, stays, passes through and leaves; ``rows`` may be in the disc or one step away."""
        drives, rsu = self.drives, self.rsu
        offset = drives.point[rows, :2] - (rsu.x_m, rsu.y_m)
        distance_m2 = offset[:, 0] * offset[:, 0] + offset[:, 1] * offset[:, 1]
        near = distance_m2 <= (1.001 * (rsu.range_m + drives.reach_m)) ** 2  # a margin for rounding
        rows, offset, distance_m2 = rows[near], offset[near], distance_m2[near]
        if not len(rows):
            return
        inside = distance_m2 < rsu.range_m * rsu.range_m
        # whether a row's vehicle drove here from the row before it, which is near as well then
        came = drives.driven[rows]
        came[0] = False
        came[1:] &= rows[1:] == rows[:-1] + 1
        was_inside = np.concatenate(([False], inside[:-1]))
        first = inside & ~(came & was_inside)
        last = inside & ~np.append((came & inside)[1:], False)
        entered = (came & ~was_inside)[first]
        left = np.append((came & ~inside)[1:], False)[last]
        for start, end, crossed, crosses in zip(
            rows[first].tolist(), rows[last].tolist(), entered.tolist(), left.tolist(), strict=True
        ):
            self._stay(start, end, entered=crossed, left=crosses)
        step = np.zeros_like(offset)
        step[1:] = offset[1:] - offset[:-1]
        receding = offset[:, 0] * step[:, 0] + offset[:, 1] * step[:, 1]
        length_m2 = step[:, 0] * step[:, 0] + step[:, 1] * step[:, 1]
        # Only where the closest approach lies within the step can the segment have cut the disc.
        for row in rows[came & ~inside & ~was_inside & (receding > 0) & (receding < length_m2)].tolist():
            self._pass_through(row)

    def _stay(self, start: int, end: int, *, entered: bool, left: bool) -> None:
        """Record a vehicle that was inside from one row to another, and whether it crossed the rim before and after."""
        drives = self.drives
        vehicle = int(drives.vehicle[start])
        if drives.instant[start] < 0:
            path = self.open_paths.pop(vehicle)
            self._extend(path, start + 1, end)
        else:
            path = self._opened(start, end, entered=entered)
        exit_s = float(drives.time_s[end])
        if drives.instant[end] == drives.instants - 1:
            self.open_paths[vehicle] = path
        elif left:
            point = self._between(end, self._shares(end)[1])
            if point[0] > path.time_s[-1]:
                _append(path, point)
            self.tracker.close(path, point[0], "crossing", self.observer.edge(int(drives.row[end + 1])))
        elif end + 1 < len(drives.seen) and drives.seen[end + 1]:
            self.tracker.close(path, exit_s, "teleport", "")
        else:
            cause = self.observer.vanished(vehicle, int(drives.instant[end]) + 1)
            self.tracker.close(path, exit_s, cause, "")

    def _opened(self, start: int, end: int, *, entered: bool) -> VehiclePath:
        drives, row = self.drives, int(self.drives.row[start])
        cause: EntryCause
        if entered:
            point = self._between(start - 1, self._shares(start - 1)[0])
            path = self._path(start, "crossing")
            if point[0] < drives.time_s[start]:
                _append(path, point)
        elif drives.seen[start]:
            path = self._path(start, "teleport")
        else:
            # The very first instant cannot tell who departs from who was there all along.
            cause = "begin" if drives.begins and drives.instant[start] == 0 else self.observer.appeared(row)
            path = self._path(start, cause)
        self._extend(path, start, end)
        self.tracker.enter(path)
        return path

    def _pass_through(self, row: int) -> None:
        """Record a vehicle that entered and left within the step that ends in a row."""
        entry, leaving = self._shares(row - 1)
        # Both ends are outside and the closest approach is between them: the chord lies within the step, and a share
        # a hair outside [0, 1] (an end on the circle) is rounding, which _between takes back.
        if entry >= leaving:
            return
        first, last = self._between(row - 1, entry), self._between(row - 1, leaving)
        if first[0] >= last[0]:
            return
        path = self._path(row, "crossing")
        _append(path, first)
        _append(path, last)
        self.tracker.enter(path)
        self.tracker.close(path, last[0], "crossing", path.entry_edge)

    def _path(self, place: int, cause: EntryCause) -> VehiclePath:
        row = int(self.drives.row[place])
        return VehiclePath(
            vehicle_id=self.observer.vehicle_id(row),
            vehicle_type=self.observer.vehicle_type(row),
            rsu_id=self.rsu.id,
            entry_cause=cause,
            entry_edge=self.observer.edge(row),
            time_s=[],
            x_m=[],
            y_m=[],
            speed_mps=[],
        )

    def _extend(self, path: VehiclePath, start: int, end: int) -> None:
        """Append the points of some rows, the last included."""
        points = self.drives.point[start : end + 1]
        path.time_s += self.drives.time_s[start : end + 1].tolist()
        path.x_m += points[:, 0].tolist()
        path.y_m += points[:, 1].tolist()
        path.speed_mps += points[:, 2].tolist()

    def _shares(self, start: int) -> tuple[float, float]:
        """Return at which shares of the segment that begins in a row its line enters and leaves; equal at a miss."""
        (x_m, y_m, _), (to_x_m, to_y_m, _) = self.drives.point[start : start + 2].tolist()
        return crossings(x_m - self.rsu.x_m, y_m - self.rsu.y_m, to_x_m - x_m, to_y_m - y_m, self.rsu.range_m)

    def _between(self, start: int, share: float) -> tuple[float, float, float, float]:
        """Return time, x, y and speed at a share of the segment that begins in a row, clamped to it."""
        share = min(max(share, 0.0), 1.0)
        before_s, now_s = self.drives.time_s[start : start + 2].tolist()
        before, now = self.drives.point[start : start + 2].tolist()
        x_m, y_m, speed_mps = (a + share * (b - a) for a, b in zip(before, now, strict=True))
        return min(before_s + share * (now_s - before_s), now_s), x_m, y_m, speed_mps


def _append(path: VehiclePath, point: tuple[float, float, float, float]) -> None:
    for values, value in zip((path.time_s, path.x_m, path.y_m, path.speed_mps), point, strict=True):
        values.append(value)
