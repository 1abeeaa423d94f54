"""Data of the page's playback: the run packed into one small text that ``playback.js`` unpacks.

A vehicle has one path for each time that it is covered; windows are slices of it. Paths are thinned and rounded.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import clean, count
from analysis.loading import RunData, curves
from analysis.plots.place import covered_extent
from analysis.plots.seen import film
from analysis.statistics.windows import with_parts

TOLERANCE_M = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
"""Tolerances of thinned paths (m); the first with a small enough text is used, else the last."""
LIMIT_BYTES = 3_000_000
_STEP_M = 0.1
PER_S = 100  # times are whole hundredths of a second
MOST_WINDOWS = 100_000  # of more windows, only those of every k-th vehicle are played
_BATCH = 4096  # number of windows whose paths are read at a time
_SAME_PLACE_M = 0.01
_POINTS = ("path_time_s", "path_x_m", "path_y_m")
_COLUMNS = (
    *("path_vehicle", "path_windows", "path_points"),  # of each path: index of its vehicle, and two numbers
    *("rsu", "enter", "exit"),  # of each window, path by path: index of the RSU, and times
    *("time", "x", "y", "needed_m"),  # of each point, path by path; needed_m is that of thin_paths
)

Floats = NDArray[np.float64]
STAGES = ("download_s", "wait_s", "exchange_s", "train_s", "outside_s", "upload_s")
"""Columns of the table ``participations``, in the script's order."""


@dataclass(frozen=True, kw_only=True)
class Playback:
    """The packed data of a run, for the page's template."""

    text: str  # base64 of a DEFLATE stream of a JSON header and columns of numbers
    tolerance_m: float  # largest error of a path
    every: int  # only every k-th vehicle is played; 1 for all
    exchanges: bool  # whether vehicles exchange with each other
    handovers: bool  # whether participations were handed over between RSUs
    rounds: bool  # whether vehicles could be invited; False for traffic alone
    film: list[list[Any]]  # frames along vehicles' paths, see ``analysis.plots.seen.film``

    @property
    def caption(self) -> str:
        """Sentences on what the playback leaves out: points of paths, vehicles, repeated stages, and frames."""
        words = f"Paths are thinned: no vehicle is drawn more than {self.tolerance_m:g} m from where it was."
        if self.every > 1:
            words = (
                f"Of more than {count(MOST_WINDOWS)} windows, only those of one in {count(self.every)} vehicles are "
                f"played, with their participations. {words}"
            )
        if self.handovers:
            words += (
                " Where a vehicle did one thing more than once in a participation, its seconds are shown in one piece."
            )
        if self.film:
            words += (
                f" Of {count(len(self.film))} vehicles frames are on this page, drawn as the training images are; not "
                "each of them is one."
            )
        return words


