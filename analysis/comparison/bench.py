"""Benchmark rows: values of finished cells, and tables of rows, each compared with its baseline."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.comparison.data import Metric
from analysis.comparison.pairs import Columns, ComparedPair, compare_together, correct_together
from analysis.comparison.tables import spread
from analysis.comparison.verdicts import RESOLVES, figures_of, spread_words, unit_of_difference
from analysis.formatting import NONE, THIN, Table, clean, count, number, plural
from analysis.loading import load
from analysis.statistics.paired import LEVEL, least_seeds_of_sign_flips
from vnetsim.errors import InputError
from vnetsim.storage.bench_track import BenchTask, Track
from vnetsim.storage.records import BenchRecord, BenchValues

MEASURES = (
    Metric(name="time_to_target_s", label="Time to target", unit="s", caption="", known=-1),
    Metric(name="commits", label="Commits", unit="", caption="", known=1),
    Metric(name="bytes", label="Data moved", unit="B", caption="", known=-1),
    Metric(name="energy_j", label="Energy on board", unit="J", caption="", known=-1),
)
CENSORED = "a run that never met it counts with all of its time, so that differences are at least as large"


def values_of(folder: Path, metric: str, target: float | None) -> BenchValues:
    """Return the benchmark values of a finished cell; ``target`` is in the metric's unit, None if there is none.

    InputError if the cell does not report the metric, or is damaged.
    """
    run = load(folder)
    unit = next((one.unit for one in run.manifest.series if one.name == metric), None)
    rows = run.metrics.filter((pl.col("name") == metric) & pl.col("value").is_finite()).sort("round")
    if unit is None or rows.is_empty():
        raise InputError(f"{folder}: its learner reports no '{metric}', which the track compares.")
    begin_s = run.manifest.traffic.begin_s
    elapsed, values = rows["time_s"].to_numpy() - begin_s, rows["value"].to_numpy()
    better = Metric(name=metric, label="", unit=unit, caption="").better or 1
    met = elapsed[values * better >= target * better] if target is not None else elapsed[:0]
    parts = run.invited
    moved = [parts["download_bytes"], parts["upload_bytes"], run.exchanges["bytes"]]
    energy = [parts[f"{name}_j"] for name in ("download", "train", "upload", "wait", "exchange")]
    known = all(not column.null_count() for column in energy)
    return BenchValues(
        untrained=float(values[0]),
        half=float(values[max(int((elapsed <= run.simulated_s / 2).sum()) - 1, 0)]),
        final=float(values[-1]),
        time_to_target_s=float(met[0]) if len(met) else None,
        span_s=run.simulated_s,
        commits=int((parts["outcome"] == "committed").sum()),
        bytes=float(sum(column.sum() for column in moved)),
        energy_j=float(sum(column.sum() for column in energy)) if known else None,
    )


def _column(row: BenchRecord, who: str, name: str) -> NDArray[np.float64]:
    """Return a field of ``who`` ("row", "baseline") by seed, None as NaN; a target never met as the run's time."""
    found = ((values, getattr(values, name)) for values in (getattr(one, who) for one in row.seeds))
    unmet = name == "time_to_target_s"
    return np.array([one.span_s if unmet and value is None else value for one, value in found], np.float64)


def _compare(label: str, values: NDArray[np.float64], base: NDArray[np.float64]) -> ComparedPair:
    """Compare values with the baseline's at common seeds, by sign flips; both have shape (seeds,)."""
    ((pair,),) = compare_together([Columns((label, "baseline"), np.stack([values, base], axis=1))], "sign-flip")
    return pair


def _compared_metrics(task: BenchTask) -> list[tuple[Metric, str]]:
    """Return metrics and their fields in ``BenchValues``, the task's own first; no time to target without a target."""
    measured = MEASURES if task.target is not None else MEASURES[1:]
    own = Metric(name=task.metric, label=task.label, unit=task.unit, caption="")
    return [(own, "final"), *((one, one.name) for one in measured)]


def _target_words(metric: Metric, target: float | None) -> str:
    """Return a sentence on the target in a metric, or that there is none."""
    if target is None:
        return "No target is set."
    unit = f" {metric.dimension}" if metric.dimension else ""
    side = "<=" if metric.better < 0 else ">="
    return f"Target: {metric.subject} {side} {number(target * metric.factor)}{unit}; {CENSORED}."


def _mean_and_difference(pair: ComparedPair, metric: Metric, mean: float) -> str:
    """Return an arm's mean, and its difference with interval, starred if resolved; the mean alone if equal."""
    value = number(mean * metric.factor)
    if pair.equal or not pair.found.count:
        return value
    difference, interval, _, _ = figures_of(pair, metric)
    return f"{value}; {'+' * (pair.found.mean > 0)}{difference} ({interval}){'*' * bool(pair.resolved)}"


