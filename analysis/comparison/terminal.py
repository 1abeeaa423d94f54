"""The results of a comparison for the terminal: means and differences, a table each a metric, within 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.comparison.conditions import Across
from analysis.comparison.data import ComparisonData, ConditionData, Metric, shortened
from analysis.comparison.statistics import LEVEL
from analysis.comparison.tables import NONE, overview_metrics, spread
from analysis.comparison.verdicts import ComparedPair, interval_words, p_words, unit_of_difference
from analysis.comparison.warnings import equal_of
from analysis.formatting import THIN, Table, count, number

MOST_METRICS = 3
MOST_PAIRS = 30
"""Metrics, and pairs of a metric, that the terminal shows; the page has all."""

_MOST_COLUMNS = 4
_LABEL = 22
_TESTS = {
    "sign-flip": "randomisation test (sign flips) and its interval",
    "t": "Student's t, for normal differences",
    "bca": "randomisation test (sign flips), bootstrap interval (BCa) from 15 seeds on",
}

Pairs = Mapping[str, Mapping[str, Sequence[ComparedPair]]]


def terminal_tables(data: ComparisonData, pairs: Pairs, across: Sequence[Across]) -> list[Table]:
    """Return what the terminal shows.

    Args:
        data: the comparison.
        pairs: of arms, by condition and name of the metric.
        across: of conditions.
    """
    tables: list[Table] = []
    metrics = overview_metrics(data)
    shown = metrics[:MOST_METRICS]
    for metric in shown:
        tables.append(_means(data, metric))
        if table := _differences(data, metric, pairs, across):
            tables.append(table)
    return tables


def notes_of(data: ComparisonData, pairs: Pairs) -> list[str]:
    """Return what the reader of the tables must know, and how much more the page has."""
    lines = equal_of(data)
    if any(found for family in pairs.values() for found in family.values()):
        corrected = any(pair.tests > 1 for family in pairs.values() for found in family.values() for pair in found)
        lines.append(
            f"Differences are paired by seed: {_TESTS[data.method]}"
            f"{', both corrected for the number of pairs (Bonferroni)' * corrected}. Higher, lower: resolved at "
            f"{LEVEL:g}. Sees: the true difference that these seeds would resolve with 80 % power."
        )
    if more := len(overview_metrics(data)) - MOST_METRICS:
        lines += [f"{count(more)} more metrics are on the page."] * (more > 0)
    return lines


def _means(data: ComparisonData, metric: Metric) -> Table:
    """Return mean and deviation by arm and condition."""
    measured = [one for one in data.conditions if _own(one, metric)]
    cells = {(arm, one.name): _mean(one, arm, metric) for arm in data.arms for one in measured}
    arms = {arm: shortened(arm, _LABEL) for arm in data.arms if any(cells[arm, one.name] != NONE for one in measured)}
    names = {one.name: shortened(one.name, _LABEL) for one in measured}
    of = "" if metric.last == 1 else f" of the {metric.compared}"
    title = f"{metric.titled}: mean \u00b1 deviation over seeds{of}"
    if len(names) == 1:
        ((name, label),) = names.items()
        return Table(title=title, head=(data.arm_word, label), rows=[(arms[arm], cells[arm, name]) for arm in arms])
    if len(names) <= min(len(arms), _MOST_COLUMNS):
        rows = [(label, *(cells[arm, name] for name in names)) for arm, label in arms.items()]
        return Table(title=title, head=(data.arm_word, *names.values()), rows=rows)
    if len(arms) <= _MOST_COLUMNS:
        rows = [(label, *(cells[arm, name] for arm in arms)) for name, label in names.items()]
        return Table(title=title, head=("condition", *arms.values()), rows=rows)
    rows = [(label, arms[arm], cells[arm, name]) for name, label in names.items() for arm in arms]
    return Table(title=title, head=("condition", data.arm_word, ""), rows=rows)


def _own(condition: ConditionData, metric: Metric) -> Metric | None:
    return next((one for one in condition.metrics if (one.name, one.unit) == (metric.name, metric.unit)), None)


def _mean(condition: ConditionData, arm: str, metric: Metric) -> str:
    own = _own(condition, metric)
    if own is None or arm not in condition.present:
        return NONE
    return spread(condition.finals(own)[:, condition.present.index(arm)] * own.factor).replace(THIN, "")


def _differences(data: ComparisonData, metric: Metric, pairs: Pairs, across: Sequence[Across]) -> Table | None:
    """Return the differences of arms under each condition and of conditions with each arm; None without any."""
    families = [
        (f"under {shortened(one.name, 60)}" if one.name else "", pairs[one.name].get(metric.name, ()))
        for one in data.conditions
    ]
    families += [
        (f"{shortened(one.arm, 50)}, conditions", one.pairs)
        for one in across
        if (one.metric.name, one.metric.unit) == (metric.name, metric.unit)
    ]
    found = [(title, family) for title, family in families if family]
    if not found:
        return None
    rows: list[tuple[str, ...]] = []
    left = MOST_PAIRS
    for title, family in found:
        if title and left > 0:
            rows.append((f"{title}:", *[""] * 5))
        rows += [_row(pair, metric, "  " if title else "") for pair in family[: max(left, 0)]]
        left -= len(family)
    return Table(
        title=f"{metric.subject}: differences{unit_of_difference(metric, brackets=True)}",
        head=("", "mean", "95 % interval", "p", "sees", "verdict"),
        rows=rows,
        note=f"{-left} more pairs are on the page." if left < 0 else "",
    )


def _row(pair: ComparedPair, metric: Metric, indent: str) -> tuple[str, ...]:
    difference = number(pair.found.mean * metric.factor, 2)
    p_value = NONE if pair.p_value is None else p_words(pair.p_value).removeprefix("= ")
    seen = NONE if pair.seen is None else number(pair.seen * metric.factor, 2)
    words = f"{indent}{shortened(pair.first, _LABEL)} \u2212 {shortened(pair.second, _LABEL)}"
    return words, difference, interval_words(pair, metric), p_value, seen, _verdict(pair)


def _verdict(pair: ComparedPair) -> str:
    """Return a verdict in two or three words; of the first, where it is resolved to be higher or lower."""
    if pair.found.count < pair.least:
        return "too few seeds"
    if pair.found.mean == 0 and pair.found.deviation == 0:
        return "equal"
    if pair.resolved:
        return "higher" if pair.resolved > 0 else "lower"
    return "not resolved" if pair.needed is None else f"needs {count(pair.needed)} seeds"
