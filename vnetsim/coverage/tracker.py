"""From sampled positions to coverage windows: the exact crossings of each RSU's circle.

Between two samples a vehicle is taken to drive the straight segment at linearly changing speed. Where the segment
crosses the circle is the root of a quadratic; nothing is rounded to the step. A disc is open: a vehicle on the circle
is outside.

A vehicle that vanishes inside a disc was last seen one sample earlier, and its window ends there. The events of the
last instant are therefore handed out only with the frames that follow: only then is it known who was still there.
Where vehicles are sampled at times of their own, events wait in the same way for each vehicle's next row, as long as it
may come.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.frames import Frames, Integers, Observer
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import (
    CoverageEvent,
    Entered,
    EntryCause,
    ExitCause,
    Floats,
    Left,
    VehiclePath,
    crossings,
    window_of,
)

_Columns = tuple["array[float]", "array[float]", "array[float]", "array[float]"]
"""Time, x, y and speed of a path."""
_Visit = tuple[int, int, int, int, int, int, bool, bool]


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
        rsus: the discs.
        longest_gap_s: rows of a vehicle that are further apart are no path (s).
        own_clocks: whether rows of a vehicle up to ``longest_gap_s`` apart are a path. Otherwise only those at
            successive instants are: a vehicle that is missing at one is gone.
        infers_jumps: whether a vehicle jumped that moved by more than ``largest_move_m``. Otherwise the source knows.
        glimpsed: counts, by RSU, the visits at one instant only.
    """

    def __init__(
        self,
        rsus: Sequence[Rsu],
        *,
        longest_gap_s: float = math.inf,
        own_clocks: bool = False,
        infers_jumps: bool = True,
        glimpsed: Counter[str] | None = None,
    ) -> None:
        self._rsus = tuple(rsus)
        self._discs = np.array([(rsu.x_m, rsu.y_m, rsu.range_m) for rsu in rsus]).reshape(-1, 3)
        self._longest_s = longest_gap_s
        self._own_clocks = own_clocks
        self._infers_jumps = infers_jumps
        self._glimpsed = Counter[str]() if glimpsed is None else glimpsed
        self._open: dict[tuple[int, int], tuple[VehiclePath, _Columns]] = {}  # by disc and vehicle
        self._held: list[CoverageEvent] = []
        self._last: Frames | None = None  # the last row of each vehicle that may go on, each an instant of its own
        self._since_s = math.nan  # when the traffic began, or went on after a gap of all vehicles
        self._since: EntryCause = "begin"

    def advance(self, frames: Frames, observer: Observer) -> list[CoverageEvent]:
        """Take the frames that follow and return, in order, the events that no later frame can precede.

        Args:
            frames: at least one instant, later than those before; of every vehicle that is in a disc, and at least of
                those that could have been in one a row earlier or can be in one a row later.
            observer: the source, when it has read these frames.
        """
        if self._last is None:
            self._since_s = float(frames.time_s[0])
        drives = _Drives.of(self._last, frames, self._longest_s, self._own_clocks, self._infers_jumps)
        silent = np.zeros(len(frames.time_s), dtype=np.bool_) if frames.resumed is None else frames.resumed
        self._follow(drives, frames.time_s, silent, observer)
        awaited = np.flatnonzero(drives.awaited)
        time_s, x_m, y_m, speed_mps = drives.sample[awaited].T
        now_s = float(frames.time_s[-1])
        self._last = Frames(
            time_s=time_s,
            instant=np.where(time_s == now_s, drives.row[awaited], -1),  # where they are among these frames' rows
            vehicle=drives.vehicle[awaited],
            x_m=x_m,
            y_m=y_m,
            speed_mps=speed_mps,
            moved=np.zeros(len(awaited), dtype=np.bool_),
        )
        certain_s = float(time_s.min(initial=now_s))
        due = sorted((event for event in self._held if event.time_s < certain_s), key=events_order)
        self._held = [event for event in self._held if event.time_s >= certain_s]
        return due

    def finish(self, observer: Observer) -> list[CoverageEvent]:
        """Close every open window at its last row with cause ``end`` and return all events still held."""
        if self._last is not None:
            row_of = dict(zip(self._last.vehicle.tolist(), self._last.instant.tolist(), strict=True))
            for (_, vehicle), (path, _) in self._open.items():
                self._close(path, "end", observer.edge(row_of[vehicle]) if row_of[vehicle] >= 0 else "")
            self._open.clear()
        held, self._held = sorted(self._held, key=events_order), []
        return held

    def _follow(self, drives: _Drives, time_s: Floats, silent: NDArray[np.bool_], observer: Observer) -> None:
        """Extend the paths by some drives, and take note of those that begin or end.

        ``time_s`` are the instants, and before those of ``silent`` the traffic was not seen for a while.
        """
        resumed = np.maximum.accumulate(np.where(silent, np.arange(len(time_s)), -1))
        visits, all_points = drives.visits(self._discs)
        points = [memoryview(values).cast("B") for values in all_points]
        for disc, vehicle, first, last, begin, end, came, leaves in visits:
            key = disc, vehicle
            if drives.instant[first] < 0:
                path, columns = self._open.pop(key)
            else:
                resume = int(resumed[drives.instant[first]])
                since = (self._since_s, self._since) if resume < 0 else (float(time_s[resume]), "gap")
                path, columns = self._opened(drives, first, self._rsus[disc].id, observer, since, crossed=came)
            for column, values in zip(columns, points, strict=True):
                column.frombytes(values[8 * begin : 8 * end])
            if drives.instant[first] >= 0:
                self._held.append(Entered(time_s=path.time_s[0], path=path))
            if leaves:
                self._close(path, "crossing", observer.edge(int(drives.row[last])))
            elif drives.awaited[last]:
                self._open[key] = path, columns
            elif last + 1 < len(drives.seen) and drives.seen[last + 1]:
                self._close(path, "teleport", "")
            else:
                after = int(drives.instant[last]) + 1
                fell_silent = self._own_clocks or silent[after]
                self._close(path, "gap" if fell_silent else observer.vanished(vehicle, after), "")
        if resumed[-1] >= 0:
            self._since_s, self._since = float(time_s[resumed[-1]]), "gap"

    def _opened(
        self,
        drives: _Drives,
        first: int,
        rsu_id: str,
        observer: Observer,
        since: tuple[float, EntryCause],
        *,
        crossed: bool,
    ) -> tuple[VehiclePath, _Columns]:
        """Return a path without points of who is in a disc from a row on, or passed through it just before.

        ``since`` is when (s) the traffic began or went on, and which.
        """
        row = int(drives.row[first])
        cause: EntryCause
        if crossed:
            cause = "crossing"
        elif drives.seen[first]:
            cause = "teleport"
        else:
            # The first rows cannot tell who departs from who was there all along.
            known_s = self._longest_s if self._own_clocks else 0.0
            cause = since[1] if drives.sample[first, 0] - since[0] <= known_s else observer.appeared(row)
        time_s, x_m, y_m, speed_mps = columns = array("d"), array("d"), array("d"), array("d")
        path = VehiclePath(
            vehicle_id=observer.vehicle_id(row),
            vehicle_type=observer.vehicle_type(row),
            rsu_id=rsu_id,
            entry_cause=cause,
            entry_edge=observer.edge(row),
            time_s=time_s,
            x_m=x_m,
            y_m=y_m,
            speed_mps=speed_mps,
        )
        return path, columns

    def _close(self, path: VehiclePath, cause: ExitCause, edge: str) -> None:
        """Take note of a path that ends at its last point; one without extent never was."""
        if path.time_s[-1] > path.time_s[0]:
            self._held.append(Left(time_s=path.time_s[-1], path=path, window=window_of(path, cause, edge)))
        else:  # it began at its last row, which is still held
            self._glimpsed[path.rsu_id] += 1
            self._held = [event for event in self._held if event.path is not path]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Drives:
    """All rows of some frames and those before them that may go on, vehicle by vehicle in order of time.

    Args:
        instant: of a row, likewise the rest; -1 of those before the frames.
        vehicle: which vehicle.
        row: where it is among the rows of the frames; those before the frames are not asked for.
        sample: time, x, y and speed, shape (N, 4).
        seen: whether it goes on from the row before, of the same vehicle.
        driven: whether it drove from there.
        awaited: whether a row that follows may go on from it.
        reach_m: the longest drive between two rows (m).
    """

    instant: Integers
    vehicle: Integers
    row: Integers
    sample: Floats
    seen: NDArray[np.bool_]
    driven: NDArray[np.bool_]
    awaited: NDArray[np.bool_]
    reach_m: float

    @classmethod
    def of(
        cls, before: Frames | None, frames: Frames, longest_s: float, own_clocks: bool, infers_jumps: bool
    ) -> _Drives:
        both = [frames] if before is None else [before, frames]
        vehicle = np.concatenate([part.vehicle for part in both])
        at_before = len(vehicle) - len(frames.vehicle)
        instant = np.concatenate((np.full(at_before, -1), frames.instant))
        row = np.concatenate((np.full(at_before, -1), np.arange(len(frames.vehicle))))
        order = np.lexsort((instant, vehicle))
        vehicle, instant, row = vehicle[order], instant[order], row[order]
        time_s = np.concatenate((np.zeros(0) if before is None else before.time_s, frames.time_s[frames.instant]))[
            order
        ]
        x_m, y_m, speed_mps, moved = (
            np.concatenate([getattr(part, name) for part in both])[order]
            for name in ("x_m", "y_m", "speed_mps", "moved")
        )
        sample = np.column_stack((time_s, x_m, y_m, speed_mps))
        step = np.diff(sample, axis=0)
        same = vehicle[1:] == vehicle[:-1]
        seen, awaited = np.zeros(len(vehicle), dtype=np.bool_), np.ones(len(vehicle), dtype=np.bool_)
        seen[1:] = same & (step[:, 0] <= longest_s)
        if own_clocks:
            awaited[:-1] = ~same
            awaited &= frames.time_s[-1] - time_s <= longest_s
        else:
            seen[1:] &= instant[1:] == instant[:-1] + 1
            awaited = instant == len(frames.time_s) - 1
        length_m, allowed_m = np.zeros(len(vehicle)), np.zeros(len(vehicle))
        length_m[1:] = np.hypot(step[:, 1], step[:, 2])
        allowed_m[1:] = largest_move_m(np.maximum(speed_mps[1:], speed_mps[:-1]), step[:, 0])
        driven = seen & ~moved
        if infers_jumps:
            driven &= length_m <= allowed_m
        return cls(
            instant=instant,
            vehicle=vehicle,
            row=row,
            sample=sample,
            seen=seen,
            driven=driven,
            awaited=awaited,
            reach_m=float(length_m[driven].max(initial=0.0)),
        )

    def visits(self, discs: Floats) -> tuple[Iterator[_Visit], Floats]:
        """Return who is when in which disc; a row of ``discs`` is x, y and radius (m).

        Returns:
            of each visit, those of a vehicle to a disc in order: disc; vehicle; of the drives, the first row inside and
            the last; where its points begin, without that of the instant before, which is known, and end; whether it
            came across the rim, and whether it leaves across it. The last row of one that does is the row after; of a
            vehicle that passes through within a step, both rows are. And of the points of all visits time, x, y and
            speed, each in a row.
        """
        disc, row = self._near(discs)
        x_m, y_m = self.sample[row, 1] - discs[disc, 0], self.sample[row, 2] - discs[disc, 1]
        distance_m2 = x_m * x_m + y_m * y_m
        near = np.flatnonzero(
            distance_m2 <= ((1.001 * (discs[:, 2] + self.reach_m)) ** 2)[disc]
        )  # a margin for rounding
        disc, row, x_m, y_m, distance_m2 = disc[near], row[near], x_m[near], y_m[near], distance_m2[near]
        range_m = discs[disc, 2]
        inside = distance_m2 < range_m * range_m
        # Whether a row's vehicle drove here from the row before it, which is near as well then. Nobody came to the
        # first row, so that it does not matter that it has the last one before it.
        came = self.driven[row]
        came[:1] = False
        came[1:] &= (row[1:] == row[:-1] + 1) & (disc[1:] == disc[:-1])
        was_inside = np.roll(inside, 1)
        first = np.flatnonzero(inside & ~(came & was_inside))
        last = np.flatnonzero(inside & ~np.roll(came & inside, -1))
        leaves = np.roll(came & ~inside, -1)[last]
        step_x_m, step_y_m = x_m - np.roll(x_m, 1), y_m - np.roll(y_m, 1)
        receding = x_m * step_x_m + y_m * step_y_m
        length_m2 = step_x_m * step_x_m + step_y_m * step_y_m
        # Only where the closest approach lies within the step can a segment between two rows outside cut the disc.
        cuts = ~inside & ~was_inside & (receding > 0) & (receding < length_m2)
        at = np.flatnonzero(came & (cuts | (inside != was_inside)))
        rim, shares = self._rim(row[at], x_m[at - 1], y_m[at - 1], range_m[at])
        time_s = rim[:, :, 0]
        # Both ends are outside and the closest approach is between them: the chord lies within the step, and a share
        # a hair outside [0, 1] (an end on the circle) is rounding, which was taken back.
        passes = cuts[at] & (shares[:, 0] < shares[:, 1]) & (time_s[:, 0] < time_s[:, 1])
        # a crossing that rounds to the instant of the sample inside is that sample
        enters = inside[at] & (time_s[:, 0] < self.sample[row[at], 0])
        goes = was_inside[at] & (time_s[:, 1] > self.sample[row[at] - 1, 0])
        kept = np.column_stack((enters | passes, goes | passes))
        # in order of the rows, crossings before the row that they lead to
        place = np.concatenate((np.repeat(at, kept.sum(axis=1)), np.flatnonzero(inside)))
        order = np.argsort(place, kind="stable")
        points = np.concatenate((rim[kept], self.sample[row[inside]]))[order]
        place, through = place[order], at[passes]
        first, last = np.concatenate((first, through)), np.concatenate((last + leaves, through))
        columns = (
            disc[first],
            self.vehicle[row[first]],
            row[first],
            row[last],
            np.searchsorted(place, first) + (self.instant[row[first]] < 0),
            np.searchsorted(place, last, side="right"),
            came[first],
            np.concatenate((leaves, np.ones_like(through, dtype=np.bool_))),
        )
        return zip(*(column.tolist() for column in columns), strict=True), np.ascontiguousarray(points.T)

    def _near(self, discs: Floats) -> tuple[Integers, Integers]:
        """Return discs and the rows that may be in them, or one step away from them, in order.

        Rows are sorted into squares, so that a disc looks at those nearby alone.
        """
        rows = [np.zeros(0, dtype=np.int64) for _ in discs]
        if len(self.vehicle):
            side_m = discs[:, 2].max() + self.reach_m
            corner = self.sample[:, 1:3].min(axis=0)
            columns, lines = ((self.sample[:, 1:3] - corner) // side_m).astype(np.int64).T
            height = int(lines.max()) + 1
            square = columns * height + lines
            order = np.argsort(square, kind="stable")
            square = square[order]
            places = ((discs[:, :2] - corner) // side_m).astype(np.int64).tolist()
            for disc, (column, line) in enumerate(places):
                low, high = max(line - 1, 0), min(line + 1, height - 1)
                found = [
                    order[slice(*np.searchsorted(square, (beside * height + low, beside * height + high + 1)))]
                    for beside in (column - 1, column, column + 1)
                    if beside >= 0 and low <= high
                ]
                if found:
                    rows[disc] = np.sort(np.concatenate(found))
        return np.repeat(np.arange(len(discs)), [len(found) for found in rows]), np.concatenate(rows)

    def _rim(self, row: Integers, x_m: Floats, y_m: Floats, range_m: Floats) -> tuple[Floats, Floats]:
        """Return where the segments that end in some rows enter and leave a disc.

        Args:
            row: the rows.
            x_m: of the row before each, from the disc's centre (m), like ``y_m``.
            y_m: see ``x_m``.
            range_m: the disc's radius (m).

        Returns:
            time, x, y and speed at entering and leaving, clamped to the segment, shape (S, 2, 4); and at which shares
            of the segment that is, not clamped, shape (S, 2).
        """
        before, step = self.sample[row - 1], self.sample[row] - self.sample[row - 1]
        columns = (x_m, y_m, step[:, 1], step[:, 2], range_m)
        shares = np.array([crossings(*line) for line in zip(*(c.tolist() for c in columns), strict=True)])
        shares = shares.reshape(-1, 2)
        rim = before[:, None] + np.clip(shares, 0.0, 1.0)[:, :, None] * step[:, None]
        rim[:, :, 0] = np.minimum(rim[:, :, 0], self.sample[row, :1])
        return rim, shares
