"""Makes coverage windows from sampled positions, with exact crossings of each RSU's circle.

Between two samples a vehicle is assumed to drive in a straight line with linearly changing speed. The crossing of the
circle is the root of a quadratic; nothing is rounded to the step. A vehicle on the circle is outside.

The window of a vehicle that vanishes inside a disc ends at its last sample. So events are returned only when later
frames show which vehicles vanished; if each vehicle is sampled at its own times, when its next row can no longer come.
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
_Since = tuple[float, EntryCause]
"""When the traffic began (s), with cause ``begin``, or resumed after its last pause, with cause ``gap``."""
_Visit = tuple[int, int, int, int, int, int, bool, bool]
"""Disc, vehicle, first and last row inside, begin and end of its new points, whether it entered and whether it leaves
across the rim. If it leaves, its last row is the one after; if it passes within one step, that is its first row too."""


def largest_move_m(speed_mps: Floats | float, step_s: Floats | float) -> Floats | float:
    """Return the largest displacement (m) in a step of ``step_s``; a vehicle that moved further has jumped.

    ``speed_mps`` is the higher of the speeds at both ends. There is room for an acceleration of 5 m/s^2, lanes drawn
    longer than nominal, lane changes, and junctions without internal lanes.
    """
    return 1.5 * speed_mps * step_s + 2.5 * step_s * step_s + 50.0


def event_sort_key(event: CoverageEvent) -> tuple[float, bool, str, str]:
    """Return the sorting key of an event: by time, then exits before entries, then by RSU and vehicle id."""
    return event.time_s, isinstance(event, Entered), event.path.rsu_id, event.path.vehicle_id


class Tracker:
    """Turns frames into coverage events, which do not depend on how the frames are divided among calls.

    Args:
        rsus: the discs.
        longest_gap_s: rows of a vehicle further apart than this (s) do not belong to one path.
        own_clocks: whether each vehicle is sampled at its own times. Otherwise rows of a path are at successive
            instants, and a vehicle without a row has vanished.
        infers_jumps: whether a move longer than ``largest_move_m`` is a teleport; False if the source reports them.
        glimpsed: counter by RSU of the visits seen at one instant only, which make no window; it is increased in place.
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
        self._last: Frames | None = None  # last row of each vehicle whose path may continue, each as its own instant
        self._since: _Since = (math.nan, "begin")

    def advance(self, frames: Frames, observer: Observer) -> list[CoverageEvent]:
        """Process the next frames; return, sorted, the events that no later frames can precede; keep the others.

        ``frames`` need at least one instant, all later than those before. They need a row of every vehicle that is in a
        disc, or may be in one at its previous or next row. ``observer`` describes the rows.
        """
        if self._last is None:
            self._since = float(frames.time_s[0]), "begin"
        joined = _JoinedRows.join(self._last, frames, self._longest_s, self._own_clocks, self._infers_jumps)
        silent = np.zeros(len(frames.time_s), dtype=np.bool_) if frames.resumed is None else frames.resumed
        self._extend_paths(joined, frames.time_s, silent, observer)
        awaited = np.flatnonzero(joined.may_continue)
        time_s, x_m, y_m, speed_mps = joined.sample[awaited].T
        now_s = float(frames.time_s[-1])
        self._last = Frames(
            time_s=time_s,
            instant=np.where(time_s == now_s, joined.row[awaited], -1),  # row among these frames, -1 if earlier
            vehicle=joined.vehicle[awaited],
            x_m=x_m,
            y_m=y_m,
            speed_mps=speed_mps,
            moved=np.zeros(len(awaited), dtype=np.bool_),
        )
        certain_s = float(time_s.min(initial=now_s))
        due = sorted((event for event in self._held if event.time_s < certain_s), key=event_sort_key)
        self._held = [event for event in self._held if event.time_s >= certain_s]
        return due

    def finish(self, observer: Observer) -> list[CoverageEvent]:
        """Close every open window at its last row with cause ``end``; return, sorted, all events not yet returned."""
        if self._last is not None:
            row_of = dict(zip(self._last.vehicle.tolist(), self._last.instant.tolist(), strict=True))
            for (_, vehicle), (path, _) in self._open.items():
                self._close_path(path, "end", observer.edge(row_of[vehicle]) if row_of[vehicle] >= 0 else "")
            self._open.clear()
        held, self._held = sorted(self._held, key=event_sort_key), []
        return held

    def _extend_paths(self, joined: _JoinedRows, time_s: Floats, silent: NDArray[np.bool_], observer: Observer) -> None:
        """Extend paths by rows in discs; add events to ``_held``; ``silent``: whether a pause precedes an instant."""
        resumed = np.maximum.accumulate(np.where(silent, np.arange(len(time_s)), -1))
        visits, all_points = joined.find_visits(self._discs)
        points = [memoryview(values).cast("B") for values in all_points]
        for disc, vehicle, first, last, begin, end, came, leaves in visits:
            key = disc, vehicle
            if joined.instant[first] < 0:
                path, columns = self._open.pop(key)
            else:
                resume = int(resumed[joined.instant[first]])
                since: _Since = self._since if resume < 0 else (float(time_s[resume]), "gap")
                path, columns = self._open_path(joined, first, self._rsus[disc].id, observer, since, crossed=came)
            for column, values in zip(columns, points, strict=True):
                column.frombytes(values[8 * begin : 8 * end])
            if joined.instant[first] >= 0:
                self._held.append(Entered(time_s=path.time_s[0], path=path))
            if leaves:
                self._close_path(path, "crossing", observer.edge(int(joined.row[last])))
            elif joined.may_continue[last]:
                self._open[key] = path, columns
            elif last + 1 < len(joined.continues) and joined.continues[last + 1]:
                self._close_path(path, "teleport", "")
            else:
                after = int(joined.instant[last]) + 1
                fell_silent = self._own_clocks or silent[after]
                self._close_path(path, "gap" if fell_silent else observer.vanished(vehicle, after), "")
        if resumed[-1] >= 0:
            self._since = float(time_s[resumed[-1]]), "gap"

    def _open_path(
        self, joined: _JoinedRows, first: int, rsu_id: str, observer: Observer, since: _Since, *, crossed: bool
    ) -> tuple[VehiclePath, _Columns]:
        """Return an empty path and its columns; ``first``: its row in ``joined``; ``crossed``: it crossed the rim."""
        row = int(joined.row[first])
        cause: EntryCause
        if crossed:
            cause = "crossing"
        elif joined.continues[first]:
            cause = "teleport"
        else:
            # in the first rows, departures look like vehicles that were there before
            known_s = self._longest_s if self._own_clocks else 0.0
            cause = since[1] if joined.sample[first, 0] - since[0] <= known_s else observer.appeared(row)
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

    def _close_path(self, path: VehiclePath, cause: ExitCause, edge: str) -> None:
        """Add the path's exit, its last point, to ``_held``; if it lasted 0 s, drop its entry and count a glimpse."""
        if path.time_s[-1] > path.time_s[0]:
            self._held.append(Left(time_s=path.time_s[-1], path=path, window=window_of(path, cause, edge)))
        else:  # its entry is at its last row and so not yet returned
            self._glimpsed[path.rsu_id] += 1
            self._held = [event for event in self._held if event.path is not path]


