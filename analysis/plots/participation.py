"""Plots of participations: times, outcomes, costs and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.formatting import byte_scale, clean, count, number, percent, plural, quantity, shortened, si
from analysis.loading import WINDOW_KEY, RunData, ends_of
from analysis.statistics.participation import speed_edges_kmh
from analysis.style import (
    BLUE,
    FULL_IN,
    GREY,
    HALF_IN,
    INK,
    ORANGE,
    OUTCOMES,
    PINK,
    SKY,
    Drawn,
    Figure,
    TimeAxis,
    axes,
    drawing,
    legend,
    panel,
    stacked_rows,
    time_axis,
)

NO_PARTICIPATION = "Not drawn: no participation was recorded."
_TIMELINE_ROWS = 40
_MOST_VECTOR_POINTS = 1500
"""Most points drawn as vectors; more become a picture, to keep the page small."""
_FEW = 10
"""Bars with fewer participations are pale, because their shares mean little."""


def outcome_order(participations: pl.DataFrame) -> list[str]:
    """Return the outcomes that occur, in the order of ``OUTCOMES``; unknown ones come last, sorted."""
    present = participations["outcome"].unique().to_list()
    return [name for name in OUTCOMES if name in present] + sorted(name for name in present if name not in OUTCOMES)


def _outcome_style(outcome: str) -> tuple[str, str]:
    """Return label and colour of an outcome; an unknown outcome is grey."""
    return OUTCOMES.get(outcome, (clean(outcome, 24), GREY))


def _timeline_rows(run: RunData) -> pl.DataFrame:
    """Return the invited participations, or all if none is, of the first 40 windows, with ``exit_s`` and ``row``."""
    parts = run.participations if run.invited.is_empty() else run.invited
    exits = pl.col("exit_s").fill_null(pl.max_horizontal("end_s", "enter_s"))
    shown = parts.join(ends_of(run.windows), on=WINDOW_KEY, how="left").with_columns(exits)
    first = shown.group_by(WINDOW_KEY).agg(pl.col("start_s").min())
    order = first.sort("start_s", *WINDOW_KEY).head(_TIMELINE_ROWS).select(WINDOW_KEY)
    return shown.join(order.with_row_index("row"), on=WINDOW_KEY).sort("row", "start_s")


def _row_names(rows: pl.DataFrame) -> list[str]:
    """Return the label of each ``row``, in order: its vehicle, and its RSU if the vehicle is at several RSUs."""
    first = rows.group_by("row", maintain_order=True).first()
    several = pl.col("rsu_id").n_unique().over("vehicle_id") > 1
    return [
        f"{shortened(vehicle, 11)} at {shortened(rsu, 10)}" if named else shortened(vehicle, 24)
        for vehicle, rsu, named in first.select("vehicle_id", "rsu_id", named=several).iter_rows()
    ]


class Bar(NamedTuple):
    """A kind of bar: the column with its values (s or bytes), its label and its colour."""

    column: str
    words: str
    colour: str


def phases(run: RunData) -> tuple[Bar, ...]:
    """Return the phases of a participation, in this run's order; waiting and exchange only if any took time."""
    download = Bar("download_s", "download", BLUE)
    training, upload = Bar("train_s", "training", ORANGE), Bar("upload_s", "upload", SKY)
    if not run.participations.select(pl.col("wait_s", "exchange_s").fill_null(0).max()).sum_horizontal().item():
        return download, training, upload
    exchange = Bar("wait_s", "waiting", GREY), Bar("exchange_s", "exchange", PINK)
    if run.exchange_plan and run.exchange_plan.before_training:
        return download, *exchange, training, upload
    return download, training, *exchange, upload


