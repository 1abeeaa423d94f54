"""What the page says of each condition, and of all together: tables, sentences and figures, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.comparison.bias import misplaced_table, overlap_table, spread_over_directions, spread_over_speeds
from analysis.comparison.bias_plots import spread_panel
from analysis.comparison.conditions import Across, what_differs
from analysis.comparison.data import ComparisonData, ConditionData, shortened
from analysis.comparison.measures import COMPARED, measure_table
from analysis.comparison.plots import curve_panel, difference_panel, outcome_panel, overview_panel
from analysis.comparison.ranks import Ranked, mean_rank_table, rank_panel, rank_test_table
from analysis.comparison.tables import (
    final_values,
    overview_metrics,
    overview_table,
    pair_table,
    target_rows,
    verdict_table,
)
from analysis.comparison.time_to_target import Target
from analysis.comparison.verdicts import ComparedPair
from analysis.comparison.warnings import equal_words, named
from analysis.formatting import Table
from analysis.report.page import Section
from analysis.style import Panel

Pairs = Mapping[str, Sequence[ComparedPair]]
"""The compared pairs by name of the metric."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A titled part of a condition: tables, a sentence below them, figures."""

    id: str
    title: str
    tables: Sequence[Table] = ()
    section: Section | None = None
    below: str = ""


@dataclass(frozen=True, kw_only=True)
class ConditionSection:
    """One condition on the page; its name is empty where there is one only."""

    name: str
    skipped: Sequence[str]
    parts: Sequence[Part]


def parts_of(
    data: ConditionData, pairs: Pairs, costs: Pairs, target: Target | None, prefix: str, noun: str
) -> list[Part]:
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
    unpaired = "" if data.metrics or data.alike or data.fixed else f"The {noun}s report nothing in common."
    if len(data.present) < 2:
        unpaired = f"Of one {noun} only cells have finished here: there is nothing to compare with it."
    verdicts = [verdict_table(data, metric, pairs[metric.name], noun) for metric in data.metrics if pairs[metric.name]]
    results = [final_values(data, noun), *([target_rows(target, noun)] if target else [])]
    numbered = [(str(i), metric) for i, metric in enumerate(data.metrics, 1)]
    differences = [
        difference_panel(metric, pairs[metric.name], f"{prefix}differences-{i}", noun)
        for i, metric in numbered
        if pairs[metric.name]
    ]
    curves = [curve_panel(data, metric, f"{prefix}curves-{i}", noun) for i, metric in numbered]
    parts = [
        Part(
            id=f"{prefix}verdicts",
            title="What differs",
            tables=verdicts,
            below=" ".join(filter(None, (unpaired, _left_out(data, noun)))),
        ),
        Part(id=f"{prefix}finals", title=f"Results by {noun}", tables=results),
        _figures(f"{prefix}differences", "Paired differences", differences),
        _figures(f"{prefix}curves", "Round by round", curves),
        _costs(data, costs, prefix, noun),
        _participation(data, prefix, noun),
    ]
    return [part for part in parts if part.tables or part.below or (part.section and part.section.panels)]


def _costs(data: ConditionData, costs: Pairs, prefix: str, noun: str) -> Part:
    table = measure_table(data, costs, noun)
    verdicts = [pair_table(metric.words, metric, costs[metric.name], noun, "") for metric in COMPARED
                if costs.get(metric.name)]  # fmt: skip
    return Part(id=f"{prefix}costs", title="What commits cost", tables=[table, *verdicts] if table else [])


def rank_part(ranked: Sequence[Ranked], against: str, noun: str) -> Part | None:
    """Return the arms ranked over all conditions; None where there is nothing to rank."""
    if not ranked:
        return None
    figures = [rank_panel(one, against, f"ranks-{number}", noun) for number, one in enumerate(ranked, 1)]
    return Part(
        id="ranks",
        title="Ranks over conditions",
        tables=[rank_test_table(ranked, against, noun), mean_rank_table(ranked, noun)],
        section=Section(title="", panels=tuple(figures)),
    )


def _participation(data: ConditionData, prefix: str, noun: str) -> Part:
    spreads = {"speed": (spread_over_speeds(data), "speed at entry (km/h)")}
    directions = spread_over_directions(data)
    if len(directions.labels) > 1:
        spreads["direction"] = (directions, "direction from which the vehicle first came")
    panels = [outcome_panel(data, f"{prefix}outcomes", noun)]
    panels += [
        spread_panel(data, spread, name=f"{prefix}bias-{what}", what=what, axis=axis)
        for what, (spread, axis) in spreads.items()
    ]
    return Part(
        id=f"{prefix}participation",
        title="Who takes part",
        tables=[
            overlap_table(data, noun),
            misplaced_table(data, {what: spread for what, (spread, _) in spreads.items()}, noun),
        ],
        section=Section(title="", panels=tuple(panels)),
    )


def _figures(name: str, title: str, panels: Sequence[Panel]) -> Part:
    return Part(id=name, title=title, section=Section(title=title, panels=tuple(panels)))


def _left_out(data: ConditionData, noun: str) -> str:
    lines = []
    if data.other_meanings:
        lines.append(f"Not compared, because {noun}s measure it differently: {named(data.other_meanings)}.")
    if data.alike:
        lines.append(equal_words(data.alike, noun))
    if data.fixed:
        lines.append(f"Not compared, because the settings alone decide it: {named(data.fixed)}.")
    return " ".join(lines)


def across_parts(data: ComparisonData, across: Sequence[Across]) -> list[Part]:
    """Return how the conditions compare, a part an arm: a table a metric, and the differences of the first drawn."""
    parts = []
    for number, arm in enumerate(dict.fromkeys(one.arm for one in across), 1):
        ours = [one for one in across if one.arm == arm]
        tables = [
            pair_table(one.metric.words_compared, one.metric, one.pairs, "condition", what_differs(data, one) * (not i))
            for i, one in enumerate(ours)
        ]
        figure = difference_panel(ours[0].metric, ours[0].pairs, f"conditions-{number}", "condition")
        parts.append(
            Part(
                id=f"conditions-{number}",
                title=shortened(arm),
                tables=tables,
                section=Section(title="", panels=(figure,)),
            )
        )
    return parts


def overview(data: ComparisonData, pairs: Mapping[str, Pairs]) -> Part | None:
    """Return all conditions side by side; None where there is one only. ``pairs`` are by condition."""
    if len(data.conditions) < 2:
        return None
    metrics = overview_metrics(data)
    return Part(
        id="overview",
        title="Overview",
        tables=[overview_table(data, metric, pairs) for metric in metrics],
        section=Section(
            title="",
            panels=tuple(overview_panel(data, metric, f"overview-{i}") for i, metric in enumerate(metrics, 1)),
        ),
    )
