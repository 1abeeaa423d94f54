"""The map: lanes, RSU discs, and the mean speed of vehicles by place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.figure
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Circle
from numpy.typing import NDArray

from analysis.formatting import clean, count, number, plural, shortened
from analysis.loading import RunData
from analysis.statistics.windows import SpeedMap, speed_map
from analysis.style import BLACK, FULL_IN, GREY, HALF_IN, PALE, SKY, VIRIDIS, Figure, Panel, axes, group_digits, to_svg
from vnetsim.coverage.rsu import Rsu

_CELLS = 640
_FEW = 12
"""Most RSUs with names and dashed discs; more names would hide the map."""


def covered_extent(rsus: Sequence[Rsu]) -> tuple[float, float, float, float]:
    """Return x_min, x_max, y_min and y_max (m) of all coverage discs, of one RSU or more."""
    x, y, r = (np.array([getattr(rsu, name) for rsu in rsus]) for name in ("x_m", "y_m", "range_m"))
    return float((x - r).min()), float((x + r).max()), float((y - r).min()), float((y + r).max())


def _extent(run: RunData) -> tuple[float, float, float, float]:
    """Return x_min, x_max, y_min and y_max (m) of all discs with a margin."""
    west, east, south, north = covered_extent(run.rsus)
    margin = 0.06 * max(east - west, north - south)
    return west - margin, east + margin, south - margin, north + margin


def frame(ax: Axes, extent: tuple[float, float, float, float]) -> None:
    """Limit axes to x_min, x_max, y_min, y_max (m) in equal scale, label them, and hide the grid."""
    long = max(abs(value) for value in extent) >= 1e5  # coordinates of projected nets have seven digits
    ax.locator_params(nbins=3 if long else 6)
    if long:
        group_digits(ax, "x")
        group_digits(ax, "y")
        ax.tick_params(axis="y", labelrotation=90)
        for label in ax.get_yticklabels():
            label.set_verticalalignment("center")
    ax.set(xlim=extent[:2], ylim=extent[2:], aspect="equal")
    ax.set(xlabel="x in the net (m)", ylabel="y in the net (m)")
    ax.grid(visible=False)


def join_polylines(lanes: pl.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return x and y (m) of all polylines, each followed by NaN, to draw one SVG path instead of thousands."""
    gap = pl.lit([float("nan")], dtype=pl.List(pl.Float64))
    joined = lanes.select(pl.concat_list("x_m", gap), pl.concat_list("y_m", gap)).explode("x_m", "y_m")
    return joined["x_m"].to_numpy(), joined["y_m"].to_numpy()


def _draw_rsus(ax: Axes, run: RunData) -> None:
    """Draw discs and RSUs; up to 12 with names and dashed discs, more without names in tinted discs."""
    few = len(run.rsus) <= _FEW
    # many rims would hide the map, so many discs are tinted areas instead
    disc: dict[str, Any] = (
        {"fill": False, "edgecolor": BLACK, "linewidth": 1.1, "linestyle": (0, (5, 3))}
        if few
        else {"facecolor": SKY, "alpha": 0.13, "linewidth": 0, "zorder": 0.5}
    )
    for rsu in run.rsus:
        ax.add_patch(Circle((rsu.x_m, rsu.y_m), rsu.range_m, **disc))
        if few:
            box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
            where: dict[str, Any] = {"xy": (rsu.x_m, rsu.y_m), "xytext": (6.0, 6.0), "textcoords": "offset points"}
            ax.annotate(shortened(rsu.id, 24), **where, fontsize=8.0, bbox=box)
    places = [rsu.x_m for rsu in run.rsus], [rsu.y_m for rsu in run.rsus]
    ax.plot(*places, "^", color=BLACK, markersize=6 if few else 4.5, markeredgecolor="white", mew=0.8)


