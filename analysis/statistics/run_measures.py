"""What a run's uploads cost, what was spent for nothing, how uploads spread over silos, and whether there was a choice.

A commit is a participation with the outcome ``committed``. What one used that ended otherwise is wasted; so is what was
under way when the last round closed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.statistics.coverage import merged_windows

_COMMITTED = pl.col("outcome") == "committed"
_INVITED = pl.col("outcome") != "not_selected"


@dataclass(frozen=True, kw_only=True)
class RunMeasures:
    """Measures of one run; None where there is nothing to divide by.

    Args:
        commits: participations that committed.
        commits_per_h: of them, in an hour of simulated time (1/h).
        bytes_per_commit: all bytes over the air, over the number of commits (B).
        wasted_train_s: training time on board of participations that did not commit (s).
        wasted_train_share: of all training time, in [0, 1].
        wasted_bytes: bytes of those participations, and of the exchanges they sent (B).
        wasted_bytes_share: of all bytes, in [0, 1].
        gini: Gini coefficient of the commits by silo, all silos counted, in [0, 1).
        contested_share: share of the invitations that left somebody waiting who might have been invited instead.
    """

    commits: int = 0
    commits_per_h: float | None = None
    bytes_per_commit: float | None = None
    wasted_train_s: float = 0.0
    wasted_train_share: float | None = None
    wasted_bytes: float = 0.0
    wasted_bytes_share: float | None = None
    gini: float | None = None
    contested_share: float | None = None


def run_measures(
    participations: pl.DataFrame, windows: pl.DataFrame, rounds: pl.DataFrame, *, span_s: float, silos: int
) -> RunMeasures:
    """Return the measures of a run.

    Args:
        participations: the table of that name.
        windows: likewise.
        rounds: likewise.
        span_s: simulated time from the run's beginning to its end (s).
        silos: how many there are.
    """
    moved = pl.col("download_bytes") + pl.col("upload_bytes") + pl.col("exchange_bytes")
    used = participations.select(_COMMITTED.alias("committed"), "train_s", "silo", bytes=moved)
    lost, kept = used.filter(~pl.col("committed")), used.filter("committed")
    train_s, total_bytes = float(used["train_s"].sum()), float(used["bytes"].sum())
    lost_s, lost_bytes = float(lost["train_s"].sum()), float(lost["bytes"].sum())
    return RunMeasures(
        commits=kept.height,
        commits_per_h=kept.height / span_s * 3600 if span_s > 0 else None,
        bytes_per_commit=total_bytes / kept.height if kept.height else None,
        wasted_train_s=lost_s,
        wasted_train_share=lost_s / train_s if train_s else None,
        wasted_bytes=lost_bytes,
        wasted_bytes_share=lost_bytes / total_bytes if total_bytes else None,
        gini=gini(np.bincount(kept["silo"].to_numpy(), minlength=silos)),
        contested_share=contested_share(participations, windows, rounds),
    )


def gini(counts: NDArray[np.int64]) -> float | None:
    """Return the Gini coefficient of counts, 0 where all are equal and 1 - 1/n where one has all; None for none.

    Half the mean absolute difference between two of them over their mean: sum_i (2 i - n - 1) x_i / (n sum_i x_i) for
    x_i in ascending order, i from 1.
    """
    total, n = int(counts.sum()), len(counts)
    if total == 0:
        return None
    places = 2 * np.arange(1, n + 1) - n - 1
    return float((places * np.sort(counts)).sum() / (n * total))


def contested_share(participations: pl.DataFrame, windows: pl.DataFrame, rounds: pl.DataFrame) -> float | None:
    """Return the share of the invitations at whose instant somebody stayed behind who might have been invited.

    Somebody waits who is in coverage, takes no part, and was neither invited nor aggregated in the round that is open.
    """
    invited = participations.filter(_INVITED)
    if invited.is_empty():
        return None
    closes = rounds.select(last="round", close_s="close_s")
    counted = pl.col("outcome").is_in(["committed", "rejected"])
    busy = (
        invited.select("vehicle_id", "start_s", "end_s", last=pl.when(counted).then("round").otherwise("base_round"))
        .join(closes, on="last", how="left")
        .select(
            "vehicle_id",
            "start_s",
            until_s=pl.max_horizontal("end_s", pl.col("close_s").fill_null(float("inf"))),
        )
    )
    covered = merged_windows(windows)
    both = busy.join(covered, on="vehicle_id").select(
        begin_s=pl.max_horizontal("start_s", "enter_s"), end_s=pl.min_horizontal("until_s", "exit_s")
    )
    both = both.filter(pl.col("begin_s") < pl.col("end_s"))
    at_s = invited["start_s"].to_numpy()
    inside = _at(covered["enter_s"].to_numpy(), covered["exit_s"].to_numpy(), at_s)
    waiting = inside - _at(both["begin_s"].to_numpy(), both["end_s"].to_numpy(), at_s)
    return float((waiting > 0).mean())


def _at(begin_s: NDArray[np.float64], end_s: NDArray[np.float64], at_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many half-open intervals hold each instant."""
    found: NDArray[np.int64] = np.searchsorted(np.sort(begin_s), at_s, "right") - np.searchsorted(
        np.sort(end_s), at_s, "right"
    )
    return found
