"""The results of a comparison for the terminal: means and differences, a table each a metric, within 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.comparison.data import ComparisonData, ConditionData, Metric
from analysis.comparison.tables import grid, overview_metrics, spread
from analysis.comparison.verdicts import ComparedPair, Family, figures_of, unit_of_difference
from analysis.comparison.warnings import equal_of, untested_of
from analysis.formatting import THIN, Table, count, shortened
from analysis.statistics.paired import LEVEL

MOST_METRICS = 3
MOST_PAIRS = 30
"""Metrics, and pairs of a metric, that the terminal shows; the page has all."""

_MOST_COLUMNS = 4
_LABEL = 22
_TESTS = {"sign-flip": "randomisation test (sign flips) and its interval", "t": "Student's t, for normal differences"}


def terminal_tables(data: ComparisonData, families: Sequence[Family]) -> list[Table]:
    """Return what the terminal shows."""
    tables: list[Table] = []
    for metric in overview_metrics(data)[:MOST_METRICS]:
        tables += [_means(data, metric), *_differences(metric, [one for one in families if one.metric.same(metric)])]
    return tables


def notes_of(data: ComparisonData, families: Sequence[Family]) -> list[str]:
    """Return what the reader of the tables must know, and how much more the page has."""
    lines = equal_of(data) + untested_of(data)
    if any(family.pairs for family in families):
        corrected = any(pair.tests > 1 for family in families for pair in family.pairs)
        lines.append(
            f"Differences are paired by seed: {_TESTS[data.record.interval]}"
            f"{', both corrected for the number of pairs (Bonferroni)' * corrected}. Higher, lower: resolved at "
            f"{LEVEL:g}. Sees: the true difference that these seeds would resolve with 80 % power."
        )
    if more := len(overview_metrics(data)) - MOST_METRICS:
        lines += [f"{count(more)} more metrics are on the page."] * (more > 0)
    return lines


def _means(data: ComparisonData, metric: Metric) -> Table:
    """Return mean and deviation by arm and condition."""
    conditions, arms = data.measuring(metric)

    def cell(one: ConditionData, arm: str) -> str:
        return spread(one.values(metric, arm)).replace(THIN, "")

    of = "" if metric.last == 1 else f" of the {metric.compared}"
    across = len(conditions) <= min(len(arms), _MOST_COLUMNS)
    head, rows = grid(data, metric, cell, across=across, letters=(_LABEL, _LABEL))
    if not across and len(arms) > _MOST_COLUMNS:  # a row each
        head, rows = (
            ("condition", data.arm_word, ""),
            [(row[0], arm, value) for row in rows for arm, value in zip(head[1:], row[1:], strict=True)],
        )
    return Table(title=f"{metric.titled}: mean \u00b1 deviation over seeds{of}", head=head, rows=rows)


def _differences(metric: Metric, families: Sequence[Family]) -> list[Table]:
    """Return the differences of arms under each condition and of conditions with each arm, if there are any."""
    rows: list[tuple[str, ...]] = []
    left = MOST_PAIRS
    for compared, within, _, family in families:
        title = f"under {shortened(within, 60)}" if compared == "arms" else f"{shortened(within, 50)}, conditions"
        title = title if within else ""
        if title and family and left > 0:
            rows.append((f"{title}:", *[""] * 5))
        for pair in family[: max(left, 0)]:
            words = f"{'  ' if title else ''}{shortened(pair.first, _LABEL)} \u2212 {shortened(pair.second, _LABEL)}"
            rows.append((words, *figures_of(pair, metric), _verdict(pair)))
        left -= len(family)
    table = Table(
        title=f"{metric.subject}: differences{unit_of_difference(metric, brackets=True)}",
        head=("", "mean", "95 % interval", "p", "sees", "verdict"),
        rows=rows,
        note=f"{-left} more pairs are on the page." if left < 0 else "",
    )
    return [table] if rows else []


def _verdict(pair: ComparedPair) -> str:
    """Return a verdict in two or three words; of the first, where it is resolved to be higher or lower."""
    if pair.found.count < pair.least:
        return "too few seeds"
    if pair.equal:
        return "equal"
    if pair.resolved:
        return "higher" if pair.resolved > 0 else "lower"
    return "not resolved" if pair.needed is None else f"needs {count(pair.needed)} seeds"