def _draw_phases(ax: Axes, rows: pl.DataFrame, order: Sequence[Bar], axis: TimeAxis) -> None:
    """Draw for each of ``rows`` a line for its coverage and, if it was invited, a bar divided into the phases."""
    for row in rows.iter_rows(named=True):
        y, colour = row["row"], _outcome_style(row["outcome"])[1]
        ax.plot([axis.of(row["enter_s"]), axis.of(row["exit_s"])], [y, y], color=GREY, linewidth=1.0, zorder=2)
        if row["outcome"] == "not_selected":
            continue
        spent, left = (row["end_s"] - row["start_s"]) / axis.seconds, axis.of(row["start_s"])
        ax.barh(y, spent, left=left, height=0.7, color=colour, zorder=3)
        begin, borders = row["start_s"], []
        for phase in order:
            spent = row[phase.column]
            if spent > 0 and begin > row["start_s"]:
                borders.append(begin)
            if phase.column == "wait_s":
                ax.barh(y, spent / axis.seconds, left=axis.of(begin), height=0.7, color="white", alpha=0.6, zorder=3.5)
            begin += spent
        ax.vlines(axis.of(np.array(borders)), y - 0.35, y + 0.35, color="white", linewidth=1.4, zorder=4)


@panel("timeline", "Windows and participations", wide=True)
def timeline_panel(run: RunData) -> Drawn:
    """Draw coverage, outcomes, phases in the first 40 windows, invited ones if any; no figure without participation."""
    if run.participations.is_empty():
        return None, NO_PARTICIPATION
    rows = _timeline_rows(run)
    shown = rows["row"].n_unique()
    begin, end = float(rows["enter_s"].min()), float(rows["exit_s"].max())  # type: ignore[arg-type]
    axis = time_axis(end - begin, run.manifest.traffic.begin_s)
    figure, ax = drawing(FULL_IN, 0.98 + 0.135 * max(shown, 4), left=1.25, top=0.5)
    order = phases(run)
    _draw_phases(ax, rows, order, axis)
    closes = run.rounds.filter(pl.col("close_s").is_between(begin, end))["close_s"].to_numpy()
    for close in closes:
        ax.axvline(axis.of(close), color=INK, linewidth=0.6, linestyle=(0, (1, 2)), zorder=1)
    ax.set_yticks(range(shown), _row_names(rows), fontsize=6.5)
    ax.set(ylim=(shown - 0.4, -0.6), xlim=(axis.of(begin), axis.of(end)), xlabel=axis.label)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    present = [name for name in outcome_order(rows) if name != "not_selected"]
    handles: list[Line2D | Patch] = [Line2D([], [], color=GREY, linewidth=1.0, label="in coverage")]
    handles += [Patch(color=_outcome_style(name)[1], label=_outcome_style(name)[0]) for name in present]
    if len(closes):
        handles.append(Line2D([], [], color=INK, linewidth=0.6, linestyle=(0, (1, 2)), label="round closes"))
    columns = len(handles) if len(handles) <= 6 else (len(handles) + 1) // 2
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.14, 1.0), ncols=columns)
    invited = run.invited.select(WINDOW_KEY).n_unique()
    which = f"All {count(shown)}" if shown == invited else f"The first {count(shown)} of {count(invited)}"
    part = f"{which} windows with an invitation" if invited else "Nobody was invited"
    names = [f"{phase.words} (pale)" if phase.column == "wait_s" else phase.words for phase in order]
    caption = (
        f"{part}, one row per window.\nA bar runs from invitation to end, coloured by outcome; gaps "
        f"separate {', '.join(names[:-1])} and {names[-1]}."
    )
    return figure, caption


