"""Data of the page's playback: the run packed into one small text that ``playback.js`` unpacks.

Paths are thinned within a tolerance, rounded to multiples of ``_STEP_M``, and compressed as differences.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import clean
from analysis.loading import RunData, curves
from analysis.plots.place import covered_extent

TOLERANCE_M = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
"""Tolerances of thinned paths (m); the first with a small enough text is used, else the last."""
LIMIT_BYTES = 3_000_000
_STEP_M = 0.1
_PER_S = 100
"""Times are whole hundredths of a second."""
_BATCH = 4096
"""Number of windows whose paths are in memory at a time."""

Floats = NDArray[np.float64]
STAGES = ("download_s", "wait_s", "exchange_s", "train_s", "outside_s", "upload_s")
"""Columns of the table ``participations``, in the script's order."""


@dataclass(frozen=True, kw_only=True)
class Playback:
    """The packed data of a run.

    Args:
        text: base64 of a DEFLATE stream of a JSON header and columns of numbers.
        tolerance_m: largest error of a path (m).
        exchanges: whether vehicles exchange with each other.
        handovers: whether participations were handed over between RSUs.
    """

    text: str
    tolerance_m: float
    exchanges: bool
    handovers: bool

    @property
    def caption(self) -> str:
        """Sentences on the limits of the playback."""
        words = f"Paths are thinned: no vehicle is drawn more than {self.tolerance_m:g} m from where it was."
        if self.handovers:
            words += (
                " Where a vehicle did one thing more than once in a participation, its seconds are shown in one piece."
            )
        return words


