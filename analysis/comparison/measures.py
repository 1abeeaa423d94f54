"""What uploads cost, what was wasted, how commits spread, by arm and condition: a table of the page, and a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.comparison.bias import Spread, spread_over_directions, spread_over_speeds
from analysis.comparison.data import CellData, ConditionData, Metric, shortened
from analysis.comparison.tables import NONE, spread
from analysis.comparison.time_to_target import Target
from analysis.comparison.verdicts import ComparedPair, compare_columns, verdict_against
from analysis.formatting import Table
from analysis.statistics.participation_bias import shares
from analysis.statistics.run_measures import RunMeasures
from vnetsim.storage.tables import COMPARISON_MEASURES


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number of a run that is no series of its learner.

    Args:
        metric: its name, words and unit, and whether higher is better.
        of: takes it from a run's measures.
        compared: whether arms are compared in it.
    """

    metric: Metric
    of: Callable[[RunMeasures], float | None]
    compared: bool = False


def _measure(
    name: str, label: str, unit: str, of: Callable[[RunMeasures], float | None], *, better: int, compared: bool = False
) -> Measure:
    return Measure(metric=Metric(name=name, label=label, unit=unit, caption="", known=better), of=of, compared=compared)


MEASURES = (
    _measure("commits_per_h", "Commits per hour", "1/h", lambda run: run.commits_per_h, better=1, compared=True),
    _measure("bytes_per_commit", "Data per commit", "B", lambda run: run.bytes_per_commit, better=-1, compared=True),
    _measure("wasted_train_s", "Wasted training time", "s", lambda run: run.wasted_train_s, better=-1),
    _measure(
        "wasted_train_share",
        "Wasted share of training time",
        "%",
        lambda run: run.wasted_train_share,
        better=-1,
        compared=True,
    ),
    _measure("wasted_bytes", "Wasted data", "B", lambda run: run.wasted_bytes, better=-1),
    _measure("wasted_bytes_share", "Wasted share of data", "%", lambda run: run.wasted_bytes_share, better=-1),
    _measure("gini", "Gini over silos", "", lambda run: run.gini, better=0),
    _measure("contested_share", "Contested invitations", "%", lambda run: run.contested_share, better=0),
)
"""In the order of the page. Neither an even spread of commits nor contention is good or bad in itself."""

COMPARED = tuple(one.metric for one in MEASURES if one.compared)
TO_TARGET = Metric(name="time_to_target", label="Simulated time to the target", unit="s", caption="", known=-1)
"""Compared by ranks alone: a run that never reached its target has no time, and is the last."""


def measured(data: ConditionData, name: str) -> NDArray[np.float64]:
    """Return a measure of every run, shape (seeds, arms present); NaN where there is none."""
    of = next(one.of for one in MEASURES if one.metric.name == name)
    found = {(cell.seed, cell.arm): of(cell.measures) for cell in data.cells if cell.measures}
    return _by_seed(data, found)


def times_to_target(data: ConditionData, target: Target | None) -> NDArray[np.float64]:
    """Return the simulated time of every run to the condition's target (s), as ``measured``; infinite for never."""
    found: dict[tuple[int, str], float | None] = {}
    for arm, reached in target.reached.items() if target else ():
        for cell, one in zip(data.of(arm), reached, strict=True):
            found[cell.seed, arm] = one.time_s if one else np.inf
    return _by_seed(data, found)


def _by_seed(data: ConditionData, found: Mapping[tuple[int, str], float | None]) -> NDArray[np.float64]:
    table = [[found.get((seed, arm)) for arm in data.present] for seed in data.seeds]
    return np.array(table, dtype=np.float64).reshape(len(data.seeds), len(data.present))


def measure_pairs(data: ConditionData) -> dict[str, list[ComparedPair]]:
    """Return the pairs of arms in every measure that is compared, by its name."""
    return {
        metric.name: compare_columns(data.present, measured(data, metric.name), data.method, data.against)
        for metric in COMPARED
    }


def measure_table(data: ConditionData, pairs: Mapping[str, Sequence[ComparedPair]], noun: str) -> Table | None:
    """Return the measures of each arm; None where no run has any."""
    shown = [(one.metric, measured(data, one.metric.name)) for one in MEASURES]
    shown = [(metric, values) for metric, values in shown if np.isfinite(values).any()]
    if not shown:
        return None
    first = data.against or data.arms[0]
    rows = []
    for place, arm in enumerate(data.present):
        cells = []
        for metric, values in shown:
            words = verdict_against(pairs.get(metric.name, ()), first, arm, len(data.seeds))
            text = spread(values[:, place] * metric.factor) if np.isfinite(values[:, place]).any() else NONE
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
    spreads = []
    if any(cell.windows.height for cell in data.cells):
        spreads = [
            ("commit_share_speed", "km/h", spread_over_speeds),
            ("commit_share_direction", "", spread_over_directions),
        ]
    found = [(name, unit, of(data)) for name, unit, of in spreads]
    for cell in data.cells:
        head = (cell.arm, data.name, cell.learner, cell.seed)
        for one in MEASURES:
            value = one.of(cell.measures) if cell.measures else None
            rows.append((*head, one.metric.name, one.metric.unit, "", "", value, cell.name))
        for name, bin_unit, spread_ in found:
            rows += [
                (*head, name, "%", label, bin_unit, value, cell.name) for label, value in _shares_by_bin(cell, spread_)
            ]
    return pl.DataFrame(rows, schema={column.name: column.dtype for column in COMPARISON_MEASURES}, orient="row")


def _shares_by_bin(cell: CellData, found: Spread) -> Iterator[tuple[str, float | None]]:
    values = shares(cell.windows, found.index_of(cell.windows), len(found.labels)).updates
    for label, value in zip(found.labels, values, strict=True):
        yield label, float(value) if values.any() else None
