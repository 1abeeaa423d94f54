"""Tables of a comparison's page, and two tables that are written as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.comparison.data import ComparisonData, ConditionData, Metric
from analysis.comparison.verdicts import (
    ComparedPair,
    Family,
    corrected_words,
    figures_of,
    finite,
    level_words,
    pairs_in,
    power_words,
    unit_of_difference,
    verdict_against,
)
from analysis.formatting import NONE, Table, count, decapitalised, duration, number, shortened, si
from analysis.statistics.paired import LEVEL
from vnetsim.storage.tables import COMPARISON, COMPARISON_DIFFERENCES, Column


def frame(columns: Sequence[Column], rows: Sequence[tuple[object, ...]]) -> pl.DataFrame:
    """Return rows as a data frame with the given columns."""
    return pl.DataFrame(rows, schema={column.name: column.dtype for column in columns}, orient="row")


def cell_table(data: ComparisonData) -> pl.DataFrame:
    """Return the table ``comparison``: one row per finished cell and metric."""
    rows = [
        (cell.entry.arm, cell.entry.condition, cell.entry.learner, cell.entry.seed, metric.name, metric.unit,
         cell.final(metric), metric.last,
         cell.rounds, cell.simulated_s, cell.moved_bytes, cell.name)
        for condition in data.conditions
        for cell in condition.cells
        for metric in (*condition.metrics, *(one for one in condition.alike if one.known is not None))
    ]  # fmt: skip
    return frame(COMPARISON, rows)


def difference_table(families: Sequence[Family]) -> pl.DataFrame:
    """Return the table ``comparison_differences``: one row per pair and metric."""
    rows = [
        (compared, within, pair.first, pair.second, metric.name, metric.unit, metric.last, pair.found.count,
         finite(pair.found.mean), pair.found.deviation, pair.found.method, pair.tests, finite(pair.found.low),
         finite(pair.found.high), pair.p_value, pair.found.effect, pair.resolves, pair.needed,
         {1: pair.first, -1: pair.second, 0: ""}[pair.resolved])
        for compared, within, metric, family in families
        for pair in family
    ]  # fmt: skip
    return frame(COMPARISON_DIFFERENCES, rows)


_ROUNDING = 1e-12
"""Relative tolerance below which values count as equal."""


def spread(values: NDArray[np.float64]) -> str:
    """Return mean and standard deviation of the finite values as text; a dash if there are none."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return NONE
    mean = number(float(finite.mean()))
    if len(finite) == 1:
        return mean
    equal = np.ptp(finite) <= _ROUNDING * np.abs(finite).max()
    return f"{mean} \u00b1 {number(0.0 if equal else float(finite.std(ddof=1)), 2)}"


def compared_words(metrics: Sequence[Metric]) -> str:
    """Return in words which values of a run are averaged for the comparison."""
    if not metrics:
        return "last value of each run"
    most = max(metrics, key=lambda metric: metric.last)
    once = [metric.words for metric in metrics if metric.last < most.last]
    but = f", but the last value of {', '.join(once)}, which was not evaluated so often" if once else ""
    return f"{most.compared} of each run{but}"


def final_values(data: ConditionData, noun: str) -> Table:
    """Return the table of final values by arm, also those equal for all arms, with rounds, time and data."""
    rows = []
    metrics = [*data.metrics, *(metric for metric in data.alike if metric.better or metric.known is not None)]
    for arm in data.arms:
        cells = data.of(arm)
        values = [spread(data.values(metric, arm)) for metric in metrics]
        if not cells:
            rows.append((shortened(arm), "0", *values, *[NONE] * 3))
            continue
        rounds = sorted({cell.rounds for cell in cells})
        span = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]}\u2013{rounds[-1]}"
        if empty := max(cell.empty_rounds for cell in cells):
            span += f" (up to {empty} without a commit)"
        simulated = duration(float(np.mean([cell.simulated_s for cell in cells])))
        moved = si(float(np.mean([cell.moved_bytes for cell in cells])), "B")
        rows.append((shortened(arm), count(len(cells)), *values, span, simulated, moved))
    return Table(
        title="Final values",
        head=(noun, "seeds", *(metric.titled for metric in metrics), "rounds", "simulated", "data moved"),
        rows=rows,
        note=f"Mean \u00b1 standard deviation over seeds of what is compared: {compared_words(metrics)}; time and "
        "data are means.",
    )


