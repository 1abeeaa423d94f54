"""The page of chosen places for RSUs: map, curve and table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from analysis.formatting import Table, clean, count, number, percent, plural, shortened
from analysis.plots.place import covered_extent, frame
from analysis.report.page import Section, environment
from analysis.style import BLACK, BLUE, FULL_IN, GREY, PALE, SKY, Figure, Panel, axes, drawing, styled, to_svg
from vnetsim.coverage.rsu import Rsu, lanes_within
from vnetsim.storage.folder import Folder

Floats = NDArray[np.float64]
PAGE = "place.html"
_MOST_POINTS = 20_000  # most points of lanes that the map draws as lines


def places_page(
    folder: Path,
    scenario: str,
    rsus: pl.DataFrame,
    candidates: Sequence[Rsu],
    lanes: Sequence[Floats],
    vehicles: int,
    notes: Sequence[str],
) -> tuple[Table, str]:
    """Write ``place.html`` and ``map.svg`` into a folder; return the page's table and its finding.

    ``rsus`` are the chosen ones in order, as in ``vnetsim.Placement``, ``vehicles`` the number of all vehicles;
    ``lanes`` are polylines (points, 2) in m, ``notes`` lines for the reader.
    """
    reached = int(rsus["reached"][-1])
    names = ", ".join(clean(one) for one in rsus["id"])
    finding = (
        f"{count(reached)} of {plural(vehicles, 'vehicle')} ({percent(reached / vehicles)}) are reached by "
        f"{plural(rsus.height, 'RSU')} of {plural(len(candidates), 'candidate')}: {names}."
    )
    rows = [
        (str(rank), shortened(name, 40), number(x_m, 6), number(y_m, 6), count(adds), count(sum_), percent(share))
        for rank, (name, x_m, y_m, _, adds, sum_, share) in enumerate(rsus.iter_rows(), 1)
    ]
    table = Table(
        title=f"Places for {plural(len(rows), 'RSU')} in {clean(scenario)}",
        head=("", "RSU", "x (m)", "y (m)", "adds", "reached", "of all vehicles"),
        rows=rows,
    )
    with styled():
        panels = [_draw_map(rsus, candidates, lanes), _draw_curve(rsus, vehicles)]
        section = Section(id="places", title="Places", panels=panels, tables=[table])
        page = (
            environment()
            .get_template("places.html.j2")
            .render(title=table.title, finding=finding, notes=[clean(note, 400) for note in notes], section=section)
        )
    files = Folder(folder)
    files.write_output("map.svg", panels[0].svg.encode())
    files.write_output(PAGE, page.encode("utf-8", "replace"))
    return table, finding


def _draw_map(rsus: pl.DataFrame, candidates: Sequence[Rsu], lanes: Sequence[Floats]) -> Panel:
    """Draw a map of the lanes near the candidates, the candidates, and the chosen RSUs with rank and disc."""
    west, east, south, north = covered_extent(candidates)
    box = (west + east) / 2, (south + north) / 2, (east - west) / 2, (north - south) / 2
    lanes = lanes_within(lanes, [box])
    aspect = (east - west) / (north - south)
    wide = min(FULL_IN - 0.8, 5.6 * aspect)
    figure = Figure((FULL_IN, wide / aspect + 0.6))
    ax = axes(figure, right=FULL_IN - 0.68 - wide)
    gap = np.full((1, 2), np.nan)
    if lanes:
        points = np.concatenate([part for lane in lanes for part in (lane, gap)])
        # as a picture, so that the page of a city does not have megabytes of lines
        ax.plot(*points.T, color=PALE, linewidth=0.8, rasterized=len(points) > _MOST_POINTS)
    ax.plot([rsu.x_m for rsu in candidates], [rsu.y_m for rsu in candidates], "o", color=GREY, markersize=2.5)
    for rank, (x_m, y_m, range_m) in enumerate(rsus.select("x_m", "y_m", "range_m").iter_rows(), 1):
        ax.add_patch(Circle((x_m, y_m), range_m, facecolor=SKY, alpha=0.25, edgecolor="none"))
        ax.plot([x_m], [y_m], "^", color=BLACK, markersize=6, markeredgecolor="white", mew=0.8)
        ax.annotate(str(rank), (x_m, y_m), (5, 5), textcoords="offset points", fontsize=8.0)
    frame(ax, (west, east, south, north))
    caption = (
        f"Triangles are the {plural(rsus.height, 'RSU')} in the order of choice, with their range; dots are the "
        f"{plural(len(candidates), 'candidate')}. " + ("Lines are lanes." if lanes else "No lane is known there.")
    )
    return Panel(name="places", title="Where the RSUs are", caption=caption, svg=to_svg(figure, "places"), wide=True)


def _draw_curve(rsus: pl.DataFrame, vehicles: int) -> Panel:
    """Draw the share of all vehicles that is reached (%), by number of RSUs."""
    figure, ax = drawing(FULL_IN, 2.9)
    share = np.append(0.0, rsus["share"].to_numpy()) * 100
    ax.plot(np.arange(len(share)), share, "o-", color=BLUE, markersize=4)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="number of RSUs", ylabel="reached (%)", xlim=(0, len(share) - 0.8), ylim=(0, 103))
    caption = f"Share of all {plural(vehicles, 'vehicle')} that the first RSUs reach together."
    title = "What each further RSU adds"
    return Panel(name="curve", title=title, caption=caption, svg=to_svg(figure, "curve"), wide=True)