def _line(row: BenchRecord, task: BenchTask, pairs: Sequence[ComparedPair]) -> tuple[str, ...]:
    """Return a row's texts in the overview; ``pairs`` are its comparisons, in the order of ``_compared_metrics``."""
    compared = zip(_compared_metrics(task), pairs, strict=True)
    cells = [_mean_and_difference(pair, one, float(_column(row, "row", name).mean())) for (one, name), pair in compared]
    met = sum(one.row.time_to_target_s is not None for one in row.seeds)
    met_words = [f"{met} of {len(row.seeds)}"] * (task.target is not None)
    resolves = figures_of(pairs[0], _compared_metrics(task)[0][0])[3]
    arm = clean(row.arm.removeprefix(f"{task.baseline}, "), 90)
    own = " (code of its own)" * bool(row.code)
    return f"{'control: ' * bool(row.control)}{arm}{own}", cells[0], resolves, *met_words, *cells[1:]


def overview(rows: Sequence[BenchRecord], track: Track) -> Table:
    """Return the table of all rows and controls of one task, best first.

    All rows must have the task of the first. Beside several rows, the untrained model and the model at half of the time
    are controls too. P-values are corrected in each column, for arms and controls separately.
    """
    task = track.tasks[rows[0].task]
    shown, base = _compared_metrics(task), _column(rows[0], "baseline", "final")
    metric, _ = shown[0]
    arms, controls = ([row for row in rows if bool(row.control) is kind] for kind in (False, True))
    of_baseline = {"untrained": "control: random initialisation, 0 rounds", "half": "control: half of the time"}
    more = [_compare(words, _column(rows[0], "baseline", name), base) for name, words in of_baseline.items()]
    more *= len(rows) > 1
    met = ["target met"] * (task.target is not None)
    lines = []
    for group, others in ((arms, []), (controls, more)):
        first, *columns = (
            [_compare(row.arm, _column(row, "row", name), _column(row, "baseline", name)) for row in group]
            for _, name in shown
        )
        columns = [correct_together(column) for column in (first + others, *columns)]
        lines += [(own[0], _line(row, task, own)) for row, own in zip(group, zip(*columns, strict=False), strict=True)]
        for pair in columns[0][len(group) :]:
            value = _mean_and_difference(pair, metric, float(base.mean() + pair.found.mean))
            lines.append((pair, (pair.first, value, figures_of(pair, metric)[3], *[NONE] * len(met + shown[1:]))))
    lines.sort(key=lambda line: (-(metric.better or 1) * line[0].found.mean, line[1][0]))
    says = {control.name: control.says for control in track.controls}
    said = [f"{clean(row.control)}: {says[row.control]}." for row in controls if row.control in says]
    least = least_seeds_of_sign_flips(LEVEL / max(len(arms), 1))
    few = f" So many arms take {count(least)} seeds for any star." if len(base) < least else ""
    resolves = f"resolves{unit_of_difference(metric, brackets=True)}"
    return Table(
        title=f"{track.words}, size {track.size}: {rows[0].task}",
        head=("arm", metric.titled, resolves, *met, *(one.titled for one, _ in shown[1:])),
        rows=[line for _, line in lines],
        note=f"Baseline: {task.baseline}, {spread(base * metric.factor)} over {count(len(base))} seeds. Each cell: "
        "mean; difference to the baseline and its 95 % interval, paired by seed (sign-flip test), unless equal at all. "
        f"*: p is at most {LEVEL:g}, corrected in each column (Holm) for the {plural(len(arms), 'arm')} of this table, "
        f"or for its controls, whose effect is known.{few} Intervals are not corrected. Resolves: {RESOLVES}, one row "
        f"by itself. {' '.join([spread_words(len(base)), _target_words(metric, task.target), *said])}",
    )


def markdown(groups: Sequence[tuple[Track, Sequence[BenchRecord]]]) -> str:
    """Return the tables of all rows, grouped by track, size and task, as Markdown; names from outside are escaped."""
    tracks = {track.name: track for track, _ in groups}.values()
    common = [note for note in groups[0][0].notes if all(note in one.notes for one in tracks)]
    parts = ["# Benchmark rows\n", *(f"- {_escape(note)}" for note in common), *[""] * bool(common)]
    section = None
    for track, rows in groups:
        table = overview(rows, track)
        if (track.name, track.size) != section:
            section = track.name, track.size
            own = [track.title, *(note for note in track.notes if note not in common)]
            parts += [f"## {track.words}, size {track.size}\n", "\n\n".join(map(_escape, own)) + "\n"]
        parts.append(f"### {rows[0].task}\n")
        parts += [_row(table.head), _row(["---"] * len(table.head)), *map(_row, table.rows)]
        parts.append(f"\n{_escape(table.note)}\n")
    return "\n".join(parts)


def _row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table, escaped."""
    return f"| {' | '.join(map(_escape, cells))} |"


def _escape(text: str) -> str:
    """Return text with the special characters of HTML and Markdown escaped, and plain spaces for thin ones."""
    return re.sub(r"([\\`*_\[\]|#!])", r"\\\1", html.escape(text.replace(THIN, " "), quote=False))
