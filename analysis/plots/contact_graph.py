"""Which vehicles exchanged with which, on the map: the contact graph of a few rounds."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from numpy.typing import NDArray

from analysis.formatting import clean, count, plural, quantity, si
from analysis.loading import RunData
from analysis.plots.place import frame, joined
from analysis.style import BLACK, BLUE, FULL_IN, GREY, INK, ORANGE, PALE, VERMILION, Drawn, Figure, panel
from vnetsim.coverage.rsu import Rsu

Extent = tuple[float, float, float, float]

_STATES: tuple[tuple[str, str, str, Any], ...] = (
    ("both", "both ways", BLUE, "-"),
    ("one", "one way", ORANGE, (0, (5, 2))),
    ("none", "cut", VERMILION, (0, (1, 1.4))),
)
"""State of a pair, in which directions its exchange completed, colour and dashes."""

_POSITION = {"x_m": "sender_x_m", "y_m": "sender_y_m", "to_x_m": "receiver_x_m", "to_y_m": "receiver_y_m"}
_MAX_VECTOR_EDGES = 600
_MAX_MARKED = 60
_LEAST_SIDE_M = 150.0
_BULGE, _BULGE_ON_A_ROAD, _ARC_POINTS = 0.1, 0.2, 13
"""Height of an arc over its length, also where all vehicles are on one straight road; and how finely it is drawn."""


def pairs(exchanges: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each round and pair of vehicles that was to exchange, in order of round.

    Columns: ``round``; ``state``, "both", "one" (direction completed) or "none"; ``relayed`` and ``met``, whether
    through an RSU and whether they were in contact at all; ``contact_s``; ``bytes``; and both ends' positions
    ``x_m``, ``y_m``, ``to_x_m``, ``to_y_m``.
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


def _arcs(edges: pl.DataFrame, bulge: float = 0.0) -> NDArray[np.float64]:
    """Return each edge as points of a flat arc, shape (edges, points, 2): so pairs along one road stay apart.

    ``bulge`` is its height over its length.
    """
    ends = edges.select(*_POSITION).to_numpy().reshape(-1, 2, 2)
    backwards = (ends[:, 0, 0] > ends[:, 1, 0]) | ((ends[:, 0, 0] == ends[:, 1, 0]) & (ends[:, 0, 1] > ends[:, 1, 1]))
    ends = np.where(backwards[:, None, None], ends[:, ::-1], ends)
    begin, way = ends[:, :1], ends[:, 1:] - ends[:, :1]
    left = np.stack([-way[..., 1], way[..., 0]], axis=-1)
    share = np.linspace(0, 1, _ARC_POINTS)[:, None]
    return np.asarray(begin + share * way + bulge * 4 * share * (1 - share) * left)


def _bounds(edges: pl.DataFrame, bulge: float = 0.0) -> Extent:
    points = _arcs(edges, bulge)
    (left, low), (right, high) = points.min(axis=(0, 1)), points.max(axis=(0, 1))
    return float(left), float(right), float(low), float(high)


def _focus(run: RunData, edges: pl.DataFrame) -> tuple[pl.DataFrame, Rsu | None]:
    """Return the pairs to draw, and the RSU around which they are when those far away are left out."""
    left, right, low, high = _bounds(edges)
    if max(right - left, high - low) <= 4 * max(rsu.range_m for rsu in run.rsus):
        return edges, None
    around = []
    for rsu in run.rsus:
        squares = [
            (pl.col(x) - rsu.x_m).pow(2) + (pl.col(y) - rsu.y_m).pow(2)
            for x, y in (("x_m", "y_m"), ("to_x_m", "to_y_m"))
        ]
        around.append((edges.filter(pl.max_horizontal(squares) <= (1.05 * rsu.range_m) ** 2), rsu))
    kept, rsu = max(around, key=lambda found: found[0].height)
    return (kept, rsu) if not kept.is_empty() else (edges, None)


def _maps(bounds: Extent, number: int) -> tuple[Figure, list[Axes], bool]:
    """Return a figure with a map for each round, side by side or, along a road, stacked; and whether they are."""
    left, right, low, high = bounds
    stacked = right - left > 2.2 * (high - low)
    down, across = (number, 1) if stacked else (1, number)
    width = min((FULL_IN - 0.84 - 0.45 * (across - 1)) / across, FULL_IN if stacked else 3.6)
    height = 1.3 if stacked else width
    total = 0.78 + down * (height + 0.24) + 0.28 * (down - 1)
    room = {
        "left": 0.72 / FULL_IN, "right": (0.72 + across * width + 0.45 * (across - 1)) / FULL_IN,
        "bottom": 0.48 / total, "top": 1 - 0.54 / total, "wspace": 0.45 / width, "hspace": 0.52 / height,
    }  # fmt: skip
    figure = Figure((FULL_IN, total))
    return figure, list(figure.subplots(down, across, squeeze=False, gridspec_kw=room).flat), stacked


def _draw_ground(ax: Axes, run: RunData, bounds: Extent) -> None:
    """Show these bounds with a margin, and draw RSUs and the lanes that may be seen."""
    left, right, low, high = bounds
    x_m, y_m, wide, tall = (left + right) / 2, (low + high) / 2, ax.bbox.width, ax.bbox.height
    scale = max(0.58 * (right - left) / wide, 0.58 * (high - low) / tall, _LEAST_SIDE_M / 2 / wide)
    left, right, low, high = x_m - scale * wide, x_m + scale * wide, y_m - scale * tall, y_m + scale * tall
    frame(ax, (left, right, low, high))
    x, y = pl.col("x_m").list, pl.col("y_m").list
    lanes = run.lanes.filter((x.max() >= left) & (x.min() <= right) & (y.max() >= low) & (y.min() <= high))
    if not lanes.is_empty():
        ax.plot(*joined(lanes), color=PALE, linewidth=0.8, zorder=1)
    for rsu in run.rsus:
        place = (rsu.x_m, rsu.y_m)
        disc = Circle(place, rsu.range_m, fill=False, edgecolor=GREY, linewidth=0.8, linestyle=(0, (5, 3)), zorder=1)
        ax.add_patch(disc)
        ax.plot(*place, "^", color=BLACK, markersize=5, markeredgecolor="white", markeredgewidth=0.7, zorder=2)


def _draw_graph(ax: Axes, edges: pl.DataFrame, bulge: float) -> None:
    raster = edges.height > _MAX_VECTOR_EDGES
    width, alpha = (1.4, 1.0) if edges.height <= 60 else (0.8, 0.8) if edges.height <= 300 else (0.5, 0.5)
    for layer, (state, _, colour, dashes) in enumerate(_STATES):
        arcs = _arcs(edges.filter(pl.col("state") == state), bulge)
        # one path with gaps in it, whose dashes begin anew at each edge
        path = np.concatenate([arcs, np.full((len(arcs), 1, 2), np.nan)], axis=1).reshape(-1, 2)
        look: dict[str, Any] = {"color": colour, "linewidth": width, "linestyle": dashes, "alpha": alpha}
        ax.plot(*path.T, zorder=3 + layer, rasterized=raster, **look)
    if edges.height <= _MAX_MARKED:
        middles = _arcs(edges.filter("relayed"), bulge)[:, _ARC_POINTS // 2]
        ax.plot(*middles.T, "D", color="white", markersize=3.6, markeredgecolor=INK, markeredgewidth=0.8, zorder=6)
    dots = np.unique(_arcs(edges)[:, [0, -1]].reshape(-1, 2), axis=0)
    ax.plot(*dots.T, "o", color=INK, markersize=4.4, markeredgecolor="white", markeredgewidth=0.6, zorder=7)


def _legend(figure: Figure, left: float, edges: pl.DataFrame) -> None:
    present = set(edges["state"].unique())
    handles = [
        Line2D([], [], color=colour, linestyle=dashes, label=words)
        for state, words, colour, dashes in _STATES
        if state in present
    ]
    marker = partial(Line2D, [], [], linestyle="none", markersize=4.4)
    if edges.filter("relayed", pl.len().over("round") <= _MAX_MARKED).height:
        handles.append(marker(marker="D", color="white", markeredgecolor=INK, label="relayed"))
    handles.append(marker(marker="o", color=INK, label="vehicle"))
    handles.append(marker(marker="^", color=BLACK, label="RSU"))
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(left, 1.0), ncols=len(handles), handlelength=2.4)


def _words(edges: pl.DataFrame) -> str:
    """Return what became of the pairs: how many completed, were cut, how long in contact, what they moved."""
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
    """Draw vehicles and exchanging pairs on the map for the first, a middle and the last round with exchanges."""
    edges = pairs(run.exchanges)
    rounds = edges["round"].unique().sort().to_list()
    shown = sorted({rounds[0], rounds[len(rounds) // 2], rounds[-1]})
    drawable = edges.filter(
        pl.col("round").is_in(shown) & pl.all_horizontal(pl.col(*_POSITION).is_finite().fill_null(value=False))
    )
    overall = f"{plural(len(rounds), 'round')} with exchanges: {_words(edges)}."
    if drawable.is_empty():
        return None, f"Not drawn: no position is known. Over {overall}"
    drawn, rsu = _focus(run, drawable)
    left, right, low, high = _bounds(drawn)
    bulge = _BULGE_ON_A_ROAD if right - left > 4 * (high - low) else _BULGE
    figure, maps, stacked = _maps(_bounds(drawn, bulge), len(shown))
    for i, (number, ax) in enumerate(zip(shown, maps, strict=True)):
        here = drawn.filter(pl.col("round") == number)
        _draw_ground(ax, run, _bounds(drawn if here.is_empty() else here, bulge))
        _draw_graph(ax, here, bulge)
        ax.set_title(f"round {count(number + 1)}: {plural(here.height, 'pair')}", fontsize=8.5, loc="left", pad=4)
        if stacked and i < len(shown) - 1:
            ax.set_xlabel("")
        if not stacked and i:
            ax.set_ylabel("")
    _legend(figure, maps[0].get_position().x0, drawn)
    caption = (
        "Vehicles where they were when the round's exchange began, and an arc for each pair that was to exchange: "
        "solid where both directions completed, dashed where one did, dotted where none did"
    )
    if rsu is not None:
        caption += (
            f"; only those in the coverage of RSU {clean(rsu.id, 24)}, {count(drawn.height)} of "
            f"{plural(drawable.height, 'pair')} in these rounds"
        )
    if len(shown) > 1:
        caption += ". Each map has its own scale"
    rest = [f"Round {count(number + 1)}: {_words(edges.filter(pl.col('round') == number))}." for number in shown]
    if len(rounds) > len(shown):
        rest.append(f"All {overall}")
    return figure, " ".join([f"{caption}.", *rest])
