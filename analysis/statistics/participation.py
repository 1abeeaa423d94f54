"""Measures of participation: spread over speeds and directions, cost and waste, fluctuation of the loss.

Participants of a round are the vehicles whose update was aggregated: committed, with a weight above 0. A commit is a
participation with the outcome ``committed``. Resources of all other participations are wasted, also of those under way
when the last round closed.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.loading import WINDOW_KEY, ends_of
from analysis.statistics.windows import in_coverage, merged_windows

Floats = NDArray[np.float64]
_COMMITTED = pl.col("outcome") == "committed"
_INVITED = pl.col("outcome") != "not_selected"
_AGGREGATED = _COMMITTED & (pl.col("weight") > 0)
_WIDTHS_KMH = (5, 10, 20, 50, 100, 250, 1000)
_MOST_BINS = 8
LEAST_FOR_RATES_S = 600.0
"""Least simulated time that is extrapolated to an hour or a month (s)."""
LEAST_ROUNDS = 10
"""Fewest rounds of an aggregator for an estimate of its fluctuation; the relative standard error at 10 is about 1/3."""


def windows_with_updates(windows: pl.DataFrame, participations: pl.DataFrame) -> pl.DataFrame:
    """Return ``speed_kmh``, ``approach``, ``dwell_s``, ``updates``: a row per window with participations, by entry.

    ``updates`` counts those aggregated with a weight above 0. A window missing in ``windows`` ends with its last
    participation.
    """
    return (
        participations.group_by(WINDOW_KEY, maintain_order=True)
        .agg(
            speed_kmh=pl.col("speed_mps").first() * 3.6,
            approach=pl.col("approach").first(),
            last_s=pl.col("end_s").max(),
            updates=_AGGREGATED.sum().cast(pl.Int64),
        )
        .join(ends_of(windows), on=WINDOW_KEY, how="left", maintain_order="left")
        .sort("enter_s", maintain_order=True)
        .select(
            "speed_kmh",
            "approach",
            dwell_s=pl.col("exit_s").fill_null(pl.max_horizontal("last_s", "enter_s")) - pl.col("enter_s"),
            updates="updates",
        )
    )


def shares(table: pl.DataFrame, index: NDArray[np.int64], bins: int) -> dict[str, Floats]:
    """Return the shares of ``windows``, ``dwell_s`` and ``updates`` in each bin, shape (bins,), of sum 1, or all 0.

    ``index`` is the bin, in [0, bins), of each row of a table from ``windows_with_updates``.
    """
    weights = {"windows": np.ones(table.height)} | {name: table[name].to_numpy() for name in ("dwell_s", "updates")}
    totals = {name: np.bincount(index, values, bins) for name, values in weights.items()}
    return {name: total / (total.sum() or 1.0) for name, total in totals.items()}


def speed_edges_kmh(speeds_kmh: Floats) -> Floats:
    """Return the edges (km/h) of at most eight equally wide bins that contain all speeds; one bin without speeds."""
    if not len(speeds_kmh):
        return np.array([0.0, _WIDTHS_KMH[0]])
    low, high = float(speeds_kmh.min()), float(speeds_kmh.max())
    for width in _WIDTHS_KMH:
        first, last = np.floor(low / width), np.floor(high / width)
        if last - first < _MOST_BINS or width == _WIDTHS_KMH[-1]:
            break
    return np.asarray(np.arange(first, last + 2) * width)


def speed_bins(speeds_kmh: Floats, edges_kmh: Floats) -> NDArray[np.int64]:
    """Return the bin of each speed, from 0, shape (n,); the edges must enclose all speeds."""
    return np.clip(np.digitize(speeds_kmh, edges_kmh) - 1, 0, len(edges_kmh) - 2).astype(np.int64)


def run_measures(
    participations: pl.DataFrame, windows: pl.DataFrame, rounds: pl.DataFrame, *, span_s: float, silos: int
) -> dict[str, float | None]:
    """Return measures of a run that lasted ``span_s`` and has ``silos`` silos, by name; None for those not defined.

    ``commits``; ``commits_per_h`` in simulated time (1/h), None for runs shorter than ``LEAST_FOR_RATES_S``;
    ``bytes_per_commit``, all bytes over the air per commit (B); ``wasted_train_s`` (s) and ``wasted_bytes`` (B) of
    participations that did not commit, with the exchanges they sent, and their shares of the totals, ``..._share``, in
    [0, 1]; ``gini`` of the commits over all silos, in [0, 1); ``contested_share``, see the function; ``fluctuation`` of
    the training loss.
    """
    moved = pl.col("download_bytes") + pl.col("upload_bytes") + pl.col("exchange_bytes")
    used = participations.select(_COMMITTED.alias("committed"), "train_s", "silo", bytes=moved)
    lost, kept = used.filter(~pl.col("committed")), used.filter("committed")
    train_s, total_bytes = float(used["train_s"].sum()), float(used["bytes"].sum())
    lost_s, lost_bytes = float(lost["train_s"].sum()), float(lost["bytes"].sum())
    return {
        "commits": kept.height,
        "commits_per_h": kept.height / span_s * 3600 if span_s >= LEAST_FOR_RATES_S else None,
        "bytes_per_commit": total_bytes / kept.height if kept.height else None,
        "wasted_train_s": lost_s,
        "wasted_train_share": lost_s / train_s if train_s else None,
        "wasted_bytes": lost_bytes,
        "wasted_bytes_share": lost_bytes / total_bytes if total_bytes else None,
        "gini": gini(np.bincount(kept["silo"].to_numpy(), minlength=silos)),
        "contested_share": contested_share(participations, windows, rounds),
        "fluctuation": fluctuation(rounds),
    }


def gini(counts: NDArray[np.int64]) -> float | None:
    """Return the Gini coefficient of counts: 0 if all are equal, 1 - 1/n if one has all; None if all are 0.

    sum_i (2 i - n - 1) x_i / (n sum_i x_i) for x_i in ascending order, i from 1.
    """
    total, n = int(counts.sum()), len(counts)
    if total == 0:
        return None
    places = 2 * np.arange(1, n + 1) - n - 1
    return float((places * np.sort(counts)).sum() / (n * total))


def contested_share(participations: pl.DataFrame, windows: pl.DataFrame, rounds: pl.DataFrame) -> float | None:
    """Return the share of invitations that were made while another vehicle waited to be invited.

    A vehicle waits if it is in coverage, takes no part, and was neither invited nor aggregated in the open round. None
    without invitations. None also with several aggregators, because it is not known for which one a vehicle waits.
    """
    invited = participations.filter(_INVITED)
    if invited.is_empty() or rounds["aggregator"].n_unique() > 1:
        return None
    closes = rounds.select(last="round", close_s="close_s")
    counted = pl.col("outcome").is_in(["committed", "rejected"])
    busy = (
        invited.select("vehicle_id", "start_s", "end_s", last=pl.when(counted).then("round").otherwise("base_round"))
        .join(closes, on="last", how="left")
        .select("vehicle_id", "start_s", until_s=pl.max_horizontal("end_s", pl.col("close_s").fill_null(float("inf"))))
    )
    covered = merged_windows(windows)
    both = busy.join(covered, on="vehicle_id").select(
        enter_s=pl.max_horizontal("start_s", "enter_s"), exit_s=pl.min_horizontal("until_s", "exit_s")
    )
    both = both.filter(pl.col("enter_s") < pl.col("exit_s"))
    at_s = invited["start_s"].to_numpy()
    return float((in_coverage(covered).at(at_s) > in_coverage(both).at(at_s)).mean())


def fluctuation(rounds: pl.DataFrame) -> float | None:
    """Return the standard deviation of the training loss around its trend; None with too few rounds.

    This is the estimator of Gasser, Sroka and Jennen-Steinmetz (Biometrika 73, 1986): each loss is compared with the
    mean of the one before and the one after,

        s^2 = mean of 2/3 (y_(i-1) / 2 - y_i + y_(i+1) / 2)^2.

    Independent noise of variance s^2 around a straight line gives s^2. Unlike residuals of one line over the run, it
    does not count the bend of a loss that falls steeply at first.

    ``loss`` in the table ``rounds`` is the mean over the aggregated updates; rounds without updates are left out. Each
    aggregator is one sequence; those shorter than ``LEAST_ROUNDS`` are left out.
    """
    loss = pl.col("loss")
    measured = rounds.filter(loss.is_finite()).sort("round", maintain_order=True)
    enough = measured.filter(pl.len().over("aggregator") >= LEAST_ROUNDS)
    found = enough.select((loss.diff().diff().over("aggregator") ** 2).mean() / 6).item()  # 2/3 of the half, squared
    return None if found is None else float(found) ** 0.5
