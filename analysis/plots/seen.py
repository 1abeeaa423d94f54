"""What vehicles see: classes and steering angles by place and by speed, and frames along paths."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgba
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image

from analysis.formatting import THIN, Table, clean, count, duration, number, percent, plural, quantity, shortened
from analysis.loading import RunData
from analysis.plots.blur import png_strip
from analysis.plots.place import covered_extent, map_axes
from analysis.style import CYCLE, FULL_IN, GREY, Panel, legend, to_svg

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SQUARE_M = 30.0
_MOST_SQUARES = 60
"""Most squares along a side of the map; they are larger on larger maps."""
_COLOURED = 6
"""Classes with a colour of their own."""
_DIVERGING = colormaps["coolwarm"]
"""Grey in the middle, which is seen on a white page and on a dark one."""
_STRAIGHT = 0.02
"""Smaller steering angles are called straight: those of arcs with a radius above 540 m."""
_SHOWN = 8
"""Most frames of a path beside one another."""
FILM_BYTES = 1_400_000
"""Most bytes of all frames of the playback."""


def _class_names(run: RunData) -> dict[int, str]:
    """Return the names of the classes, or of the ranges of the steering angle, by number; empty without classes."""
    return {label: clean(name, 40) for label, name in run.silos.select("class", "class_name").unique().iter_rows()}


def _divide_map(run: RunData) -> tuple[Integers, float, tuple[float, float], tuple[int, int]]:
    """Return each image's square, by row, a square's side (m), the south-western corner (m), and (rows, columns)."""
    assert run.samples is not None
    of = run.samples.places
    west, east, south, north = covered_extent(run.rsus)
    side_m = max(_SQUARE_M, max(east - west, north - south) / _MOST_SQUARES)
    columns, rows = int(np.ceil((east - west) / side_m)), int(np.ceil((north - south) / side_m))
    column, row = (
        np.clip(np.floor((of[name] - origin) / side_m).astype(np.int64), 0, most - 1)
        for name, origin, most in (("x_m", west, columns), ("y_m", south, rows))
    )
    return row * columns + column, side_m, (west, south), (rows, columns)


def explained_variance(values: Floats, groups: Integers) -> float:
    """Return the share of the variance of values that their groups explain: Kelley's epsilon squared (1935).

    It is 0 if groups explain no more than random ones; NaN if all values are equal or all groups have one value.
    """
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    left, total = len(values) - len(sizes), float(np.var(values)) * len(values)
    if left < 1 or total == 0:
        return float("nan")
    inside = float(np.square(values - (np.bincount(group, values) / sizes)[group]).sum())
    return max(0.0, 1 - inside / left * (len(values) - 1) / total)


def predictability_by_place(labels: Integers, squares: Integers) -> float:
    """Return the share of images whose class is the only most frequent one of the other images in their square."""
    counts = np.zeros((int(squares.max()) + 1, max(int(labels.max()) + 1, 2)), dtype=np.int64)
    np.add.at(counts, (squares, labels), 1)
    second, first = np.sort(counts, axis=1)[:, -2:].T
    return float(first[first - 1 > second].sum() / len(labels))


def seen_panel(run: RunData) -> Panel:
    """Draw the map in squares, coloured by the most frequent class or mean steering angle of images; needs samples."""
    assert run.samples is not None
    of = run.samples.places
    square, side_m, (west, south), (rows, columns) = _divide_map(run)
    images, taken = np.bincount(square, minlength=rows * columns), plural(len(square), "training image")
    wide, side = columns > 1.7 * rows, f"{number(side_m, 2)}{THIN}m"
    figure, ax = map_axes(
        run, FULL_IN if wide else 5.2, above_in=0.1 if run.has_angles else 0.6 if wide else 0.75, beside_in=1.0
    )
    pixels = np.zeros((rows * columns, 4))
    if run.has_angles:
        mean = np.bincount(square, of["angle"], rows * columns) / np.maximum(images, 1)
        top = max(float(np.abs(mean).max()), 1e-3)
        colour = Normalize(-top, top)
        pixels = _DIVERGING(colour(mean))
        per_in = 1 / (figure.get_figwidth() * ax.get_position().width)
        bar = ax.inset_axes((1 + 0.12 * per_in, 0, 0.13 * per_in, 1))
        figure.colorbar(ScalarMappable(colour, _DIVERGING), cax=bar, label="mean steering angle", ticks=MaxNLocator(5))
        bar.grid(visible=False)
        shares = [percent(explained_variance(angle, square), 0) for angle in (of["angle"], np.abs(of["angle"]))]
        words = (
            f"Mean steering angle, right positive, of the {taken} from each square of {side}. Place "
            f"explains {shares[0]} of the variance of the angle, and {shares[1]} of that of its size: which way a car "
            "turns, only its route knows."
        )
    else:
        names, totals = _class_names(run), np.bincount(of["label"])
        coloured = np.argsort(-totals, kind="stable")[:_COLOURED]
        look = dict.fromkeys(range(len(totals)), GREY) | dict(zip(coloured.tolist(), CYCLE, strict=False))
        counts = np.zeros((rows * columns, len(totals)))
        np.add.at(counts, (square, of["label"]), 1)
        pixels = np.array([to_rgba(look[label]) for label in range(len(totals))])[counts.argmax(axis=1)]
        keys = [Patch(color=look[one], label=shortened(names.get(one, str(one)), 20)) for one in coloured.tolist()]
        keys += [Patch(color=GREY, label="others")] * int(np.count_nonzero(totals) > _COLOURED)
        legend(ax, 4 if wide else 3, keys)
        words = (
            f"The class that the {taken} from each square of {side} show most often. "
            f"{percent(predictability_by_place(of['label'], square), 0)} of the images are of the class most often "
            f"seen in the other images from their square; {percent(float(totals.max() / totals.sum()), 0)} are of "
            f"{names.get(int(totals.argmax()), 'one class')}, the most frequent."
        )
    pixels[:, 3] = images > 0
    covered = (west, west + columns * side_m, south, south + rows * side_m)
    ax.imshow(pixels.reshape(rows, columns, 4), extent=covered, origin="lower", interpolation="none", zorder=0.9)
    caption = f"{words}\nA square is where the car was. From a street without squares there is no training image."
    return Panel(name="seen", title="What was seen where", caption=caption, svg=to_svg(figure, "seen"), wide=wide)


def speed_table(run: RunData) -> tuple[Table, str]:
    """Return a table of steering, blur and classes by quarter of the speeds, and sentences on speed; needs samples."""
    assert run.samples is not None
    of = run.samples.places
    speed, steers = of["speed_mps"], np.abs(of["angle"])
    known, names, rows = np.isfinite(steers), _class_names(run), []
    bounds = np.quantile(speed, [0, 0.25, 0.5, 0.75, 1])
    quarter = np.searchsorted(bounds[1:-1], speed, side="left")
    for one in np.unique(quarter):
        inside = quarter == one
        straight = steers[inside & known]
        row = [
            " to ".join(dict.fromkeys(count(float(f(speed[inside])) * 3.6) for f in (np.min, np.max))) + " km/h",
            count(int(np.count_nonzero(inside))),
            number(float(straight.mean()), 2) if len(straight) else number(np.nan),
            percent(float((straight < _STRAIGHT).mean()), 0) if len(straight) else number(np.nan),
            quantity(round(float(of["kernel_px"][inside].mean()), 2), "px"),
        ]
        if not run.has_angles:
            totals = np.bincount(of["label"][inside])
            row.append(f"{names.get(int(totals.argmax()), '')} ({percent(float(totals.max() / totals.sum()), 0)})")
        rows.append(tuple(row))
    head = ("speed", "images", "mean |steering|", f"|steering| below {_STRAIGHT:g}", "mean motion kernel")
    table = Table(
        title="What is seen at which speed", head=head if run.has_angles else (*head, "most frequent class"), rows=rows
    )
    square, minute = _divide_map(run)[0], np.floor(of["time_s"] / 60).astype(np.int64)
    related = ""
    if min(len(np.unique(values[known])) for values in (speed, steers)) > 1:
        ranked = pl.DataFrame({"speed": speed[known], "steers": steers[known]})
        rank = ranked.select(pl.corr("speed", "steers", method="spearman")).item()
        related = f"Speed and |steering| have the rank correlation {number(rank, 2)} (Spearman). "
    shares = [explained_variance(speed, groups) for groups in (square, minute)]
    return table, (
        f"{related}Of the variance of the speed, and so of the blur, place (squares) explains {percent(shares[0], 0)}, "
        f"time (minutes) {percent(shares[1], 0)}."
    )


def _target_words(run: RunData, names: Mapping[int, str], label: float) -> str:
    """Return a frame's label in words: its class (-1: none), or its steering angle (NaN: unknown)."""
    if run.has_angles:
        words = f"steers {round(label, 2) + 0:.2f}" if np.isfinite(label) else "no angle: its path ends"
        return words.replace("-", "\u2212")  # no minus before zero
    return names.get(int(label), str(int(label))) if label >= 0 else "no class in view"


