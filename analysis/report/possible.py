"""Who could take part: duration of a participation, windows that are long enough, and places of failures."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.formatting import NONE, Table, clean, count, percent, plural, quantity
from analysis.loading import WINDOW_KEY, RunData
from analysis.plots.place import map_axes
from analysis.statistics.windows import lasting, survival
from analysis.style import BLUE, HALF_IN, OUTCOMES, PALE, VERMILION, Drawn, drawing, legend, panel

_MOST_GROUPS = 12
_MOST_FAILED = 20_000  # of more participations that were cut, only every k-th is drawn
_FAILED = ("left_download", "left_training", "left_exchange", "left_upload", "deadline", "stale")


@dataclass(frozen=True, kw_only=True)
class Needed:
    """Duration of a participation (s), from the invitation to the end of the upload.

    Participations that were cut would have taken longer than was seen, so quartiles are Kaplan-Meier estimates. The
    committed ones alone would be biased towards short durations.
    """

    n: int  # number of participations, including those that were cut
    median_s: float
    low_s: float  # lower quartile
    high_s: float  # upper quartile; infinite if too many were cut
    stages_s: tuple[float, float, float]  # medians of download, training and upload of the committed ones


def needed(run: RunData) -> Needed | None:
    """Return how long participations take to commit (s); None if none or too few committed for a finite median."""
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


def vehicles(run: RunData) -> pl.DataFrame:
    """Return a row per equipped vehicle, by first entry, with ``vehicle_id``, ``invited`` and ``committed``.

    ``longest_s`` is its longest window, ``cut`` whether the end of the run cut a window off; both are null if no window
    was seen from its beginning. ``rsu_id``, ``vehicle_type``, ``speed_mps``, ``approach`` are of its first window.
    """
    windows = run.equipped.sort("enter_s", maintain_order=True)
    seen = windows.group_by("vehicle_id", maintain_order=True).agg(
        pl.col("rsu_id", "vehicle_type").first(), speed_mps=pl.col("entry_speed_mps").first()
    )
    lasted = lasting(windows).group_by("vehicle_id").agg(longest_s=pl.col("lasted_s").max(), cut=pl.col("cut").any())
    seen = seen.join(lasted, on="vehicle_id", how="left", maintain_order="left")
    took_part = run.participations.group_by("vehicle_id").agg(pl.col("approach").first())
    committed = run.invited.filter(outcome="committed")
    return seen.join(took_part, on="vehicle_id", how="left", maintain_order="left").with_columns(
        invited=pl.col("vehicle_id").is_in(run.invited["vehicle_id"].implode()),
        committed=pl.col("vehicle_id").is_in(committed["vehicle_id"].implode()),
    )


def long_enough(members: pl.DataFrame, needed_s: float) -> float | None:
    """Estimate the share of vehicles with a window over ``needed_s`` (Kaplan-Meier); None if no window is known."""
    known = members.drop_nulls("longest_s")
    if known.is_empty():
        return None
    return survival(known["longest_s"].to_numpy(), known["cut"].to_numpy()).at(needed_s)


def tables(run: RunData) -> list[Table]:
    """Return a list of one table of who could take part and did, by group of vehicles; [] if ``needed`` is None."""
    found = needed(run)
    if found is None or run.equipped.is_empty():
        return []
    one_each = vehicles(run)
    speed = (pl.col("speed_mps") * 3.6 // 20 * 20).cast(pl.Int64)
    groups = {
        "rsu_id": pl.format("RSU {}", "rsu_id"),
        "approach": pl.format("approach {}", pl.col("approach") + 1),
        "vehicle_type": pl.format("type {}", pl.col("vehicle_type").replace("", "unknown")),
        "speed_mps": pl.format("{} to {} km/h", speed, speed + 20),
    }
    rows = [_table_row("all vehicles", one_each, found.median_s)]
    for order, words in groups.items():
        parts = one_each.filter(pl.col(order).is_not_null()).with_columns(group=words).sort(order, maintain_order=True)
        members = parts.partition_by("group", maintain_order=True)
        if len(members) < 2:
            continue
        if len(members) > _MOST_GROUPS:
            members = sorted(members, key=lambda part: -part.height)[:_MOST_GROUPS]
        rows += [_table_row(clean(part["group"][0], 65), part, found.median_s) for part in members]
    note = (
        f"Long enough: with a window of more than {quantity(found.median_s, 's')}, which is what a participation takes "
        "in the median, from invitation to the end of the upload. By a vehicle's longest window: one that the end cut "
        "off counts as longer (Kaplan\u2013Meier), one of a vehicle that was inside at the beginning is left out. A "
        "vehicle of several RSUs counts at its first."
    )
    head = ("", "vehicles", "long enough", "invited", "committed", "committed of those seen that long")
    return [Table(title="Who could take part, and did", head=head, rows=rows, note=note)]


def _table_row(name: str, members: pl.DataFrame, needed_s: float) -> tuple[str, ...]:
    """Return a row of the table on some vehicles: name, numbers, shares as texts; a dash for an unknown share."""
    total, share = members.height, long_enough(members, needed_s)
    sums = [int(members[column].sum()) for column in ("invited", "committed")]
    seen = members.filter(pl.col("longest_s") > needed_s)["committed"]
    of_seen = percent(int(seen.sum()) / len(seen), 0) if len(seen) else NONE
    enough = NONE if share is None else percent(share, 0)
    return name, count(total), enough, *(f"{count(some)} ({percent(some / total, 0)})" for some in sums), of_seen


def headline(run: RunData) -> list[tuple[str, str]]:
    """Return rows (label, value) on who could take part; empty if ``needed`` is None or no vehicle is equipped."""
    found = needed(run)
    if found is None or run.equipped.is_empty():
        return []
    one_each = vehicles(run)
    covered, committed = plural(one_each.height, "vehicle"), int(one_each["committed"].sum())
    share = long_enough(one_each, found.median_s)
    rows = [] if share is None else [("Covered long enough", f"{percent(share, 0)} (of {covered}, Kaplan\u2013Meier)")]
    return [
        *rows,
        ("Vehicles that committed", f"{percent(committed / one_each.height, 0)} ({count(committed)} of {covered})"),
        ("A participation takes", f"{quantity(found.median_s, 's')} (median)"),
    ]


@panel("survival", "How long windows last, and how long a participation takes")
def survival_panel(run: RunData) -> Drawn:
    """Draw the share of windows that last longer, by time, and a participation's time; no figure without windows."""
    found = needed(run)
    if run.windows.is_empty():
        return None, "Not drawn: no coverage window was recorded."
    whole = lasting(run.windows)
    lasted_s = whole["lasted_s"].to_numpy()
    curve = survival(lasted_s, whole["cut"].to_numpy())
    top = max(float(np.quantile(lasted_s, 0.99)), 1.0 if found is None else 1.2 * found.median_s)
    figure, ax = drawing(HALF_IN, 2.9, top=0.5)
    ax.step(
        [0.0, *curve.time_s, top],
        [100.0, *(100 * curve.share), 100 * curve.at(math.inf)],
        where="post",
        color=BLUE,
        label="windows",
    )
    caption = (
        f"\nn = {plural(len(lasted_s), 'window')}; those that the end cut off count as longer (Kaplan\u2013Meier), and "
        "those of vehicles that were inside at the beginning are left out."
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
    ax.set(xlabel="time (s)", ylabel="windows that last longer (%)", xlim=(0, top), ylim=(0, 102))
    legend(ax, columns=2)
    return figure, caption


@panel("failed", "Where participations failed")
def failed_panel(run: RunData) -> Drawn:
    """Draw where vehicles were when their participation was cut, by outcome; no figure if none was, or no paths."""
    failed = run.participations.filter(pl.col("outcome").is_in(_FAILED))
    if failed.is_empty() or run.paths is None:
        return None, "Not drawn: no participation was cut." if failed.is_empty() else "Not drawn: no paths are known."
    figure, ax = map_axes(run)
    every = -(-failed.height // _MOST_FAILED)
    at = _find_ends(run, failed.gather_every(every))
    for outcome in _FAILED:
        rows = at.filter(outcome=outcome)
        if rows.height:
            words, colour = OUTCOMES[outcome]
            ax.plot(
                rows["x_m"], rows["y_m"], "o", color=colour, markersize=3.6, markeredgewidth=0, alpha=0.6,
                label=f"{words} ({count(failed.filter(outcome=outcome).height)})", rasterized=rows.height > 1500,
            )  # fmt: skip
    legend(ax, columns=2)
    ends = failed.group_by("outcome").len().sort("len", "outcome", descending=[True, False])
    parts = ", ".join(f"{OUTCOMES[name][0]} {count(rows)}" for name, rows in ends.iter_rows())
    drawn = f" Shown is one in {count(every)} of them." if every > 1 else ""
    return figure, f"{count(failed.height)} of {plural(run.invited.height, 'participation')} were cut: {parts}.{drawn}"


def _find_ends(run: RunData, failed: pl.DataFrame) -> pl.DataFrame:
    """Return ``outcome`` and the place at the end, ``x_m``, ``y_m``, of ``failed`` participations with known paths."""
    assert run.paths is not None
    keys = failed.select(WINDOW_KEY).unique()
    path = ("path_time_s", "path_x_m", "path_y_m")
    paths = run.paths.collect(lambda rows: rows.select(*WINDOW_KEY, *path).join(keys.lazy(), on=WINDOW_KEY, how="semi"))
    joined = failed.select(*WINDOW_KEY, "outcome", "end_s").join(
        paths, on=WINDOW_KEY, how="inner", maintain_order="left_right"
    )
    places: list[tuple[str, float, float]] = []
    for outcome, end_s, *columns in joined.select("outcome", "end_s", *path).iter_rows():
        time_s, x_m, y_m = (np.asarray(values, np.float64) for values in columns)
        places.append((outcome, float(np.interp(end_s, time_s, x_m)), float(np.interp(end_s, time_s, y_m))))
    return pl.DataFrame(places, schema=["outcome", "x_m", "y_m"], orient="row")
