"""A coverage window that the end of a run leaves open."""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from vnetsim.coverage import Track, Window


def cut_window(track: Track, time_s: float) -> Window:
    """Return an open window as if the traffic had ended at the first point of its path after ``time_s``.

    The path keeps the source's own points, also the one that a source read ahead of the clock gives beyond the end: a
    replay of the recording then interpolates the very same numbers.

    Args:
        track: the path so far.
        time_s: the end of the run (s); taken as the exit when the path is shorter, contrary to its contract.
    """
    known = max(2, bisect_right(track.time_s, time_s) + 1)
    times, xs, ys, speeds = (list(v[:known]) for v in (track.time_s, track.x_m, track.y_m, track.speed_mps))
    if len(times) == 1 or times[-1] < time_s:
        times.append(max(time_s, math.nextafter(times[-1], math.inf)))  # a window is never empty
        xs.append(xs[-1])
        ys.append(ys[-1])
        speeds.append(speeds[-1])
    length_m = float(np.hypot(np.diff(xs), np.diff(ys)).sum())
    return Window(
        vehicle_id=track.vehicle_id,
        vehicle_type=track.vehicle_type,
        rsu_id=track.rsu_id,
        enter_s=times[0],
        exit_s=times[-1],
        entry_cause=track.entry_cause,
        exit_cause="end",
        entry_edge=track.entry_edge,
        exit_edge="",
        entry_speed_mps=speeds[0],
        mean_speed_mps=length_m / (times[-1] - times[0]),
        max_speed_mps=max(speeds),
        path_length_m=length_m,
        path_time_s=np.array(times),
        path_x_m=np.array(xs),
        path_y_m=np.array(ys),
        path_speed_mps=np.array(speeds),
    )