def map_axes(
    run: RunData,
    width_in: float = HALF_IN,
    extent: tuple[float, float, float, float] | None = None,
    *,
    above_in: float = 0.52,
    beside_in: float = 0.12,
) -> tuple[Figure, Axes]:
    """Return a figure with lanes and coverage discs in equal scale, and its axes.

    ``extent`` is x_min, x_max, y_min, y_max (m), by default that of all discs; ``above_in`` and ``beside_in`` are the
    room (inches) for legend and colour bar.
    """
    extent = extent or _extent(run)
    aspect = (extent[1] - extent[0]) / (extent[3] - extent[2])
    wide = min(width_in - 0.68 - beside_in, 4.6 * aspect)
    figure = Figure((width_in, wide / aspect + 0.48 + above_in))
    ax = axes(figure, top=above_in, right=width_in - 0.68 - wide)
    _draw_ground(ax, run, extent)
    return figure, ax


def _draw_ground(ax: Axes, run: RunData, extent: tuple[float, float, float, float]) -> None:
    """Draw lanes and RSU discs in equal scale; limit the axes to x_min, x_max, y_min, y_max (m)."""
    if not run.lanes.is_empty():
        ax.plot(*join_polylines(run.lanes), color=PALE if run.windows.height else GREY, linewidth=0.8, zorder=0.8)
    _draw_rsus(ax, run)
    frame(ax, extent)


def _draw_speeds(
    figure: matplotlib.figure.Figure, ax: Axes, run: RunData, extent: tuple[float, float, float, float]
) -> SpeedMap:
    """Draw the mean speed by place within an extent (m), and its colour bar; return the speeds."""
    speeds = speed_map(run.paths or run.windows, extent, _CELLS)
    kmh = speeds.mean_mps * 3.6
    top = max(float(np.nanpercentile(kmh, 99)), 1.0)
    colour = Normalize(0.0, top)
    pixels = (VIRIDIS(colour(np.nan_to_num(kmh))) * 255).astype(np.uint8)
    pixels[..., 3] = np.where(np.isnan(kmh), 0, 255)
    rows, columns = kmh.shape
    covered = (extent[0], extent[0] + columns * speeds.cell_m, extent[2], extent[2] + rows * speeds.cell_m)
    # above the lanes, below discs and RSUs
    ax.imshow(pixels, extent=covered, origin="lower", interpolation="none", zorder=0.9)
    frame(ax, extent)
    per_in = 1 / (figure.get_figwidth() * ax.get_position().width)
    bar = ax.inset_axes((1 + 0.12 * per_in, 0, 0.13 * per_in, 1))
    figure.colorbar(ScalarMappable(colour, VIRIDIS), cax=bar, label="mean speed (km/h)")
    bar.grid(visible=False)
    return speeds


def draw_map(ax: Axes, run: RunData) -> None:
    """Draw lanes, RSU discs and, if there are windows, mean speeds in equal scale on ``ax``."""
    _draw_ground(ax, run, _extent(run))
    if not run.windows.is_empty():
        _draw_speeds(ax.figure.figure, ax, run, _extent(run))


def map_panel(run: RunData, ids: str = "map") -> Panel:
    """Draw lanes, RSU discs, mean speeds; no figure without lanes and windows. ``ids`` begins the ids in the SVG."""
    title = "Where vehicles drove in coverage, and how fast"
    if run.windows.is_empty() and run.lanes.is_empty():
        return Panel(name="map", title=title, caption="There is neither a road net nor a vehicle to draw.")
    extent = _extent(run)
    wide = extent[1] - extent[0] > 1.7 * (extent[3] - extent[2])
    figure, ax = map_axes(run, FULL_IN if wide else 5.2, extent, above_in=0.1, beside_in=0.85)
    name = f"RSU {clean(run.rsus[0].id, 40)}" if len(run.rsus) == 1 else plural(len(run.rsus), "RSU")
    caption = f"{name}, coverage {'dashed' if len(run.rsus) <= _FEW else 'tinted'}.\n"
    if run.windows.is_empty():
        caption += "The lanes of the road net are grey. No coverage window was recorded."
    else:
        speeds = _draw_speeds(figure, ax, run, extent)
        used = "all" if speeds.every == 1 else f"one in {count(speeds.every)} of"
        caption += (
            f"Colour is distance driven over time spent, in cells of {number(speeds.cell_m, 2)} m, over {used} "
            f"{plural(run.recorded, 'window')}: queues are dark. "
        )
        caption += "Grey lines are lanes." if not run.lanes.is_empty() else "No road net is known for this traffic."
    return Panel(name="map", title=title, caption=caption, svg=to_svg(figure, ids), wide=wide)
