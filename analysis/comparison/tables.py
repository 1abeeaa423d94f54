"""Tables of a comparison: for its page, narrower ones for the terminal, and two that are written as files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.comparison.data import ComparisonData, ConditionData, Metric
from analysis.comparison.pairs import ComparedPair
from analysis.comparison.traffic_met import ArmRuns, decided_table, who_drove_past
from analysis.comparison.verdicts import (
    RESOLVES,
    Family,
    corrected_words,
    figures_of,
    level_words,
    pairs_in,
    spread_words,
    unit_of_difference,
    verdict_against,
)
from analysis.comparison.warnings import equal_of, untested_of
from analysis.formatting import NONE, THIN, Table, count, decapitalised, duration, number, shortened, si
from analysis.statistics.paired import LEVEL
from vnetsim.storage.tables import COMPARISON, COMPARISON_DIFFERENCES, frame

MOST_METRICS = 3
MOST_PAIRS = 30
"""Most metrics, and most pairs per metric, on the terminal; the page has all."""
_MOST_COLUMNS, _LABEL = 4, 22
"""Most columns of values, and most letters of a name, on the terminal."""
_TESTS = {"sign-flip": "randomisation test (sign flips) and its interval", "t": "Student's t, for normal differences"}
_ROUNDING = 1e-12
"""Relative tolerance below which values count as equal."""


def cell_table(data: ComparisonData) -> pl.DataFrame:
    """Return the table ``comparison``: a row per cell and metric; ``alike`` ones only with one value per run."""
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
    """Return the table ``comparison_differences``: a row per metric and pair; what is not finite becomes null."""
    rows = [
        (compared, within, pair.first, pair.second, metric.name, metric.unit, metric.last, pair.found.count,
         pair.found.mean, pair.found.deviation, pair.found.method, pair.tests, pair.found.low, pair.found.high,
         pair.p_value, pair.found.effect, pair.resolves, pair.needed,
         {1: pair.first, -1: pair.second, 0: ""}[pair.resolved])
        for compared, within, metric, family in families
        for pair in family
    ]  # fmt: skip
    finite = pl.col("difference", "low", "high")
    return frame(COMPARISON_DIFFERENCES, rows).with_columns(pl.when(finite.is_finite()).then(finite))


def spread(values: NDArray[np.float64]) -> str:
    """Return "mean ± standard deviation" of the finite values as text; of one value the value, of none a dash."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return NONE
    mean = number(float(finite.mean()))
    if len(finite) == 1:
        return mean
    equal = np.ptp(finite) <= _ROUNDING * np.abs(finite).max()
    return f"{mean} \u00b1 {number(0.0 if equal else float(finite.std(ddof=1)), 2)}"


def compared_words(metrics: Sequence[Metric]) -> str:
    """Return in words which values of a run are compared; metrics measured less often are named."""
    if not metrics:
        return "last value of each run"
    most = max(metrics, key=lambda metric: metric.last)
    once = [metric.words for metric in metrics if metric.last < most.last]
    but = f", but the last value of {', '.join(once)}, which was not evaluated so often" if once else ""
    return f"{most.compared} of each run{but}"


def final_values(data: ConditionData, noun: str) -> Table:
    """Return the table of final values, rounds, simulated time and data by arm; ``noun`` is the word for an arm.

    Metrics equal for all arms are included if they have a preferred direction or one value per run. An arm without
    finished cells keeps its row.
    """
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


def pair_table(title: str, metric: Metric, pairs: Sequence[ComparedPair], noun: str) -> Table:
    """Return the table of differences in a metric: one row per pair; ``noun`` is the word for what is compared."""
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
        note=f"{corrected_words(pairs)} Resolves: {RESOLVES}.".strip(),
    )  # fmt: skip


def overview_metrics(data: ComparisonData) -> list[Metric]:
    """Return the compared metrics with a preferred direction, else all, else those equal for all arms; each once."""
    for found in ([one.metrics for one in data.conditions], [one.alike for one in data.conditions]):
        known: dict[tuple[str, str], Metric] = {}
        for metric in (metric for metrics in found for metric in metrics):
            known.setdefault((metric.name, metric.unit), metric)
        if known:
            return [metric for metric in known.values() if metric.better] or list(known.values())
    return []