@dataclass(frozen=True, kw_only=True)
class FramedPath:
    """Frames along a vehicle's path: a PNG data URI of each, and in words its time, speed, and class or angle."""

    title: str
    detail: str
    frames: Sequence[tuple[str, tuple[str, ...]]]


def framed_paths(run: RunData) -> list[FramedPath]:
    """Return blurred frames of a slow, a median and a fast vehicle, in this order; empty with fewer than three."""
    if run.samples is None or len(run.samples.paths.get("vehicles", ())) < 3:
        return []
    of, begin_s, names = run.samples.paths, run.manifest.traffic.begin_s, _class_names(run)
    counts = np.bincount(of["path"], minlength=len(of["vehicles"]))
    slowest_first, result = np.argsort(of["mean_mps"], kind="stable"), list[FramedPath]()
    slowest_first = slowest_first[counts[slowest_first] >= min(_SHOWN, np.sort(counts)[-3])]
    for title, share in (("slow", 0.1), ("median", 0.5), ("fast", 0.9)):
        path = slowest_first[round(share * (len(slowest_first) - 1))]
        rows = np.flatnonzero(of["path"] == path)
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, _SHOWN).round().astype(np.int64))]
        first_s = float(of["time_s"][rows[0]])
        frames = []
        for row in rows:
            speed = f"{count(float(of['speed_mps'][row]) * 3.6)} km/h"
            after = f"+{float(of['time_s'][row]) - first_s:.2f}".rstrip("0").rstrip(".") + " s"
            words = after, speed, _target_words(run, names, float(of["label"][row]))
            frames.append((png_strip(of["blurred"][[row]])[0], words))
        detail = (
            f"{clean(of['vehicles'][path], 24)}: {quantity(float(of['mean_mps'][path]) * 3.6, 'km/h')} on average, "
            f"first frame at {duration(first_s - begin_s)}"
        )
        result.append(FramedPath(title=title, detail=detail, frames=frames))
    return result


