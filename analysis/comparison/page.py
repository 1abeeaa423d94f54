"""The page of a comparison, ``comparison.html``, its tables as Parquet and CSV, and its figures as SVG files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from analysis.comparison.conditions import across_conditions
from analysis.comparison.data import ComparisonData
from analysis.comparison.loading import load_comparison
from analysis.comparison.measures import COMPARED, Target, measure_pairs, measure_rows, target_of, target_table
from analysis.comparison.parts import ConditionPart, across_sections, overview, rank_section, sections_of
from analysis.comparison.ranks import Ranked, rank_arms, rank_rows
from analysis.comparison.tables import cell_table, difference_table, traffic_table
from analysis.comparison.terminal import notes_of, terminal_tables
from analysis.comparison.verdicts import ComparedPair, Family, compare_pairs, verdict_sentences
from analysis.comparison.warnings import equal_of, notices_of, untested_of, warnings_of
from analysis.formatting import Table, clean, count, named, shortened
from analysis.report.page import Section, environment, tile, write_figures
from analysis.statistics.paired import LEVEL
from analysis.style import styled
from vnetsim.storage.comparison import LEAST_FOR_BCA
from vnetsim.storage.folder import Folder
from vnetsim.storage.tables import (
    COMPARISON,
    COMPARISON_DIFFERENCES,
    COMPARISON_MEASURES,
    COMPARISON_RANKS,
    COMPARISON_TARGETS,
    parquet,
)

COLUMNS = {
    "comparison": COMPARISON,
    "comparison_differences": COMPARISON_DIFFERENCES,
    "comparison_targets": COMPARISON_TARGETS,
    "comparison_measures": COMPARISON_MEASURES,
    "comparison_measure_differences": COMPARISON_DIFFERENCES,
    "comparison_ranks": COMPARISON_RANKS,
}
_MOST_VERDICTS = 8
_FIGURE = re.compile(r"(c\d+-)?(overview|ranks|conditions|differences|curves|outcomes|bias)(-[a-z0-9]+)*\.svg")
"""Names that the figures of a comparison have."""


@dataclass(frozen=True, kw_only=True)
class ComparisonResult:
    """What was made of a comparison.

    Args:
        path: the page.
        tables: the results for the terminal.
        notes: what the reader of the tables must know.
        warnings: what the reader of the verdicts must know.
    """

    path: Path
    tables: list[Table]
    notes: list[str]
    warnings: list[str]


def _skipped(data: ComparisonData) -> dict[str, list[str]]:
    """Return a line for each pair of arm and condition that was left out on purpose, by condition."""
    result: dict[str, list[str]] = {}
    for entry in data.record.skipped:
        line = f"{clean(entry.arm)}: {clean(entry.reason, 400)}"
        result.setdefault(entry.condition, []).append(line)
    return result


def _title(data: ComparisonData) -> str:
    if given := clean(data.record.title, 200).strip():
        return given
    scenarios = named(list(dict.fromkeys(traffic.scenario for traffic in data.traffics)))
    return f"{scenarios}: {named(data.arms)}"


def _verdicts(found: _Compared) -> list[str]:
    """Return the verdict in words: what every condition shows in its first metric of which better is known.

    Without training there is none of which it is known: what conditions and arms show in each. What is equal for all
    arms comes last.
    """
    data, pairs = found.data, found.pairs
    lines = []
    if data.record.timing_only:
        for compared, within, metric, shown in sorted(found.in_metrics, key=lambda one: one.compared == "arms"):
            named_so = len(data.arms if compared == "conditions" else data.conditions) > 1
            under = f"{shortened(within)}: " if named_so else ""
            lines += [f"{under}{line}" for line in verdict_sentences(shown, metric) if shown]
    for one in data.conditions:
        if one.main is not None and (family := pairs[one.name].get(one.main.name)):
            under = f"{shortened(one.name)}: " if len(data.conditions) > 1 else ""
            lines += [f"{under}{line}" for line in verdict_sentences(family, one.main)]
    more = len(lines) - _MOST_VERDICTS
    if more > 0:
        lines = [*lines[:_MOST_VERDICTS], f"{count(more)} more such lines stand below."]
    return lines + equal_of(data) + untested_of(data)


def _tiles(data: ComparisonData) -> list[tuple[str, str, str]]:
    planned = len(data.record.cells)
    several = [("Conditions", count(len(data.conditions)))] if len(data.conditions) > 1 else []
    rounds = sorted({cell.wanted_rounds for cell in data.cells})
    pairs = [
        (f"{data.arm_word.capitalize()}s", count(len(data.arms))),
        *several,
        ("Seeds", count(len(data.seeds))),
        ("Cells", f"{count(len(data.cells))} of {count(planned)}"),
        ("Rounds", count(rounds[0]) if len(rounds) == 1 else f"{count(rounds[0])} to {count(rounds[-1])}"),
    ]
    return [tile(*pair) for pair in pairs]


def _write_all_figures(folder: Folder, sections: Sequence[Section]) -> None:
    """Write the figures, and remove those of conditions and metrics that are no longer there."""
    write_figures(folder, sections)
    drawn = {f"{panel.name}.svg" for section in sections for panel in section.panels if panel.svg}
    for path in (folder.path / "figures").glob("*.svg"):
        if _FIGURE.fullmatch(path.name) and path.name not in drawn:
            folder.remove_output(f"figures/{path.name}")


def comparison_tables(folder: Path) -> dict[str, pl.DataFrame]:
    """Return the tables that ``build_comparison`` writes, by the names of their files; nothing is written.

    Raises:
        InputError: see ``build_comparison``.
    """
    return _Compared(load_comparison(folder)).tables


class _Compared:
    """A comparison with what was found of it, by condition."""

    def __init__(self, data: ComparisonData) -> None:
        self.data = data
        self.pairs: dict[str, dict[str, list[ComparedPair]]] = {
            one.name: {metric.name: compare_pairs(one, metric) for metric in one.metrics} for one in data.conditions
        }
        self.costs = {one.name: measure_pairs(one) for one in data.conditions}
        self.targets: dict[str, Target | None] = {one.name: target_of(one) for one in data.conditions}
        self.across: list[Family] = across_conditions(data)
        self.ranked: list[Ranked] = rank_arms(data, self.targets)

    @property
    def in_metrics(self) -> list[Family]:
        """Arms and conditions compared in metrics."""
        arms = [
            Family("arms", one.name, metric, self.pairs[one.name][metric.name])
            for one in self.data.conditions
            for metric in one.metrics
        ]
        return arms + self.across

    @property
    def in_measures(self) -> list[Family]:
        """Arms compared in what commits cost."""
        return [
            Family("arms", one.name, metric, self.costs[one.name][metric.name])
            for one in self.data.conditions
            for metric in COMPARED
        ]

    @cached_property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables that are written, by the names of their files."""
        conditions = self.data.conditions
        return {
            "comparison": cell_table(self.data),
            "comparison_differences": difference_table(self.in_metrics),
            "comparison_targets": pl.concat([target_table(self.targets[one.name]) for one in conditions]),
            "comparison_measures": pl.concat([measure_rows(one) for one in conditions]),
            "comparison_measure_differences": difference_table(self.in_measures),
            "comparison_ranks": rank_rows(self.ranked),
        }


