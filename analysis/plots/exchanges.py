"""Plots of exchanges between vehicles: the contact graph, number by round, time in contact, the learner's own value."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from analysis.formatting import byte_scale, clean, count, number, percent, plural, quantity, sentence_case, si
from analysis.loading import RunData
from analysis.plots.place import map_axes
from analysis.style import (
    BLACK,
    BLUE,
    FULL_IN,
    HALF_IN,
    INK,
    ORANGE,
    SKY,
    VERMILION,
    Drawn,
    Figure,
    axes,
    drawing,
    group_digits,
    legend,
    panel,
)

Floats = NDArray[np.float64]

_HEIGHT_IN = 3.3
_MAX_BARS = 120

_STATES: tuple[tuple[str, str, str, Any], ...] = (
    ("both", "both ways", BLUE, "-"),
    ("one", "one way", ORANGE, (0, (5, 2))),
    ("none", "cut", VERMILION, (0, (1, 1.4))),
)
"""State of a pair, directions in which its exchange completed (words), colour and dashes."""

_POSITION = {"x_m": "sender_x_m", "y_m": "sender_y_m", "to_x_m": "receiver_x_m", "to_y_m": "receiver_y_m"}
_MOST_VECTOR_EDGES = 600
_LEAST_MARGIN_M = 40.0
_BULGE, _ARC_POINTS = 0.15, 13
"""Height of an arc divided by its length, and its number of points."""


def group_by_pair(exchanges: pl.DataFrame) -> pl.DataFrame:
    """Return one row per round and pair of vehicles with a planned exchange, in order of round.

    Columns: ``round``; ``state``, the completed directions: "both", "one" or "none"; ``relayed``, whether through an
    RSU; ``met``, whether the two were in contact at all; ``contact_s``; ``bytes``, of both directions; and the
    positions of both vehicles, ``x_m``, ``y_m``, ``to_x_m`` and ``to_y_m``.
    """
    done = (pl.col("outcome") == "completed").sum()
    return (
        exchanges.with_columns(
            one=pl.min_horizontal("sender_id", "receiver_id"), other=pl.max_horizontal("sender_id", "receiver_id")
        )
        .group_by("round", "one", "other", maintain_order=True)
        .agg(
            state=pl.when(done >= 2).then(pl.lit("both")).when(done == 1).then(pl.lit("one")).otherwise(pl.lit("none")),
            relayed=(pl.col("via") == "relay").any(),
            met=(pl.col("via") != "").any(),
            contact_s=pl.col("contact_s").max(),
            bytes=pl.col("bytes").sum(),
            **{name: pl.col(column).first() for name, column in _POSITION.items()},
        )
        .sort("round", maintain_order=True)
    )


def _arcs(edges: pl.DataFrame) -> Floats:
    """Return an arc between the vehicles of each row of ``group_by_pair``, shape (rows, 13 points, 2), x and y in m."""
    ends = edges.select(*_POSITION).to_numpy().reshape(-1, 2, 2)
    backwards = (ends[:, 0, 0] > ends[:, 1, 0]) | ((ends[:, 0, 0] == ends[:, 1, 0]) & (ends[:, 0, 1] > ends[:, 1, 1]))
    ends = np.where(backwards[:, None, None], ends[:, ::-1], ends)
    begin, way = ends[:, :1], ends[:, 1:] - ends[:, :1]  # arcs keep pairs along one road distinguishable
    left = np.stack([-way[..., 1], way[..., 0]], axis=-1)
    share = np.linspace(0, 1, _ARC_POINTS)[:, None]
    return np.asarray(begin + share * way + _BULGE * 4 * share * (1 - share) * left)


def _graph_extent(edges: pl.DataFrame) -> tuple[float, float, float, float]:
    """Return x_min, x_max, y_min and y_max (m) around the arcs of one or more pairs, with a margin."""
    points = _arcs(edges)
    (left, low), (right, high) = points.min(axis=(0, 1)), points.max(axis=(0, 1))
    margin = max(0.08 * max(right - left, high - low), _LEAST_MARGIN_M)
    return float(left - margin), float(right + margin), float(low - margin), float(high + margin)


def _draw_graph(ax: Axes, edges: pl.DataFrame) -> None:
    """Draw arcs of pairs by state, relayed ones marked, vehicles, and a legend; RSUs, which it names, are not drawn."""
    raster = edges.height > _MOST_VECTOR_EDGES
    width = 1.4 if edges.height <= 60 else 0.6
    marker = partial(Line2D, [], [], linestyle="none", markersize=4.4)
    handles = []
    for layer, (state, words, colour, dashes) in enumerate(_STATES):
        arcs = _arcs(edges.filter(state=state))
        if not len(arcs):
            continue
        # one path with NaN gaps: the dashes start again at each edge
        path = np.concatenate([arcs, np.full((len(arcs), 1, 2), np.nan)], axis=1).reshape(-1, 2)
        look: dict[str, Any] = {"color": colour, "linestyle": dashes}
        ax.plot(*path.T, zorder=6 + layer, rasterized=raster, linewidth=width, **look)
        handles.append(Line2D([], [], label=words, **look))
    if not (relayed := edges.filter("relayed")).is_empty():
        middles = _arcs(relayed)[:, _ARC_POINTS // 2]
        ax.plot(*middles.T, "D", color="white", markersize=3.6, markeredgecolor=INK, markeredgewidth=0.8, zorder=9)
        handles.append(marker(marker="D", color="white", markeredgecolor=INK, label="relayed"))
    dots = np.unique(_arcs(edges)[:, [0, -1]].reshape(-1, 2), axis=0)
    ax.plot(*dots.T, "o", color=INK, markersize=4.4, markeredgecolor="white", markeredgewidth=0.6, zorder=10)
    handles += [marker(marker="o", color=INK, label="vehicle"), marker(marker="^", color=BLACK, label="RSU")]
    legend(ax, len(handles), handles)


def _pair_words(edges: pl.DataFrame) -> str:
    """Return in words the number of pairs (one or more) by state, their median time in contact and their bytes."""
    states = dict(edges["state"].value_counts().iter_rows())
    met = edges.filter("met")
    parts = [f"{count(states[state])} {words}" for state, words, _, _ in _STATES if states.get(state)]
    never = edges.height - met.height
    text = f"{plural(edges.height, 'pair')} ({', '.join(parts)}"
    if never:
        text += f", {count(never)} of them never in contact"
    if relayed := edges.filter("relayed").height:
        text += f"; {count(relayed)} relayed"
    text += ")"
    if not met.is_empty():
        text += f"; in contact for {quantity(float(met['contact_s'].median()), 's')} in the median"  # type: ignore[arg-type]
    return f"{text}; {si(float(edges['bytes'].sum()), 'B')} over the air"


@panel("contacts", "Who exchanged with whom", wide=True, dpi=150)
def contact_graph_panel(run: RunData) -> Drawn:
    """Draw who exchanged with whom in the round with most pairs of known position; no figure without known ones."""
    edges = group_by_pair(run.exchanges)
    overall = f"{plural(edges['round'].n_unique(), 'round')} with exchanges: {_pair_words(edges)}."
    known = edges.filter(pl.all_horizontal(pl.col(*_POSITION).is_finite().fill_null(value=False)))
    if known.is_empty():
        return None, f"Not drawn: no position is known. Over {overall}"
    number = known.group_by("round").len().sort("len", "round", descending=[True, False])["round"][0]
    drawn = known.filter(round=number)
    figure, ax = map_axes(run, FULL_IN, _graph_extent(drawn))
    _draw_graph(ax, drawn)
    return figure, (
        "Vehicles where they were when the exchange began in the round with most of them, and an arc for each pair: "
        "solid where both directions completed, dashed where one did, dotted where none did.\n"
        f"Round {count(number + 1)}: {_pair_words(edges.filter(round=number))}. All {overall}"
    )


def _bars_by_round(run: RunData) -> tuple[Floats, int, pl.DataFrame]:
    """Return edges of bars, rounds per bar, means per round: ``completed``, ``cut``, ``sidelink``, ``relay`` (B)."""
    numbers = run.exchanges["round"]
    ends = [int(series.max()) for series in (numbers, run.rounds["round"]) if len(series)]  # type: ignore[arg-type]
    rounds = max(ends) + 1
    width = 1 if rounds <= _MAX_BARS else -(-rounds // (_MAX_BARS // 2))
    bars = -(-rounds // width)
    done, via = pl.col("outcome") == "completed", pl.col("via")
    sums = (
        run.exchanges.group_by(bar=pl.col("round") // width)
        .agg(
            completed=done.sum(),
            cut=(~done).sum(),
            sidelink=pl.col("bytes").filter(via == "sidelink").sum(),
            relay=pl.col("bytes").filter(via == "relay").sum(),
        )
        .cast(pl.Float64)
    )
    every = pl.DataFrame({"bar": np.arange(bars, dtype=float)}).join(sums, on="bar", how="left").fill_null(0.0)
    edges = np.minimum(np.arange(bars + 1) * width, rounds).astype(float)
    held = pl.Series(np.diff(edges))
    return edges + 0.5, width, every.sort("bar").select(pl.exclude("bar") / held)


def _draw_stacked(ax: Axes, edges: Floats, layers: list[tuple[Floats, str, str]]) -> None:
    """Draw stacked histograms; a layer is values by bar, label, colour, and is left out if all values are 0."""
    base = np.zeros(len(edges) - 1)
    for values, words, colour in layers:
        if values.any():
            ax.stairs(base + values, edges, baseline=base, fill=True, color=colour, label=words, linewidth=0)
            base = base + values
    if len(edges) <= 60:
        ax.vlines(edges[1:-1], 0, np.maximum(base[1:], base[:-1]), color="white", linewidth=0.6)
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, max(1.06 * float(base.max()), 1e-9)))


@panel("exchange-rounds", "Exchanges by round")
def rounds_panel(run: RunData) -> Drawn:
    """Draw the numbers of completed and of cut exchanges by round, and their bytes; call it only with exchanges."""
    edges, width, bars = _bars_by_round(run)
    figure = Figure((HALF_IN, _HEIGHT_IN))
    upper, lower = axes(figure, bottom=1.5, top=0.34), axes(figure, bottom=0.48, top=2.14)
    moved = float(bars.select(pl.sum_horizontal("sidelink", "relay").max()).item())
    scale, unit = byte_scale(moved)
    done, cut, sidelink, relay = (bars[name].to_numpy() for name in ("completed", "cut", "sidelink", "relay"))
    _draw_stacked(upper, edges, [(done, "completed", BLUE), (cut, "cut", VERMILION)])
    _draw_stacked(lower, edges, [(sidelink / scale, "sidelink", SKY), (relay / scale, "relayed by RSU", ORANGE)])
    upper.set_ylabel("exchanges" if width == 1 else "exchanges (mean)")
    upper.tick_params(labelbottom=False)
    upper.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=width == 1))
    lower.set(xlabel="round", ylabel=f"data ({unit})")
    lower.yaxis.set_major_locator(MaxNLocator(nbins=3))
    for ax in (upper, lower):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        group_digits(ax)
        ax.grid(visible=False, axis="x")
    group_digits(lower, "x")
    legend(upper)
    if moved > 0:
        legend(lower)
    rows = run.exchanges
    completed = float((rows["outcome"] == "completed").mean())  # type: ignore[arg-type]
    relayed = float(rows.filter(pl.col("via") == "relay")["bytes"].sum())
    rounds, total = int(edges[-1] - 0.5), float(rows["bytes"].sum())
    caption = (
        f"{plural(rows.height, 'exchange')}, each from one vehicle to another, {percent(completed, 0)} completed. "
        f"They moved {si(total, 'B')} over the air, {si(total / rounds, 'B')} per round on average"
    )
    caption += f", {si(relayed, 'B')} of it relayed by RSUs, both hops counted." if relayed else "."
    if width > 1:
        caption += f" Bars are means over {count(width)} rounds."
    return figure, caption + _value_words(run)


def _percentile_words(seconds: Floats) -> str:
    """Return in words the median of one or more times (s), and from ten on their 10th to 90th percentile."""
    low, middle, high = np.percentile(seconds, [10, 50, 90])
    if len(seconds) < 10:
        return f"{quantity(float(middle), 's')} in the median"
    return f"{quantity(float(middle), 's')} in the median, four in five between {number(low)} and {quantity(high, 's')}"


@panel("exchange-contact", "Time in contact")
def contact_time_panel(run: RunData) -> Drawn:
    """Draw the histogram of times in contact (s), completed and cut; no figure if no pair was ever in contact."""
    met = run.exchanges.filter((pl.col("via") != "") & pl.col("contact_s").is_finite())
    never = run.exchanges.height - met.height
    if met.is_empty():
        return None, "Not drawn: no two vehicles that were to exchange ever met."
    done = (met["outcome"] == "completed").to_numpy()
    seconds = met["contact_s"].to_numpy()
    most, largest = float(np.percentile(seconds, 99)), float(seconds.max())
    top = most * 1.15 if largest > 1.5 * most else largest * 1.05  # outliers must not stretch the axis
    edges = np.linspace(0, top if top > 0 else 1.0, int(np.clip(np.sqrt(len(seconds)), 8, 36)) + 1)
    figure, ax = drawing(HALF_IN, _HEIGHT_IN, top=0.34)
    parts = ((seconds[done], "completed", BLUE), (seconds[~done], "cut", VERMILION))
    _draw_stacked(ax, edges, [(np.histogram(values, edges)[0].astype(float), words, c) for values, words, c in parts])
    ax.set(xlabel="time in contact until completed or cut (s)", ylabel="exchanges")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    group_digits(ax)
    legend(ax)
    words = [f"{sentence_case(words)}: {_percentile_words(values)}." for values, words, _ in parts if len(values)]
    caption = " ".join([f"n = {count(met.height)}.", *words])
    if (outside := int((seconds > top).sum())) > 0:
        caption += f" {plural(outside, 'exchange')} beyond {number(top, 2)} s not shown."
    if never:
        caption += f" {plural(never, 'exchange')} between vehicles that never were in contact not counted."
    return figure, caption


def _value_words(run: RunData) -> str:
    """Return in words mean and range of the learner's own metric of completed exchanges; empty without values."""
    series, found = run.manifest.exchange, run.exchanges["value"]
    values = found.filter(found.is_finite()).to_numpy()
    if not series or not len(values):
        return ""
    factor, unit = (100.0, "%") if series.unit == "%" else (1.0, clean(series.unit, 12))
    mean, least, most = (quantity(factor * float(f(values)), unit) for f in (np.mean, np.min, np.max))
    words = sentence_case(clean(series.label or series.name, 40))
    numbers = f"{words} of {plural(len(values), 'exchange')}: mean {mean}, from {least} to {most}."
    return f" {numbers} {clean(series.caption, 400)}".rstrip()


EXCHANGE_PANELS = (contact_graph_panel, rounds_panel, contact_time_panel)
"""They draw a run whose table ``exchanges`` is not empty."""
