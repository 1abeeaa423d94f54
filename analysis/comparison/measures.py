"""What uploads cost, what was wasted, how commits spread, and when a target was reached, by arm and condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.comparison.bias import spread_over_directions, spread_over_speeds
from analysis.comparison.data import CellData, ConditionData, Metric
from analysis.comparison.tables import frame, spread
from analysis.comparison.verdicts import ComparedPair, compare_columns, verdict_against
from analysis.formatting import NONE, Table, count, duration, number, quantity, shortened, si
from analysis.statistics.participation import shares
from vnetsim.storage.tables import COMPARISON_MEASURES, COMPARISON_TARGETS


def _metric(name: str, label: str, unit: str, better: int) -> Metric:
    return Metric(name=name, label=label, unit=unit, caption="", known=better)


MEASURES = (
    _metric("commits_per_h", "Commits per hour", "1/h", 1),
    _metric("bytes_per_commit", "Data per commit", "B", -1),
    _metric("wasted_train_s", "Wasted training time", "s", -1),
    _metric("wasted_train_share", "Wasted share of training time", "%", -1),
    _metric("wasted_bytes", "Wasted data", "B", -1),
    _metric("wasted_bytes_share", "Wasted share of data", "%", -1),
    _metric("gini", "Gini over silos", "", 0),
    _metric("contested_share", "Contested invitations", "%", 0),
)
"""Fields of ``RunMeasures``, in the order of the page. An even spread, or contention, is neither good nor bad."""

COMPARED = tuple(one for one in MEASURES if one.name in {"commits_per_h", "bytes_per_commit", "wasted_train_share"})
TO_TARGET = _metric("time_to_target", "Simulated time to the target", "s", -1)
"""Compared by ranks alone: a run that never reached its target has no time, and is the last."""


def measured(data: ConditionData, name: str) -> NDArray[np.float64]:
    """Return a measure of every run, shape (seeds, arms present); NaN where there is none."""
    return data.by_seed({(cell.seed, cell.arm): getattr(cell.measures, name, None) for cell in data.cells})


def measure_pairs(data: ConditionData) -> dict[str, list[ComparedPair]]:
    """Return the pairs of arms in every measure that is compared, by its name."""
    return {
        metric.name: compare_columns(data.present, measured(data, metric.name), data.method, data.against)
        for metric in COMPARED
    }


def measure_table(data: ConditionData, pairs: Mapping[str, Sequence[ComparedPair]], noun: str) -> Table | None:
    """Return the measures of each arm; None where no run has any."""
    shown = [(metric, measured(data, metric.name)) for metric in MEASURES]
    shown = [(metric, values) for metric, values in shown if np.isfinite(values).any()]
    if not shown:
        return None
    first = data.against or data.arms[0]
    rows = []
    for place, arm in enumerate(data.present):
        cells = []
        for metric, values in shown:
            words = verdict_against(pairs.get(metric.name, ()), first, arm, len(data.seeds))
            text = spread(values[:, place] * metric.factor)
            cells.append(f"{text}, {words}" if words in {"higher", "lower"} else text)
        rows.append((shortened(arm), *cells))
    verdicts = f" Higher, lower: resolved against {shortened(first)}, as tested below." if len(data.present) > 1 else ""
    return Table(
        title="Commits, and what was spent for nothing",
        head=(noun, *(metric.titled for metric, _ in shown)),
        rows=rows,
        note="Mean \u00b1 standard deviation over seeds. Commits are those of an hour of simulated time; data, all "
        "bytes over the air of all participations. Wasted: training time on board, and data, of participations that "
        "did not commit, those still under way at the end among them. Gini coefficient of the commits over all silos: "
        "0 if all have the same number; few commits are uneven by chance. Contested: invitations that left somebody "
        f"waiting who could have been invited instead; for the others there was nothing to choose.{verdicts}",
    )


def measure_rows(data: ConditionData) -> pl.DataFrame:
    """Return the rows of the table ``comparison_measures`` of a condition."""
    rows: list[tuple[object, ...]] = []
    spreads = {}
    if any(cell.windows.height for cell in data.cells):
        spreads["commit_share_speed"] = spread_over_speeds(data), "km/h"
        spreads["commit_share_direction"] = spread_over_directions(data), ""
    for cell in data.cells:
        head = (cell.arm, data.name, cell.learner, cell.seed)
        rows += [
            (*head, one.name, one.unit, "", "", getattr(cell.measures, one.name, None), cell.name) for one in MEASURES
        ]
        for name, (found, bin_unit) in spreads.items():
            updates = shares(cell.windows, found.index_of(cell.windows), len(found.labels)).updates
            values = updates.tolist() if updates.any() else [None] * len(updates)
            rows += [
                (*head, name, "%", label, bin_unit, value, cell.name)
                for label, value in zip(found.labels, values, strict=True)
            ]
    return frame(COMPARISON_MEASURES, rows)


@dataclass(frozen=True, kw_only=True)
class Reached:
    """What a run had used when it first reached a target.

    Args:
        round: rounds aggregated before the measurement that reached it.
        time_s: simulated time since the beginning (s).
        moved_bytes: of the participations and exchanges that had ended by then (B).
        device_s: training time on board of those participations, summed over vehicles (s).
    """

    round: int
    time_s: float
    moved_bytes: float
    device_s: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A target and who reached it.

    Args:
        metric: of which.
        value: the target, in the metric's recorded unit.
        arm: the arm whose mean final value it is.
        reached: by arm, one for each of its cells; None for a cell that never did.
    """

    metric: Metric
    value: float
    arm: str
    reached: dict[str, list[Reached | None]]