def build_comparison(folder: Path) -> ComparisonResult:
    """Write ``comparison.html``, its tables as Parquet and CSV, and ``figures/*.svg`` into a comparison's folder.

    The same cells give the same bytes.

    Raises:
        InputError: no comparison, none of its cells has finished, or its files are damaged.
        RunError: the folder cannot be written.
    """
    data = load_comparison(folder)
    found, record, noun = _Compared(data), data.record, data.arm_word
    several, skipped = len(data.conditions) > 1, _skipped(data)
    with styled():
        ranks = rank_section(found.ranked, data.against, noun)
        everything = overview(data, found.pairs)
        across = across_sections(data, found.across)
        conditions = [
            ConditionPart(
                name=clean(one.name, 200) if several else "",
                skipped=skipped.pop(one.name, []),
                sections=sections_of(
                    one,
                    found.pairs[one.name],
                    found.costs[one.name],
                    found.targets[one.name],
                    f"c{i}-" if several else "",
                    noun,
                ),
            )
            for i, one in enumerate(data.conditions, 1)
        ]
    warnings, run_notices = warnings_of(data, found.in_metrics + found.in_measures), notices_of(data)
    chosen = [f"{record.chosen_rsu.note} All traffic of this comparison has it."] if record.chosen_rsu else []
    page = (
        environment()
        .get_template("comparison.html.j2")
        .render(
            record=record,
            title=_title(data),
            notes=[clean(note, 1000) for note in (*chosen, *record.notes)],
            verdicts=_verdicts(found),
            tiles=_tiles(data),
            warnings=warnings,
            run_notices=run_notices,
            noun=noun,
            overview=everything,
            ranks=ranks,
            against=shortened(data.against),
            across=across,
            least_for_bca=LEAST_FOR_BCA,
            conditions=conditions,
            skipped=[f"{clean(name, 200)}, {line}" for name, lines in skipped.items() for line in lines],
            traffics=data.traffics,
            traffic_table=traffic_table(data),
            one_traffic_each=all(len({cell.traffic_sha256 for cell in one.cells}) < 2 for one in data.conditions),
            cells=count(len(data.cells)),
            command=clean(" ".join(record.command), 2000),
            level=f"{LEVEL:g}",
        )
    )
    written = Folder(folder)
    for name, table in found.tables.items():
        written.write_output(f"{name}.parquet", parquet(COLUMNS[name], table))
        written.write_output(f"{name}.csv", table.write_csv().encode())
    together = [one for one in (everything, ranks, *across) if one]
    _write_all_figures(written, [*together, *(one for condition in conditions for one in condition.sections)])
    written.write_output("comparison.html", page.encode("utf-8", "replace"))
    return ComparisonResult(
        path=folder / "comparison.html",
        tables=terminal_tables(data, found.pairs, found.across),
        notes=notes_of(data, found.in_metrics),
        warnings=[*warnings, *run_notices],
    )
