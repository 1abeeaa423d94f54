"""The tables of a comparison's page, and the two that are written beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.comparison.data import ComparisonData, ConditionData, Metric, has_values, shortened
from analysis.comparison.statistics import LEVEL
from analysis.comparison.time_to_target import Reached, Target
from analysis.comparison.verdicts import (
    ComparedPair,
    Family,
    finite,
    friedman_words,
    interval_words,
    level_words,
    p_words,
    power_words,
    unit_of_difference,
    verdict_against,
)
from analysis.formatting import Table, count, duration, number, quantity, si
from vnetsim.storage.tables import COMPARISON, COMPARISON_DIFFERENCES

NONE = "\u2013"


def cell_table(data: ComparisonData) -> pl.DataFrame:
    """Return the table ``comparison``: one row for each finished cell and metric."""
    rows = [
        (cell.arm, cell.condition, cell.learner, cell.seed, metric.name, metric.unit,
         cell.final(metric.name, metric.last), metric.last,
         cell.rounds, cell.simulated_s, cell.moved_bytes, cell.name)
        for condition in data.conditions
        for cell in condition.cells
        for metric in condition.metrics
    ]  # fmt: skip
    return pl.DataFrame(rows, schema={column.name: column.dtype for column in COMPARISON}, orient="row")


def difference_table(families: Sequence[Family]) -> pl.DataFrame:
    """Return the table ``comparison_differences``: one row for each pair and metric."""
    rows = [
        (compared, within, pair.first, pair.second, metric.name, metric.unit, metric.last, pair.found.count,
         finite(pair.found.mean), pair.found.deviation, pair.found.method, pair.tests, finite(pair.found.low),
         finite(pair.found.high), pair.p_value, pair.found.effect, pair.seen, pair.needed,
         {1: pair.first, -1: pair.second, 0: ""}[pair.resolved])
        for compared, within, metric, family in families
        for pair in family
    ]  # fmt: skip
    schema = {column.name: column.dtype for column in COMPARISON_DIFFERENCES}
    return pl.DataFrame(rows, schema=schema, orient="row")


_ROUNDING = 1e-12
"""Values that differ by less, in parts of the largest, are one value computed in two ways."""


def spread(values: NDArray[np.float64]) -> str:
    """Return mean and standard deviation of the finite values; a dash without any."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return NONE
    mean = number(float(finite.mean()))
    if len(finite) == 1:
        return mean
    equal = np.ptp(finite) <= _ROUNDING * np.abs(finite).max()
    return f"{mean} \u00b1 {number(0.0 if equal else float(finite.std(ddof=1)), 2)}"


def compared_words(metrics: Sequence[Metric]) -> str:
    """Return of which values of a run the compared one is the mean."""
    if not metrics:
        return "last value of each run"
    most = max(metrics, key=lambda metric: metric.last)
    once = [metric.words for metric in metrics if metric.last < most.last]
    but = f", but the last value of {', '.join(once)}, which was not evaluated so often" if once else ""
    return f"{most.compared} of each run{but}"


def final_values(data: ConditionData, noun: str) -> Table:
    """Return the values of each arm that are compared, with results that are equal, and how far its runs got."""
    rows = []
    metrics = [*data.metrics, *(metric for metric in data.alike if metric.better)]
    finals = {metric.name: data.finals(metric) * metric.factor for metric in metrics}
    for arm in data.arms:
        cells = data.of(arm)
        if not cells:
            rows.append((shortened(arm), "0", *([NONE] * (len(finals) + 3))))
            continue
        values = [spread(table[:, data.present.index(arm)]) for table in finals.values()]
        rounds = sorted({cell.rounds for cell in cells})
        span = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]}\u2013{rounds[-1]}"
        if empty := max(cell.empty_rounds for cell in cells):
            span += f" (up to {empty} without a commit)"
        simulated_s = float(np.mean([cell.simulated_s for cell in cells]))
        moved = si(float(np.mean([cell.moved_bytes for cell in cells])), "B")
        rows.append((shortened(arm), count(len(cells)), *values, span, duration(simulated_s), moved))
    return Table(
        title="Final values",
        head=(noun, "seeds", *(metric.titled for metric in metrics), "rounds", "simulated", "data moved"),
        rows=rows,
        note=f"Mean \u00b1 standard deviation over seeds of what is compared: {compared_words(metrics)}; time and "
        "data are means.",
    )


