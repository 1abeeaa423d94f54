"""The page of a comparison, ``comparison.html``, its table as Parquet and CSV, and its figures as SVG files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from analysis.comparison_loading import ComparisonData, Metric, load_comparison
from analysis.comparison_statistics import LEAST_SEEDS, LEVEL, least_seeds_of_sign_flips
from analysis.comparison_verdicts import Pair, compare_pairs, friedman_words, p_words, unit_of_difference
from analysis.formatting import clean, count, duration, number, plural, si
from analysis.plots.comparison import curve_panel, difference_panel, outcome_panel
from analysis.report import Section, environment, tile, write_figures
from analysis.style import styled
from vnetsim.run_directory import write_atomically
from vnetsim.tables import COMPARISON, parquet


@dataclass(frozen=True, kw_only=True)
class ComparisonResult:
    """What was made of a comparison.

    Args:
        path: the page.
        verdicts: metric, pair of learners, and verdict in words.
        warnings: what the reader of the verdicts must know.
    """

    path: Path
    verdicts: list[tuple[str, str, str]]
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the page: a title, column heads, rows of text, and a sentence below."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def cell_table(data: ComparisonData) -> pl.DataFrame:
    """Return the table ``comparison``: one row for each finished cell and metric."""
    rows = [
        (cell.learner, cell.seed, metric.name, metric.unit, cell.final(metric.name), cell.rounds, cell.time_s,
         cell.moved_bytes, cell.name)
        for cell in data.cells
        for metric in data.metrics
    ]  # fmt: skip
    return pl.DataFrame(rows, schema={column.name: column.dtype for column in COMPARISON}, orient="row")


def _names(names: tuple[str, ...] | list[str]) -> str:
    shown = [clean(name, 90) for name in names[:5]]
    return ", ".join(shown) + (f" and {count(len(names) - 5)} more" if len(names) > 5 else "")


def differing_settings(data: ComparisonData) -> list[str]:
    """Return the general settings that are not the same for all learners, because a learner has defaults of its own."""
    keys = sorted({key for cell in data.cells for key in cell.settings})
    return [key for key in keys if len({repr(cell.settings.get(key)) for cell in data.cells}) > 1]


def _warnings(data: ComparisonData, pairs: int) -> list[str]:
    lines = [
        f"The cell {clean(name, 90)} failed and is missing here: {clean(reason, 400)}"
        for name, reason in list(data.record["failed"].items())[:5]
    ]
    if len(data.record["failed"]) > 5:
        lines.append(f"{count(len(data.record['failed']) - 5)} more cells failed.")
    if data.unfinished:
        lines.append(f"Not finished, and missing here: {_names(data.unfinished)}.")
    short = [cell for cell in data.cells if cell.ended_by == "traffic"]
    if short:
        counts = [cell.rounds for cell in short]
        span = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        cells = plural(len(data.cells), "cell")
        lines.append(
            f"The recorded traffic ended before all rounds were done in {len(short)} of {cells} "
            f"(after {span} of {short[0].wanted_rounds} rounds; learners: "
            f"{_names(list(dict.fromkeys(cell.learner for cell in short)))}). Their final values are those of that "
            "moment. Record longer traffic, or ask for fewer rounds."
        )
    least = least_seeds_of_sign_flips(LEVEL / pairs) if pairs else 0
    seeds = len(data.seeds)
    if pairs and seeds < least:
        if seeds < LEAST_SEEDS:
            lines.append(f"{plural(seeds, 'seed')}: no interval and no test; take at least {least} seeds.")
        else:
            lines.append(
                f"{seeds} seeds cannot resolve any difference: with {plural(pairs, 'pair')} of learners the test can "
                f"reach a corrected p below {LEVEL:g} from {least} seeds on."
            )
    if different := differing_settings(data):
        lines.append(f"Not the same for all learners, besides their own settings: {_names(different)}.")
    return lines


def _final_values(data: ComparisonData) -> Table:
    rows = []
    for index, learner in enumerate(data.learners):
        cells = data.of(learner)
        values = [_spread(data.finals(metric)[:, index] * metric.factor) for metric in data.metrics]
        if not cells:
            rows.append((learner, "0", *values, "\u2013", "\u2013", "\u2013"))
            continue
        rounds = sorted({cell.rounds for cell in cells})
        span = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]}\u2013{rounds[-1]}"
        time_s = float(np.mean([cell.time_s for cell in cells]))
        moved = si(float(np.mean([cell.moved_bytes for cell in cells])), "B")
        rows.append((learner, count(len(cells)), *values, span, duration(time_s), moved))
    heads = (f"{metric.label} ({metric.unit})" if metric.unit else metric.label for metric in data.metrics)
    return Table(
        title="Final values",
        head=("learner", "seeds", *heads, "rounds", "ended at", "data moved"),
        rows=rows,
        note="Mean \u00b1 standard deviation over seeds of the last value of each run; time and data are means.",
    )


def _spread(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return "\u2013"
    mean = number(float(finite.mean()))
    return f"{mean} \u00b1 {number(float(finite.std(ddof=1)), 2)}" if len(finite) > 1 else mean


def _verdict_table(data: ComparisonData, metric: Metric, pairs: list[Pair]) -> Table:
    rows = []
    for pair in pairs:
        found = pair.found
        shown = number(found.mean * metric.factor, 2)
        interval = (
            "\u2013"
            if found.low is None or found.high is None
            else f"{number(found.low * metric.factor, 2)} to {number(found.high * metric.factor, 2)}"
        )
        p_value = "\u2013" if pair.holm_p is None else p_words(pair.holm_p).removeprefix("= ")
        effect = "\u2013" if found.effect is None else number(found.effect, 2)
        rows.append((pair.words, shown, interval, p_value, effect, count(found.count), pair.verdict))
    unit = unit_of_difference(metric, brackets=True)
    return Table(
        title=metric.label,
        head=("learners", f"difference{unit}", "95 % interval", "Holm p", "d_z", "seeds", "verdict"),
        rows=rows,
        note=friedman_words(data, metric),
    )


def build_comparison(folder: Path) -> ComparisonResult:
    """Write ``comparison.html``, ``.parquet``, ``.csv`` and ``figures/*.svg`` into the folder of a comparison.

    The same cells give the same bytes.

    Raises:
        InputError: no comparison, none of its cells has finished, or its files are damaged.
        RunError: the folder cannot be written.
    """
    data = load_comparison(folder)
    pairs = {metric: compare_pairs(data, metric) for metric in data.metrics}
    warnings = _warnings(data, len(data.learners) * (len(data.learners) - 1) // 2)
    with styled():
        parts = {
            "differences": Section(
                title="Paired differences",
                panels=tuple(difference_panel(metric, found, i) for i, (metric, found) in enumerate(pairs.items(), 1)),
            ),
            "curves": Section(
                title="Round by round",
                panels=tuple(curve_panel(data, metric, i) for i, metric in enumerate(data.metrics, 1)),
            ),
            "outcomes": Section(title="Who takes part", panels=(outcome_panel(data),)),
        }
    digest = str(data.record["traffic"][0]["sha256"])
    traffic = data.record["traffic"][0].get("settings") or {}
    scenario = clean(Path(str(traffic.get("scenario", "scenario"))).name, 60)
    tiles = [
        ("Learners", count(len(data.learners))),
        ("Seeds", count(len(data.seeds))),
        ("Cells", f"{count(len(data.cells))} of {count(len(data.learners) * len(data.seeds))}"),
        ("Rounds", count(max(cell.wanted_rounds for cell in data.cells))),
    ]
    context: dict[str, Any] = {
        "title": f"{scenario}: {_names(data.learners)}",
        "version": data.record.get("vnetsim"),
        "tiles": [tile(*pair) for pair in tiles],
        "warnings": warnings,
        "verdicts": [_verdict_table(data, metric, found) for metric, found in pairs.items()],
        "finals": _final_values(data),
        "sections": parts,
        "left_out": _left_out(data),
        "digest": digest,
        "traffic_kind": clean(data.traffic.get("traffic", {}).get("kind", "")),
        "cells": count(len(data.cells)),
        "command": clean(" ".join(map(str, data.record.get("command") or ())), 2000),
        "level": f"{LEVEL:g}",
    }
    table = cell_table(data)
    write_atomically(folder / "comparison.parquet", parquet(COMPARISON, table))
    write_atomically(folder / "comparison.csv", table.write_csv().encode())
    write_figures(folder, parts)
    path = folder / "comparison.html"
    page = environment().get_template("comparison.html.j2").render(context)
    write_atomically(path, page.encode("utf-8", "replace"))
    verdicts = [(metric.label, pair.words, pair.verdict) for metric, found in pairs.items() for pair in found]
    return ComparisonResult(path=path, verdicts=verdicts, warnings=warnings)


def _left_out(data: ComparisonData) -> str:
    lines = []
    if data.other_meanings:
        lines.append(f"Not compared, because learners measure it differently: {_names(data.other_meanings)}.")
    if data.alike:
        lines.append(f"The same for all learners at every seed: {_names(data.alike)}.")
    return " ".join(lines)
