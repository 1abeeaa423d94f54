"""Plots of the learner's metrics by round, and of the data in the silos; for any learner."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from analysis.formatting import byte_scale, clean, count, number, percent, plural, sentence_case, slugs
from analysis.loading import Curve, RunData, curves, moved_bytes
from analysis.statistics.dirichlet import LARGEST_ALPHA, fit_alpha
from analysis.style import (
    CYCLE,
    FULL_IN,
    HALF_IN,
    VIRIDIS,
    Drawn,
    Figure,
    Panel,
    drawing,
    group_digits,
    legend,
    panel,
    time_axis,
    to_svg,
)

_MAX_CLASS_LABELS = 30
_ROUNDS = "rounds aggregated"
_NEARLY_IID = 100.0
"""Alpha of a Dirichlet draw from which on its silos are alike to the eye."""
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)))
"""Line styles; once all colours are used, lines are dashed, then dotted."""


def _title(group: list[Curve]) -> str:
    """Return a figure's title: the curves' group, or up to three of their labels, with a unit other than %."""
    if (shared := {curve.group for curve in group}) != {""} and len(shared) == 1:
        unit = f" ({clean(group[0].unit, 12)})" if group[0].unit not in ("", "%") else ""
        return shared.pop() + unit if len(group) > 1 else sentence_case(group[0].label) + unit
    labels = [curve.label for curve in group]
    named = labels if len(labels) <= 3 else labels[:2]
    more = f" and {count(len(labels) - len(named))} more" if len(labels) > len(named) else ""
    unit = f" ({clean(group[0].unit, 12)})" if len(group) > 1 and group[0].unit not in ("", "%") else ""
    return clean(sentence_case("; ".join(named)), 90) + more + unit


def _round_words(aggregated: int) -> str:
    """Return "after n rounds", or "before training" for 0."""
    return f"after {plural(aggregated, 'round')}" if aggregated else "before training"


def _change_words(group: list[Curve]) -> str:
    """Return in words each curve's first and last value and their rounds, which are said once if all are equal."""
    spans = {(int(curve.round[0]), int(curve.round[-1])) for curve in group}
    if len(group) > 1 and len(spans) == 1:
        first, last = spans.pop()
        changes = [f"{c.label} {c.words(float(c.value[0]))} to {c.words(float(c.value[-1]))}" for c in group]
        begin = "before training" if first == 0 else f"round {count(first)}"
        return f"From {begin} to after {plural(last, 'round')}: {'; '.join(changes)}."
    words = []
    for curve in group:
        last_words = f"{curve.words(float(curve.value[-1]))} {_round_words(int(curve.round[-1]))}"
        start = f"from {curve.words(float(curve.value[0]))} ({_round_words(int(curve.round[0]))}) to "
        words.append(f"{sentence_case(curve.label)}: {start if len(curve.round) > 1 else ''}{last_words}.")
    return " ".join(words)


def _draw_panel(run: RunData, name: str, group: list[Curve]) -> Panel:
    """Draw curves over rounds and, if times are known, over time and bytes; no figure if each has a single value."""
    title = _title(group)
    if all(len(curve.round) == 1 for curve in group):
        words = [f"{curve.words(float(curve.value[0]))} {_round_words(int(curve.round[0]))}" for curve in group]
        return Panel(name=name, title=title, caption=f"Measured once: {'; '.join(words)}.")
    captions = dict.fromkeys(f"{curve.caption.removesuffix('.')}." for curve in group if curve.caption)
    caption = " ".join([f"{_change_words(group)}\n", *captions])
    wide = len(group) > 6
    by_rounds = [curve.round.astype(np.float64) for curve in group]
    svg = to_svg(_draw_figure(group, by_rounds, _ROUNDS, wide=wide), name)
    against = {}
    times_s = [curve.time_s for curve in group]
    if all(np.isfinite(one).all() for one in times_s):
        last_s = max(float(one[-1]) for one in times_s)
        begin_s = run.manifest.traffic.begin_s
        axis = time_axis(last_s - begin_s, begin_s)
        scale, unit = byte_scale(float(moved_bytes(run.spent, np.array([last_s]))[0]))
        by_bytes = [moved_bytes(run.spent, one) / scale for one in times_s]
        against["time"] = _draw_figure(group, [axis.of(one) for one in times_s], axis.label, wide=wide)
        against["bytes"] = _draw_figure(group, by_bytes, f"data over the air so far ({unit})", wide=wide)
    svgs = tuple((what, to_svg(figure, f"{name}-{what}")) for what, figure in against.items())
    return Panel(name=name, title=title, caption=caption, svg=svg, wide=wide, against=svgs)


