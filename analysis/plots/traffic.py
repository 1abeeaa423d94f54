"""Plots of traffic: vehicles in coverage over time, their speeds and dwell times."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analysis.formatting import clean, count, duration, number, percent, plural, quantity, shortened
from analysis.loading import RunData
from analysis.statistics.truncated_gaussian import SpeedFit, fit_truncated_gaussian
from analysis.statistics.windows import Dwell, Floats, StepCurve, dwell, entries, in_coverage
from analysis.style import (
    BLUE,
    FULL_IN,
    HALF_IN,
    PALE,
    PALE_BLUE,
    VERMILION,
    Drawn,
    drawing,
    histogram,
    legend,
    panel,
    time_axis,
)
from vnetsim.storage.tables import CUT_ENTRY, CUT_EXIT

NO_TRAFFIC = "Not drawn: no coverage window was recorded."
_MAX_RSUS = 12
_MAX_STEPS = 1500
_BINS, _BINS_OF_SEVERAL = 600, 200


def _count_in_coverage(windows: pl.DataFrame) -> dict[str, StepCurve]:
    """Return the number of vehicles in coverage over time, by RSU that has windows, most windows first."""
    ids = windows.group_by("rsu_id").len().sort("len", "rsu_id", descending=[True, False])["rsu_id"]
    return {name: in_coverage(windows.filter(pl.col("rsu_id") == name)) for name in ids}


def _time_span(run: RunData) -> tuple[float, float]:
    """Return (begin, end) (s) of run and windows together; exits that the end cut off do not count. Needs a window."""
    begin, end = run.manifest.traffic.begin_s, run.manifest.time_s
    enter, leave = run.windows["enter_s"].to_numpy(), run.windows["exit_s"].to_numpy()
    last = float(leave.max())
    if end is not None:
        # paths may be known beyond the end of a run: an exit that is not cut by the end proves a later end
        gone = run.windows.filter(pl.col("exit_cause") != "end")["exit_s"]
        last = max(end, float(gone.max() or end))  # type: ignore[arg-type]
    return min(begin, float(enter.min())), last


def _points_to_draw(curve: StepCurve, begin: float, end: float, most: int, bins: int) -> tuple[Floats, Floats]:
    """Return times (s) and values of steps to draw: the curve's or, if over ``most``, means over ``bins`` spans."""
    if len(curve.time_s) <= most:
        return np.concatenate([[begin], curve.time_s, [end]]), np.concatenate([[0], curve.value, [0]])
    edges = np.linspace(begin, end, bins + 1)
    means = curve.means(edges)
    return edges, np.append(means, means[-1])


