"""The page of a comparison, ``comparison.html``, its tables as Parquet and CSV, and its figures as SVG files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from analysis.comparison.conditions import Across, across_conditions
from analysis.comparison.data import ComparisonData, shortened
from analysis.comparison.loading import load_comparison
from analysis.comparison.measures import COMPARED, measure_pairs, measure_rows
from analysis.comparison.parts import ConditionSection, across_parts, overview, parts_of, rank_part
from analysis.comparison.ranks import Ranked, rank_arms, rank_rows
from analysis.comparison.statistics import LEVEL
from analysis.comparison.tables import cell_table, difference_table, traffic_table
from analysis.comparison.terminal import notes_of, terminal_tables
from analysis.comparison.time_to_target import Target, target_of, target_table
from analysis.comparison.verdicts import ComparedPair, Family, compare_pairs, verdict_sentences
from analysis.comparison.warnings import equal_of, named, notices_of, warnings_of
from analysis.formatting import Table, clean, count
from analysis.report.page import Section, environment, tile, write_figures
from analysis.style import styled
from vnetsim.storage.comparison import LEAST_FOR_BCA
from vnetsim.storage.folder import Folder
from vnetsim.storage.tables import (
    COMPARISON,
    COMPARISON_DIFFERENCES,
    COMPARISON_MEASURES,
    COMPARISON_RANKS,
    COMPARISON_TARGETS,
    Column,
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
_FIGURE = re.compile(r"(c\d+-)?(overview|ranks|conditions|differences|curves|outcomes|bias)(-[a-z0-9]+)?\.svg")
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


def _chosen_rsu(data: ComparisonData) -> list[str]:
    """Return how the RSU of all traffic was chosen, where nobody named one."""
    chosen = data.record.chosen_rsu
    return [f"{chosen.note} All traffic of this comparison has it."] if chosen else []


def _verdicts(data: ComparisonData, pairs: Mapping[str, Mapping[str, Sequence[ComparedPair]]]) -> list[str]:
    """Return the verdict in words: what every condition shows in its first metric of which better is known.

    What is equal for all arms comes last.
    """
    lines = []
    for one in data.conditions:
        if one.main is not None and (family := pairs[one.name].get(one.main.name)):
            under = f"{shortened(one.name)}: " if len(data.conditions) > 1 else ""
            lines += [f"{under}{line}" for line in verdict_sentences(family, one.main)]
    more = len(lines) - _MOST_VERDICTS
    if more > 0:
        lines = [*lines[:_MOST_VERDICTS], f"{count(more)} more such lines stand below."]
    return lines + equal_of(data)


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


def _write_table(folder: Folder, name: str, columns: Sequence[Column], table: pl.DataFrame) -> None:
    folder.write_output(f"{name}.parquet", parquet(columns, table))
    folder.write_output(f"{name}.csv", table.write_csv().encode())


def _write_all_figures(folder: Folder, sections: Mapping[str, Section]) -> None:
    """Write the figures, and remove those of conditions and metrics that are no longer there."""
    write_figures(folder, sections)
    drawn = {f"{panel.name}.svg" for section in sections.values() for panel in section.panels if panel.svg}
    for path in (folder.path / "figures").glob("*.svg"):
        if _FIGURE.fullmatch(path.name) and path.name not in drawn:
            folder.remove_output(f"figures/{path.name}")


def comparison_tables(folder: Path) -> dict[str, pl.DataFrame]:
    """Return the tables that ``build_comparison`` writes, by the names of their files; nothing is written.

    Raises:
        InputError: see ``build_comparison``.
    """
    return _tables(_compared(load_comparison(folder)))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Compared:
    """A comparison with what was found of it, each by condition."""

    data: ComparisonData
    pairs: Mapping[str, Mapping[str, list[ComparedPair]]]
    costs: Mapping[str, Mapping[str, list[ComparedPair]]]
    targets: Mapping[str, Target | None]
    across: list[Across]
    ranked: list[Ranked]

    @property
    def in_metrics(self) -> list[Family]:
        """Arms and conditions compared in metrics."""
        arms: list[Family] = [
            ("arms", one.name, metric, self.pairs[one.name][metric.name])
            for one in self.data.conditions
            for metric in one.metrics
        ]
        return arms + [("conditions", one.arm, one.metric, one.pairs) for one in self.across]

    @property
    def in_measures(self) -> list[Family]:
        """Arms compared in what commits cost."""
        return [
            ("arms", one.name, metric, self.costs[one.name][metric.name])
            for one in self.data.conditions
            for metric in COMPARED
        ]


def _compared(data: ComparisonData) -> _Compared:
    targets = {one.name: target_of(one) for one in data.conditions}
    return _Compared(
        data=data,
        pairs=_pairs(data),
        costs={one.name: measure_pairs(one) for one in data.conditions},
        targets=targets,
        across=across_conditions(data),
        ranked=rank_arms(data, targets),
    )


def _pairs(data: ComparisonData) -> dict[str, dict[str, list[ComparedPair]]]:
    return {one.name: {metric.name: compare_pairs(one, metric) for metric in one.metrics} for one in data.conditions}


def _tables(found: _Compared) -> dict[str, pl.DataFrame]:
    data = found.data
    return {
        "comparison": cell_table(data),
        "comparison_differences": difference_table(found.in_metrics),
        "comparison_targets": pl.concat([target_table(one, found.targets[one.name]) for one in data.conditions]),
        "comparison_measures": pl.concat([measure_rows(one) for one in data.conditions]),
        "comparison_measure_differences": difference_table(found.in_measures),
        "comparison_ranks": rank_rows(found.ranked),
    }


def build_comparison(folder: Path) -> ComparisonResult:
    """Write ``comparison.html``, its tables as Parquet and CSV, and ``figures/*.svg`` into a comparison's folder.

    The same cells give the same bytes.

    Raises:
        InputError: no comparison, none of its cells has finished, or its files are damaged.
        RunError: the folder cannot be written.
    """
    data = load_comparison(folder)
    noun = data.arm_word
    several = len(data.conditions) > 1
    found = _compared(data)
    pairs, across, skipped = found.pairs, found.across, _skipped(data)
    with styled():
        ranks = rank_part(found.ranked, data.against, noun)
        everything = overview(data, pairs)
        between = across_parts(data, across)
        conditions = [
            ConditionSection(
                name=clean(one.name, 200) if several else "",
                skipped=skipped.pop(one.name, []),
                parts=parts_of(
                    one,
                    pairs[one.name],
                    found.costs[one.name],
                    found.targets[one.name],
                    f"c{i}-" if several else "",
                    noun,
                ),
            )
            for i, one in enumerate(data.conditions, 1)
        ]
    warnings, run_notices = warnings_of(data, found.in_metrics + found.in_measures), notices_of(data)
    context: dict[str, Any] = {
        "title": _title(data),
        "version": data.record.vnetsim,
        "notes": [clean(note, 1000) for note in (*_chosen_rsu(data), *data.record.notes)],
        "verdicts": _verdicts(data, pairs),
        "tiles": _tiles(data),
        "warnings": warnings,
        "run_notices": run_notices,
        "noun": noun,
        "overview": everything,
        "ranks": ranks,
        "against": shortened(data.against),
        "across": between,
        "method": data.method,
        "least_for_bca": LEAST_FOR_BCA,
        "conditions": conditions,
        "skipped": [f"{clean(name, 200)}, {line}" for name, lines in skipped.items() for line in lines],
        "traffics": data.traffics,
        "traffic_table": traffic_table(data),
        "one_traffic_each": all(len({cell.traffic_sha256 for cell in one.cells}) < 2 for one in data.conditions),
        "cells": count(len(data.cells)),
        "command": clean(" ".join(data.record.command), 2000),
        "level": f"{LEVEL:g}",
        "last": data.last_evaluations,
    }
    written = Folder(folder)
    for name, table in _tables(found).items():
        _write_table(written, name, COLUMNS[name], table)
    parts = [
        part
        for part in (everything, ranks, *between, *(part for one in conditions for part in one.parts))
        if part and part.section
    ]
    _write_all_figures(written, {part.id: part.section for part in parts if part.section})
    page = environment().get_template("comparison.html.j2").render(context)
    written.write_output("comparison.html", page.encode("utf-8", "replace"))
    return ComparisonResult(
        path=folder / "comparison.html",
        tables=terminal_tables(data, pairs, across),
        notes=notes_of(data, pairs),
        warnings=[*warnings, *run_notices],
    )
