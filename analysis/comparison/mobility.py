"""What is compared of runs that trained nobody: who could take part, who did, and what it moved."""

from __future__ import annotations

import math

import polars as pl

from analysis.comparison.data import Metric
from analysis.loading import RunData
from analysis.report.possible import needed, vehicles
from analysis.statistics.windows import dwell


def _metric(name: str, label: str, unit: str, caption: str) -> Metric:
    return Metric(name=name, label=label, unit=unit, caption=caption, known=0)


METRICS = (
    _metric("covered", "Vehicles covered", "", "Vehicles with a coverage window."),
    _metric(
        "long_enough", "Covered long enough", "%",
        "Share of the vehicles with a window as long as a participation takes in the median of that run.",
    ),
    _metric("committed_vehicles", "Vehicles that committed", "%", "Share of the vehicles; at least once."),
    _metric("commits", "Commits", "", "Participations that committed."),
    _metric("committed_invited", "Committed of invited", "%", "Share of the invitations that ended in a commit."),
    _metric("dwell_s", "Median dwell", "s", "Windows that the end cut off count as longer (Kaplan\u2013Meier)."),
    _metric(
        "needed_s", "A participation takes", "s",
        "Median from invitation to the end of the upload; those that were cut count as longer "
        "(Kaplan\u2013Meier). No value where more than half of them were cut.",
    ),
    _metric("moved_bytes", "Data moved", "B", "Over radio links and between vehicles, whatever became of it."),
)  # fmt: skip
"""One figure a run. Whether more of it is better is for the reader to say."""


def outcomes(run: RunData) -> dict[str, float | None]:
    """Return the value of each of ``METRICS`` of a run without training by name; None or not finite where unknown."""
    takes = needed(run)
    needed_s = math.nan if takes is None else takes.median_s
    one_each = vehicles(run, needed_s)
    invited = run.invited.height
    commits = run.invited.filter(outcome="committed").height
    share = one_each.select(pl.col("enough", "committed").mean().cast(pl.Float64)).row(0)
    return {
        "covered": one_each.height,
        "long_enough": None if takes is None else share[0],
        "committed_vehicles": share[1],
        "commits": commits,
        "committed_invited": commits / invited if invited else None,
        "dwell_s": dwell(run.windows).median_s,
        "needed_s": needed_s,
        "moved_bytes": float(run.spent["bytes"].sum()),
    }
