"""Time to accuracy: when a run first reaches a target, in rounds, simulated time, data moved and device-seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.comparison.data import CellData, ConditionData, Metric
from vnetsim.storage.tables import COMPARISON_TARGETS


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
    return pl.DataFrame(rows, schema={column.name: column.dtype for column in COMPARISON_TARGETS}, orient="row")
