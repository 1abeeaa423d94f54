"""What windows say of the traffic: chords, vehicles in coverage over time, mean speed on the map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_MAP_SAMPLES = 3_000_000
"""Points laid along the paths of a map at most; with more, every k-th window is drawn."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepCurve:
    """A right-continuous step function: ``value[i]`` holds on ``[time_s[i], time_s[i + 1])``; 0 before the first."""

    time_s: Floats
    value: NDArray[np.int64]

    @property
    def peak(self) -> int:
        """The largest value."""
        return int(self.value.max(initial=0))

    def mean(self, begin_s: float, end_s: float) -> float:
        """Return the mean over ``[begin_s, end_s)``; the curve must begin and end inside."""
        if end_s <= begin_s:
            return 0.0
        return float((self.value[:-1] * np.diff(self.time_s)).sum() / (end_s - begin_s))


def in_coverage(enter_s: Floats, exit_s: Floats) -> StepCurve:
    """Return how many of the half-open intervals ``[enter_s, exit_s)`` hold each instant."""
    times = np.concatenate([enter_s, exit_s])
    change = np.concatenate([np.ones(len(enter_s), np.int64), -np.ones(len(exit_s), np.int64)])
    instants, index = np.unique(times, return_inverse=True)
    total = np.zeros(len(instants), np.int64)
    np.add.at(total, index, change)
    return StepCurve(time_s=instants, value=np.cumsum(total))


def with_chords(windows: pl.DataFrame) -> pl.DataFrame:
    """Return the windows crossed from rim to rim while moving, with ``dwell_s``, ``chord_m`` and ``chord_time_s``.

    ``chord_m`` is the straight distance between entry and exit; ``chord_time_s`` is that chord at entry speed: the dwell
    of a vehicle that keeps its speed and its direction.
    """
    x, y = pl.col("path_x_m").list, pl.col("path_y_m").list
    return (
        windows.lazy()
        .filter(
            (pl.col("entry_cause") == "crossing")
            & (pl.col("exit_cause") == "crossing")
            & (pl.col("entry_speed_mps") > 0.1)
        )
        .with_columns(
            dwell_s=pl.col("exit_s") - pl.col("enter_s"),
            chord_m=((x.last() - x.first()) ** 2 + (y.last() - y.first()) ** 2).sqrt(),
        )
        .with_columns(chord_time_s=pl.col("chord_m") / pl.col("entry_speed_mps"))
        .filter((pl.col("dwell_s") > 0) & (pl.col("chord_time_s") > 0))
        .collect()
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SpeedMap:
    """Mean speed (m/s) in square cells, shape (rows, columns), NaN where nobody drove; row 0 is the south.

    Args:
        mean_mps: see above.
        cell_m: side of a cell (m).
        every: every how many-th window was used, 1 for all.
    """

    mean_mps: Floats
    cell_m: float
    every: int


def speed_map(windows: pl.DataFrame, extent_m: tuple[float, float, float, float], cells: int) -> SpeedMap:
    """Return the mean speed on the map, weighted by distance driven.

    Paths are straight between their points, speed is linear along each piece. Each drawn line is three cells wide.

    Args:
        windows: the table of that name.
        extent_m: x_min, x_max, y_min, y_max (m).
        cells: cells along the longer side.
    """
    x_min, x_max, y_min, y_max = extent_m
    cell = max(x_max - x_min, y_max - y_min) / cells
    columns, rows = int(np.ceil((x_max - x_min) / cell)), int(np.ceil((y_max - y_min) / cell))
    used = windows.select("path_x_m", "path_y_m", "path_speed_mps")
    every = 1
    while True:
        lengths = used["path_x_m"].list.len().to_numpy()
        flat = used.explode("path_x_m", "path_y_m", "path_speed_mps")
        x, y, v = (flat[name].to_numpy().astype(np.float64) for name in flat.columns)
        inside_path = np.ones(max(len(x) - 1, 0), bool)
        inside_path[np.cumsum(lengths)[:-1] - 1] = False
        dx, dy, dv = np.diff(x)[inside_path], np.diff(y)[inside_path], np.diff(v)[inside_path]
        pieces = np.maximum(np.ceil(np.hypot(dx, dy) / cell), 1).astype(np.int64)
        if pieces.sum() <= MAX_MAP_SAMPLES or used.height <= 1:
            break
        factor = int(np.ceil(pieces.sum() / MAX_MAP_SAMPLES))
        used, every = used.gather_every(factor), every * factor
    start = np.repeat(np.cumsum(pieces) - pieces, pieces)
    along = (np.arange(pieces.sum()) - start + 0.5) / np.repeat(pieces, pieces)
    px = np.repeat(x[:-1][inside_path], pieces) + along * np.repeat(dx, pieces)
    py = np.repeat(y[:-1][inside_path], pieces) + along * np.repeat(dy, pieces)
    pv = np.repeat(v[:-1][inside_path], pieces) + along * np.repeat(dv, pieces)
    distance = np.repeat(np.hypot(dx, dy) / pieces, pieces) + 1e-9
    column, row = ((px - x_min) / cell).astype(np.int64), ((py - y_min) / cell).astype(np.int64)
    valid = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
    index = row[valid] * columns + column[valid]
    total: Floats = np.bincount(index, distance[valid], rows * columns).reshape(rows, columns)
    weighted: Floats = np.bincount(index, (distance * pv)[valid], rows * columns).reshape(rows, columns)
    total, weighted = _thicken(total), _thicken(weighted)
    with np.errstate(invalid="ignore"):
        mean = np.where(total > 0, weighted / total, np.nan)
    return SpeedMap(mean_mps=mean, cell_m=cell, every=every)


def _thicken(grid: Floats) -> Floats:
    padded = np.pad(grid, 1)
    wide = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    result: Floats = wide[:-2] + wide[1:-1] + wide[2:]
    return result