def playback(run: RunData) -> Playback | None:
    """Return a run's data for the playback; None if no vehicle was in coverage.

    Paths are thinned with the first of ``TOLERANCE_M`` that keeps the text within 3 MB, or else with the last. Of more
    than 100,000 windows, only those of every k-th vehicle are played.
    """
    if run.paths is None or run.windows.is_empty():
        return None
    every = -(-run.windows.height // MOST_WINDOWS)
    paths = read_paths(run, every)
    tried, text = 1, ""  # points of the paths in the text, and the text
    for tolerance_m in TOLERANCE_M:
        points = int(np.count_nonzero(paths.columns["needed_m"] > tolerance_m))
        # fewer points take more bytes each, so this text would be too long
        if len(text) * points > LIMIT_BYTES * tried and tolerance_m != TOLERANCE_M[-1]:
            continue
        tried, text = points, _pack_run(run, paths, tolerance_m)
        if len(text) <= LIMIT_BYTES:
            break
    return Playback(
        text=text,
        tolerance_m=tolerance_m,
        every=every * run.every,
        exchanges=run.exchange_plan is not None,
        handovers=not run.handovers.is_empty(),
        rounds=run.takes_part,
        film=film(run, paths.vehicles),
    )


def thin_paths(
    time_s: Floats, x_m: Floats, y_m: Floats, first: NDArray[np.int64], tolerance_m: float
) -> NDArray[np.float32]:
    """Return the tolerance (m) below which each point is needed: points with more than T keep a path within T.

    This is the algorithm of Douglas and Peucker with distances at equal times. Arrays have the shape (n,), one path
    after the other; ``first`` has the index of each path's first point, and each path at least two points. The result
    is infinite for first and last points, and 0 for points not needed at ``tolerance_m``, the smallest of interest.
    """
    last = np.append(first[1:], len(time_s)) - 1
    needed_m = np.zeros(len(time_s), np.float32)
    needed_m[first] = needed_m[last] = np.inf
    # candidates are points in a piece where some are too far off; of each the ends of its piece
    points = np.flatnonzero(needed_m == 0)
    before, after = (np.repeat(ends, last - first - 1) for ends in (first, last))
    while len(points):
        starts = np.flatnonzero(np.diff(before, prepend=-1))
        sizes = np.diff(starts, append=len(points))
        length_s = time_s[after[starts]] - time_s[before[starts]]
        passed_s = time_s[points] - time_s[before]
        off_m2 = np.zeros(len(points))
        for values in (x_m, y_m):
            way_m = values[after[starts]] - values[before[starts]]
            slope = np.divide(way_m, length_s, out=np.zeros(len(starts)), where=length_s > 0)
            off_m2 += (values[points] - values[before] - passed_s * np.repeat(slope, sizes)) ** 2
        worst_m2 = np.repeat(np.maximum.reduceat(off_m2, starts), sizes)
        far = worst_m2 > tolerance_m * tolerance_m
        split = far & (off_m2 == worst_m2)
        # a piece is looked at only at tolerances at which both its ends are kept
        ends = needed_m[before[split]], needed_m[after[split]]
        needed_m[points[split]] = np.minimum(np.sqrt(worst_m2[split]), np.minimum(*ends))
        before = np.maximum.accumulate(np.where(split, points, before))
        after = np.minimum.accumulate(np.where(split, points, after)[::-1])[::-1]
        stay = far & ~split
        points, before, after = points[stay], before[stay], after[stay]
    return needed_m


@dataclass(frozen=True, kw_only=True, eq=False)
class PlayedPaths:
    """The played paths, one for each time that a vehicle is covered by one RSU or several; thinned a little."""

    # times: ticks of 1 / PER_S s since begin_s; places: steps of step_m from origin_m

    vehicles: list[str]
    origin_m: tuple[float, float]
    step_m: float
    begin_s: float
    columns: dict[str, NDArray[Any]]  # those of _COLUMNS


def read_paths(run: RunData, every: int) -> PlayedPaths:
    """Read the paths of every ``every``-th vehicle, by first exit, thinned within ``TOLERANCE_M[0]``."""
    assert run.paths is not None
    west, east, south, north = covered_extent(run.rsus)
    step_m = max(_STEP_M, max(east - west, north - south) / 60_000)  # so that 16 bits hold every place
    origin_m = (west + east) / 2, (south + north) / 2
    begin_s = float(run.windows["enter_s"].min())  # type: ignore[arg-type]
    vehicles = run.windows["vehicle_id"].unique(maintain_order=True).gather_every(every)
    rsus = pl.Series([rsu.id for rsu in run.rsus])
    windows = run.windows.select("vehicle_id", "rsu_id", "enter_s", "exit_s", "row").filter(
        pl.col("vehicle_id").is_in(vehicles.implode())
    )
    parts = (
        with_parts(windows)
        .with_row_index("place")
        .with_columns(
            last_row=pl.col("row").max().over("part"),
            vehicle=pl.col("vehicle_id").replace_strict(vehicles, range(len(vehicles)), return_dtype=pl.Int32),
            rsu=pl.col("rsu_id").replace_strict(rsus, range(len(rsus)), return_dtype=pl.Int32),
        )
        .drop("vehicle_id", "rsu_id")
        .sort("row")
    )
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in _COLUMNS}
    waiting: list[pl.DataFrame] = []  # windows of paths that go on
    size = _BATCH * min(every * run.every, 8)
    for begin in range(0, run.recorded, size):
        read = run.paths.collect(lambda rows, begin=begin: rows.slice(begin, size).select(_POINTS))  # type: ignore[misc]
        low, high = np.searchsorted(parts["row"], [begin, begin + size])
        some = parts[low:high]
        mine = read if some.height == read.height else read[some["row"] - begin]
        rows = pl.concat([*waiting, mine.hstack(some)])
        waiting = [rows.filter(pl.col("last_row") >= begin + size)]
        over = rows["last_row"].to_numpy() < begin + size
        whole = rows[np.flatnonzero(over)[np.argsort(rows["place"].to_numpy()[over])]]
        if whole.is_empty():
            continue
        joined, time_s, x_m, y_m, first = _join_paths(whole)
        needed_m = thin_paths(time_s, x_m, y_m, first, TOLERANCE_M[0])
        keep = needed_m > 0
        begins = np.flatnonzero(~joined)
        for name, values in (
            ("path_vehicle", whole["vehicle"].to_numpy()[begins]),
            ("path_windows", np.diff(begins, append=whole.height)),
            ("path_points", np.add.reduceat(keep, first, dtype=np.int32)),
            ("rsu", whole["rsu"].to_numpy()),
            ("enter", (whole["enter_s"].to_numpy() - begin_s) * PER_S),
            ("exit", (whole["exit_s"].to_numpy() - begin_s) * PER_S),
            ("time", (time_s[keep] - begin_s) * PER_S),
            ("x", (x_m[keep] - origin_m[0]) / step_m),
            ("y", (y_m[keep] - origin_m[1]) / step_m),
        ):
            found[name].append(np.rint(values).astype(np.int32))
        found["needed_m"].append(needed_m[keep])
    return PlayedPaths(
        vehicles=vehicles.to_list(),
        origin_m=origin_m,
        step_m=step_m,
        begin_s=begin_s,
        columns={name: np.concatenate(values) for name, values in found.items()},
    )


