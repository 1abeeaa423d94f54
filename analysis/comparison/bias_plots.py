"""Figures of who takes part: aggregated updates against windows and time in coverage, by speed and by direction."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.comparison.bias import Spread
from analysis.comparison.data import ConditionData, shortened
from analysis.comparison.plots import look
from analysis.style import GREY, HALF_IN, INK, Panel, axes, to_svg


def spread_panel(data: ConditionData, spread: Spread, *, name: str, what: str, axis: str) -> Panel:
    """Draw how updates spread over bins: bars of windows, lines of time in coverage, dots of each arm's updates."""
    title = f"Updates against traffic, by {what}"
    if not any(one.updates.any() for one in spread.by_arm.values()):
        return Panel(name=name, title=title, caption="Not drawn: no update was aggregated.")
    arms = list(spread.by_arm)
    places = np.arange(len(spread.labels))
    columns = 2 if max(map(len, arms)) < 18 else 1
    figure = Figure((HALF_IN, 2.75 + 0.16 * -(-(len(arms) + 2) // columns)))
    ax = axes(figure, bottom=0.6, top=0.18 + 0.16 * -(-(len(arms) + 2) // columns))
    bars = ax.bar(places, spread.windows * 100, 0.86, color=GREY, alpha=0.4, label="windows")
    handles: list[Any] = [bars]
    handles += [
        ax.hlines(spread.dwell * 100, places - 0.43, places + 0.43, color=INK, linewidth=1.6, label="time in coverage")
    ]
    offsets = (np.arange(len(arms)) - (len(arms) - 1) / 2) * 0.7 / len(arms)
    for offset, arm in zip(offsets, arms, strict=True):
        colour, style = look(data, arm)
        face = colour if style == "-" else "white"
        shown = spread.by_arm[arm].updates * 100
        label = f"updates, {shortened(arm, 18 if columns > 1 else 40)}"
        handles += ax.plot(
            places + offset, shown, "o", color=colour, markerfacecolor=face, markersize=4.5, label=label, clip_on=False
        )
    crowded = len(places) > 6  # two lines each
    labels = [label.replace("\u2013", "\u2013\n") if crowded else label for label in spread.labels]
    ax.set_xticks(places, labels)
    ax.set(xlabel=axis, ylabel="share (%)")
    ax.set_ylim(bottom=0)
    ax.grid(visible=False, axis="x")
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns)
    caption = (
        "Bars: share of all coverage windows while the runs lasted; lines: share of the time in coverage. "
        "Dots: share of the updates aggregated with a weight above 0; above a bar, more than in proportion to windows."
    )
    return Panel(name=name, title=title, caption=caption, svg=to_svg(figure, name))
