"""The few numbers that say how a run went, for the top of the report and the end of the terminal."""

from __future__ import annotations

import numpy as np
import polars as pl

from analysis.coverage_statistics import in_coverage
from analysis.formatting import count, duration, percent, plural, quantity, sentence_case, si
from analysis.loading import RunData
from analysis.plots.learning import curves


def _traffic(run: RunData) -> list[tuple[str, str]]:
    windows = run.windows
    begin, end = float(run.manifest["traffic"].get("begin_s") or 0.0), run.manifest.get("time_s")
    rows = []
    if end is not None:
        rows.append(("Simulated time", duration(float(end) - begin)))
    if windows.is_empty():
        return [
            *rows,
            ("Vehicles in coverage", "none" if run.manifest["status"] == "finished" else "no window ended yet"),
        ]
    enter, leave = windows["enter_s"].to_numpy(), windows["exit_s"].to_numpy()
    vehicles = windows["vehicle_id"].n_unique()
    speeds = windows["entry_speed_mps"].to_numpy()
    return [
        *rows,
        ("Vehicles in coverage", f"{count(vehicles)} ({plural(windows.height, 'window')})"),
        ("Most windows at once", count(in_coverage(enter, leave).peak)),
        ("Median dwell", quantity(float(np.median(leave - enter)), "s")),
        ("Median speed at entry", quantity(float(np.median(speeds)) * 3.6, "km/h")),
        ("Above 100 km/h", percent(float((speeds > 100 / 3.6).mean()))),
        ("Median blur level", quantity(float(windows["level_px"].median()), "px")),  # type: ignore[arg-type]
    ]


def _data(run: RunData) -> list[tuple[str, str]]:
    """Return the bytes over the RSUs' links and, where vehicles exchange, those between vehicles."""
    links = float(run.participations.select(pl.col("download_bytes", "upload_bytes").sum()).sum_horizontal().item())
    if run.exchanges.is_empty():
        return [("Data moved", si(links, "B"))]
    by_via = dict(run.exchanges.group_by("via").agg(pl.col("bytes").sum()).iter_rows())
    relayed = by_via.get("relay", 0.0)
    part = f" ({si(relayed, 'B')} of it relayed)" if relayed else ""
    return [
        ("Data over RSU links", si(links + relayed, "B") + part),
        ("Data over sidelinks", si(by_via.get("sidelink", 0.0), "B")),
        ("Exchanges completed", _exchanges(run)),
    ]


def _exchanges(run: RunData) -> str:
    completed = run.exchanges.filter(pl.col("outcome") == "completed").height
    return f"{percent(completed / run.exchanges.height, 0)} ({count(completed)} of {count(run.exchanges.height)})"


def _learning(run: RunData) -> list[tuple[str, str]]:
    parts = run.participations
    wanted = run.experiment.get("rounds")
    rows = [("Rounds", f"{count(run.rounds.height)} of {count(wanted)}" if wanted else count(run.rounds.height))]
    if not parts.is_empty():
        committed = parts.filter(pl.col("outcome") == "committed").height
        invited = parts.filter(pl.col("outcome") != "not_selected").height
        if invited:
            share = percent(committed / invited, 0)
            rows.append(("Committed", f"{count(committed)} of {count(invited)} ({share} of those invited)"))
        rows += _data(run)
    for curve in curves(run):
        value = curve.words(float(curve.value[-1]))
        before = f" (first {curve.words(float(curve.value[0]))})" if len(curve.value) > 1 else ""
        rows.append((sentence_case(curve.label), value + before))
    return rows


def headline(run: RunData) -> list[tuple[str, str]]:
    """Return labels and values with units."""
    rows = (_learning(run) if run.learning else []) + _traffic(run)
    wall = sum(float(seconds) for seconds in (run.manifest.get("wall_s") or {}).values())
    return [*rows, ("Wall time", duration(wall))] if wall > 0 else rows
