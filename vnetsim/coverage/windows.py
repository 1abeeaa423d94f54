"""Coverage windows: the times at which a vehicle is inside an RSU's disc, with exact crossings of the circle."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, MutableSequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.rsu import Rsu

Floats = NDArray[np.float64]

EntryCause = Literal["crossing", "departure", "teleport", "begin", "gap"]
ExitCause = Literal["crossing", "arrival", "teleport", "end", "gap"]


def crossings(x_m: float, y_m: float, dx_m: float, dy_m: float, radius_m: float) -> tuple[float, float]:
    """Return the shares of a segment at which its line enters and leaves a disc; equal if the line misses the disc.

    A share is below 0 before the segment's start, and above 1 after its end. ``x_m`` and ``y_m`` are the start relative
    to the disc's centre, ``dx_m`` and ``dy_m`` lead from the start to the end (m).

    Solves |f + s d|^2 = r^2 with f from the centre to the start and d along the segment. The discriminant uses the
    cross product, and no root subtracts nearly equal numbers, so that shares are exact at the rim and at grazing
    incidence.
    """
    a = dx_m * dx_m + dy_m * dy_m
    b = x_m * dx_m + y_m * dy_m
    # (|f| - r)(|f| + r) is exact for a start close to the circle
    distance_m = math.hypot(x_m, y_m)
    c = (distance_m - radius_m) * (distance_m + radius_m)
    cross = x_m * dy_m - y_m * dx_m
    discriminant = a * radius_m * radius_m - cross * cross
    if a == 0 or discriminant <= 0:
        # a miss, a tangent, or rounding at the circle: both crossings are the closest point
        closest = -b / a if a > 0 else 0.0
        return closest, closest
    root = math.sqrt(discriminant)
    if b > 0:
        q = -(b + root)
        return q / a, c / q
    q = root - b
    return c / q, q / a


@dataclass(slots=True, kw_only=True, eq=False)
class VehiclePath:
    """The path of a vehicle inside one disc; it grows while the traffic is read.

    The first point is the exact entry. Before a source yields an event it appends all points up to the event's time, so
    the path always covers the simulated present. The entry has ``vehicle_id``, ``vehicle_type``, ``rsu_id``,
    ``entry_cause`` and ``entry_edge``, empty if unknown; each point ``time_s``, ``x_m``, ``y_m`` and ``speed_mps``.
    """

    vehicle_id: str
    vehicle_type: str
    rsu_id: str
    entry_cause: EntryCause
    entry_edge: str
    time_s: MutableSequence[float]
    x_m: MutableSequence[float]
    y_m: MutableSequence[float]
    speed_mps: MutableSequence[float]


def position_m(path: VehiclePath, time_s: float) -> tuple[float, float]:
    """Return x and y (m, net coordinates) of a vehicle at a time (s), interpolated linearly.

    Before the path's first point it is that point's place, after its last point the last point's place.
    """
    times = path.time_s
    after = bisect_right(times, time_s)
    if after == 0:
        return path.x_m[0], path.y_m[0]
    before = after - 1
    if after == len(times):
        return path.x_m[before], path.y_m[before]
    share = (time_s - times[before]) / (times[after] - times[before])
    x, y = path.x_m[before], path.y_m[before]
    return x + share * (path.x_m[after] - x), y + share * (path.y_m[after] - y)


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """A vehicle's stay inside an RSU's disc: the half-open interval ``[enter_s, exit_s)``.

    Windows of one vehicle at one RSU are disjoint. The path arrays have the same length >= 2; the first point is the
    entry, the last the exit. ``exit_edge`` is known only after a crossing or at the end of the traffic, else empty.
    """

    vehicle_id: str
    vehicle_type: str
    rsu_id: str
    enter_s: float
    exit_s: float
    entry_cause: EntryCause
    exit_cause: ExitCause
    entry_edge: str
    exit_edge: str
    entry_speed_mps: float
    mean_speed_mps: float
    max_speed_mps: float
    path_length_m: float
    path_time_s: Floats
    path_x_m: Floats
    path_y_m: Floats
    path_speed_mps: Floats


def window_of(path: VehiclePath, exit_cause: ExitCause, exit_edge: str) -> Window:
    """Return the window of a finished path: its last point is the exit, after the entry; ``exit_edge`` may be empty."""
    columns = (path.time_s, path.x_m, path.y_m, path.speed_mps)
    time_s, x_m, y_m, speed_mps = (np.array(values, dtype=np.float64) for values in columns)
    length_m = float(np.hypot(x_m[1:] - x_m[:-1], y_m[1:] - y_m[:-1]).sum())
    enter_s, exit_s = float(time_s[0]), float(time_s[-1])
    return Window(
        vehicle_id=path.vehicle_id,
        vehicle_type=path.vehicle_type,
        rsu_id=path.rsu_id,
        enter_s=enter_s,
        exit_s=exit_s,
        entry_cause=path.entry_cause,
        exit_cause=exit_cause,
        entry_edge=path.entry_edge,
        exit_edge=exit_edge,
        entry_speed_mps=float(speed_mps[0]),
        mean_speed_mps=length_m / (exit_s - enter_s),
        max_speed_mps=float(speed_mps.max()),
        path_length_m=length_m,
        path_time_s=time_s,
        path_x_m=x_m,
        path_y_m=y_m,
        path_speed_mps=speed_mps,
    )


def cut_window(path: VehiclePath, time_s: float) -> Window:
    """Return the window, with cause ``end``, of an unfinished path up to its first point after ``time_s`` (s).

    ``time_s`` is the end of the run; the point after it is kept, so that a replay interpolates the same numbers. If the
    path ends before ``time_s``, with a faulty source, the vehicle stays at its last point until ``time_s``.
    """
    known = max(2, bisect_right(path.time_s, time_s) + 1)
    times, xs, ys, speeds = (list(v[:known]) for v in (path.time_s, path.x_m, path.y_m, path.speed_mps))
    if len(times) == 1 or times[-1] < time_s:
        times.append(max(time_s, math.nextafter(times[-1], math.inf)))  # a window is never empty
        for values in (xs, ys, speeds):
            values.append(values[-1])
    known_path = dataclasses.replace(path, time_s=times, x_m=xs, y_m=ys, speed_mps=speeds)
    return window_of(known_path, "end", "")


@dataclass(frozen=True, kw_only=True, eq=False)
class Entered:
    """A vehicle entered a disc at ``time_s``."""

    time_s: float
    path: VehiclePath


@dataclass(frozen=True, kw_only=True, eq=False)
class Left:
    """A vehicle left a disc at ``time_s``; ``path`` is the same object as in its ``Entered``."""

    time_s: float
    path: VehiclePath
    window: Window


CoverageEvent = Entered | Left


@dataclass(frozen=True, kw_only=True)
class TrafficInfo:
    """The traffic's entry in the manifest.

    Args:
        kind: ``"sumo"``, ``"fcd"``, ``"replay"``, or the name of a traffic source, such as ``"gaussian"``.
        begin_s: first instant (s).
        end_s: last instant (s), None if not known beforehand.
        step_s: sampling step (s), None for exact sources.
        seed: the seed of the traffic, None for recordings.
        command: SUMO's command line; empty without SUMO.
        version: SUMO's version; empty without SUMO.
        inputs: absolute paths of the files that the traffic is read from; the manifest has their hashes.
        notes: lines for the user, for example which junction was chosen as RSU and why.
        vehicles: in words which vehicles take part; empty if all do.
        lanes: polylines of the road net in the frame of maps, each an array (points, 2) in m; empty if unknown.
        heights_m: height of vehicles (m) by type, for types seen so far: it grows while the traffic is read.
        whole_paths: whether each path is complete when its vehicle enters.
        plugin: name, citation and settings of a traffic source; empty for other kinds.
        chosen_rsu: the junction that was chosen as RSU because the user named none; empty if one was named.
        left_out: number of vehicles near the RSUs that do not take part because of their type.
        silences: number of gaps of vehicles in a recording longer than ``traffic.longest_gap_s``.
        glimpsed: by RSU, the number of visits seen at one instant only; they make no window.
    """

    kind: str
    begin_s: float
    end_s: float | None
    step_s: float | None
    seed: int | None
    command: tuple[str, ...] = ()
    version: str = ""
    inputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    vehicles: str = ""
    lanes: tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], ...] = ()
    heights_m: Mapping[str, float] = field(default_factory=dict)
    whole_paths: bool = False
    plugin: Mapping[str, Any] = field(default_factory=dict)
    chosen_rsu: str = ""
    left_out: int = 0
    silences: int = 0
    glimpsed: Mapping[str, int] = field(default_factory=dict)


class TrafficStream(Protocol):
    """An opened scenario: its RSUs and its coverage events. The simulation never influences the traffic."""

    @property
    def rsus(self) -> tuple[Rsu, ...]:
        """The RSUs, at least one."""
        ...

    @property
    def info(self) -> TrafficInfo:
        """The traffic's entry in the manifest."""
        ...

    def events(self) -> Iterator[CoverageEvent]:
        """Yield events sorted by time; at equal times, exits come before entries.

        At the end of the traffic every open window is closed with cause ``"end"``, so each entry has an exit.
        """
        ...

    @property
    def time_s(self) -> float:
        """Time (s) up to which the traffic was read, for progress displays."""
        ...

    def close(self) -> None:
        """Release the simulator or file; may be called twice."""
        ...
