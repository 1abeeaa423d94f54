"""Windows from the paths of vehicles: finished ones, what the end of a run leaves open, and parts of them."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from vnetsim.coverage.windows import ExitCause, Floats, VehiclePath, Window


def window_of(path: VehiclePath, exit_cause: ExitCause, exit_edge: str) -> Window:
    """Return the window of a finished path; its last point is the exit."""
    return Window(
        vehicle_id=path.vehicle_id,
        vehicle_type=path.vehicle_type,
        rsu_id=path.rsu_id,
        entry_cause=path.entry_cause,
        exit_cause=exit_cause,
        entry_edge=path.entry_edge,
        exit_edge=exit_edge,
        **_figures(path.time_s, path.x_m, path.y_m, path.speed_mps),
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


def part_of(window: Window, begin_s: float, end_s: float) -> Window | None:
    """Return the part of a window between two instants (s), None when nothing of it lies there.

    Where it is cut the cause is ``begin`` or ``end``, with an edge not known; positions there are interpolated.
    """
    first_s, last_s = max(window.enter_s, begin_s), min(window.exit_s, end_s)
    if first_s >= last_s:
        return None
    if (first_s, last_s) == (window.enter_s, window.exit_s):
        return window
    inside = window.path_time_s[(window.path_time_s > first_s) & (window.path_time_s < last_s)]
    times = np.concatenate(([first_s], inside, [last_s]))
    xs, ys, speeds = (
        np.interp(times, window.path_time_s, values)
        for values in (window.path_x_m, window.path_y_m, window.path_speed_mps)
    )
    begun, ended = first_s > window.enter_s, last_s < window.exit_s
    return dataclasses.replace(
        window,
        entry_cause="begin" if begun else window.entry_cause,
        exit_cause="end" if ended else window.exit_cause,
        entry_edge="" if begun else window.entry_edge,
        exit_edge="" if ended else window.exit_edge,
        **_figures(times, xs, ys, speeds),
    )


def _figures(
    times: Sequence[float] | Floats,
    xs: Sequence[float] | Floats,
    ys: Sequence[float] | Floats,
    speeds: Sequence[float] | Floats,
) -> dict[str, Any]:
    """Return what a window says of its path, by the names of its fields."""
    time_s, x_m, y_m, speed_mps = (np.array(values, dtype=np.float64) for values in (times, xs, ys, speeds))
    length_m = float(np.hypot(x_m[1:] - x_m[:-1], y_m[1:] - y_m[:-1]).sum())
    enter_s, exit_s = float(time_s[0]), float(time_s[-1])
    return {
        "enter_s": enter_s,
        "exit_s": exit_s,
        "entry_speed_mps": float(speed_mps[0]),
        "mean_speed_mps": length_m / (exit_s - enter_s),
        "max_speed_mps": float(speed_mps.max()),
        "path_length_m": length_m,
        "path_time_s": time_s,
        "path_x_m": x_m,
        "path_y_m": y_m,
        "path_speed_mps": speed_mps,
    }
