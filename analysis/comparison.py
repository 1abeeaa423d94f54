"""The page of a comparison, ``comparison.html``, its tables as Parquet and CSV, and its figures as SVG files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from analysis.comparison_data import ComparisonData
from analysis.comparison_loading import load_comparison
from analysis.comparison_parts import Condition, overview, parts_of
from analysis.comparison_statistics import LEVEL
from analysis.comparison_tables import cell_table, traffic_table
from analysis.comparison_verdicts import Pair, compare_pairs
from analysis.comparison_warnings import named, warnings_of
from analysis.formatting import clean, count
from analysis.report import Section, environment, tile, write_figures
from analysis.style import styled
from analysis.time_to_target import target_of, target_table
from vnetsim.run_directory import write_atomically
from vnetsim.tables import COMPARISON, COMPARISON_TARGETS, Column, parquet

_FIGURE = re.compile(r"(c\d+-)?(overview|differences|curves|outcomes|bias)(-[a-z0-9]+)?\.svg")
"""Names that the figures of a comparison have."""


@dataclass(frozen=True, kw_only=True)
class ComparisonResult:
    """What was made of a comparison.

    Args:
        path: the page.
        verdicts: metric and condition, pair of arms, and verdict in words.
        warnings: what the reader of the verdicts must know.
    """

    path: Path
    verdicts: list[tuple[str, str, str]]
    warnings: list[str]


def _skipped(data: ComparisonData) -> dict[str, list[str]]:
    """Return a line for each pair of arm and condition that was left out on purpose, by condition."""
    result: dict[str, list[str]] = {}
    for entry in data.record.get("skipped") or ():
        line = f"{clean(entry.get('arm', ''))}: {clean(entry.get('reason') or 'no reason given', 400)}"
        result.setdefault(str(entry.get("condition", "")), []).append(line)
    return result


def _title(data: ComparisonData) -> str:
    if given := clean(data.record.get("title") or "", 200).strip():
        return given
    scenarios = named(list(dict.fromkeys(traffic.scenario for traffic in data.traffics)))
    return f"{scenarios}: {named(data.arms)}"


def _tiles(data: ComparisonData) -> list[tuple[str, str, str]]:
    planned = len(data.record["cells"])
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


def _write_table(folder: Path, name: str, columns: Sequence[Column], table: pl.DataFrame) -> None:
    write_atomically(folder / f"{name}.parquet", parquet(columns, table))
    write_atomically(folder / f"{name}.csv", table.write_csv().encode())


def _write_all_figures(folder: Path, sections: Mapping[str, Section]) -> None:
    """Write the figures, and remove those of conditions and metrics that are no longer there."""
    write_figures(folder, sections)
    drawn = {f"{panel.name}.svg" for section in sections.values() for panel in section.panels if panel.svg}
    for path in (folder / "figures").glob("*.svg"):
        if _FIGURE.fullmatch(path.name) and path.name not in drawn:
            path.unlink()


def build_comparison(folder: Path) -> ComparisonResult:
    """Write ``comparison.html``, its two tables as Parquet and CSV, and ``figures/*.svg`` into a comparison's folder.

    The same cells give the same bytes.

    Raises:
        InputError: no comparison, none of its cells has finished, or its files are damaged.
        RunError: the folder cannot be written.
    """
    data = load_comparison(folder)
    noun = data.arm_word
    several = len(data.conditions) > 1
    pairs: dict[str, dict[str, list[Pair]]] = {
        one.name: {metric.name: compare_pairs(one, metric) for metric in one.metrics} for one in data.conditions
    }
    targets = {one.name: target_of(one) for one in data.conditions}
    skipped = _skipped(data)
    with styled():
        everything = overview(data, pairs)
        conditions = [
            Condition(
                name=clean(one.name, 200) if several else "",
                skipped=skipped.pop(one.name, []),
                parts=parts_of(one, pairs[one.name], targets[one.name], f"c{i}-" if several else "", noun),
            )
            for i, one in enumerate(data.conditions, 1)
        ]
    warnings = warnings_of(data)
    context: dict[str, Any] = {
        "title": _title(data),
        "version": data.record.get("vnetsim"),
        "notes": [clean(note, 1000) for note in data.record.get("notes") or ()],
        "tiles": _tiles(data),
        "warnings": warnings,
        "noun": noun,
        "overview": everything,
        "conditions": conditions,
        "skipped": [f"{clean(name, 200)}, {line}" for name, lines in skipped.items() for line in lines],
        "traffics": data.traffics,
        "traffic_table": traffic_table(data),
        "one_traffic_each": all(len({cell.traffic_sha256 for cell in one.cells}) < 2 for one in data.conditions),
        "cells": count(len(data.cells)),
        "command": clean(" ".join(map(str, data.record.get("command") or ())), 2000),
        "level": f"{LEVEL:g}",
    }
    _write_table(folder, "comparison", COMPARISON, cell_table(data))
    reached = pl.concat([target_table(one, targets[one.name]) for one in data.conditions])
    _write_table(folder, "comparison_targets", COMPARISON_TARGETS, reached)
    parts = [
        part for part in (everything, *(part for one in conditions for part in one.parts)) if part and part.section
    ]
    _write_all_figures(folder, {part.id: part.section for part in parts if part.section})
    path = folder / "comparison.html"
    page = environment().get_template("comparison.html.j2").render(context)
    write_atomically(path, page.encode("utf-8", "replace"))
    verdicts = [
        (one.titled(metric.words), pair.words, pair.verdict)
        for one in data.conditions
        for metric in one.metrics
        for pair in pairs[one.name][metric.name]
    ]
    return ComparisonResult(path=path, verdicts=verdicts, warnings=warnings)
