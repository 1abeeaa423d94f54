"""Headline numbers of a run, for the top of the report and the end of the terminal."""

from __future__ import annotations

import numpy as np
import polars as pl

from analysis.formatting import (
    NONE,
    clean,
    count,
    duration,
    number,
    percent,
    plural,
    quantity,
    sentence_case,
    si,
    subject,
)
from analysis.loading import Curve, RunData, curves
from analysis.report.invitations import invitations_of
from analysis.report.notices import count_not_finite
from analysis.statistics.participation import LEAST_FOR_RATES_S, LEAST_ROUNDS, fluctuation
from analysis.statistics.windows import dwell, entries, in_coverage, merged_windows

_MONTH_S = 30 * 24 * 3600.0


def _traffic_rows(run: RunData) -> list[tuple[str, str]]:
    """Return rows on simulated time, vehicles, dwell, speed and blur; without windows, on time and "none" only."""
    windows, end = run.windows, run.manifest.time_s
    rows = [("Simulated time", duration(end - run.manifest.traffic.begin_s))] if end is not None else []
    if windows.is_empty():
        nobody = "none" if run.manifest.status == "finished" else "no window ended yet"
        return [*rows, ("Vehicles in coverage", nobody)]
    vehicles = count(windows["vehicle_id"].n_unique())
    if run.every > 1:
        rows.append(("Windows", f"{count(run.recorded)} (below, those of one in {count(run.every)} vehicles)"))
    rows.append(("Vehicles in coverage", f"{vehicles} ({plural(windows.height, 'window')})"))
    if (share := run.experiment.traffic.equipped) < 1:
        equipped = count(run.equipped["vehicle_id"].n_unique())
        rows.append(("Equipped vehicles", f"{equipped} of {vehicles} (traffic.equipped = {share:g})"))
    rows += [
        ("Most vehicles at once", count(in_coverage(merged_windows(windows)).peak)),
        ("Median dwell", dwell(windows).brief),
    ]
    speeds = entries(windows)["entry_speed_mps"].to_numpy()
    if len(speeds):
        median_mps, side, camera = float(np.median(speeds)), run.image_px, run.experiment.camera
        rows += [
            ("Median speed at entry", quantity(median_mps * 3.6, "km/h")),
            ("Above 100 km/h", percent(float((speeds > 100 / 3.6).mean()))),
            ("Median blur level", f"{quantity(camera.level_px(median_mps), 'px')} (on the sensor)"),
            ("Median motion kernel", f"{quantity(camera.kernel_px(median_mps, side), 'px')} (of {side} px)"),
        ]
    return rows


def _byte_rows(run: RunData) -> list[tuple[str, str]]:
    """Return a row on the bytes over RSU links, both ways; if vehicles exchanged models, three rows on all links."""
    links = float(run.participations.select(pl.col("download_bytes", "upload_bytes").sum()).sum_horizontal().item())
    if run.exchanges.is_empty():
        return [("Data moved", si(links, "B"))]
    by_via = dict(run.exchanges.group_by("via").agg(pl.col("bytes").sum()).iter_rows())
    relayed = by_via.get("relay", 0.0)
    part = f" ({si(relayed, 'B')} of it relayed)" if relayed else ""
    completed, all_of_them = run.exchanges.filter(pl.col("outcome") == "completed").height, run.exchanges.height
    return [
        ("Data over RSU links", si(links + relayed, "B") + part),
        ("Data over sidelinks", si(by_via.get("sidelink", 0.0), "B")),
        ("Exchanges completed", f"{percent(completed / all_of_them, 0)} ({count(completed)} of {count(all_of_them)})"),
    ]


def _backhaul_rows(run: RunData) -> list[tuple[str, str]]:
    """Return a row on the bytes over the backhaul and those of the busiest RSU; empty if nothing was sent."""
    sent = run.backhaul.with_columns(bytes=pl.col("down_bytes") + pl.col("up_bytes"))
    total, took_s = float(sent["bytes"].sum()), run.simulated_s
    if not total or took_s <= 0:
        return []
    most = float(sent["bytes"].max())  # type: ignore[arg-type]
    busiest = f"{si(most, 'B')} in {duration(took_s)}"
    if took_s >= LEAST_FOR_RATES_S:
        busiest = f"{si(most / took_s * _MONTH_S, 'B')} in 30 days, if it went on like this"
    return [("Data over the backhaul", f"{si(total, 'B')} (busiest RSU: {busiest})")]


def _energy_rows(run: RunData) -> list[tuple[str, str]]:
    """Return a row on the energy on board of participations whose computer's power is known; empty without any."""
    known = run.invited.filter(pl.col("train_j").is_not_null())
    if known.is_empty():
        return []
    sums = known.select(pl.col("^.*_j$").sum())
    total, train = float(sums.sum_horizontal().item()), float(sums["train_j"].item())
    details = [f"{percent(train / total, 0)} of it for training"] if total else []
    if known.height < run.invited.height:
        details.insert(0, f"of {count(known.height)} of {plural(run.invited.height, 'participation')}")
    elif commits := known.filter(outcome="committed").height:
        details.insert(0, f"{si(total / commits, 'J')} a commit")
    return [("Energy on board", f"{si(total, 'J')} ({', '.join(details)})" if details else si(total, "J"))]


def _hostile_rows(run: RunData) -> list[tuple[str, str]]:
    """Return a row on hostile vehicles: their share of the vehicles and of the commits; empty if there were none."""
    if run.hostile.is_empty():
        return []
    seen, committed = (
        rows.select(one=pl.col("vehicle_id").is_in(run.hostile["vehicle_id"].implode()))["one"]
        for rows in (run.participations.unique("vehicle_id"), run.participations.filter(outcome="committed"))
    )
    words = f"{count(int(seen.sum()))} of {count(len(seen))} vehicles ({percent(float(seen.mean()), 0)})"  # type: ignore[arg-type]
    if len(committed):
        words += f", {percent(float(committed.mean()), 0)} of the commits"  # type: ignore[arg-type]
    return [("Hostile", f"{words}: {clean(str(run.hostile['conduct'][0]), 40)}")]


