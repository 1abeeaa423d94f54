"""Plots of exchanges between vehicles: number by round, time in contact, and the learner's own value."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from analysis.formatting import byte_scale, clean, count, number, percent, plural, quantity, sentence_case, si
from analysis.loading import RunData
from analysis.plots.contact_graph import contact_graph_panel
from analysis.style import (
    BLUE,
    HALF_IN,
    ORANGE,
    SKY,
    VERMILION,
    Drawn,
    Figure,
    Panel,
    axes,
    drawing,
    group_digits,
    legend,
    panel,
)

Floats = NDArray[np.float64]

_HEIGHT_IN = 3.3
_MAX_BARS = 120


def _bars_by_round(run: RunData) -> tuple[Floats, int, pl.DataFrame]:
    """Return edges of bars, rounds per bar, and a row per bar with means per round (0 for rounds without exchange)."""
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


def _stack(ax: Axes, edges: Floats, layers: list[tuple[Floats, str, str]]) -> None:
    """Draw stacked histograms, each as one path; layers with zeros only are left out."""
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
    """Draw the numbers of completed and of cut exchanges by round, and their bytes; ``exchanges`` must not be empty."""
    edges, width, bars = _bars_by_round(run)
    figure = Figure((HALF_IN, _HEIGHT_IN))
    upper, lower = axes(figure, bottom=1.5, top=0.34), axes(figure, bottom=0.48, top=2.14)
    moved = float(bars.select(pl.sum_horizontal("sidelink", "relay").max()).item())
    scale, unit = byte_scale(moved)
    done, cut, sidelink, relay = (bars[name].to_numpy() for name in ("completed", "cut", "sidelink", "relay"))
    _stack(upper, edges, [(done, "completed", BLUE), (cut, "cut", VERMILION)])
    _stack(lower, edges, [(sidelink / scale, "sidelink", SKY), (relay / scale, "relayed by RSU", ORANGE)])
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
    """Return median and 10th to 90th percentile of times (s) in words; the median alone of fewer than ten."""
    low, middle, high = np.percentile(seconds, [10, 50, 90])
    if len(seconds) < 10:
        return f"{quantity(float(middle), 's')} in the median"
    return f"{quantity(float(middle), 's')} in the median, four in five between {number(low)} and {quantity(high, 's')}"


@panel("exchange-contact", "Time in contact")
def contact_time_panel(run: RunData) -> Drawn:
    """Draw the time in contact (s) of completed and of cut exchanges; pairs that never met are left out."""
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
    _stack(ax, edges, [(np.histogram(values, edges)[0].astype(float), words, c) for values, words, c in parts])
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
    """Return mean and range of the value that the learner gave to completed exchanges; empty without values."""
    series, found = run.manifest.exchange, run.exchanges["value"]
    values = found.filter(found.is_finite()).to_numpy()
    if not series or not len(values):
        return ""
    factor, unit = (100.0, "%") if series.unit == "%" else (1.0, clean(series.unit, 12))
    mean, least, most = (quantity(factor * float(f(values)), unit) for f in (np.mean, np.min, np.max))
    words = sentence_case(clean(series.label or series.name, 40))
    numbers = f"{words} of {plural(len(values), 'exchange')}: mean {mean}, from {least} to {most}."
    return f" {numbers} {clean(series.caption, 400)}".rstrip()


def exchange_panels(run: RunData) -> list[Panel]:
    """Draw all figures of exchanges; the table ``exchanges`` must not be empty."""
    return [contact_graph_panel(run), rounds_panel(run), contact_time_panel(run)]