def _arms_by_condition(
    data: ComparisonData, metric: Metric, cell: Callable[[ConditionData, str], str], *, terminal: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and rows of ``cell`` texts, the longer side as rows; with ``terminal``, one a row if too wide."""
    conditions, arms = data.measuring(metric)
    most = _MOST_COLUMNS if terminal else len(arms)
    of_arms = [shortened(arm, _LABEL if terminal else 60) for arm in arms]
    of_conditions = [shortened(one.name, _LABEL if terminal else 90) for one in conditions]
    columns = [[cell(one, arm) for arm in arms] for one in conditions]
    if len(conditions) <= min(len(arms), most):
        return (data.arm_word, *of_conditions), list(zip(of_arms, *columns, strict=True))
    by_condition = list(zip(of_conditions, columns, strict=True))
    if len(arms) <= most:
        return ("condition", *of_arms), [(name, *column) for name, column in by_condition]
    rows: list[tuple[str, ...]] = []
    for name, column in by_condition:
        rows += [(name, arm, text) for arm, text in zip(of_arms, column, strict=True)]
    return ("condition", data.arm_word, ""), rows


def overview_table(data: ComparisonData, metric: Metric, families: Sequence[Family]) -> Table:
    """Return a metric's table of arms by condition, the longer side as rows: mean, deviation over seeds, verdict.

    Verdicts are against the reference or, without one, the first arm.
    """
    first = data.against or data.arms[0]

    def cell(one: ConditionData, arm: str) -> str:
        """Return mean, deviation and verdict of an arm under a condition."""
        words = verdict_against(pairs_in(families, one.name, metric), first, arm, len(one.seeds))
        return ", ".join(text.replace(" ", "\u00a0") for text in (spread(one.values(metric, arm)), words) if text)

    head, rows = _arms_by_condition(data, metric, cell)
    note = f"Mean \u00b1 standard deviation over seeds of the {compared_words([metric])}."
    if any(metric in one.metrics for one in data.measuring(metric)[0]):
        note += (
            f" Higher, lower, not resolved: against {shortened(first)} under the same condition (corrected p at most "
            f"{LEVEL:g})."
        )
    return Table(title=metric.titled, head=head, rows=rows, note=note)


def by_condition(data: ComparisonData, metrics: Sequence[Metric]) -> Table:
    """Return mean and deviation by metric and condition, the longer side as rows; ValueError for several arms."""
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
    """Return the table of recorded traffics, with the conditions and the number of cells that replayed each."""
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


def terminal_tables(
    data: ComparisonData, families: Sequence[Family], runs: Sequence[ArmRuns], unmet: Sequence[str]
) -> list[Table]:
    """Return the terminal's tables: invitations, with ``unmet`` in the note, then values and differences by metric.

    At most ``MOST_METRICS`` metrics and ``MOST_PAIRS`` pairs per metric are shown.
    """
    tables = []
    if any(one.invitations.total for one in runs):
        title = f"{who_drove_past(data)} What became of invitations:".strip()
        table = decided_table(runs[:MOST_PAIRS], title, data.arm_word, learning=not data.record.timing_only)
        more = f"{len(runs) - MOST_PAIRS} more are on the page." if len(runs) > MOST_PAIRS else ""
        tables.append(dataclasses.replace(table, note=" ".join(filter(None, (more, *unmet)))))
    for metric in overview_metrics(data)[:MOST_METRICS]:

        def cell(one: ConditionData, arm: str, metric: Metric = metric) -> str:
            """Return mean and deviation of an arm under a condition."""
            return spread(one.values(metric, arm)).replace(THIN, "")

        of = "" if metric.last == 1 else f" of the {metric.compared}"
        head, rows = _arms_by_condition(data, metric, cell, terminal=True)
        tables.append(Table(title=f"{metric.titled}: mean \u00b1 deviation over seeds{of}", head=head, rows=rows))
        ours = [one for one in families if one.metric.same(metric)]
        tables += _terminal_differences(metric, [one for one in ours if one.compared == "arms"], "")
        tables += _terminal_differences(metric, [one for one in ours if one.compared != "arms"], " of conditions")
    return tables


def _terminal_differences(metric: Metric, families: Sequence[Family], of: str) -> list[Table]:
    """Return a list with one table of up to ``MOST_PAIRS`` differences, [] without pairs; ``of`` is for the title."""
    rows: list[tuple[str, ...]] = []
    left = MOST_PAIRS
    for compared, within, _, family in families:
        title = f"under {shortened(within, 60)}" if compared == "arms" else f"{shortened(within, 50)}, conditions"
        if within and family and left > 0:
            rows.append((f"{title}:", *[""] * 5))
        for pair in family[: max(left, 0)]:
            words = f"{'  ' * bool(within)}{shortened(pair.first, _LABEL)} \u2212 {shortened(pair.second, _LABEL)}"
            rows.append((words, *figures_of(pair, metric), pair.brief))
        left -= len(family)
    table = Table(
        title=f"{metric.subject}: differences{of}{unit_of_difference(metric, brackets=True)}",
        head=("", "mean", "95 % interval", "p", "resolves", "verdict"),
        rows=rows,
        note=f"{-left} more pairs are on the page." if left < 0 else "",
    )
    return [table] if rows else []


def notes_of(data: ComparisonData, families: Sequence[Family]) -> list[str]:
    """Return a line each on equal and untested metrics, on the tests, and on metrics that only the page has."""
    lines = equal_of(data) + untested_of(data)
    if pairs := [pair for family in families for pair in family.pairs]:
        corrected = any(pair.tests > 1 for pair in pairs)
        corrections = "; p is corrected for all differences of a table (Holm), as intervals are (Bonferroni)"
        lines.append(
            f"Differences are paired by seed: {_TESTS[data.record.interval]}{corrections * corrected}. Higher, lower: "
            f"p at most {LEVEL:g}. Resolves: {RESOLVES}. {spread_words(min(pair.found.count for pair in pairs))}"
        )
    if (more := len(overview_metrics(data)) - MOST_METRICS) > 0:
        lines.append(f"{count(more)} more metrics are on the page.")
    return lines
