"""Results of a comparison for the terminal: tables of means and differences per metric, within 80 columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from analysis.comparison.data import ComparisonData, ConditionData, Metric
from analysis.comparison.tables import grid, overview_metrics, spread
from analysis.comparison.traffic_met import ArmRuns, decided_table, who_drove_past
from analysis.comparison.verdicts import RESOLVES, ComparedPair, Family, figures_of, spread_words, unit_of_difference
from analysis.comparison.warnings import equal_of, untested_of
from analysis.formatting import THIN, Table, count, shortened
from analysis.statistics.paired import LEVEL

MOST_METRICS = 3
MOST_PAIRS = 30
"""Most metrics, and most pairs per metric, on the terminal; the page has all."""

_MOST_COLUMNS = 4
_LABEL = 22
_TESTS = {"sign-flip": "randomisation test (sign flips) and its interval", "t": "Student's t, for normal differences"}


def terminal_tables(
    data: ComparisonData, families: Sequence[Family], runs: Sequence[ArmRuns], unmet: Sequence[str]
) -> list[Table]:
    """Return the tables for the terminal: outcomes of invitations first, with ``unmet`` as its note, then metrics."""
    tables = [_invitation_table(data, runs, unmet)] if any(one.invitations.total for one in runs) else []
    for metric in overview_metrics(data)[:MOST_METRICS]:
        ours = [one for one in families if one.metric.same(metric)]
        kinds = [[one for one in ours if one.compared == compared] for compared in ("arms", "conditions")]
        tables += [_means(data, metric), *(table for kind in kinds for table in _differences(metric, kind))]
    return tables


def notes_of(data: ComparisonData, families: Sequence[Family]) -> list[str]:
    """Return notes on the tables: equal metrics, tests used, and how much more the page has."""
    lines = equal_of(data) + untested_of(data)
    if any(family.pairs for family in families):
        corrected = any(pair.tests > 1 for family in families for pair in family.pairs)
        corrections = "; p is corrected for all differences of a table (Holm), as intervals are (Bonferroni)"
        fewest = min(pair.found.count for family in families for pair in family.pairs)
        lines.append(
            f"Differences are paired by seed: {_TESTS[data.record.interval]}{corrections * corrected}. Higher, lower: "
            f"p at most {LEVEL:g}. Resolves: {RESOLVES}. {spread_words(fewest)}"
        )
    if more := len(overview_metrics(data)) - MOST_METRICS:
        lines += [f"{count(more)} more metrics are on the page."] * (more > 0)
    return lines


def _invitation_table(data: ComparisonData, runs: Sequence[ArmRuns], unmet: Sequence[str]) -> Table:
    title = f"{who_drove_past(data)} What became of invitations:".strip()
    table = decided_table(runs[:MOST_PAIRS], title, data.arm_word, learning=not data.record.timing_only)
    more = f"{len(runs) - MOST_PAIRS} more are on the page." if len(runs) > MOST_PAIRS else ""
    return dataclasses.replace(table, note=" ".join(filter(None, (more, *unmet))))


def _means(data: ComparisonData, metric: Metric) -> Table:
    """Return mean and deviation by arm and condition."""
    conditions, arms = data.measuring(metric)

    def cell(one: ConditionData, arm: str) -> str:
        return spread(one.values(metric, arm)).replace(THIN, "")

    of = "" if metric.last == 1 else f" of the {metric.compared}"
    across = len(conditions) <= min(len(arms), _MOST_COLUMNS)
    head, rows = grid(data, metric, cell, across=across, letters=(_LABEL, _LABEL))
    if not across and len(arms) > _MOST_COLUMNS:  # one row per arm and condition
        head, rows = (
            ("condition", data.arm_word, ""),
            [(row[0], arm, value) for row in rows for arm, value in zip(head[1:], row[1:], strict=True)],
        )
    return Table(title=f"{metric.titled}: mean \u00b1 deviation over seeds{of}", head=head, rows=rows)


def _differences(metric: Metric, families: Sequence[Family]) -> list[Table]:
    """Return one table of the differences of arms, or of conditions; an empty list if there are none."""
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
    of_conditions = " of conditions" if any(one.compared == "conditions" for one in families) else ""
    table = Table(
        title=f"{metric.subject}: differences{of_conditions}{unit_of_difference(metric, brackets=True)}",
        head=("", "mean", "95 % interval", "p", "resolves", "verdict"),
        rows=rows,
        note=f"{-left} more pairs are on the page." if left < 0 else "",
    )
    return [table] if rows else []


def _verdict(pair: ComparedPair) -> str:
    """Return a verdict in two or three words; higher and lower refer to the first of the pair."""
    if pair.resolved:
        return "higher" if pair.resolved > 0 else "lower"
    if pair.verdict == "too few seeds":
        return pair.verdict
    if pair.equal:
        return "equal"
    if pair.withheld:
        return "withheld"
    return "not resolved" if pair.needed is None else f"needs {count(pair.needed)} seeds"
