"""Statistics of coverage windows: dwell, speed at entry, vehicles in coverage, mean speed on the map.

Every median dwell and median speed at entry that is shown comes from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import count, plural, quantity
from vnetsim.storage.run_directory import Scan
from vnetsim.storage.tables import CUT_ENTRY, CUT_EXIT

Floats = NDArray[np.float64]

_PATH = ("path_x_m", "path_y_m", "path_time_s")
MAX_MAP_SAMPLES = 600_000
"""About the most points along the paths of a map; with more, only every k-th window is drawn."""
_MAP_WINDOWS = 256
"""Number of windows whose paths are drawn at a time; it limits memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepCurve:
    """A right-continuous step function: ``value[i]`` on ``[time_s[i], time_s[i + 1])``; 0 before the first."""

    time_s: Floats
    value: NDArray[np.int64]

    @property
    def peak(self) -> int:
        """The largest value; 0 without steps."""
        return int(self.value.max(initial=0))

    def at(self, instants_s: Floats) -> NDArray[np.int64]:
        """Return the value at each instant; 0 before the first step, the last value after the last step."""
        return np.append(self.value, 0)[np.searchsorted(self.time_s, instants_s, "right") - 1]

    def means(self, edges_s: Floats) -> Floats:
        """Return the mean between neighbouring ``edges_s``, shape (edges - 1,); 0 outside the first and last step."""
        integral = np.concatenate([[0.0], np.cumsum(self.value[:-1] * np.diff(self.time_s))])
        return np.asarray(np.diff(np.interp(edges_s, self.time_s, integral)) / np.diff(edges_s))


def in_coverage(windows: pl.DataFrame) -> StepCurve:
    """Return the number of windows that contain each instant; ``enter_s`` is in a window, ``exit_s`` is not."""
    entered, left = (np.sort(windows[name].to_numpy()) for name in ("enter_s", "exit_s"))
    instants = np.unique(np.concatenate([entered, left]))
    value = np.searchsorted(entered, instants, "right") - np.searchsorted(left, instants, "right")
    return StepCurve(time_s=instants, value=value)


