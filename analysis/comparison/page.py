"""Write the page of a comparison, ``comparison.html``, with tables as Parquet and CSV and figures as SVG."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis.comparison.data import ComparisonData
from analysis.comparison.loading import load_comparison
from analysis.comparison.sections import Compared
from analysis.comparison.tables import notes_of, terminal_tables, traffic_table
from analysis.comparison.verdicts import RESOLVES, spread_words
from analysis.comparison.warnings import notices_of, warnings_of
from analysis.formatting import Table, clean, count, named
from analysis.report.notices import TIMED
from analysis.report.page import environment, tile, write_figures
from analysis.statistics.paired import LEVEL
from vnetsim.storage.folder import Folder
from vnetsim.storage.tables import COMPARISON_TABLES, parquet

_FIGURE = re.compile(r"(c\d+-)?(overview|conditions|differences|curves|outcomes|bias)(-[a-z0-9]+)*\.svg")
"""File names of a comparison's figures."""


@dataclass(frozen=True, kw_only=True)
class ComparisonResult:
    """Path of the page, tables for the terminal, notes on them, and warnings followed by the runs' notices."""

    path: Path
    tables: list[Table]
    notes: list[str]
    warnings: list[str]


def _tiles(data: ComparisonData) -> list[tuple[str, str, str]]:
    """Return tiles (label, value, detail) on the numbers of arms, conditions (if several), seeds, cells and rounds."""
    rounds = sorted({cell.wanted_rounds for cell in data.cells})
    several = [("Conditions", count(len(data.conditions)))] if len(data.conditions) > 1 else []
    pairs = [
        (f"{data.arm_word.capitalize()}s", count(len(data.arms))),
        *several,
        ("Seeds", count(len(data.seeds))),
        ("Cells", f"{count(len(data.cells))} of {count(len(data.record.cells))}"),
        ("Rounds", count(rounds[0]) if len(rounds) == 1 else f"{count(rounds[0])} to {count(rounds[-1])}"),
    ]
    return [tile(*pair) for pair in pairs]


def comparison_tables(folder: Path) -> dict[str, pl.DataFrame]:
    """Return the tables that ``build_comparison`` would write, by file name without suffix; errors are the same."""
    return Compared(load_comparison(folder)).tables()


def comparison_result(folder: Path) -> ComparisonResult:
    """Return what ``build_comparison`` returns, without writing anything; errors are the same."""
    data = load_comparison(folder)
    found = Compared(data)
    return _result(folder, data, found, [*_warnings(data, found), *notices_of(data)])


def _warnings(data: ComparisonData, found: Compared) -> list[str]:
    """Return all warnings on the comparison, those on its differences included."""
    return warnings_of(data, found.in_metrics + found.in_measures)


def _result(folder: Path, data: ComparisonData, found: Compared, warnings: list[str]) -> ComparisonResult:
    """Return the result for the terminal; ``warnings`` end with the runs' notices."""
    return ComparisonResult(
        path=folder / "comparison.html",
        tables=terminal_tables(data, found.in_metrics, found.runs, found.unmet()),
        notes=notes_of(data, found.in_metrics),
        warnings=warnings,
    )


def build_comparison(folder: Path) -> ComparisonResult:
    """Write ``comparison.html``, its tables as Parquet and CSV, and ``figures/*.svg`` into a comparison's folder.

    The same cells give the same bytes; figures that no longer exist are removed. InputError: ``folder`` is no
    comparison, no cell has finished, or a file is damaged. RunError: the folder cannot be written.
    """
    data = load_comparison(folder)
    found, record = Compared(data), data.record
    several = len(data.conditions) > 1
    skipped: dict[str, list[str]] = {}
    for entry in record.skipped:
        skipped.setdefault(entry.condition, []).append(f"{clean(entry.arm)}: {clean(entry.reason, 400)}")
    together, across, parts = found.all_sections()
    conditions = [
        {"name": clean(one.name, 200) if several else "", "skipped": skipped.pop(one.name, []), "sections": part}
        for one, part in zip(data.conditions, parts, strict=True)
    ]
    warnings, run_notices = _warnings(data, found), notices_of(data)
    chosen = [f"{record.chosen_rsu.note} All traffic of this comparison has it."] if record.chosen_rsu else []
    scenarios = named(list(dict.fromkeys(traffic.scenario for traffic in data.traffics)))
    page = (
        environment()
        .get_template("comparison.html.j2")
        .render(
            data=data,
            found=found,
            title=clean(record.title, 200).strip() or f"{scenarios}: {named(data.arms)}",
            chosen=[clean(note, 1000) for note in chosen],
            notes=[clean(note, 1000) for note in record.notes],
            tiles=_tiles(data),
            warnings=warnings,
            timed=[line for line in run_notices if TIMED in line],
            run_notices=[line for line in run_notices if TIMED not in line],
            together=together,
            across=across,
            conditions=conditions,
            skipped=[f"{clean(name, 200)}, {line}" for name, lines in skipped.items() for line in lines],
            traffic_table=traffic_table(data),
            one_traffic_each=all(len({cell.traffic.sha256 for cell in one.cells}) < 2 for one in data.conditions),
            cells=count(len(data.cells)),
            command=clean(" ".join(record.command), 2000),
            workers=record.chosen_workers,
            level=f"{LEVEL:g}",
            resolves=RESOLVES,
            spread=spread_words(len(data.seeds)),
        )
    )
    written = Folder(folder)
    for name, table in found.tables().items():
        written.write_output(f"{name}.parquet", parquet(COMPARISON_TABLES[name], table))
        written.write_output(f"{name}.csv", table.write_csv().encode())
    sections = [*filter(None, together), *across, *(one for part in parts for one in part)]
    write_figures(written, sections, _FIGURE)
    written.write_output("comparison.html", page.encode("utf-8", "replace"))
    return _result(folder, data, found, [*warnings, *run_notices])