def pair_table(title: str, metric: Metric, pairs: Sequence[ComparedPair], noun: str, note: str) -> Table:
    """Return the table of differences in a metric: one row per pair."""
    unit = unit_of_difference(metric, brackets=True)
    rows = []
    for pair in pairs:
        difference, interval, p_value, resolves = figures_of(pair, metric)
        effect = NONE if pair.found.effect is None else number(pair.found.effect, 2)
        seeds = count(pair.found.count)
        rows.append((pair.words, difference, interval, p_value, effect, resolves, seeds, pair.verdict))
    several = any(pair.tests > 1 for pair in pairs)
    return Table(
        title=title,
        head=(f"{noun}s", f"difference{unit}", level_words(pairs), "corrected p" if several else "p", "d_z",
              f"resolves{unit}", "seeds", "verdict"),
        rows=rows,
        note=" ".join(filter(None, (corrected_words(pairs), power_words(pairs, metric), note))),
    )  # fmt: skip


def overview_metrics(data: ComparisonData) -> list[Metric]:
    """Return the metrics with a preferred direction, or all metrics if none has one; each once.

    If no metric can be compared, return those that are equal for all arms.
    """
    for found in ([one.metrics for one in data.conditions], [one.alike for one in data.conditions]):
        known: dict[tuple[str, str], Metric] = {}
        for metric in (metric for metrics in found for metric in metrics):
            known.setdefault((metric.name, metric.unit), metric)
        if known:
            return [metric for metric in known.values() if metric.better] or list(known.values())
    return []


def grid(
    data: ComparisonData,
    metric: Metric,
    cell: Callable[[ConditionData, str], str],
    *,
    across: bool,
    letters: tuple[int, int] = (60, 90),
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and rows of a table of the arms and conditions that measured a metric.

    ``cell`` returns the text for an arm under a condition. With ``across``, columns are conditions, else arms.
    ``letters`` are the longest names of an arm and of a condition.
    """
    conditions, arms = data.measuring(metric)
    of_arms = [shortened(arm, letters[0]) for arm in arms]
    of_conditions = [shortened(one.name, letters[1]) for one in conditions]
    columns = [[cell(one, arm) for arm in arms] for one in conditions]
    if across:
        return (data.arm_word, *of_conditions), list(zip(of_arms, *columns, strict=True))
    rows = [(name, *column) for name, column in zip(of_conditions, columns, strict=True)]
    return ("condition", *of_arms), rows


def overview_table(data: ComparisonData, metric: Metric, families: Sequence[Family]) -> Table:
    """Return the table of arms by condition: mean, deviation, and verdict against the reference or first arm."""
    first = data.against or data.arms[0]

    def cell(one: ConditionData, arm: str) -> str:
        words = verdict_against(pairs_in(families, one.name, metric), first, arm, len(one.seeds))
        return ", ".join(text.replace(" ", "\u00a0") for text in (spread(one.values(metric, arm)), words) if text)

    conditions, arms = data.measuring(metric)
    head, rows = grid(data, metric, cell, across=len(conditions) <= len(arms))  # the longer list becomes rows
    note = f"Mean \u00b1 standard deviation over seeds of the {compared_words([metric])}."
    if any(metric in one.metrics for one in conditions):
        note += (
            f" Higher, lower, not resolved: against {shortened(first)} under the same condition (corrected p at most "
            f"{LEVEL:g})."
        )
    return Table(title=metric.titled, head=head, rows=rows, note=note)


def by_condition(data: ComparisonData, metrics: Sequence[Metric]) -> Table:
    """Return the table of metrics by condition, for one arm; the longer list becomes rows."""
    (arm,) = data.arms
    lines = [
        (shortened(one.name), count(len(one.cells)), *(spread(one.values(metric, arm)) for metric in metrics))
        for one in data.conditions
    ]
    lines.insert(0, ("condition", "seeds", *(metric.titled for metric in metrics)))
    head, *rows = zip(*lines, strict=True) if len(data.conditions) <= len(metrics) else lines
    note = f"Mean \u00b1 standard deviation over seeds of the {compared_words(metrics)}. "
    note += " ".join(f"{metric.subject}: {decapitalised(metric.caption)}" for metric in metrics if metric.caption)
    return Table(title=shortened(arm), head=head, rows=rows, note=note)


def traffic_table(data: ComparisonData) -> Table:
    """Return the table of recorded traffics, with the conditions whose cells replayed each."""
    rows = []
    for one in data.traffics:
        cells = [cell for cell in data.cells if cell.traffic.sha256 == one.sha256]
        names = ", ".join(dict.fromkeys(shortened(cell.entry.condition, 40) for cell in cells))
        rows.append((one.scenario, one.seed, one.rsus, names or NONE, count(len(cells)), one.sha256))
    return Table(
        title="Recorded traffic",
        head=("scenario", "seed", "RSU", "condition", "cells", "SHA-256 of the coverage windows"),
        rows=rows,
    )