def playback(run: RunData) -> Playback | None:
    """Return a run's data for the playback; None if no vehicle was in coverage.

    Paths are thinned with the first tolerance that keeps the text within ``LIMIT_BYTES``, or with the last one.
    """
    if run.paths is None or run.windows.is_empty():
        return None
    # of many windows, a sixteenth shows which tolerances are far too small
    some = list(_batches(run, _BATCH // 16)) if run.windows.height > _BATCH else []
    for tolerance_m in TOLERANCE_M:
        last = tolerance_m == TOLERANCE_M[-1]
        if some and not last and 16 * len(_pack(run, tolerance_m, some)) > 1.3 * LIMIT_BYTES:
            continue
        text = _pack(run, tolerance_m, _batches(run, _BATCH))
        if last or len(text) <= LIMIT_BYTES:
            break
    return Playback(
        text=text,
        tolerance_m=tolerance_m,
        exchanges=run.exchange_plan is not None,
        handovers=not run.handovers.is_empty(),
    )


def thin_paths(
    time_s: Floats, x_m: Floats, y_m: Floats, first: NDArray[np.int64], tolerance_m: float
) -> NDArray[np.bool_]:
    """Return a mask of the points to keep, such that linear interpolation between them is within the tolerance.

    This is the algorithm of Douglas and Peucker with distances at equal times, for all paths at once, level by level.

    Args:
        time_s: times of the points of all paths, one path after the other (s), shape (n,).
        x_m: x of the points (m), shape (n,).
        y_m: y of the points (m), shape (n,).
        first: index of each path's first point; each path has at least two points.
        tolerance_m: largest distance of a removed point from the interpolated path (m).

    Returns:
        shape (n,); True for the first and the last point of each path.
    """
    keep = np.zeros(len(time_s), bool)
    keep[first] = keep[np.append(first[1:], len(time_s)) - 1] = True
    points = np.flatnonzero(~keep)  # candidates: points in a piece where some are too far off
    while len(points):
        kept = np.flatnonzero(keep)
        piece = np.searchsorted(kept, points) - 1
        begin, end = kept[piece], kept[piece + 1]
        length_s = time_s[end] - time_s[begin]
        passed_s = time_s[points] - time_s[begin]
        share = np.divide(passed_s, length_s, out=np.zeros_like(passed_s), where=length_s > 0)
        off_m = np.hypot(
            x_m[points] - x_m[begin] - share * (x_m[end] - x_m[begin]),
            y_m[points] - y_m[begin] - share * (y_m[end] - y_m[begin]),
        )
        starts = np.flatnonzero(np.diff(piece, prepend=-1))
        worst_m = np.repeat(np.maximum.reduceat(off_m, starts), np.diff(starts, append=len(piece)))
        far = worst_m > tolerance_m
        split = far & (off_m == worst_m)
        keep[points[split]] = True
        points = points[far & ~split]
    return keep


def _pack(run: RunData, tolerance_m: float, windows: Iterable[pl.DataFrame]) -> str:
    """Return the packed text of the run, with the windows and paths of the given batches."""
    west, east, south, north = covered_extent(run.rsus)
    step_m = max(_STEP_M, max(east - west, north - south) / 60_000)  # so that 16 bits hold every place
    origin = (west + east) / 2, (south + north) / 2
    begin_s = float(run.windows["enter_s"].min())  # type: ignore[arg-type]
    vehicles = run.windows["vehicle_id"].unique(maintain_order=True)
    vehicle_of = {name: place for place, name in enumerate(vehicles)}
    rsu_of = {rsu.id: place for place, rsu in enumerate(run.rsus)}
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in ("vehicle", "rsu", "points", "time", "x", "y")}
    for rows in windows:
        first = np.concatenate(([0], rows["path_time_s"].list.len().cum_sum().to_numpy()[:-1])).astype(np.int64)
        time_s, x_m, y_m = (rows[f"path_{name}"].explode().to_numpy() for name in ("time_s", "x_m", "y_m"))
        keep = thin_paths(time_s, x_m, y_m, first, tolerance_m)
        kept_before = np.concatenate(([0], np.cumsum(keep)))
        counts = np.diff(kept_before[np.append(first, len(time_s))])
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        columns["vehicle"].append(np.array([vehicle_of[name] for name in rows["vehicle_id"]], "<i4"))
        columns["rsu"].append(np.array([rsu_of[name] for name in rows["rsu_id"]], "<i4"))
        columns["points"].append(counts.astype("<i4"))
        whole = (
            ("time", (time_s[keep] - begin_s) * _PER_S, "<i4"),
            ("x", (x_m[keep] - origin[0]) / step_m, "<i2"),
            ("y", (y_m[keep] - origin[1]) / step_m, "<i2"),
        )
        for name, values, kind in whole:
            numbers = np.rint(values).astype(np.int64)
            columns[name].append(_differences(numbers, starts).astype(kind))
    header = {
        "vehicles": [clean(name, 60) for name in vehicles],
        "rsus": [[clean(rsu.id, 60), rsu.x_m - origin[0], rsu.y_m - origin[1], rsu.range_m] for rsu in run.rsus],
        "lanes": _lanes(run, origin),
        "step_m": step_m,
        "begin_s": begin_s,
        "per_s": _PER_S,
        "participations": _participations(run, vehicle_of, rsu_of),
        "handovers": _handovers(run, vehicle_of, rsu_of),
        "rounds": [
            list(row)
            for row in run.rounds.sort("close_s").select("open_s", "close_s", "closed_by", "committed").iter_rows()
        ],
        "curve": _curve(run),
        "columns": [[name, len(np.concatenate(parts)), parts[0].dtype.itemsize] for name, parts in columns.items()],
    }
    head = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    head += b" " * (-len(head) % 4)
    body = b"".join(np.concatenate(parts).tobytes() for parts in columns.values())
    return base64.b64encode(zlib.compress(struct.pack("<I", len(head)) + head + body, 6)).decode()


def _batches(run: RunData, of_each: int) -> Iterator[pl.DataFrame]:
    """Yield windows with their paths, batch by batch; only the first ``of_each`` windows of a batch."""
    assert run.paths is not None
    for begin in range(0, run.windows.height, _BATCH):
        yield run.paths.collect(
            lambda rows, begin=begin: rows.slice(begin, of_each).select(  # type: ignore[misc]
                "vehicle_id", "rsu_id", "path_time_s", "path_x_m", "path_y_m"
            )
        )


def _differences(numbers: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each number minus the one before; the first number of each path, at ``first``, is unchanged."""
    result = np.diff(numbers, prepend=0)
    result[first] = numbers[first]
    return result


def _lanes(run: RunData, origin: tuple[float, float]) -> list[list[float]]:
    """Return the lanes as polylines [x, y, x, y, ...] in whole metres from ``origin``."""
    lanes = []
    for xs, ys in run.lanes.select("x_m", "y_m").iter_rows():
        line = np.rint(np.column_stack((np.subtract(xs, origin[0]), np.subtract(ys, origin[1])))).astype(int)
        lanes.append(line.ravel().tolist())
    return lanes


def _participations(run: RunData, vehicle_of: dict[str, int], rsu_of: dict[str, int]) -> list[list[Any]]:
    """Return vehicle, RSU, round, outcome, begin, end (s) and [index in ``STAGES``, seconds] pairs per invitation."""
    exchange = run.exchange_plan
    order = [0, 1, 2, 3, 4, 5] if exchange is None or exchange.before_training else [0, 3, 1, 2, 4, 5]
    result = []
    for row in run.invited.sort("start_s").iter_rows(named=True):
        spent = [[stage, round(row[STAGES[stage]], 2)] for stage in order if row[STAGES[stage]] > 0]
        who = vehicle_of.get(row["vehicle_id"]), rsu_of[row["rsu_id"]], row["round"], row["outcome"]
        if who[0] is not None:
            result.append([*who, round(row["start_s"], 2), round(row["end_s"], 2), spent])
    return result


def _handovers(run: RunData, vehicle_of: dict[str, int], rsu_of: dict[str, int]) -> list[list[Any]]:
    """Return vehicle, time (s), old and new RSU, gap (s), backhaul (s), stage and policy of each handover."""
    columns = ("vehicle_id", "time_s", "from_rsu_id", "to_rsu_id", "gap_s", "backhaul_s", "stage", "policy")
    return [
        [vehicle_of[who], round(time_s, 2), rsu_of[old], rsu_of[new], round(gap_s or 0.0, 2), backhaul_s, stage, policy]
        for who, time_s, old, new, gap_s, backhaul_s, stage, policy in run.handovers.sort("time_s")
        .select(columns)
        .iter_rows()
        if who in vehicle_of
    ]


def _curve(run: RunData) -> dict[str, Any] | None:
    """Return label, unit and points of one headline metric over simulated time, accuracy first; None without one."""
    found = sorted((one for one in curves(run) if one.result), key=lambda one: one.unit != "%")  # accuracy before loss
    if not found:
        return None
    curve = found[0]
    factor, unit = (100.0, "%") if curve.unit == "%" else (1.0, clean(curve.unit, 12))
    points = np.column_stack((curve.time_s, factor * curve.value))
    return {"label": curve.label, "unit": unit, "points": points[np.isfinite(points[:, 0])].tolist()}