def _join_paths(windows: pl.DataFrame) -> tuple[NDArray[np.bool_], Floats, Floats, Floats, NDArray[np.int64]]:
    """Return whether each window continues a path, times (s), x and y (m) of points, and each path's first index."""
    # windows are sorted by part and entry; a vehicle at two places at one time, as in some sources, has several paths
    lengths = windows["path_time_s"].list.len().to_numpy()
    first = np.cumsum(lengths) - lengths
    time_s, x_m, y_m = (windows[name].explode().to_numpy() for name in _POINTS)
    before_s = windows["before_s"].fill_null(-np.inf).to_numpy()
    new = time_s > np.repeat(before_s, lengths)  # later than all earlier windows of the part
    # joined paths agree with the points that they leave out; apart in time, so that one interpolation serves all
    part = np.repeat(windows["part"].rle_id().to_numpy(), lengths)
    at_s = part * (np.ptp(time_s) + 1.0) + time_s
    off_m = [np.abs(np.interp(at_s[~new], at_s[new], values[new]) - values[~new]) for values in (x_m, y_m)]
    apart = np.isin(part[first], part[~new][np.maximum(*off_m) > _SAME_PLACE_M])
    joined = (before_s > -np.inf) & ~apart
    new |= np.repeat(apart, lengths)
    return joined, time_s[new], x_m[new], y_m[new], (np.cumsum(new) - new)[first[~joined]]


