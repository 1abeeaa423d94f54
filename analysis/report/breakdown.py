"""Tables of traffic and outcomes by vehicle type and by RSU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from analysis.formatting import NONE, Table, clean, count, number, percent, plural, quantity, si
from analysis.loading import RunData
from analysis.statistics.windows import dwell, entries, in_coverage, merged_windows
from vnetsim.coverage.rsu import Rsu

_MOST_TYPES, _MOST_RSUS = 15, 100
_TRAFFIC = ("vehicles", "windows", "median speed at entry", "median dwell")
_ENDINGS = {
    "committed": ("committed",),
    "left too soon": ("left_download", "left_training", "left_exchange", "left_upload"),
    "too stale": ("stale",),
}
_RARE_ENDINGS = {"round closed first": ("deadline",), "run ended first": ("unfinished",), "not finite": ("rejected",)}
"""Endings that have a column only if they occur."""


def _traffic_texts(windows: pl.DataFrame) -> tuple[str, ...]:
    """Return as texts the numbers of vehicles and windows, median entry speed and dwell; a dash if unknown."""
    speeds = entries(windows)["entry_speed_mps"]
    speed = NONE if speeds.is_empty() else quantity(float(np.median(speeds.to_numpy())) * 3.6, "km/h")
    stayed = NONE if windows.is_empty() else dwell(windows).median
    return count(windows["vehicle_id"].n_unique()), count(windows.height), speed, stayed


def _outcome_texts(parts: pl.DataFrame, ways: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return as texts how many were invited and by each of ``ways`` the share that ended so; "0", dashes if none."""
    invited = parts.filter(pl.col("outcome") != "not_selected")
    if invited.is_empty():
        return "0", *(NONE for _ in ways)
    total = invited.height
    ended = (invited.filter(pl.col("outcome").is_in(outcomes)).height for outcomes in ways.values())
    return count(total), *(percent(some / total, 0) for some in ended)


def by_type(run: RunData) -> list[Table]:
    """Return a list of one table by vehicle type, of over 15 types the rarest in one row; [] for fewer than two."""
    windows = run.windows.with_columns(pl.col("vehicle_type").fill_null(""))
    sizes = windows.group_by("vehicle_type").len().sort("len", "vehicle_type", descending=[True, False])
    names = sizes["vehicle_type"].to_list()
    if len(names) < 2:
        return []
    kinds = windows.select("vehicle_id", "vehicle_type").unique(subset="vehicle_id", keep="first", maintain_order=True)
    parts = run.participations.join(kinds, on="vehicle_id", how="left")
    shown = names if len(names) <= _MOST_TYPES else names[: _MOST_TYPES - 1]
    groups = [(clean(name, 200) or "unknown", [name]) for name in shown]
    if rest := names[len(shown) :]:
        groups.append((f"{count(len(rest))} other types", rest))
    occurring = set(parts["outcome"].unique()) if run.takes_part else set()
    ways = _ENDINGS | {way: outcomes for way, outcomes in _RARE_ENDINGS.items() if not occurring.isdisjoint(outcomes)}
    rows = []
    for words, members in groups:
        own = pl.col("vehicle_type").is_in(members)
        ended = _outcome_texts(parts.filter(own), ways) if run.takes_part else ()
        rows.append((words, *_traffic_texts(windows.filter(own)), *ended))
    head = ("type", *_TRAFFIC, *(("invited", *ways) if run.takes_part else ()))
    return [Table(title="By vehicle type", head=head, rows=rows)]


def _link_bytes(run: RunData) -> Mapping[str, float]:
    """Return the bytes over each RSU's radio link, by RSU id; of a handed-over participation, each RSU's own part."""
    whole = pl.col("download_bytes") + pl.col("upload_bytes")
    last = run.handovers.group_by("participation", maintain_order=True).agg(
        pl.col("link_bytes").sum(), pl.col("to_rsu_id").last()
    )
    parts = run.participations.join(last, on="participation", how="left")
    rest = parts.select(
        rsu_id=pl.coalesce("to_rsu_id", "rsu_id"), moved_bytes=whole - pl.col("link_bytes").fill_null(0.0)
    )
    before = run.handovers.select(rsu_id="from_rsu_id", moved_bytes="link_bytes")
    return dict(pl.concat([rest, before]).group_by("rsu_id").sum().iter_rows())


def _natural_order(rsu: Rsu) -> list[tuple[int, str]]:
    """Return a sort key of the RSU's id that places J2 before J10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", rsu.id)]


def by_rsu(run: RunData) -> list[Table]:
    """Return one table of traffic, occupancy, commits and bytes by RSU, the first 100 by name; [] for one RSU."""
    if len(run.rsus) < 2:
        return []
    begin, end = run.manifest.traffic.begin_s, run.manifest.time_s or 0.0
    moved_bytes = _link_bytes(run) if run.takes_part else {}
    rows = []
    for rsu in sorted(run.rsus, key=_natural_order)[:_MOST_RSUS]:
        own = run.windows.filter(pl.col("rsu_id") == rsu.id)
        covered_s = float((own["exit_s"] - own["enter_s"]).sum())
        mean = number(covered_s / (end - begin)) if end > begin else NONE
        peak = count(in_coverage(own).peak)
        row: tuple[str, ...] = (clean(rsu.id, 200), f"{rsu.range_m:g} m", *_traffic_texts(own), mean, peak)
        if run.takes_part:
            parts = run.participations.filter(pl.col("rsu_id") == rsu.id)
            row += (count(parts.filter(pl.col("outcome") == "committed").height), si(moved_bytes.get(rsu.id, 0.0), "B"))
        rows.append(row)
    head: tuple[str, ...] = ("RSU", "range", *_TRAFFIC, "mean at once", "most at once")
    if run.takes_part:
        head += ("committed", "data over its link")
    most = count(in_coverage(merged_windows(run.windows)).peak)
    note = (
        f"Together the RSUs cover {plural(run.windows['vehicle_id'].n_unique(), 'vehicle')}, at most {most} at once: "
        "here a vehicle in several discs counts once, above for each."
    )
    if len(run.rsus) > _MOST_RSUS:
        note += f" {count(len(run.rsus) - _MOST_RSUS)} more RSUs are in the tables of the run directory."
    return [Table(title="By RSU", head=head, rows=rows, note=note)]