def with_parts(windows: pl.DataFrame) -> pl.DataFrame:
    """Return windows in order of vehicle and entry, with the unbroken intervals in which a vehicle was in any disc.

    Two columns are added: ``part``, the number of the window's interval, from 1; and ``before_s``, the latest exit of
    earlier windows of the interval (s), null for its first window.
    """
    rows = windows.sort("vehicle_id", "enter_s", maintain_order=True)
    vehicle = rows["vehicle_id"].rle_id().to_numpy().astype(np.int64)
    exit_s = rows["exit_s"].to_numpy()
    # the latest exit so far of each vehicle: the largest rank, above all ranks of earlier vehicles; Polars' cum_max
    # over groups takes eight times the memory
    order = np.argsort(exit_s, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    latest = np.maximum.accumulate(vehicle * len(order) + rank) - vehicle * len(order)
    known = np.diff(vehicle, prepend=-1) == 0
    before_s = pl.Series(np.where(known, np.roll(exit_s[order[latest]], 1), np.nan), nan_to_null=True)
    before_s = pl.select(pl.when(rows["enter_s"] <= before_s).then(before_s)).to_series()
    part = before_s.is_null().cast(pl.Int64).cum_sum().set_sorted()
    return rows.with_columns(before_s.alias("before_s"), part.alias("part"))


def merged_windows(windows: pl.DataFrame) -> pl.DataFrame:
    """Return the intervals of ``with_parts`` in order: ``part``, ``vehicle_id``, first ``enter_s``, last ``exit_s``."""
    return (
        with_parts(windows.select("vehicle_id", "enter_s", "exit_s"))
        .group_by("part", maintain_order=True)
        .agg(pl.col("vehicle_id").first(), pl.col("enter_s").min(), pl.col("exit_s").max())
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SpeedMap:
    """Space-mean speed (m/s) in square cells, shape (rows, columns); NaN without vehicles; row 0 is the south."""

    mean_mps: Floats  # distance driven in the cell divided by time spent in it; queues are slow
    cell_m: float  # side of a cell (m)
    every: int  # k if every k-th window was used; 1 for all


def speed_map(windows: pl.DataFrame | Scan, extent_m: tuple[float, float, float, float], cells: int) -> SpeedMap:
    """Return the space-mean speed in ``extent_m`` (x_min, x_max, y_min, y_max), ``cells`` along the longer side.

    Each path is drawn three cells wide. With more than about ``MAX_MAP_SAMPLES`` points only every k-th window is used.
    """
    x_min, x_max, y_min, y_max = extent_m
    cell = max(x_max - x_min, y_max - y_min) / cells
    columns, rows = int(np.ceil((x_max - x_min) / cell)), int(np.ceil((y_max - y_min) / cell))
    collect = windows.collect if isinstance(windows, Scan) else lambda query: query(windows.lazy()).collect()
    length_m, points = collect(
        lambda rows: rows.select(pl.col("path_length_m").sum(), pl.col("path_time_s").list.len().cast(pl.Int64).sum())
    ).row(0)
    every = max(1, int(np.ceil((length_m / cell + points) / MAX_MAP_SAMPLES)))
    # a filter that takes single rows keeps the memory of whole row groups
    drawn = collect(lambda rows: rows.select(_PATH).gather_every(every)).with_row_index()
    way = [pl.col(name).shift(-1) - pl.col(name) for name in _PATH]
    ends = [[y_min, y_min + rows * cell], [x_min, x_min + columns * cell]]
    total = np.zeros((2, rows, columns))
    for some in drawn.iter_slices(_MAP_WINDOWS):
        pieces = some.explode(_PATH).select("index", "path_x_m", "path_y_m", dx=way[0], dy=way[1], dt=way[2])
        pieces = pieces.filter(pl.col("index") == pl.col("index").shift(-1)).drop("index")
        x, y, dx, dy, dt = (column.to_numpy() for column in pieces)
        length = np.hypot(dx, dy)
        parts = np.maximum(np.ceil(length / cell), 1).astype(np.int64)
        along = (np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts) + 0.5) / np.repeat(parts, parts)
        at_x = np.repeat(x, parts) + along * np.repeat(dx, parts)
        at_y = np.repeat(y, parts) + along * np.repeat(dy, parts)
        # divide each piece's value equally among its parts
        total += [
            np.histogram2d(at_y, at_x, [rows, columns], ends, weights=np.repeat(values / parts, parts))[0]
            for values in (length, dt)
        ]
    wide = np.pad(total, ((0, 0), (1, 1), (1, 1)))  # sums over every cell's neighbourhood
    wide = wide[:, :, :-2] + wide[:, :, 1:-1] + wide[:, :, 2:]
    distance, time = wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]
    mean = np.divide(distance, time, out=np.full_like(time, np.nan), where=time > 0)
    return SpeedMap(mean_mps=mean, cell_m=cell, every=every)


@dataclass(frozen=True, kw_only=True)
class Dwell:
    """Median dwell of a number of ``windows``."""

    windows: int  # number of windows used
    cut: int  # how many of them were cut off by the end of the run or a gap of the recording; they lasted longer
    begun: int  # windows left out because they began before the recording or during a gap of it
    median_s: float  # the median (s); infinite if too many windows were cut, NaN without windows
    at_least_s: float  # lower bound of the median (s): the median of the times seen
    gaps: bool = False  # whether the recording had gaps

    @property
    def median(self) -> str:
        """The median in words: "more than ..." if it is infinite."""
        if math.isinf(self.median_s):
            return f"more than {quantity(self.at_least_s, 's')}"
        return quantity(self.median_s, "s")

    @property
    def brief(self) -> str:
        """The median in words, then, if windows were cut, how many in brackets."""
        return f"{self.median} ({count(self.cut)} of {count(self.windows)} cut off)" if self.cut else self.median

    @property
    def sentence(self) -> str:
        """A sentence on the median and its estimate."""
        words = f"Median dwell {self.median}"
        if self.cut:
            cause = "the end of the run or a gap of the recording" if self.gaps else "the end of the run"
            words += (
                f": {cause} cut {count(self.cut)} of {plural(self.windows, 'window')} off, which the "
                "Kaplan\u2013Meier estimate takes into account"
            )
        if self.begun:
            gap = " or the end of a gap" * self.gaps
            words += (
                f"; {plural(self.begun, 'window')} of vehicles that were inside from the beginning{gap} not counted"
            )
        return f"{words}."


