"""Coverage windows: when a vehicle is inside an RSU's disc, to the exact crossing of the circle."""

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
    """Return at which shares of a segment its line enters and leaves a disc; equal when it misses.

    |f + s d|^2 = r^2 with f from the centre to the start and d along the segment. The discriminant is written with
    the cross product, and each root in the form that does not subtract nearly equal numbers: shares keep their digits
    at the rim and at grazing incidence.

    Args:
        x_m: start of the segment as seen from the circle's centre (m), like ``y_m``.
        y_m: see ``x_m``.
        dx_m: from its start to its end (m), like ``dy_m``.
        dy_m: see ``dx_m``.
        radius_m: of the circle (m).
    """
    a = dx_m * dx_m + dy_m * dy_m
    b = x_m * dx_m + y_m * dy_m
    # (|f| - r)(|f| + r) keeps the digits of a start close to the circle
    distance_m = math.hypot(x_m, y_m)
    c = (distance_m - radius_m) * (distance_m + radius_m)
    cross = x_m * dy_m - y_m * dx_m
    discriminant = a * radius_m * radius_m - cross * cross
    if a == 0 or discriminant <= 0:
        # A miss, a tangent, or rounding at the circle: both crossings at the closest point.
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
    """The path of a vehicle inside one disc, growing while the traffic is read.

    The columns always reach at least to the simulated present: a source yields an event only after it appended every
    point up to that event's time. The first point is the exact entry.
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
    """Return where a vehicle is at a time its path already covers: linear between points, the end points beyond them.

    Returns:
        x and y in net coordinates (m).
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
    """A vehicle inside an RSU's disc, from entry to exit: the half-open interval ``[enter_s, exit_s)``.

    Windows of one vehicle at one RSU are disjoint. The path arrays have one length >= 2; the first point is the
    entry, the last the exit. ``exit_edge`` is empty unless the vehicle was still there to be asked: after a crossing,
    or when the traffic ended.
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
    """Return the window of a finished path; its last point is the exit."""
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
    """Return an open window as if the traffic had ended at the first point of its path after ``time_s``.

    The path keeps the source's own points, also the one that a source read ahead of the clock gives beyond the end: a
    replay of the recording then interpolates the very same numbers.

    Args:
        path: the path so far.
        time_s: the end of the run (s); taken as the exit when the path is shorter, contrary to its contract.
    """
    known = max(2, bisect_right(path.time_s, time_s) + 1)
    times, xs, ys, speeds = (list(v[:known]) for v in (path.time_s, path.x_m, path.y_m, path.speed_mps))
    if len(times) == 1 or times[-1] < time_s:
        times.append(max(time_s, math.nextafter(times[-1], math.inf)))  # a window is never empty
        xs.append(xs[-1])
        ys.append(ys[-1])
        speeds.append(speeds[-1])
    known_path = dataclasses.replace(path, time_s=times, x_m=xs, y_m=ys, speed_mps=speeds)
    return window_of(known_path, "end", "")


@dataclass(frozen=True, kw_only=True, eq=False)
class Entered:
    """A vehicle entered a disc at ``time_s``."""

    time_s: float
    path: VehiclePath


@dataclass(frozen=True, kw_only=True, eq=False)
class Left:
    """A vehicle left a disc at ``time_s``; ``path`` is the object its ``Entered`` carried, ``window`` the result."""

    time_s: float
    path: VehiclePath
    window: Window


CoverageEvent = Entered | Left


@dataclass(frozen=True, kw_only=True)
class TrafficInfo:
    """What the run's record says of the traffic.

    Args:
        kind: ``"sumo"``, ``"fcd"``, ``"replay"``, or the name of a traffic source, such as ``"gaussian"``.
        begin_s: first instant (s); ``end_s``: last instant if known beforehand, else None.
        end_s: see ``begin_s``.
        step_s: sampling step (s), None for exact sources.
        seed: the seed the traffic was made with, None for recordings.
        command: the simulator's command line, empty for others.
        version: the simulator's version, empty for others.
        inputs: files the traffic was read from, absolute paths; hashed into the manifest.
        notes: lines a user must see, e.g. which junction was chosen as RSU and why.
        vehicles: which vehicles take part, in words; empty where nothing distinguishes them.
        lanes: polylines of the road net near the RSUs, each an array (points, 2) in m; empty when unknown.
        heights_m: of vehicles by type (m), for the types seen so far: it grows while the traffic is read.
        whole_paths: whether a path is known to its end when it begins.
        plugin: name, citation and settings of a traffic source that is not built in; empty for others.
        chosen_rsu: the junction that was taken as RSU because nobody named one; empty where somebody did.
        left_out: how many vehicles near the RSUs do not take part, by their type.
        silences: how often a recording says nothing of a vehicle for longer than ``traffic.longest_gap_s``.
        glimpsed: by RSU, how often a vehicle was inside at one instant only, which makes no window.
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
    """An opened scenario: RSUs and the stream of coverage events. Simulation never influences traffic."""

    @property
    def rsus(self) -> tuple[Rsu, ...]:
        """The RSUs, at least one."""
        ...

    @property
    def info(self) -> TrafficInfo:
        """What the record says of this traffic."""
        ...

    def events(self) -> Iterator[CoverageEvent]:
        """Yield events by non-decreasing time; at equal times departures from a disc come before entries.

        When the traffic ends, every open window is closed with cause ``"end"``. An entry without a later exit never
        happens unless the consumer stops early.
        """
        ...

    @property
    def time_s(self) -> float:
        """How far the traffic has been read (s), for progress displays."""
        ...

    def close(self) -> None:
        """Release the simulator or file; may be called twice."""
        ...