def _pack_run(run: RunData, paths: PlayedPaths, tolerance_m: float) -> str:
    """Return ``Playback.text``: the run with its paths thinned within the tolerance."""
    keep = paths.columns["needed_m"] > tolerance_m
    starts = np.cumsum(paths.columns["path_points"]) - paths.columns["path_points"]
    columns = {
        name: paths.columns[name].astype("<i4") for name in ("path_vehicle", "path_windows", "rsu", "enter", "exit")
    }
    columns["path_points"] = np.add.reduceat(keep, starts, dtype="<i4")
    columns["exit"] -= columns["enter"]
    columns["enter"] = np.diff(columns["enter"], prepend=np.int32(0))
    first = np.cumsum(columns["path_points"]) - columns["path_points"]
    for name, kind in (("time", "<i4"), ("x", "<i2"), ("y", "<i2")):
        numbers = paths.columns[name][keep]
        columns[name] = np.diff(numbers, prepend=np.int32(0))
        columns[name][first] = numbers[first]
        columns[name] = columns[name].astype(kind)  # a step across more than half the map wraps, and the script unwraps
    vehicle_of = {name: place for place, name in enumerate(paths.vehicles)}
    rsu_of = {rsu.id: place for place, rsu in enumerate(run.rsus)}
    origin = paths.origin_m
    header = {
        "vehicles": [clean(name, 60) for name in paths.vehicles],
        "rsus": [[clean(rsu.id, 60), rsu.x_m - origin[0], rsu.y_m - origin[1], rsu.range_m] for rsu in run.rsus],
        "lanes": _round_lanes(run, origin),
        "step_m": paths.step_m,
        "begin_s": paths.begin_s,
        "takes_part": run.takes_part,
        "per_s": PER_S,
        "participations": participations_of(run, vehicle_of, rsu_of),
        "handovers": handovers_of(run, vehicle_of, rsu_of),
        "rounds": run.rounds.sort("close_s").select("open_s", "close_s", "closed_by", "committed").rows(),
        "curve": headline_curve(run),
        "columns": [[name, len(values), values.dtype.itemsize] for name, values in columns.items()],
    }
    head = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    head += b" " * (-len(head) % 4)
    body = b"".join(values.tobytes() for values in columns.values())
    # level 6 saves 2 % of the bytes and takes three times as long
    return base64.b64encode(zlib.compress(struct.pack("<I", len(head)) + head + body, 4)).decode()


def _round_lanes(run: RunData, origin_m: tuple[float, float]) -> list[list[int]]:
    """Return the lanes as polylines [x, y, x, y, ...] in whole metres from ``origin_m``."""
    lines = (np.column_stack(both) - origin_m for both in run.lanes.select("x_m", "y_m").iter_rows())
    return [np.rint(line).astype(int).ravel().tolist() for line in lines]


def participations_of(run: RunData, vehicle_of: dict[str, int], rsu_of: dict[str, int]) -> list[list[Any]]:
    """Return [vehicle, RSU, round, outcome, begin (s), end (s), [[index in ``STAGES``, seconds], ...]] by begin.

    One item per invitation of a vehicle in ``vehicle_of``; vehicles and RSUs are their numbers in the mappings.
    """
    exchange = run.exchange_plan
    order = [0, 1, 2, 3, 4, 5] if exchange is None or exchange.before_training else [0, 3, 1, 2, 4, 5]
    result = []
    for row in run.invited.sort("start_s").iter_rows(named=True):
        spent = [[stage, round(row[STAGES[stage]], 2)] for stage in order if row[STAGES[stage]] > 0]
        who = vehicle_of.get(row["vehicle_id"]), rsu_of[row["rsu_id"]], row["round"], row["outcome"]
        if who[0] is not None:
            result.append([*who, round(row["start_s"], 2), round(row["end_s"], 2), spent])
    return result


def handovers_of(run: RunData, vehicle_of: dict[str, int], rsu_of: dict[str, int]) -> list[list[Any]]:
    """Return [vehicle, time (s), old RSU, new RSU, gap (s), backhaul (s), stage, policy] by time; 0 for no gap.

    One item per handover of a vehicle in ``vehicle_of``, others are left out; numbers as in ``participations_of``.
    """
    columns = ("vehicle_id", "time_s", "from_rsu_id", "to_rsu_id", "gap_s", "backhaul_s", "stage", "policy")
    return [
        [vehicle_of[who], round(time_s, 2), rsu_of[old], rsu_of[new], round(gap_s or 0.0, 2), backhaul_s, stage, policy]
        for who, time_s, old, new, gap_s, backhaul_s, stage, policy in run.handovers.sort("time_s")
        .select(columns)
        .iter_rows()
        if who in vehicle_of
    ]


def headline_curve(run: RunData) -> dict[str, Any] | None:
    """Return ``label``, ``unit``, ``points`` (s, value) of the first headline metric, in % if any is; None without."""
    curve = min((one for one in curves(run) if one.result), key=lambda one: one.unit != "%", default=None)
    if curve is None:
        return None
    factor, unit = (100.0, "%") if curve.unit == "%" else (1.0, clean(curve.unit, 12))
    points = np.column_stack((curve.time_s, factor * curve.value))
    return {"label": curve.label, "unit": unit, "points": points[np.isfinite(points[:, 0])].tolist()}