def verdict_table(data: ConditionData, metric: Metric, pairs: Sequence[ComparedPair], noun: str) -> Table:
    """Return what every pair of arms shows in a metric."""
    return pair_table(metric.words_compared, metric, pairs, noun, friedman_words(data, metric, noun))


def pair_table(title: str, metric: Metric, pairs: Sequence[ComparedPair], noun: str, note: str) -> Table:
    """Return what pairs show in a metric: a row a pair."""
    unit = unit_of_difference(metric, brackets=True)
    rows = []
    for pair in pairs:
        found = pair.found
        difference = number(found.mean * metric.factor, 2)
        p_value = NONE if pair.p_value is None else p_words(pair.p_value).removeprefix("= ")
        effect = NONE if found.effect is None else number(found.effect, 2)
        seen = NONE if pair.seen is None else number(pair.seen * metric.factor, 2)
        interval = interval_words(pair, metric)
        rows.append((pair.words, difference, interval, p_value, effect, seen, count(found.count), pair.verdict))
    several = any(pair.tests > 1 for pair in pairs)
    return Table(
        title=title,
        head=(f"{noun}s", f"difference{unit}", level_words(pairs), "corrected p" if several else "p", "d_z",
              f"seen from{unit}", "seeds", "verdict"),
        rows=rows,
        note=" ".join(filter(None, (power_words(pairs, metric), note))),
    )  # fmt: skip


def overview_metrics(data: ComparisonData) -> list[Metric]:
    """Return the metrics of which better is known, or all where none is; each but once, as first measured."""
    found = {(metric.name, metric.unit): metric for one in reversed(data.conditions) for metric in one.metrics}
    order = dict.fromkeys((metric.name, metric.unit) for one in data.conditions for metric in one.metrics)
    known = [found[key] for key in order]
    return [metric for metric in known if metric.better] or known


def overview_table(
    data: ComparisonData, metric: Metric, pairs: Mapping[str, Mapping[str, Sequence[ComparedPair]]]
) -> Table:
    """Return arms under conditions: mean, deviation, and the verdict against the first arm.

    Args:
        data: the comparison.
        metric: what to show.
        pairs: the pairs by condition and name of the metric.

    Returns:
        Arms and conditions that nowhere measured it are left out.
    """
    first = data.against or data.arms[0]
    measured = [one for one in data.conditions if metric.name in {own.name for own in one.metrics}]
    measuring = [arm for arm in data.arms if has_values(measured, arm, metric)]
    grid = [
        [_overview_cell(one, arm, metric, pairs[one.name].get(metric.name, ()), first) for arm in measuring]
        for one in measured
    ]
    arms, conditions = [shortened(arm) for arm in measuring], [shortened(one.name, 90) for one in measured]
    across = len(conditions) <= len(arms)  # the longer list goes down the page
    sides, heads = (arms, conditions) if across else (conditions, arms)
    rows = list(zip(*grid, strict=True)) if across else grid
    return Table(
        title=metric.titled,
        head=(data.arm_word if across else "condition", *heads),
        rows=[(side, *row) for side, row in zip(sides, rows, strict=True)],
        note=f"Mean \u00b1 standard deviation over seeds of the {compared_words([metric])}. Higher, lower, not "
        f"resolved: against {shortened(first)} under the same condition (corrected p at most {LEVEL:g}).",
    )


def _overview_cell(data: ConditionData, arm: str, metric: Metric, pairs: Sequence[ComparedPair], first: str) -> str:
    own = next((one for one in data.metrics if (one.name, one.unit) == (metric.name, metric.unit)), None)
    if own is None or arm not in data.present:
        return NONE
    values = spread(data.finals(own)[:, data.present.index(arm)] * own.factor)
    words = verdict_against(pairs, first, arm, len(data.seeds))
    return ", ".join(text.replace(" ", "\u00a0") for text in (values, words) if text)


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


def traffic_table(data: ComparisonData) -> Table:
    """Return the recorded traffics, and the conditions under which cells replayed each."""
    rows = []
    for one in data.traffics:
        cells = [cell for cell in data.cells if cell.traffic_sha256 == one.sha256]
        names = ", ".join(dict.fromkeys(shortened(cell.condition, 40) for cell in cells))
        rows.append((one.scenario, one.seed, one.rsus, names or NONE, count(len(cells)), one.sha256))
    return Table(
        title="Recorded traffic",
        head=("scenario", "seed", "RSU", "condition", "cells", "SHA-256 of the coverage windows"),
        rows=rows,
    )
