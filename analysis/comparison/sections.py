"""Contents of a comparison's page: verdicts, and all sections with tables and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import polars as pl

from analysis.comparison.bias import spread_over_directions, spread_over_speeds, spread_panel
from analysis.comparison.data import ComparisonData, ConditionData, Metric
from analysis.comparison.measures import compared_measures, measure_rows, measure_table, target_of, target_rows
from analysis.comparison.plots import curve_panel, difference_panel, outcome_panel, overview_panel
from analysis.comparison.tables import (
    by_condition,
    cell_table,
    difference_table,
    final_values,
    overview_metrics,
    overview_table,
    pair_table,
)
from analysis.comparison.traffic_met import arm_runs, decided_table, not_met, what_decided, who_drove_past, withhold
from analysis.comparison.verdicts import Family, across_arms, across_conditions, pairs_in, verdict_sentences
from analysis.comparison.warnings import equal_of, equal_words, untested_of, what_differs
from analysis.formatting import count, named, shortened, slugs
from analysis.report.page import Section
from analysis.style import styled
from vnetsim.storage.tables import COMPARISON_TARGETS, frame

_MOST_VERDICTS = 6
_MOST_DRAWN, _MOST_NARROW = 40, 8
"""Most differences in the first picture, and most beside curves."""


class Compared:
    """The content of a comparison's page: making it compares all pairs; its methods return sections, tables, lines."""

    def __init__(self, data: ComparisonData) -> None:
        conditions = data.conditions
        self.data = data
        self.targets = {one.name: target_of(one) for one in conditions}
        places = {one.name: place for place, one in enumerate(conditions)}
        by_metric: dict[tuple[str, str], list[tuple[ConditionData, Metric]]] = {}
        for condition in conditions:
            for metric in condition.metrics:
                by_metric.setdefault((metric.name, metric.unit), []).append((condition, metric))
        of_arms = [family for table in by_metric.values() for family in across_arms(data, table)]
        # one table shows all conditions and measures, so they are corrected together
        measures = across_arms(data, [(one, metric) for one in conditions for metric in compared_measures(one)])
        self.runs = arm_runs(data)
        self.in_measures, of_arms, self.across = (
            withhold(data, self.runs, families) for families in (measures, of_arms, across_conditions(data))
        )
        self.in_metrics = sorted(of_arms, key=lambda one: places[one.within]) + self.across
        known = [one.metric for one in self.in_metrics if one.pairs]
        self.main = next((metric for metric in known if metric.better), known[0] if known else None)
        """The metric of the first picture."""

    def _main_families(self) -> list[Family]:
        """Return the families with pairs in the main metric; empty without a main metric."""
        main = self.main
        return [one for one in self.in_metrics if main is not None and one.metric.same(main) and one.pairs]

    def _in_first_picture(self, metric: Metric) -> bool:
        """Return whether a metric is the main one, and the first picture has all of its differences."""
        few = sum(len(one.pairs) for one in self._main_families()) <= _MOST_DRAWN
        return few and self.main is not None and metric.same(self.main)

    def lead(self) -> Section | None:
        """Return the first picture: the main metric's values and first 40 differences; None if no pair was compared."""
        data, metric, families = self.data, self.main, self._main_families()
        if metric is None:
            return None
        several = len(families) > 1
        rows = [
            (f"{shortened(one.within, 26)}: {pair.words}" if several else pair.words, pair)
            for one in families
            for pair in one.pairs
        ]
        panels = []
        (first, *others) = data.conditions
        if not others and metric.known is None:
            panels.append(curve_panel(first, metric, f"curves-{_slugs(first.metrics)[metric]}", data.arm_word))
        elif others and len(data.arms) > 1 and any(one.own(metric) in one.metrics for one in data.conditions):
            panels.append(overview_panel(data, metric, f"overview-{_slugs([metric])[metric]}"))
        shown = rows[:_MOST_DRAWN]
        wide = several or len(shown) > _MOST_NARROW or not panels
        noun = data.arm_word if families[0].compared == "arms" else "condition"
        labels, pairs = [label for label, _ in shown], [pair for _, pair in shown]
        forest = difference_panel(metric, pairs, "differences-all", noun, labels, wide=wide)
        if len(rows) > len(shown):
            forest = dataclasses.replace(
                forest, caption=f"{forest.caption} The first {len(shown)} of {len(rows)} differences; tables have all."
            )
        return Section(id="lead", title="", panels=[*panels, forest])

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return the tables to write, by file name without suffix; a table may have no rows."""
        conditions = self.data.conditions
        targets = [target.reached for target in self.targets.values() if target]
        return {
            "comparison": cell_table(self.data),
            "comparison_differences": difference_table(self.in_metrics),
            "comparison_targets": pl.concat([frame(COMPARISON_TARGETS), *targets]),
            "comparison_measures": pl.concat([measure_rows(one) for one in conditions]),
            "comparison_measure_differences": difference_table(self.in_measures),
        }

    def first_words(self) -> list[str]:
        """Return sentences, if any, on the vehicles that drove past and on the outcomes of invitations."""
        learning = not self.data.record.timing_only
        return [line for line in (who_drove_past(self.data), *what_decided(self.runs, learning=learning)) if line]

    def unmet(self) -> list[str]:
        """Return lines on runs that did not meet the traffic, see ``comparison.traffic_met``; empty if all did."""
        return not_met(self.data, self.runs)

    def verdicts(self) -> list[str]:
        """Return at most six verdicts, a line that counts the others, and lines on equal and untested metrics.

        Verdicts compare arms in each condition's main metric. With a single arm they compare its conditions in the main
        metric of all. Without training they are on all metrics.
        """
        data, lines, main = self.data, [], self.main
        mains = {one.name: one.main for one in data.conditions}
        verdict_families = [
            one for one in self.in_metrics if one.compared == "arms" and one.metric is mains[one.within]
        ]
        if len(data.arms) == 1 and main is not None:
            verdict_families = [one for one in self.across if one.metric.same(main)]
        if data.record.timing_only:
            verdict_families = sorted(
                self.in_metrics,
                key=lambda one: (
                    not self._in_first_picture(one.metric),
                    all(pair.equal for pair in one.pairs),
                    one.compared == "arms",
                ),
            )
        for compared, within, metric, shown in verdict_families:
            several = len(data.arms if compared == "conditions" else data.conditions) > 1
            under = f"{shortened(within)}: " if several else ""
            lines += [f"{under}{line}" for line in verdict_sentences(shown, metric) if shown]
        more = len(lines) - _MOST_VERDICTS
        if more > 0:
            lines = [*lines[:_MOST_VERDICTS], f"{count(more)} more such lines are below."]
        return lines + equal_of(data) + untested_of(data)

    def overview(self) -> Section | None:
        """Return the section on all conditions, without figures for one arm; None for one condition, or no metric."""
        data, metrics = self.data, overview_metrics(self.data)
        if len(data.conditions) < 2 or not metrics:
            return None
        if len(data.arms) == 1:
            return Section(id="overview", title="Overview", tables=[by_condition(data, metrics)])
        first = [] if self.main is None else [self.main]  # the first picture has its values
        others = [
            one
            for one in metrics
            if any(one in condition.metrics for condition in data.conditions)
            and not any(one.same(shown) for shown in first)
        ]
        return Section(
            id="overview",
            title="Overview",
            tables=[overview_table(data, metric, self.in_metrics) for metric in metrics],
            panels=[
                overview_panel(data, metric, f"overview-{name}")
                for metric, name in _slugs([*first, *others]).items()
                if metric in others
            ],
        )

    def conditions_compared(self) -> list[Section]:
        """Return one section per arm with a table per metric; empty if there is only one condition.

        Figures show the metrics with one value per run that differ between conditions, or the first metric if none
        does. What the page's first picture shows is left out, so a section may have no figure.
        """
        sections = []
        for number, arm in enumerate(dict.fromkeys(one.within for one in self.across), 1):
            ours, name = [one for one in self.across if one.within == arm], f"conditions-{number}"
            of_runs = [
                one for one in ours if one.metric.known is not None and not all(pair.equal for pair in one.pairs)
            ]
            slugs_of = _slugs([one.metric for one in ours])
            section = Section(
                id=name,
                title=shortened(arm),
                tables=[pair_table(one.metric.words_compared, one.metric, one.pairs, "condition") for one in ours],
                below=what_differs(self.data, ours[0]),
                panels=[
                    difference_panel(one.metric, one.pairs, f"{name}-{slugs_of[one.metric]}", "condition")
                    for one in of_runs or ours[:1]
                    if not self._in_first_picture(one.metric)
                ],
            )
            sections.append(section)
        return sections

    def sections(self, data: ConditionData, prefix: str) -> list[Section]:
        """Return the sections of a condition, without empty ones; an empty list if no cell of it has finished.

        ``prefix`` begins the names of anchors and figures, to make them unique on the page. It is empty if the study
        has only one condition; curves that the first picture shows are then left out. With a prefix and a single arm,
        the table of final values is left out, because the overview has it.
        """
        noun, target = self.data.arm_word, self.targets[data.name]
        if not data.cells:
            return []
        names = _slugs(data.metrics)
        pairs = [(metric, pairs_in(self.in_metrics, data.name, metric)) for metric in data.metrics]
        compared = [one for one in pairs if one[1]]
        measures = measure_table(data, self.in_measures, noun)
        costs = [one for one in self.in_measures if one.within == data.name and one.pairs] if measures else []
        side_by_side = prefix and len(data.looks) == 1  # the overview shows the final values
        spreads = {"speed": (spread_over_speeds(data), "speed at entry (km/h)")}
        directions = spread_over_directions(data)
        if len(directions.labels) > 1:
            spreads["direction"] = (directions, "direction from which the vehicle first came")
        runs = [one for one in self.runs if one.condition == (data.name if prefix else "")]
        learning, invited = not self.data.record.timing_only, any(one.invitations.total for one in runs)
        led = not prefix and self.main is not None and self.main.known is None
        sections = [
            Section(
                id=f"{prefix}curves",
                title="Round by round",
                panels=[
                    curve_panel(data, metric, f"{prefix}curves-{names[metric]}", noun)
                    for metric in data.metrics
                    if metric.known is None and not (led and metric is self.main)
                ],
            ),
            Section(
                id=f"{prefix}verdicts",
                title="What differs",
                tables=[pair_table(metric.words_compared, metric, found, noun) for metric, found in compared],
                below=_not_compared_words(data, noun),
            ),
            Section(
                id=f"{prefix}finals",
                title=f"Results by {noun}",
                tables=[
                    *([] if side_by_side else [final_values(data, noun)]),
                    *([target_rows(target, noun)] if target else []),
                ],
            ),
            Section(
                id=f"{prefix}differences",
                title="Paired differences",
                panels=[
                    difference_panel(metric, found, f"{prefix}differences-{names[metric]}", noun)
                    for metric, found in compared
                    if not self._in_first_picture(metric)
                ],
            ),
            Section(
                id=f"{prefix}costs",
                title="What commits cost",
                tables=[
                    *([measures] if measures else []),
                    *(pair_table(one.metric.words, one.metric, one.pairs, noun) for one in costs),
                ],
            ),
            Section(
                id=f"{prefix}participation",
                title="Who takes part",
                tables=[decided_table(runs, "What decided who took part", noun, learning=learning)] if invited else [],
                panels=[
                    outcome_panel(data, f"{prefix}outcomes", noun),
                    *(
                        spread_panel(data, spread, name=f"{prefix}bias-{what}", what=what, axis=axis)
                        for what, (spread, axis) in spreads.items()
                    ),
                ],
            ),
        ]
        return [one for one in sections if one.tables or one.below or one.panels]

    def all_sections(self) -> tuple[list[Section | None], list[Section], list[list[Section]]]:
        """Draw all figures; return [``lead``, ``overview``], ``conditions_compared``, and ``sections`` by condition."""
        several = len(self.data.conditions) > 1
        with styled():
            return (
                [self.lead(), self.overview()],
                self.conditions_compared(),
                [self.sections(one, f"c{i}-" if several else "") for i, one in enumerate(self.data.conditions, 1)],
            )


def _slugs(metrics: Sequence[Metric]) -> dict[Metric, str]:
    """Return for each metric a part of a file name, made from the metric's name and distinct among ``metrics``."""
    return dict(zip(metrics, slugs([metric.name for metric in metrics]), strict=True))


def _not_compared_words(data: ConditionData, noun: str) -> str:
    """Return sentences on what is not compared under a condition, and why; empty if there is nothing to say."""
    lines = []
    if len(data.present) < 2 <= len(data.looks) and all(metric.known is None for metric in data.metrics):
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