@dataclass(frozen=True, kw_only=True, eq=False)
class _JoinedRows:
    """The rows of some frames and the last rows before them, sorted by vehicle and time."""

    instant: Integers  # -1 for rows before the frames
    vehicle: Integers
    row: Integers  # index among the rows of the frames, -1 for rows before
    sample: Floats  # time, x, y and speed, shape (N, 4)
    continues: NDArray[np.bool_]  # whether it continues the previous row, of the same vehicle
    drove: NDArray[np.bool_]  # whether the vehicle drove from there, without a teleport
    may_continue: NDArray[np.bool_]  # whether a later row may continue it
    reach_m: float  # the longest drive between two rows

    @classmethod
    def join(
        cls, before: Frames | None, frames: Frames, longest_s: float, own_clocks: bool, infers_jumps: bool
    ) -> _JoinedRows:
        """Return the rows of both, a vehicle's joined if at most ``longest_s`` (s) apart; ``before`` may be None."""
        both = [frames] if before is None else [before, frames]
        vehicle = np.concatenate([part.vehicle for part in both])
        at_before = len(vehicle) - len(frames.vehicle)
        instant = np.concatenate((np.full(at_before, -1), frames.instant))
        row = np.concatenate((np.full(at_before, -1), np.arange(len(frames.vehicle))))
        order = np.lexsort((instant, vehicle))
        vehicle, instant, row = vehicle[order], instant[order], row[order]
        before_s = np.zeros(0) if before is None else before.time_s
        time_s = np.concatenate((before_s, frames.time_s[frames.instant]))[order]
        x_m, y_m, speed_mps, moved = (
            np.concatenate([getattr(part, name) for part in both])[order]
            for name in ("x_m", "y_m", "speed_mps", "moved")
        )
        sample = np.column_stack((time_s, x_m, y_m, speed_mps))
        step = np.diff(sample, axis=0)
        same = vehicle[1:] == vehicle[:-1]
        continues, may_continue = np.zeros(len(vehicle), dtype=np.bool_), np.ones(len(vehicle), dtype=np.bool_)
        continues[1:] = same & (step[:, 0] <= longest_s)
        if own_clocks:
            may_continue[:-1] = ~same
            may_continue &= frames.time_s[-1] - time_s <= longest_s
        else:
            continues[1:] &= instant[1:] == instant[:-1] + 1
            may_continue = instant == len(frames.time_s) - 1
        length_m, allowed_m = np.zeros(len(vehicle)), np.zeros(len(vehicle))
        length_m[1:] = np.hypot(step[:, 1], step[:, 2])
        allowed_m[1:] = largest_move_m(np.maximum(speed_mps[1:], speed_mps[:-1]), step[:, 0])
        drove = continues & ~moved
        if infers_jumps:
            drove &= length_m <= allowed_m
        return cls(
            instant=instant,
            vehicle=vehicle,
            row=row,
            sample=sample,
            continues=continues,
            drove=drove,
            may_continue=may_continue,
            reach_m=float(length_m[drove].max(initial=0.0)),
        )

    def find_visits(self, discs: Floats) -> tuple[Iterator[_Visit], Floats]:
        """Return visits to ``discs`` (rows x, y, radius), and their points (4, N): time, x, y and speed."""
        disc, row = self._find_rows_near(discs)
        x_m, y_m = self.sample[row, 1] - discs[disc, 0], self.sample[row, 2] - discs[disc, 1]
        distance_m2 = x_m * x_m + y_m * y_m
        reach_m = 1.001 * (discs[:, 2] + self.reach_m)  # a margin for rounding
        near = np.flatnonzero(distance_m2 <= (reach_m**2)[disc])
        disc, row, x_m, y_m, distance_m2 = disc[near], row[near], x_m[near], y_m[near], distance_m2[near]
        range_m = discs[disc, 2]
        inside = distance_m2 < range_m * range_m
        # Whether a row's vehicle drove here from the previous row, which is then near as well. False for the first row,
        # so it does not matter that np.roll puts the last row before it.
        came = self.drove[row]
        came[:1] = False
        came[1:] &= (row[1:] == row[:-1] + 1) & (disc[1:] == disc[:-1])
        was_inside = np.roll(inside, 1)
        first = np.flatnonzero(inside & ~(came & was_inside))
        last = np.flatnonzero(inside & ~np.roll(came & inside, -1))
        leaves = np.roll(came & ~inside, -1)[last]
        step_x_m, step_y_m = x_m - np.roll(x_m, 1), y_m - np.roll(y_m, 1)
        receding = x_m * step_x_m + y_m * step_y_m
        length_m2 = step_x_m * step_x_m + step_y_m * step_y_m
        # a segment between two rows outside can cut the disc only if its closest approach is within the step
        cuts = ~inside & ~was_inside & (receding > 0) & (receding < length_m2)
        at = np.flatnonzero(came & (cuts | (inside != was_inside)))
        rim, shares = self._find_crossings(row[at], x_m[at - 1], y_m[at - 1], range_m[at])
        time_s = rim[:, :, 0]
        # both ends are outside and the closest approach is between them, so the chord is within the step; shares just
        # outside [0, 1] (an end on the circle) are rounding and were clipped
        passes = cuts[at] & (shares[:, 0] < shares[:, 1]) & (time_s[:, 0] < time_s[:, 1])
        # a crossing that rounds to the instant of the sample inside is that sample
        enters = inside[at] & (time_s[:, 0] < self.sample[row[at], 0])
        goes = was_inside[at] & (time_s[:, 1] > self.sample[row[at] - 1, 0])
        kept = np.column_stack((enters | passes, goes | passes))
        # sorted by row, with crossings before the row at the end of their segment
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

    def _find_rows_near(self, discs: Floats) -> tuple[Integers, Integers]:
        """Return sorted pairs as arrays of disc and row: all rows up to ``reach_m`` outside a disc, and some others."""
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

    def _find_crossings(self, row: Integers, x_m: Floats, y_m: Floats, range_m: Floats) -> tuple[Floats, Floats]:
        """Return entry and exit of segments from x, y (m off centre) to ``row``: points (S, 2, 4), shares (S, 2)."""
        # the points are time, x, y and speed, clipped to the segment; the shares are not clipped
        before, step = self.sample[row - 1], self.sample[row] - self.sample[row - 1]
        columns = (x_m, y_m, step[:, 1], step[:, 2], range_m)
        shares = np.array([crossings(*line) for line in zip(*(c.tolist() for c in columns), strict=True)])
        shares = shares.reshape(-1, 2)
        rim = before[:, None] + np.clip(shares, 0.0, 1.0)[:, :, None] * step[:, None]
        rim[:, :, 0] = np.minimum(rim[:, :, 0], self.sample[row, :1])
        return rim, shares
