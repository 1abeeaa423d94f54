"""Who could take part: how long a participation takes, which windows are as long, and where participations fail."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.formatting import NONE, Table, clean, count, percent, plural, quantity
from analysis.loading import WINDOW_KEY, RunData
from analysis.plots.place import map_axes
from analysis.statistics.windows import survival
from analysis.style import BLUE, HALF_IN, OUTCOMES, PALE, VERMILION, Drawn, drawing, legend, panel
from vnetsim.storage.tables import CUT_EXIT

_MOST_GROUPS = 12
_FAILED = ("left_download", "left_training", "left_exchange", "left_upload", "deadline", "stale")


@dataclass(frozen=True, kw_only=True)
class Needed:
    """What a participation takes (s): from the invitation to the end of the upload.

    Those that were cut took longer than was seen, so the Kaplan-Meier estimate stands here: of those alone that
    committed one would learn how long the short ones take.

    Args:
        n: how many participations began, with those that were cut.
        median_s: infinite where too many were cut, as the quartiles ``low_s`` and ``high_s`` are.
        low_s: see ``median_s``.
        high_s: see ``median_s``.
        stages_s: medians of download, training and upload of those that committed.
    """

    n: int
    median_s: float
    low_s: float
    high_s: float
    stages_s: tuple[float, float, float]


def needed(run: RunData) -> Needed | None:
    """Return how long participations take; None where fewer than half of them can be followed to their end."""
    begun = run.invited
    committed = begun.filter(outcome="committed")
    if committed.is_empty():
        return None
    took_s = (begun["end_s"] - begun["start_s"]).to_numpy()
    curve = survival(took_s, (begun["outcome"] != "committed").to_numpy())
    low_s, median_s, high_s = (curve.quantile_s(below) for below in (0.25, 0.5, 0.75))
    stages_s = committed.select(pl.col("download_s", "train_s", "upload_s").median()).row(0)
    found = Needed(n=len(took_s), median_s=median_s, low_s=low_s, high_s=high_s, stages_s=stages_s)
    return found if math.isfinite(median_s) else None


def vehicles(run: RunData, needed_s: float) -> pl.DataFrame:
    """Return a row a vehicle: whether one of its windows lasted ``needed_s``, it was invited, it committed.

    Returns:
        ``vehicle_id``, ``enough``, ``invited`` and ``committed``, and by what it can be told apart: ``rsu_id``,
        ``vehicle_type``, ``approach`` and ``speed_mps`` of its first window.
    """
    windows = run.windows.sort("enter_s", maintain_order=True)
    seen = windows.group_by("vehicle_id", maintain_order=True).agg(
        pl.col("rsu_id", "vehicle_type").first(),
        speed_mps=pl.col("entry_speed_mps").first(),
        enough=(pl.col("exit_s") - pl.col("enter_s") >= needed_s).any(),
    )
    invited = run.invited
    took_part = run.participations.group_by("vehicle_id").agg(pl.col("approach").first())
    committed = invited.filter(outcome="committed")["vehicle_id"].unique().to_list()
    return seen.join(took_part, on="vehicle_id", how="left").with_columns(
        invited=pl.col("vehicle_id").is_in(invited["vehicle_id"].unique().to_list()),
        committed=pl.col("vehicle_id").is_in(committed),
    )


def tables(run: RunData) -> list[Table]:
    """Return how many vehicles could take part and did, in all and by RSU, approach, type and speed."""
    found = needed(run)
    if found is None or run.windows.is_empty():
        return []
    one_each = vehicles(run, found.median_s)
    speed = (pl.col("speed_mps") * 3.6 // 20 * 20).cast(pl.Int64)
    bands = pl.format("{} to {} km/h", speed, speed + 20)
    groups = {
        "rsu_id": pl.format("RSU {}", "rsu_id"),
        "approach": pl.format("approach {}", pl.col("approach") + 1),
        "vehicle_type": pl.format("type {}", pl.col("vehicle_type").replace("", "unknown")),
        "speed_mps": bands,
    }
    rows = [_row("all vehicles", one_each)]
    for order, words in groups.items():
        parts = one_each.filter(pl.col(order).is_not_null()).with_columns(group=words).sort(order, maintain_order=True)
        members = parts.partition_by("group", maintain_order=True)
        if len(members) < 2:
            continue
        if len(members) > _MOST_GROUPS:
            members = sorted(members, key=lambda part: -part.height)[:_MOST_GROUPS]
        rows += [_row(clean(part["group"][0], 65), part) for part in members]
    note = (
        f"Long enough: with a window of {quantity(found.median_s, 's')} or more, which is what a participation takes "
        "in the median, from invitation to the end of the upload. A vehicle of several RSUs counts at its first."
    )
    head = ("", "vehicles", "long enough", "invited", "committed", "committed of those long enough")
    return [Table(title="Who could take part, and did", head=head, rows=rows, note=note)]


def _row(name: str, members: pl.DataFrame) -> tuple[str, ...]:
    total = members.height
    sums = [int(members[column].sum()) for column in ("enough", "invited", "committed")]
    both = int((members["enough"] & members["committed"]).sum())
    share = percent(both / sums[0], 0) if sums[0] else NONE
    return name, count(total), *(f"{count(some)} ({percent(some / total, 0)})" for some in sums), share


def headline(run: RunData) -> list[tuple[str, str]]:
    """Return the numbers that answer who could take part."""
    found = needed(run)
    if found is None:
        return []
    one_each = vehicles(run, found.median_s)
    rows = []
    for label, column in (("Covered long enough", "enough"), ("Vehicles that committed", "committed")):
        some = int(one_each[column].sum())
        of_all = f"{count(some)} of {plural(one_each.height, 'vehicle')}"
        rows.append((label, f"{percent(some / one_each.height, 0)} ({of_all})"))
    return [*rows, ("A participation takes", f"{quantity(found.median_s, 's')} (median)")]


@panel("survival", "How long windows last, and how long a participation takes")
def survival_panel(run: RunData) -> Drawn:
    """Draw the share of windows that last longer than a time, with the time that participations took."""
    found = needed(run)
    if run.windows.is_empty():
        return None, "Not drawn: no coverage window was recorded."
    lasted_s = (run.windows["exit_s"] - run.windows["enter_s"]).to_numpy()
    curve = survival(lasted_s, run.windows["exit_cause"].is_in(CUT_EXIT).to_numpy())
    top = max(float(np.quantile(lasted_s, 0.99)), 1.0 if found is None else 1.2 * found.median_s)
    figure, ax = drawing(HALF_IN, 2.9, top=0.5)
    ax.step([0.0, *curve.time_s, top], [1.0, *curve.share, curve.share[-1]], where="post", color=BLUE, label="windows")
    caption = (
        f"\nn = {plural(len(lasted_s), 'window')}; those that the end cut off count as longer (Kaplan\u2013Meier)."
    )
    if found is None:
        caption = (
            "Fewer than half of the participations could be followed to their end: too few to say how long one takes."
            + caption
        )
    else:
        if math.isfinite(found.high_s):
            ax.axvspan(found.low_s, found.high_s, color=PALE, label="participation, 25\u201375 %")
        ax.axvline(found.median_s, color=VERMILION, linewidth=1.4, linestyle=(0, (4, 3)), label="median participation")
        download_s, train_s, upload_s = found.stages_s
        caption = (
            f"{percent(curve.at(found.median_s), 0)} of the windows last longer than the "
            f"{quantity(found.median_s, 's')} that a participation takes in the median.{caption} The median is that of "
            f"{plural(found.n, 'participation')}, those that were cut taken as longer. Medians of "
            f"those that committed, airtime shared with others: download {quantity(download_s, 's')}, training "
            f"{quantity(train_s, 's')}, upload {quantity(upload_s, 's')}."
        )
    ax.set(xlabel="time (s)", ylabel="share of windows that last longer", xlim=(0, top), ylim=(0, 1.02))
    legend(ax, columns=2)
    return figure, caption


@panel("failed", "Where participations failed")
def failed_panel(run: RunData) -> Drawn:
    """Draw where the vehicles were whose participations were cut, by what they were doing."""
    failed = run.participations.filter(pl.col("outcome").is_in(_FAILED))
    if failed.is_empty() or run.paths is None:
        return None, "Not drawn: no participation was cut." if failed.is_empty() else "Not drawn: no paths are known."
    figure, ax = map_axes(run)
    at = _places(run, failed)
    for outcome in _FAILED:
        rows = at.filter(outcome=outcome)
        if rows.height:
            words, colour = OUTCOMES[outcome]
            ax.plot(
                rows["x_m"], rows["y_m"], "o", color=colour, markersize=3.6, markeredgewidth=0, alpha=0.6,
                label=f"{words} ({count(rows.height)})", rasterized=rows.height > 1500,
            )  # fmt: skip
    legend(ax, columns=2)
    ends = at.group_by("outcome").len().sort("len", descending=True)
    parts = ", ".join(f"{OUTCOMES[name][0]} {count(rows)}" for name, rows in ends.iter_rows())
    invited = run.invited.height
    return figure, f"{count(at.height)} of {plural(invited, 'participation')} were cut: {parts}."


def _places(run: RunData, failed: pl.DataFrame) -> pl.DataFrame:
    """Return ``outcome``, ``x_m`` and ``y_m`` of each participation that failed, at its end."""
    assert run.paths is not None
    keys = failed.select(WINDOW_KEY).unique()
    path = ("path_time_s", "path_x_m", "path_y_m")
    paths = run.paths.collect(lambda rows: rows.select(*WINDOW_KEY, *path).join(keys.lazy(), on=WINDOW_KEY, how="semi"))
    joined = failed.select(*WINDOW_KEY, "outcome", "end_s").join(paths, on=WINDOW_KEY, how="inner")
    places: list[tuple[str, float, float]] = []
    for outcome, end_s, *columns in joined.select("outcome", "end_s", *path).iter_rows():
        time_s, x_m, y_m = (np.asarray(values, np.float64) for values in columns)
        places.append((outcome, float(np.interp(end_s, time_s, x_m)), float(np.interp(end_s, time_s, y_m))))
    return pl.DataFrame(places, schema=["outcome", "x_m", "y_m"], orient="row")