@panel("outcomes", "Outcome by speed")
def outcome_panel(run: RunData) -> Drawn:
    """Draw the shares of outcomes by speed at entry, where this is known; no figure if it is never known."""
    rows = run.participations.filter(pl.col("speed_mps").is_finite())
    if rows.is_empty():
        return None, NO_PARTICIPATION
    speeds = rows["speed_mps"].to_numpy() * 3.6
    edges = speed_edges_kmh(speeds)
    index = np.digitize(speeds, edges) - 1
    totals = np.bincount(index, minlength=len(edges) - 1)
    outcome = rows["outcome"].to_numpy()
    order = outcome_order(rows)
    figure, ax = drawing(HALF_IN, 3.3, bottom=0.62, top=0.34 + 0.16 * ((len(order) - 1) // 2))
    ticks = np.flatnonzero(totals)
    bottom, drawn = np.zeros(len(ticks)), []
    for name in order:
        share = np.bincount(index[outcome == name], minlength=len(totals))[ticks] / totals[ticks] * 100
        words, colour = _outcome_style(name)
        bars = ax.bar(range(len(ticks)), share, 0.8, bottom, color=colour, edgecolor="white", linewidth=0.6)
        bars.set_label(words)
        drawn.append(bars)
        bottom += share
    labels = [f"{edges[i]:g}\u2013{edges[i + 1]:g}\nn={count(totals[i])}" for i in ticks]
    ax.set_xticks(range(len(ticks)), labels, fontsize=7 if len(ticks) > 5 else 8)
    ax.set(ylim=(0, 100), xlabel="speed at entry (km/h)", ylabel="share (%)")
    ax.grid(visible=False, axis="x")
    legend(ax, 2)
    for bars in drawn:  # after the legend, which copies the first bar
        for bar, n in zip(bars, totals[ticks], strict=True):
            bar.set_alpha(1.0 if n >= _FEW else 0.35)
    committed = rows.filter(pl.col("outcome") == "committed")["speed_mps"].median()
    never = int((outcome == "not_selected").sum())
    invited = rows.height - never
    caption = plural(invited, "participation")
    if invited:
        caption += f", {percent(float((outcome == 'committed').sum()) / invited, 0)} committed"
    caption += f", at {quantity(float(committed) * 3.6, 'km/h')} in the median." if committed is not None else "."  # type: ignore[arg-type]
    caption += "\n"
    if never:
        caption += f" {plural(never, 'window')} without an invitation in grey."
    if (totals[ticks] < _FEW).any():
        caption += f" Pale bars stand for fewer than {_FEW}, whose shares say little."
    return figure, caption


@panel("weights", "Aggregation weight against speed")
def weight_panel(run: RunData) -> Drawn:
    """Draw each update's weight against speed, relative to equal weights in its round; no figure if all are equal."""
    rows = run.participations.filter(pl.col("weight").is_not_null() & (pl.col("outcome") == "committed"))
    rows = rows.with_columns(n=pl.len().over("aggregator", "round")).filter(pl.col("n") > 1)
    if rows.is_empty():
        return None, "Not drawn: no round aggregated more than one update."
    speed, relative = rows["speed_mps"].to_numpy() * 3.6, (rows["weight"] * rows["n"]).to_numpy()
    if float(np.abs(relative - 1).max()) < 1e-9:
        updates = plural(rows.height, "update")
        return None, f"Not drawn: all {updates} weighed the same in their round, whatever the speed."
    figure, ax = drawing(HALF_IN, 3.3, top=0.34)
    ax.axhline(1.0, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="equal weights (1)")
    many = len(speed) > _MOST_VECTOR_POINTS
    dots: dict[str, Any] = {"markeredgewidth": 0, "color": BLUE}
    alpha = float(np.clip(220 / len(speed), 0.1, 0.5))  # more points are fainter
    ax.plot(speed, relative, "o", markersize=2.6 if many else 3.4, alpha=alpha, rasterized=many, **dots)
    ax.plot([], [], "o", markersize=3.4, alpha=0.6, label="update", **dots)
    reach = max(float(np.abs(relative - 1).max()) * 1.15, 0.002)
    ax.set(xlabel="speed at entry (km/h)", ylabel="weight relative to equal", ylim=(1 - reach, 1 + reach))
    legend(ax)
    deviation = float(np.sqrt(np.mean((relative - 1) ** 2)))
    caption = (
        f"From {number(float(relative.min()), 4)} to {number(float(relative.max()), 4)} times the equal weight.\n"
        f"{plural(rows.height, 'update')} in {plural(rows.select('aggregator', 'round').n_unique(), 'round')}; "
        f"rms deviation {percent(deviation, 2)}."
    )
    return figure, caption


def _draw_sums(
    ax: Axes, names: Sequence[str], rows: Sequence[Mapping[str, float]], bars: Sequence[Bar], divisor: float, label: str
) -> None:
    """Draw stacked bars, one per name: values in ``rows`` by column, over ``divisor``; ``label`` is the x axis's."""
    layers = ((np.array([row[bar.column] for row in rows]) / divisor, bar.words, bar.colour) for bar in bars)
    ax.set(xlim=(0, max(stacked_rows(ax, names, layers) * 1.05, 1e-9)), xlabel=label)
    legend(ax, 3)


@panel("spent", "What participations used, by outcome", wide=True)
def spent_panel(run: RunData) -> Drawn:
    """Draw bytes (if any) and vehicle time of invited participations by outcome and phase; no figure without any."""
    rows = run.invited
    if rows.is_empty():
        return None, NO_PARTICIPATION if run.participations.is_empty() else "Not drawn: no vehicle was invited."
    order = outcome_order(rows)
    phase_bars = phases(run)
    byte_bars = [Bar("download_bytes", "download", BLUE), Bar("upload_bytes", "upload", SKY)]
    if rows["exchange_bytes"].sum() > 0:
        byte_bars.insert(1, Bar("exchange_bytes", "exchange", PINK))
    seconds, sizes = ([bar.column for bar in bars] for bars in (phase_bars, byte_bars))
    sums = rows.group_by("outcome").agg(pl.col(*seconds, *sizes).sum(), n=pl.len())
    table = {row["outcome"]: row for row in sums.iter_rows(named=True)}
    top = 0.18 + 0.16 * -(-len(phase_bars) // 3)
    figure = Figure((FULL_IN, 0.56 + top + 0.3 * len(order)))
    total_bytes = float(rows.select(pl.col(sizes).sum()).sum_horizontal().item())
    names = [f"{_outcome_style(name)[0]} ({count(table[name]['n'])})" for name in order]
    values = [table[name] for name in order]
    if total_bytes:  # else only the times are drawn
        scale, unit = byte_scale(total_bytes)
        left = axes(figure, left=1.6, right=figure.get_figwidth() / 2 - 0.65, top=top)
        _draw_sums(left, names, values, byte_bars, scale, f"data ({unit})")
        names = [""] * len(order)
    right = axes(figure, left=figure.get_figwidth() / 2 + 0.9 if total_bytes else 1.6, top=top)
    span = time_axis(float(rows.select(pl.col(seconds).sum()).sum_horizontal().item()))
    _draw_sums(right, names, values, phase_bars, span.seconds, f"vehicle time ({span.unit})")
    useful = table.get("committed")
    if useful is None:
        share = "none of them committed"
    elif total_bytes == 0:
        share = f"{count(useful['n'])} of them committed: this learner moves nothing over these links"
    else:
        part = sum(useful[column] for column in sizes) / total_bytes
        share = f"{percent(part, 0)} of it by vehicles that committed"
    moved = f"moved {si(total_bytes, 'B')}" if total_bytes else "moved no data"
    caption = f"{plural(rows.height, 'participation')} {moved}, {share}.\nNumbers of participations in brackets."
    stale = table.get("stale")
    if stale is not None and not run.experiment.round.max_staleness:
        caption += (
            f" {count(stale['n'])} were still at work when their round had its quorum, and were dropped: fewer are "
            "with a smaller round.invited, whose rounds last longer; with round.max_staleness above 0 they commit late."
        )
    if "exchange_bytes" in sizes:
        caption += (
            f" {si(float(rows['exchange_bytes'].sum()), 'B')} of it were exchanged between vehicles, booked with the "
            "sender, both hops of what an RSU relayed."
        )
    return figure, caption