@panel("occupancy", "Vehicles in coverage", wide=True)
def occupancy_panel(run: RunData) -> Drawn:
    """Draw the number of vehicles in coverage over time, in a row per RSU, at most 12; no figure without windows."""
    if run.windows.is_empty():
        return None, NO_TRAFFIC
    begin, end = _time_span(run)
    axis = time_axis(end - begin, run.manifest.traffic.begin_s)
    found = _count_in_coverage(run.windows.with_columns(exit_s=pl.min_horizontal("exit_s", pl.lit(end))))
    shown = list(found.items())[:_MAX_RSUS]
    peak = max(curve.peak for _, curve in shown)
    several = len(shown) > 1
    bins = _BINS_OF_SEVERAL if several else _BINS
    figure, ax = drawing(FULL_IN, 2.4 if not several else 0.75 + 0.42 * len(shown), left=1.25 if several else 0.68)
    for row, (_, curve) in enumerate(shown):
        time, value = _points_to_draw(curve, begin, end, _MAX_STEPS // len(shown), bins)
        time, height = axis.of(time), value * (0.86 / peak if several else 1.0)
        base = len(shown) - 1 - row if several else 0
        ax.fill_between(time, base, base + height, step="post", color=BLUE, alpha=0.2, linewidth=0)
        ax.step(time, base + height, where="post", color=BLUE, linewidth=1.0)
    ax.set(xlabel=axis.label, xlim=(axis.of(begin), axis.of(end)))
    if several:
        ax.set_yticks(range(len(shown)), [shortened(name, 18) for name, _ in reversed(shown)])
        ax.set_ylim(-0.08, len(shown))
        ax.tick_params(axis="y", length=0)
        caption = f"All rows have one scale; the highest curve reaches {plural(peak, 'vehicle')}."
    else:
        ax.set(ylabel="vehicles", ylim=(0, peak * 1.06))
        name, curve = shown[0]
        mean = number(float(curve.means(np.array([begin, end]))[0]))
        caption = f"RSU {clean(name, 24)}: at most {count(curve.peak)}, {mean} on average."
    if any(len(curve.time_s) > _MAX_STEPS // len(shown) for _, curve in shown):
        caption += f"\nLong curves are drawn as means over {duration((end - begin) / bins)}."
    if len(found) > len(shown):
        caption += f" Shown are the {count(len(shown))} of {count(len(found))} RSUs with most windows."
    return figure, caption


def _declared_bounds_kmh(run: RunData) -> tuple[float, float] | None:
    """Return the speed bounds (km/h) in the settings of traffic ``gaussian``; None for other traffic or bad bounds."""
    made = run.manifest.traffic.plugin
    if run.manifest.traffic.kind != "gaussian" or made is None:
        return None
    low, high = (made.settings.get(name) for name in ("v_min_kmh", "v_max_kmh"))
    if not (isinstance(low, int | float) and isinstance(high, int | float)):  # the folder is untrusted
        return None
    return (float(low), float(high)) if low < high else None


def _fit_words(fit: SpeedFit | None, declared: bool) -> str:
    """Return in words the fit or, if None, why there is none; ``declared``: its bounds are from the settings."""
    if fit is None:
        return "Too few different speeds to fit a distribution."
    bounds = f"{number(fit.low)}\u2013{number(fit.high)} km/h ({'declared' if declared else 'observed'})"
    if not fit.is_gaussian:
        return (
            f"No truncated Gaussian fits: within {bounds} the speeds spread wider than any of them, "
            "as they do where some vehicles queue and others pass."
        )
    verdict = "a close fit" if fit.ks < 0.05 else "a poor fit: these speeds do not follow a truncated Gaussian"
    return (
        f"Truncated Gaussian by maximum likelihood: mean {number(fit.mean)} km/h, sd {number(fit.sd)} km/h before "
        f"truncation to {bounds}. Its distribution is nowhere further than {percent(fit.ks)} from the speeds' "
        f"(Kolmogorov\u2013Smirnov distance): {verdict}."
    )


@panel("speeds", "Speed at entry")
def speed_panel(run: RunData) -> Drawn:
    """Draw the histogram of entry speeds, and a truncated Gaussian if one fits; no figure without known entries."""
    speeds = entries(run.windows)["entry_speed_mps"].to_numpy() * 3.6
    left_out = run.windows.height - len(speeds)
    if len(speeds) == 0:
        return None, NO_TRAFFIC
    declared = _declared_bounds_kmh(run)
    fit = fit_truncated_gaussian(speeds, declared)
    figure, ax = drawing(HALF_IN, 2.9, top=0.34)
    low, high = (float(speeds.min()), float(speeds.max())) if declared is None else declared
    if high - low < 1e-6:
        low, high = low - 1, high + 1
    bins = int(np.clip(np.sqrt(len(speeds)), 8, 36))
    histogram(ax, speeds, np.linspace(low, high, bins + 1), "windows")
    if fit is not None and fit.is_gaussian:
        grid = np.linspace(fit.low, fit.high, 200)
        expected = fit.density(grid) * len(speeds) * (high - low) / bins
        ax.plot(grid, expected, color=VERMILION, label="fitted truncated Gaussian")
    ax.set(xlabel="speed at entry (km/h)", ylabel="windows")
    legend(ax)
    rest = f" {plural(left_out, 'window')} that began inside the disc not counted." if left_out else ""
    caption = f"n = {count(len(speeds))}, median {quantity(float(np.median(speeds)), 'km/h')}."
    return figure, f"{caption}\n{rest} {_fit_words(fit, declared is not None)}"


def draw_dwell(ax: Axes, run: RunData) -> tuple[Dwell, float]:
    """Draw a histogram of dwell times, cut ones in another colour; return dwell and axis end (s). Needs a window."""
    seconds = (run.windows["exit_s"] - run.windows["enter_s"]).to_numpy()
    cut = (run.windows["exit_cause"].is_in(CUT_EXIT) | run.windows["entry_cause"].is_in(CUT_ENTRY)).to_numpy()
    top = max(float(np.percentile(seconds, 99.0)) * 1.02, 1e-3)
    bins = np.linspace(0, top, 33)
    whole, every = np.histogram(seconds[~cut], bins)[0], np.histogram(seconds, bins)[0]
    if cut.any():
        ax.stairs(every, bins, fill=True, color=PALE, label="cut off")
    ax.stairs(whole, bins, fill=True, color=PALE_BLUE, label="whole")
    ax.vlines(bins[1:-1], 0, np.minimum(every[1:], every[:-1]), color="white", linewidth=0.6)
    found = dwell(run.windows)
    if found.median_s <= top:
        ax.axvline(found.median_s, color=VERMILION, linewidth=1.4, linestyle=(0, (4, 3)), label="median")
    what = "windows" if run.every == 1 else f"windows of 1 in {count(run.every)} vehicles"
    ax.set(xlabel="dwell time (s)", ylabel=what, xlim=(0, top), ylim=(0, max(1.06 * int(every.max()), 1)))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    legend(ax)
    return found, top


@panel("dwell", "Dwell time")
def dwell_panel(run: RunData) -> Drawn:
    """Draw the histogram of the dwell times of windows; no figure without windows."""
    if run.windows.is_empty():
        return None, NO_TRAFFIC
    figure, ax = drawing(HALF_IN, 2.9, top=0.34)
    found, top = draw_dwell(ax, run)
    seconds = run.windows["exit_s"] - run.windows["enter_s"]
    outside = int((seconds > top).sum())
    beyond = f" {plural(outside, 'window')} beyond {number(top, 2)} s not shown." if outside else ""
    caption = f"Median {found.brief}.\nn = {plural(len(seconds), 'window')}. {found.sentence}{beyond}"
    return figure, caption
