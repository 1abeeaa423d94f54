"""The contact graph of a round: pairs of vehicles that exchanged, on the map."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from analysis.formatting import count, plural, quantity, si
from analysis.loading import RunData
from analysis.plots.place import map_axes
from analysis.style import BLACK, BLUE, FULL_IN, INK, ORANGE, VERMILION, Drawn, legend, panel

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


def pairs(exchanges: pl.DataFrame) -> pl.DataFrame:
    """Return one row per round and pair of vehicles with a planned exchange, in order of round.

    Columns: ``round``; ``state``, the completed directions: "both", "one" or "none"; ``relayed``, whether through an
    RSU; ``met``, whether the two were in contact at all; ``contact_s``; ``bytes``; and the positions of both vehicles,
    ``x_m``, ``y_m``, ``to_x_m`` and ``to_y_m``.
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


def _arcs(edges: pl.DataFrame) -> NDArray[np.float64]:
    """Return an arc per row, shape (rows, points, 2) in m; arcs keep pairs along one road distinguishable."""
    ends = edges.select(*_POSITION).to_numpy().reshape(-1, 2, 2)
    backwards = (ends[:, 0, 0] > ends[:, 1, 0]) | ((ends[:, 0, 0] == ends[:, 1, 0]) & (ends[:, 0, 1] > ends[:, 1, 1]))
    ends = np.where(backwards[:, None, None], ends[:, ::-1], ends)
    begin, way = ends[:, :1], ends[:, 1:] - ends[:, :1]
    left = np.stack([-way[..., 1], way[..., 0]], axis=-1)
    share = np.linspace(0, 1, _ARC_POINTS)[:, None]
    return np.asarray(begin + share * way + _BULGE * 4 * share * (1 - share) * left)


def _extent(edges: pl.DataFrame) -> tuple[float, float, float, float]:
    """Return x_min, x_max, y_min and y_max (m) around the arcs of pairs (at least one), with a margin."""
    points = _arcs(edges)
    (left, low), (right, high) = points.min(axis=(0, 1)), points.max(axis=(0, 1))
    margin = max(0.08 * max(right - left, high - low), _LEAST_MARGIN_M)
    return float(left - margin), float(right + margin), float(low - margin), float(high + margin)


def _draw_graph(ax: Axes, edges: pl.DataFrame) -> None:
    """Draw an arc per pair, its look by state, marks of relayed pairs, the vehicles, and a legend, on ``ax``."""
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


def _words(edges: pl.DataFrame) -> str:
    """Return the number of pairs by state, their median time in contact and their bytes, in words."""
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
    """Draw who exchanged with whom on the map, in the round with most pairs of known positions, if any."""
    edges = pairs(run.exchanges)
    overall = f"{plural(edges['round'].n_unique(), 'round')} with exchanges: {_words(edges)}."
    known = edges.filter(pl.all_horizontal(pl.col(*_POSITION).is_finite().fill_null(value=False)))
    if known.is_empty():
        return None, f"Not drawn: no position is known. Over {overall}"
    number = known.group_by("round").len().sort("len", "round", descending=[True, False])["round"][0]
    drawn = known.filter(round=number)
    figure, ax = map_axes(run, FULL_IN, _extent(drawn))
    _draw_graph(ax, drawn)
    return figure, (
        "Vehicles where they were when the exchange began in the round with most of them, and an arc for each pair: "
        "solid where both directions completed, dashed where one did, dotted where none did.\n"
        f"Round {count(number + 1)}: {_words(edges.filter(round=number))}. All {overall}"
    )