def _draw_figure(group: list[Curve], x: Sequence[NDArray[np.float64]], label: str, *, wide: bool) -> Figure:
    """Return a figure of curves; ``x`` has the abscissas of each curve, ``label`` is the x axis's."""
    columns = _legend_columns(group) * (2 if wide else 1)
    legend_rows = -(-len(group) // columns)
    height = 2.9 + 0.16 * max(legend_rows - 2, 0)
    figure, ax = drawing(FULL_IN if wide else HALF_IN, height, top=0.18 + 0.16 * legend_rows)
    _draw_curves(ax, group, x, label, columns)
    return figure


def _legend_columns(group: list[Curve]) -> int:
    """Return the number of columns of the legend: 1 if a label is long, else 2."""
    return 1 if max(len(curve.label) for curve in group) > 22 else 2


def _draw_curves(
    ax: Axes, group: list[Curve], x: Sequence[NDArray[np.float64]], label: str, legend_columns: int
) -> None:
    """Draw curves with the range over RSUs shaded; ``x`` has the abscissas of each, ``label`` is the x axis's."""
    looks = product(_DASHES, CYCLE)
    for (dashes, colour), curve, at in zip(cycle(looks), group, x, strict=False):
        factor = 100.0 if curve.unit == "%" else 1.0
        marker = "o" if len(curve.round) <= 40 else ""
        ax.plot(at, curve.value * factor, marker=marker, markersize=3.4, color=colour, ls=dashes, label=curve.label)
        if np.isfinite(curve.low).all() and (curve.low < curve.high).any():
            ax.fill_between(at, curve.low * factor, curve.high * factor, color=colour, alpha=0.15, linewidth=0)
    unit = f" ({clean(group[0].unit, 12)})" if group[0].unit else ""
    ax.set_xlabel(label)
    ax.set_ylabel(f"{group[0].label}{unit}" if len(group) == 1 else f"{group[0].group or 'value'}{unit}")
    ax.xaxis.set_major_locator(MaxNLocator(integer=label == _ROUNDS, nbins=8))
    if len(group) > 1:
        legend(ax, legend_columns)


def draw_accuracy(ax: Axes, run: RunData) -> bool:
    """Draw results in % by round on ``ax`` and return True; if there are none, draw nothing and return False."""
    group = [curve for curve in curves(run) if curve.unit == "%" and curve.result]
    if group:
        _draw_curves(ax, group, [curve.round.astype(np.float64) for curve in group], _ROUNDS, _legend_columns(group))
        ax.set_ylabel("accuracy (%)")
    return bool(group)


def series_panels(run: RunData) -> list[Panel]:
    """Draw all curves, one panel per unit and group; without any curve, return a panel without a figure."""
    groups: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves(run):
        groups.setdefault((curve.unit, curve.group or ("" if curve.unit else curve.label)), []).append(curve)
    if not groups:
        caption = "Not drawn: nothing was measured yet."
        return [Panel(name="learning", title="Loss and accuracy by round", caption=caption)]
    names = slugs([group[0].group or group[0].label for group in groups.values()])
    return [_draw_panel(run, f"learning-{name}", group) for name, group in zip(names, groups.values(), strict=True)]


def _silo_words(grid: NDArray[np.float64], kind: tuple[str, str], unlike: str) -> str:
    """Return sentences on silos from images (classes, silos), a class's noun (one, many), and a sentence to insert."""
    sizes, held = grid.sum(axis=0), (grid > 0).sum(axis=0)
    largest = grid.max(axis=0) / np.maximum(sizes, 1)
    one, many = kind
    classes = f"{count(len(grid))} {many if len(grid) != 1 else one}"
    if sizes.min() == sizes.max():
        size = f"{plural(sizes[0], 'image')} each"
    else:
        median = count(float(np.median(sizes)))
        size = f"{count(sizes.min())} to {count(sizes.max())} images (median {median})"
    return (
        f"{plural(len(sizes), 'silo')} with {size}, {classes} in all.{unlike}\nThe median silo holds "
        f"{number(float(np.median(held)), 2).removesuffix('.0')} of the {many}; its most frequent {one} makes up "
        f"{percent(float(np.median(largest)), 0)} of its images."
    )


def _unlike_words(grid: NDArray[np.float64]) -> str:
    """Return a sentence on how unlike silos are from images (classes, silos); empty if no alpha can be fitted."""
    alpha = fit_alpha(grid.T)
    if alpha is None:
        return ""
    if alpha == LARGEST_ALPHA:
        return " The silos are no more unlike than IID draws."
    words = f" The silos are as unlike as a Dirichlet draw with alpha = {number(alpha, 2)}"
    return f"{words}{', nearly IID' if alpha >= _NEARLY_IID else ''}."


@panel("silos", "Data distribution over silos", wide=True)
def silo_panel(run: RunData) -> Drawn:
    """Draw the number of images of each class in each silo; no figure without classes, or if all are equal."""
    silos = run.silos
    if silos.is_empty():
        return None, "Not drawn: this learner's data have no classes."
    rows, columns = int(silos["class"].max()) + 1, int(silos["silo"].max()) + 1  # type: ignore[arg-type]
    grid = np.zeros((rows, columns))
    np.add.at(grid, (silos["class"].to_numpy(), silos["silo"].to_numpy()), silos["images"].to_numpy())
    angles = run.has_angles
    kind = ("range of the steering angle", "ranges of the steering angle") if angles else ("class", "classes")
    alike = bool(grid.min() == grid.max())
    caption = _silo_words(grid, kind, "" if alike or angles else _unlike_words(grid))
    if alike:
        return None, f"Not drawn: all silos are alike. {caption}"
    names = dict(silos.select("class", "class_name").unique(maintain_order=True).iter_rows())
    figure, ax = drawing(FULL_IN, 0.75 + min(max(0.21 * rows, 0.8), 4.5), left=1.5, right=1.0, top=0.12)
    image = ax.imshow(grid, VIRIDIS, vmin=0, vmax=max(grid.max(), 1), aspect="auto", interpolation="none")
    left, bottom, width, height = ax.get_position().bounds
    bar = figure.add_axes((left + width + 0.015, bottom, 0.016, height))
    figure.colorbar(image, cax=bar, label="images")
    group_digits(bar)
    for spine in (*ax.spines.values(), *bar.spines.values()):
        spine.set_visible(False)
    bar.grid(visible=False)
    ax.grid(visible=False)
    ax.set_xlabel("silo")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    if rows <= _MAX_CLASS_LABELS:
        ax.set_yticks(range(rows), [clean(names.get(i, i), 22) for i in range(rows)])
        ax.tick_params(axis="y", length=0)
    else:
        ax.set_ylabel(kind[0])
    return figure, caption
