"""What the page says of each condition, and of all together: tables, sentences and figures, section by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.comparison.bias import (
    misplaced_table,
    overlap_table,
    spread_over_directions,
    spread_over_speeds,
    spread_panel,
)
from analysis.comparison.conditions import what_differs
from analysis.comparison.data import ComparisonData, ConditionData
from analysis.comparison.measures import COMPARED, Target, measure_table, target_rows
from analysis.comparison.plots import curve_panel, difference_panel, outcome_panel, overview_panel
from analysis.comparison.ranks import Ranked, mean_rank_table, rank_panel, rank_test_table
from analysis.comparison.tables import (
    by_condition,
    final_values,
    overview_metrics,
    overview_table,
    pair_table,
    verdict_table,
)
from analysis.comparison.verdicts import ComparedPair, Family
from analysis.comparison.warnings import equal_words
from analysis.formatting import named, shortened
from analysis.report.page import Section

Pairs = Mapping[str, Sequence[ComparedPair]]
"""The compared pairs by name of the metric."""


@dataclass(frozen=True, kw_only=True)
class ConditionPart:
    """One condition on the page; its name is empty where there is one only."""

    name: str
    skipped: Sequence[str]
    sections: Sequence[Section]


def sections_of(
    data: ConditionData, pairs: Pairs, costs: Pairs, target: Target | None, prefix: str, noun: str
) -> list[Section]:
    """Return what the page says of a condition.

    Args:
        data: the condition.
        pairs: of arms, by name of the metric.
        costs: of arms, by name of the measure.
        target: that the arms are to reach.
        prefix: keeps its figures apart from the others'.
        noun: what an arm is called.
    """
    if not data.cells:
        return []
    numbered = [(i, metric) for i, metric in enumerate(data.metrics, 1) if pairs[metric.name]]
    measures = measure_table(data, costs, noun)
    tested = [metric for metric in COMPARED if measures and costs.get(metric.name)]
    sections = [
        Section(
            id=f"{prefix}verdicts",
            title="What differs",
            tables=[verdict_table(data, metric, pairs[metric.name], noun) for _, metric in numbered],
            below=_not_compared(data, noun),
        ),
        Section(
            id=f"{prefix}finals",
            title=f"Results by {noun}",
            tables=[
                *([] if prefix and len(data.looks) == 1 else [final_values(data, noun)]),  # they stand side by side
                *([target_rows(target, noun)] if target else []),
            ],
        ),
        Section(
            id=f"{prefix}differences",
            title="Paired differences",
            panels=[
                difference_panel(metric, pairs[metric.name], f"{prefix}differences-{i}", noun) for i, metric in numbered
            ],
        ),
        Section(
            id=f"{prefix}curves",
            title="Round by round",
            panels=[
                curve_panel(data, metric, f"{prefix}curves-{i}", noun)
                for i, metric in enumerate(data.metrics, 1)
                if metric.known is None
            ],
        ),
        Section(
            id=f"{prefix}costs",
            title="What commits cost",
            tables=[
                *([measures] if measures else []),
                *(pair_table(metric.words, metric, costs[metric.name], noun, "") for metric in tested),
            ],
        ),
        _participation(data, prefix, noun),
    ]
    return [one for one in sections if one.tables or one.below or one.panels]


def _participation(data: ConditionData, prefix: str, noun: str) -> Section:
    spreads = {"speed": (spread_over_speeds(data), "speed at entry (km/h)")}
    directions = spread_over_directions(data)
    if len(directions.labels) > 1:
        spreads["direction"] = (directions, "direction from which the vehicle first came")
    return Section(
        id=f"{prefix}participation",
        title="Who takes part",
        tables=[
            overlap_table(data, noun),
            misplaced_table(data, {what: spread for what, (spread, _) in spreads.items()}, noun),
        ],
        panels=[
            outcome_panel(data, f"{prefix}outcomes", noun),
            *(
                spread_panel(data, spread, name=f"{prefix}bias-{what}", what=what, axis=axis)
                for what, (spread, axis) in spreads.items()
            ),
        ],
    )


def _not_compared(data: ConditionData, noun: str) -> str:
    lines = []
    if len(data.present) < 2 and all(metric.known is None for metric in data.metrics):  # else conditions are compared
        lines.append(f"Of one {noun} only cells have finished here: there is nothing to compare with it.")
    elif not (data.metrics or data.alike or data.fixed):
        lines.append(f"The {noun}s report nothing in common.")
    if data.other_meanings:
        lines.append(f"Not compared, because {noun}s measure it differently: {named(data.other_meanings)}.")
    if data.alike:
        lines.append(equal_words(data.alike, noun))
    if data.fixed:
        lines.append(f"Not compared, because the settings alone decide it: {named(data.fixed)}.")
    return " ".join(lines)


def overview(data: ComparisonData, pairs: Mapping[str, Pairs]) -> Section | None:
    """Return all conditions side by side; None where there is one only. ``pairs`` are by condition."""
    metrics = overview_metrics(data)
    if len(data.conditions) < 2 or not metrics:
        return None
    if len(data.arms) == 1:
        return Section(id="overview", title="Overview", tables=[by_condition(data, metrics)])
    return Section(
        id="overview",
        title="Overview",
        tables=[overview_table(data, metric, pairs) for metric in metrics],
        panels=[
            overview_panel(data, metric, f"overview-{i}")
            for i, metric in enumerate(metrics, 1)
            if any(metric in one.metrics for one in data.conditions)
        ],
    )


def rank_section(ranked: Sequence[Ranked], against: str, noun: str) -> Section | None:
    """Return the arms ranked over all conditions; None where there is nothing to rank."""
    if not ranked:
        return None
    return Section(
        id="ranks",
        title="Ranks over conditions",
        tables=[rank_test_table(ranked, against, noun), mean_rank_table(ranked, noun)],
        panels=[rank_panel(one, against, f"ranks-{i}", noun) for i, one in enumerate(ranked, 1)],
    )


def across_sections(data: ComparisonData, across: Sequence[Family]) -> list[Section]:
    """Return how the conditions compare, a section an arm: a table a metric, and the differences of the first drawn.

    Of figures of whole runs all are drawn, where they differ: they have no curves.
    """
    sections = []
    for number, arm in enumerate(dict.fromkeys(one.within for one in across), 1):
        ours = [one for one in across if one.within == arm]
        tables = [
            pair_table(one.metric.words_compared, one.metric, one.pairs, "condition", what_differs(data, one) * (not i))
            for i, one in enumerate(ours)
        ]
        name = f"conditions-{number}"
        drawn = [one for one in ours if one.metric.known is not None and not all(pair.equal for pair in one.pairs)]
        figures = [
            difference_panel(one.metric, one.pairs, f"{name}-{i}" if i else name, "condition")
            for i, one in enumerate(drawn or ours[:1])
        ]
        sections.append(Section(id=name, title=shortened(arm), tables=tables, panels=figures))
    return sections