def film(run: RunData, vehicles: Sequence[str]) -> list[list[Any]]:
    """Return the frames of the played vehicles for the playback's script; empty if there are no frames.

    Each vehicle has [its index in ``vehicles``, a JPEG data URI, facts]. The image has all its frames in a row, below
    them the same blurred; facts are [time (s), speed (km/h), kernel (px), words on the target] per frame. Vehicles
    whose images no longer fit into ``FILM_BYTES`` are left out.
    """
    if run.samples is None or not run.samples.paths:
        return []
    of, names, played, size = run.samples.paths, _class_names(run), [], 0
    index = {name: place for place, name in enumerate(vehicles)}
    for path, name in enumerate(of["vehicles"].tolist()):
        if name not in index:
            continue
        rows = np.flatnonzero(of["path"] == path)
        uri = _encode_jpeg(np.concatenate([of["images"][rows], of["blurred"][rows]], axis=1))
        if size + len(uri) > FILM_BYTES:
            continue
        size += len(uri)
        columns = of["time_s"], of["speed_mps"] * 3.6, of["kernel_px"]
        facts = [[round(float(column[row]), 2) for column in columns] for row in rows]
        words = [_target_words(run, names, float(of["label"][row])) for row in rows]
        played.append([index[name], uri, [[*fact, word] for fact, word in zip(facts, words, strict=True)]])
    return played


def _encode_jpeg(images: NDArray[np.uint8]) -> str:
    """Return images (N, H, W, C) side by side as the data URI of a JPEG, which has a fifth of the bytes of a PNG."""
    row = np.concatenate(list(images), axis=1)
    buffer = io.BytesIO()
    Image.fromarray(row if row.shape[2] == 3 else row[..., 0]).save(buffer, format="JPEG", quality=90, subsampling=0)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