def first_reached(cell: CellData, metric: Metric, target: float) -> Reached | None:
    """Return when a cell first measured a value at least as good as the target, None if never."""
    values = cell.measured(metric.name)
    good = values.filter(pl.col("value") * metric.better >= target * metric.better)
    if good.is_empty():
        return None
    round_, time_s, _ = good.row(0)
    used = cell.spent.filter(pl.col("end_s") <= time_s).select(pl.col("bytes", "train_s").sum()).row(0)
    return Reached(
        round=int(round_), time_s=float(time_s) - cell.begin_s, moved_bytes=float(used[0]), device_s=float(used[1])
    )


def target_of(data: ConditionData) -> Target | None:
    """Return the target that the worst arm's mean final value sets; None where no metric's better end is known."""
    metric = data.main
    if metric is None:
        return None
    means = np.nanmean(data.finals(metric), axis=0)
    worst = int(np.argmin(means * metric.better))
    target = float(means[worst])
    return Target(
        metric=metric,
        value=target,
        arm=data.present[worst],
        reached={arm: [first_reached(cell, metric, target) for cell in data.of(arm)] for arm in data.present},
    )


def target_table(data: ConditionData, target: Target | None) -> pl.DataFrame:
    """Return the rows of the table ``comparison_targets``: one for each finished cell."""
    rows: list[tuple[object, ...]] = []
    for arm, found in target.reached.items() if target else ():
        assert target is not None
        for cell, one in zip(data.of(arm), found, strict=True):
            used = (one.round, one.time_s, one.moved_bytes, one.device_s) if one else (None,) * 4
            rows.append(
                (arm, data.name, cell.learner, cell.seed, target.metric.name, target.metric.unit, target.value, *used,
                 cell.name)
            )  # fmt: skip
    return frame(COMPARISON_TARGETS, rows)


def target_rows(target: Target, noun: str) -> Table:
    """Return when each arm reached the target: medians over the seeds that did."""
    metric = target.metric
    rows = []
    for arm, found in target.reached.items():
        known = [one for one in found if one is not None]
        medians = _medians(known) if known else (NONE,) * 4
        rows.append((shortened(arm), f"{count(len(known))} of {count(len(found))}", *medians))
    value = quantity(target.value * metric.factor, metric.dimension)
    side = "at least" if metric.better > 0 else "at most"
    at_once = any(one is not None and one.round == 0 for found in target.reached.values() for one in found)
    untrained = " Zero rounds: the untrained model met it, and nothing was learned for it." if at_once else ""
    return Table(
        title=f"{metric.subject}: first {side} {value}",
        head=(noun, "reached in seeds", "rounds", "simulated time", "data moved", "device-seconds"),
        rows=rows,
        note=f"The target is the mean of the worst {noun} here, {shortened(target.arm)}. Medians over the "
        "seeds that reached it, at the first measurement that did. Data and device-seconds (training time on board, "
        "summed over vehicles) are those of participations that had ended by then, whatever their outcome." + untrained,
    )


def _medians(known: Sequence[Reached]) -> tuple[str, ...]:
    def median(name: str) -> float:
        return float(np.median([float(getattr(one, name)) for one in known]))

    return (
        f"{median('round'):g}",
        duration(median("time_s")),
        si(median("moved_bytes"), "B"),
        number(median("device_s")),
    )


def times_to_target(data: ConditionData, target: Target | None) -> NDArray[np.float64]:
    """Return the simulated time of every run to the condition's target (s), as ``measured``; infinite for never."""
    found: dict[tuple[int, str], float | None] = {}
    for arm, reached in target.reached.items() if target else ():
        for cell, one in zip(data.of(arm), reached, strict=True):
            found[cell.seed, arm] = one.time_s if one else np.inf
    return data.by_seed(found)