@dataclass(frozen=True, kw_only=True, eq=False)
class Survival:
    """The share that lasts longer than each time (s): a right-continuous step function; 1 before the first time."""

    time_s: Floats
    share: Floats

    def at(self, time_s: float) -> float:
        """Return the share that lasts longer than a time (s): 1 before the first end, the last value after the last."""
        place = int(np.searchsorted(self.time_s, time_s, side="right"))
        return float(self.share[place - 1]) if place else 1.0

    def quantile_s(self, below: float) -> float:
        """Return the time (s) up to which the share ``below``, in [0, 1], ended; infinite if too many were cut."""
        reached = np.flatnonzero(self.share <= 1 - below + 1e-12)  # tolerance for rounding
        return float(self.time_s[reached[0]]) if len(reached) else math.inf


def survival(values: Floats, cut: NDArray[np.bool_]) -> Survival:
    """Return the Kaplan-Meier estimate (1958, Eq. 2b) of how long something lasts, in steps at values not cut.

    ``values`` are times seen (s), shape (N,); where ``cut`` they are only lower bounds.
    """
    at, index = np.unique(values, return_inverse=True)
    ended = np.bincount(index, ~cut, len(at))
    left = np.cumsum(np.bincount(index, minlength=len(at))[::-1])[::-1]  # values cut at a time still count at it
    seen = ended > 0
    share = np.cumprod(1 - ended / left)[seen].astype(np.float64)
    return Survival(time_s=at[seen], share=share)


def lasting(windows: pl.DataFrame) -> pl.DataFrame:
    """Return windows whose entry was seen (all if none was), with ``lasted_s`` and ``cut``: their exit was not seen."""
    whole = windows.filter(~pl.col("entry_cause").is_in(CUT_ENTRY))
    return (windows if whole.is_empty() else whole).with_columns(
        lasted_s=pl.col("exit_s") - pl.col("enter_s"), cut=pl.col("exit_cause").is_in(CUT_EXIT)
    )


def dwell(windows: pl.DataFrame) -> Dwell:
    """Return the median dwell of what ``lasting`` returns, by Kaplan and Meier (1958) if some are ``cut``."""
    whole = lasting(windows.select("enter_s", "exit_s", "entry_cause", "exit_cause"))
    gaps = "gap" in windows["entry_cause"] or "gap" in windows["exit_cause"]
    begun = windows.height - whole.height
    whole = whole.filter(pl.col("lasted_s").is_finite())
    seconds, cut = whole["lasted_s"].to_numpy(), whole["cut"].to_numpy()
    if len(seconds) == 0:
        return Dwell(windows=0, cut=0, begun=begun, median_s=math.nan, at_least_s=math.nan)
    seen = float(np.median(seconds))
    median = survival(seconds, cut).quantile_s(0.5) if cut.any() else seen
    return Dwell(windows=len(seconds), cut=int(cut.sum()), begun=begun, median_s=median, at_least_s=seen, gaps=gaps)


def entries(windows: pl.DataFrame) -> pl.DataFrame:
    """Return the windows with a known entry speed that began at a disc's rim, or if none did, all with a known one.

    Columns: ``entry_cause``, ``entry_speed_mps`` and, if ``windows`` has it, ``level_px``.
    """
    known = windows.select("entry_cause", "^(entry_speed_mps|level_px)$").filter(pl.col("entry_speed_mps").is_finite())
    crossing = known.filter(pl.col("entry_cause") == "crossing")
    return known if crossing.is_empty() else crossing
