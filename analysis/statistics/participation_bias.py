"""Who takes part, against who passes: overlap of participants, and how updates spread over speeds and directions.

Participants of a round are the vehicles whose update was aggregated: committed, with a weight above 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.loading import WINDOW_KEY

Floats = NDArray[np.float64]
Rounds = Sequence[AbstractSet[str]]

_AGGREGATED = (pl.col("outcome") == "committed") & (pl.col("weight") > 0)
_WIDTHS_KMH = (5, 10, 20, 50, 100, 250, 1000)
_MOST_BINS = 8


def participants_by_round(participations: pl.DataFrame, rounds: int) -> tuple[frozenset[str], ...]:
    """Return the participants of each of the first ``rounds`` rounds.

    Args:
        participations: the table of that name.
        rounds: how many were aggregated.
    """
    rows = participations.filter(_AGGREGATED).select("round", "vehicle_id").iter_rows()
    found: list[set[str]] = [set() for _ in range(rounds)]
    for round_, vehicle in rows:
        if round_ < rounds:
            found[round_].add(vehicle)
    return tuple(map(frozenset, found))


def dice(first: AbstractSet[str], second: AbstractSet[str]) -> float | None:
    """Return the overlap 2 |A n B| / (|A| + |B|) of two sets (Dice 1945, Soerensen 1948); None when both are empty."""
    size = len(first) + len(second)
    return 2 * len(first & second) / size if size else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def overlap_between_rounds(rounds: Rounds) -> float | None:
    """Return the mean overlap of the participants of consecutive rounds; None where there are none."""
    return _mean([dice(before, after) for before, after in pairwise(rounds)])


def overlap_between_runs(first: Rounds, second: Rounds) -> float | None:
    """Return the mean overlap of two runs' participants in the same round, over the rounds both have."""
    return _mean([dice(ours, theirs) for ours, theirs in zip(first, second, strict=False)])


def windows_with_updates(windows: pl.DataFrame, participations: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each coverage window that the rounds knew of, in order of entry.

    Args:
        windows: the table of that name; a window that is not in it has lasted as long as its participations.
        participations: likewise.

    Returns:
        ``speed_kmh`` at entry, ``approach`` (sector from which the vehicle first came), ``dwell_s`` and ``updates``,
        how many were aggregated from it.
    """
    exits = windows.select(*WINDOW_KEY, "exit_s").unique(subset=WINDOW_KEY, keep="first", maintain_order=True)
    return (
        participations.group_by(WINDOW_KEY, maintain_order=True)
        .agg(
            speed_kmh=pl.col("speed_mps").first() * 3.6,
            approach=pl.col("approach").first(),
            last_s=pl.col("end_s").max(),
            updates=_AGGREGATED.sum().cast(pl.Int64),
        )
        .join(exits, on=WINDOW_KEY, how="left", maintain_order="left")
        .sort("enter_s", maintain_order=True)
        .select(
            "speed_kmh",
            "approach",
            dwell_s=pl.col("exit_s").fill_null(pl.max_horizontal("last_s", "enter_s")) - pl.col("enter_s"),
            updates="updates",
        )
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """Shares by bin, each array summing to 1, or all 0 when there was nothing to share.

    Args:
        windows: of the coverage windows.
        dwell: of the time in coverage.
        updates: of the aggregated updates.
    """

    windows: Floats
    dwell: Floats
    updates: Floats


def shares(table: pl.DataFrame, index: NDArray[np.int64], bins: int) -> Shares:
    """Return how windows, dwell time and updates spread over bins.

    Args:
        table: as ``windows_with_updates`` returns it.
        index: bin of each row, in [0, bins).
        bins: their number.
    """

    def spread(weights: Floats) -> Floats:
        total = np.bincount(index, weights, bins).astype(np.float64)
        whole = float(total.sum())
        return total / whole if whole > 0 else total

    return Shares(
        windows=spread(np.ones(table.height)),
        dwell=spread(table["dwell_s"].to_numpy().astype(np.float64)),
        updates=spread(table["updates"].to_numpy().astype(np.float64)),
    )


def misplaced(found: Floats, expected: Floats) -> float | None:
    """Return the share that would have to go to other bins for ``found`` to be spread as ``expected``.

    This is the total variation distance, half the sum of the absolute differences; None when there is nothing.
    """
    if not (found.any() and expected.any()):
        return None
    return float(np.abs(found - expected).sum() / 2)


def speed_edges_kmh(speeds_kmh: Floats) -> Floats:
    """Return edges of at most eight equally wide bins of round numbers that hold all speeds; two without any."""
    if not len(speeds_kmh):
        return np.array([0.0, _WIDTHS_KMH[0]])
    low, high = float(speeds_kmh.min()), float(speeds_kmh.max())
    for width in _WIDTHS_KMH:
        first, last = np.floor(low / width), np.floor(high / width)
        if last - first < _MOST_BINS or width == _WIDTHS_KMH[-1]:
            break
    edges: Floats = np.arange(first, last + 2) * width
    return edges


def speed_bins(speeds_kmh: Floats, edges_kmh: Floats) -> NDArray[np.int64]:
    """Return the bin of each speed, between edges that hold them all."""
    return np.clip(np.digitize(speeds_kmh, edges_kmh) - 1, 0, len(edges_kmh) - 2).astype(np.int64)
