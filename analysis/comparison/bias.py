"""Participation bias: how the updates of each arm spread over speeds and directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.comparison.data import ConditionData
from analysis.comparison.plots import look
from analysis.formatting import shortened
from analysis.statistics.participation import Floats, shares, speed_bins, speed_edges_kmh
from analysis.style import GREY, HALF_IN, INK, Panel, drawing, legend, to_svg

_COMPASS = ("north", "east", "south", "west")


class Spread:
    """Shares of windows, dwell and updates of a condition in each bin: ``by_arm``, and ``together`` over all its cells.

    ``labels`` names the bins; ``bins_of`` returns the bin of each row of a table from ``windows_with_updates``.
    """

    def __init__(
        self, data: ConditionData, labels: Sequence[str], bins_of: Callable[[pl.DataFrame], NDArray[np.int64]]
    ) -> None:
        self.labels = tuple(labels)
        self._bins_of = bins_of
        self.by_arm = {arm: self.of(pl.concat([cell.windows for cell in data.of(arm)])) for arm in data.present}
        self.together = self.of(pl.concat([cell.windows for cell in data.cells]))

    def of(self, table: pl.DataFrame) -> dict[str, Floats]:
        """Return the shares of a table from ``windows_with_updates``; see ``statistics.participation.shares``."""
        return shares(table, self._bins_of(table), len(self.labels))


def _speeds_kmh(table: pl.DataFrame) -> Floats:
    """Return the speeds at entry (km/h) of a table from ``windows_with_updates``."""
    return table["speed_kmh"].to_numpy().astype(np.float64)


def spread_over_speeds(data: ConditionData) -> Spread:
    """Return shares by speed at entry (km/h); all arms of the condition have the same bins."""
    edges = speed_edges_kmh(_speeds_kmh(pl.concat([cell.windows for cell in data.cells])))
    labels = [f"{low:g}\u2013{high:g}" for low, high in pairwise(edges)]
    return Spread(data, labels, lambda table: speed_bins(_speeds_kmh(table), edges))


def spread_over_directions(data: ConditionData) -> Spread:
    """Return shares by the direction from which vehicles first came; one bin for each that is planned or occurs."""
    planned = [int(cell.settings.get("silos.approaches", 0)) for cell in data.cells]
    seen = [int(cell.windows["approach"].max()) + 1 for cell in data.cells if cell.windows.height]  # type: ignore[arg-type]
    bins = max(*planned, *seen, 1)
    bearings = [f"{360 * k / bins:.0f}\u00b0" for k in range(bins)]
    labels = _COMPASS if bins == len(_COMPASS) else bearings
    return Spread(data, labels, lambda table: table["approach"].to_numpy().astype(np.int64))


def spread_panel(data: ConditionData, spread: Spread, *, name: str, what: str, axis: str) -> Panel:
    """Draw each bin's share of coverage windows (bars), time in coverage (lines) and each arm's updates (dots).

    ``what`` names the bins in the title, ``axis`` labels them. If no update was aggregated, the panel has no figure and
    says so.
    """
    title = f"Updates against traffic, by {what}"
    if not any(one["updates"].any() for one in spread.by_arm.values()):
        return Panel(name=name, title=title, caption="Not drawn: no update was aggregated.")
    arms = list(spread.by_arm)
    places = np.arange(len(spread.labels))
    columns = 2 if max(map(len, arms)) < 18 else 1
    above = 0.16 * -(-(len(arms) + 2) // columns)
    figure, ax = drawing(HALF_IN, 2.75 + above, bottom=0.6, top=0.18 + above)
    together = spread.together
    bars = ax.bar(places, together["windows"] * 100, 0.86, color=GREY, alpha=0.4, label="windows")
    ends = (places - 0.43, places + 0.43)
    lines = ax.hlines(together["dwell_s"] * 100, *ends, color=INK, linewidth=1.6, label="time in coverage")
    handles: list[Any] = [bars, lines]
    offsets = (np.arange(len(arms)) - (len(arms) - 1) / 2) * 0.7 / len(arms)
    for offset, arm in zip(offsets, arms, strict=True):
        colour, style = look(data, arm)
        face = colour if style == "-" else "white"
        shown = spread.by_arm[arm]["updates"] * 100
        label = f"updates, {shortened(arm, 18 if columns > 1 else 40)}"
        handles += ax.plot(
            places + offset, shown, "o", color=colour, markerfacecolor=face, markersize=4.5, label=label, clip_on=False
        )
    crowded = len(places) > 5  # two lines each
    labels = [label.replace("\u2013", "\u2013\n") if crowded else label for label in spread.labels]
    ax.set_xticks(places, labels)
    ax.set(xlabel=axis, ylabel="share (%)")
    ax.set_ylim(bottom=0)
    ax.grid(visible=False, axis="x")
    legend(ax, columns, handles)
    caption = (
        "Bars: share of all coverage windows while the runs lasted; lines: share of the time in coverage. "
        "Dots: share of the updates aggregated with a weight above 0; above a bar, more than in proportion to windows."
    )
    return Panel(name=name, title=title, caption=caption, svg=to_svg(figure, name))