def _round_rows(run: RunData) -> list[tuple[str, str]]:
    """Return rows on rounds, commits, hostile vehicles, updates not finite, bytes and energy."""
    parts = run.participations
    wanted = (run.experiment.rounds or 0) * run.aggregators if run.learning else 0
    done = f"{count(run.rounds.height)} of {count(wanted)}" if wanted else count(run.rounds.height)
    empty = run.rounds.filter(pl.col("committed") == 0).height
    rows = [("Rounds", f"{done} ({count(empty)} without a commit)" if empty else done)]
    if not parts.is_empty():
        committed = parts.filter(pl.col("outcome") == "committed").height
        if invited := run.invited.height:
            share = percent(committed / invited, 0)
            rows.append(("Committed", f"{count(committed)} of {count(invited)} ({share} of those invited)"))
        rows += _hostile_rows(run)
        rejected, updates = count_not_finite(run)
        if rejected:
            rows.append(("Updates not finite", f"{count(rejected)} of {count(updates)}"))
        rows += [*_byte_rows(run), *_backhaul_rows(run), *_energy_rows(run)]
    return rows


def _result_curves(run: RunData) -> list[Curve]:
    """Return the curves of headline metrics, losses last."""
    found = [curve for curve in curves(run) if curve.result]
    return sorted(found, key=lambda curve: "loss" in curve.label.lower())


def _result_rows(run: RunData) -> list[tuple[str, str]]:
    """Return rows with the last value of each headline metric, losses last; the first value is in brackets."""
    rows = []
    for curve in _result_curves(run):
        value = curve.quantity(float(curve.value[-1]))
        before = f" (first {curve.quantity(float(curve.value[0]))})" if len(curve.value) > 1 else ""
        rows.append((sentence_case(subject(curve.label, curve.unit)), value + before))
    return rows


def _fluctuation_rows(run: RunData) -> list[tuple[str, str]]:
    """Return a row with the fluctuation of the training loss, or why it is unknown; empty without losses."""
    if (value := fluctuation(run.rounds)) is not None:
        return [("Fluctuation of the loss", f"{number(value, 2)} (from round to round, trend removed)")]
    losses = int(run.rounds["loss"].is_finite().sum())
    few = f"{NONE} (needs {LEAST_ROUNDS} rounds of one aggregator, here {plural(losses, 'round')} in all)"
    return [("Fluctuation of the loss", few)] if losses else []


def _reach_rows(run: RunData) -> list[tuple[str, str]]:
    """Return rows on who could take part; empty if the run trains, has no rounds, or too few committed."""
    if run.learning or not run.takes_part:
        return []
    from analysis.report import possible  # noqa: PLC0415 - imports matplotlib, half of a short recording's time

    return possible.headline(run)


def headline(run: RunData) -> list[tuple[str, str]]:
    """Return pairs of label and value, a text with unit; results first. Labels depend on the kind of run."""
    rows = [*_result_rows(run), *_fluctuation_rows(run)] if run.learning else _reach_rows(run)
    rows += [*(_round_rows(run) if run.takes_part else ()), *_traffic_rows(run)]
    wall = sum(run.manifest.wall_s.values())
    return [*rows, ("Wall time", duration(wall))] if wall > 0 else rows


def finding(run: RunData) -> str:
    """Return a few sentences on traffic, outcomes of invitations, and first and last result; "" without windows."""
    windows = run.windows
    if windows.is_empty():
        return ""
    passed = plural(windows["vehicle_id"].n_unique(), "vehicle")
    words = [f"{passed} drove past, in range for {dwell(windows).median} in the median."]
    if run.every > 1:
        words.insert(0, f"Of one in {count(run.every)} vehicles:")
    if run.experiment.traffic.equipped < 1:
        words.append(f"{count(run.equipped['vehicle_id'].n_unique())} of them can take part (traffic.equipped).")
    if could := dict(_reach_rows(run)):
        takes = could["A participation takes"].replace(" (median)", "")
        words.append(f"{could['Covered long enough']} were covered for {takes} or more, the time of a participation.")
    words += [f"Hostile were {found}." for _, found in _hostile_rows(run)]
    invitations = invitations_of(run)
    if invitations.total:
        words.append(f"{sentence_case(invitations.what_decided)}.")
    if run.learning:
        for found in [one for one in _result_curves(run) if len(one.value) > 1][:1]:
            first, last = (found.quantity(float(found.value[place])) for place in (0, -1))
            name = sentence_case(subject(found.label, found.unit))
            words.append(f"{name} went from {first} to {last} in {plural(int(found.round[-1]), 'round')}.")
        if blurred := invitations.how_blurred:
            words.append(f"{sentence_case(blurred)}.")
    return " ".join(words)


_LEADING_LABELS = {
    "Covered long enough",
    "Vehicles that committed",
    "A participation takes",
    "Committed",
    "Vehicles in coverage",
    "Median dwell",
    "Median speed at entry",
}
_MOST_LEADING = 4


def leading(run: RunData, rows: list[tuple[str, str]]) -> set[str]:
    """Return labels of up to four of ``rows`` to show large: results and one other; without training, four others."""
    results = [label for label, _ in _result_rows(run)][: _MOST_LEADING - 1] if run.learning else []
    others = [label for label, _ in rows if label in _LEADING_LABELS and label not in results]
    return {*results, *others[: 1 if run.learning else _MOST_LEADING]}
