"""How many vehicles each RSU covers over time."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from analysis.formatting import clean, count, duration, number, plural, shortened
from analysis.loading import RunData
from analysis.plots.traffic import NO_TRAFFIC
from analysis.statistics.windows import Floats, StepCurve, in_coverage
from analysis.style import BLUE, FULL_IN, Drawn, axes, panel, time_axis

_MAX_RSUS = 12
_MAX_STEPS = 1500
_BINS = 600


def _curves(windows: pl.DataFrame) -> dict[str, StepCurve]:
    """Return the step curve of each RSU that had traffic, the RSU with most windows first."""
    ids = windows.group_by("rsu_id").len().sort("len", "rsu_id", descending=[True, False])["rsu_id"]
    return {name: in_coverage(windows.filter(pl.col("rsu_id") == name)) for name in ids}


def _span(run: RunData) -> tuple[float, float]:
    begin, end = run.manifest.traffic.begin_s, run.manifest.time_s
    enter, leave = run.windows["enter_s"].to_numpy(), run.windows["exit_s"].to_numpy()
    last = float(leave.max())
    if end is not None:
        # Paths may be known beyond the end of a run; vehicles that left earlier prove a later end all the same.
        gone = run.windows.filter(pl.col("exit_cause") != "end")["exit_s"]
        last = max(end, float(gone.max() or end))  # type: ignore[arg-type]
    return min(begin, float(enter.min())), last


def _drawn(curve: StepCurve, begin: float, end: float) -> tuple[Floats, Floats]:
    """Return times (s) and values of the steps to draw: every one of them, or means over equal times when too many."""
    if len(curve.time_s) <= _MAX_STEPS:
        return np.concatenate([[begin], curve.time_s, [end]]), np.concatenate([[0], curve.value, [0]])
    edges = np.linspace(begin, end, _BINS + 1)
    means = curve.means(edges)
    return edges, np.append(means, means[-1])


@panel("occupancy", "Vehicles in coverage", wide=True)
def occupancy_panel(run: RunData) -> Drawn:
    """Draw the vehicles in coverage: one curve, or one row for each RSU when there are several."""
    if run.windows.is_empty():
        return None, NO_TRAFFIC
    begin, end = _span(run)
    axis = time_axis(end - begin, run.manifest.traffic.begin_s)
    found = _curves(run.windows.with_columns(exit_s=pl.min_horizontal("exit_s", pl.lit(end))))
    shown = list(found.items())[:_MAX_RSUS]
    peak = max(curve.peak for _, curve in shown)
    several = len(shown) > 1
    figure = Figure((FULL_IN, 2.4 if not several else 0.75 + 0.42 * len(shown)))
    ax = axes(figure, left=1.25 if several else 0.68)
    for row, (_, curve) in enumerate(shown):
        time, value = _drawn(curve, begin, end)
        time, height = axis.of(time), value * (0.86 / peak if several else 1.0)
        base = len(shown) - 1 - row if several else 0
        ax.fill_between(time, base, base + height, step="post", color=BLUE, alpha=0.2, linewidth=0)
        ax.step(time, base + height, where="post", color=BLUE, linewidth=1.0)
    ax.set(xlabel=axis.label, xlim=(axis.of(begin), axis.of(end)))
    if several:
        ax.set_yticks(range(len(shown)), [shortened(name, 18) for name, _ in reversed(shown)])
        ax.set_ylim(-0.08, len(shown))
        ax.tick_params(axis="y", length=0)
    else:
        ax.set_ylabel("vehicles")
        ax.set_ylim(0, peak * 1.06)
    if several:
        caption = f"All rows have one scale; the highest curve reaches {plural(peak, 'vehicle')}."
    else:
        name, curve = shown[0]
        mean = number(float(curve.means(np.array([begin, end]))[0]))
        caption = f"RSU {clean(name, 24)}: at most {count(curve.peak)}, {mean} on average."
    if any(len(curve.time_s) > _MAX_STEPS for _, curve in shown):
        caption += f" Long curves are drawn as means over {duration((end - begin) / _BINS)}."
    if len(found) > len(shown):
        caption += f" Shown are the {count(len(shown))} of {count(len(found))} RSUs with most windows."
    return figure, caption
