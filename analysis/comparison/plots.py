"""Plots of a comparison: values by condition, curves, paired differences and outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy import stats

from analysis.comparison.data import ComparisonData, ConditionData, Metric
from analysis.comparison.pairs import ComparedPair
from analysis.comparison.verdicts import level_words, unit_of_difference
from analysis.formatting import THIN, byte_scale, count, decapitalised, percent, plural, shortened
from analysis.loading import moved_bytes
from analysis.statistics.paired import LEAST_SEEDS, LEVEL
from analysis.style import (
    BLUE,
    CYCLE,
    FULL_IN,
    GREY,
    HALF_IN,
    INK,
    OUTCOMES,
    PALE,
    Figure,
    Panel,
    drawing,
    legend,
    named_rows,
    stacked_rows,
    time_axis,
    to_svg,
)

Reals = NDArray[np.float64]

_ROW_IN = 0.34
_MOST_IN_CAPTION = 4
_LABEL = 40  # most characters of a label at the left of a figure


def look(data: ConditionData, arm: str) -> tuple[str, str]:
    """Return colour and line style of an arm, which are the same under all conditions; dashed if colours repeat."""
    place = data.looks[arm]
    return CYCLE[place % len(CYCLE)], "-" if place < len(CYCLE) else "--"


def _left_margin_in(labels: Sequence[str]) -> float:
    """Return the width of the left margin for labels (in), from 0.55 to 3.2."""
    longest = max((len(line) for label in labels for line in label.splitlines()), default=0)
    return min(max(0.55, 0.3 + 0.066 * longest), 3.2)


def _pair_label(pair: ComparedPair) -> str:
    """Return the name of a pair, on two lines if it is long."""
    if len(pair.words) <= _LABEL:
        return pair.words
    return f"{shortened(pair.first, _LABEL - 2)}\n\u2212 {shortened(pair.second, _LABEL - 2)}"


def mean_and_interval(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return mean and half-width of Student's 95 % interval over seeds; None for the latter below three seeds.

    ``values`` has shape (seeds, rounds), the results (rounds,).
    """
    mean = values.mean(axis=0)
    seeds = len(values)
    if seeds < LEAST_SEEDS:
        return mean, None
    return mean, stats.t.ppf(1 - LEVEL / 2, seeds - 1) * values.std(axis=0, ddof=1) / np.sqrt(seeds)


def curve(data: ConditionData, arm: str, metric: Metric) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rounds at which all cells of an arm measured a metric, and the values, shape (seeds, rounds)."""
    tables = [cell.measured(metric.name) for cell in data.of(arm)]
    found = [dict(table.select("round", "value").iter_rows()) for table in tables]
    rounds = sorted(set.intersection(*(set(values) for values in found))) if found else []
    values = [[one[r] for r in rounds] for one in found]
    return np.array(rounds, np.int64), np.array(values, np.float64).reshape(len(found), len(rounds))


def progress(data: ConditionData, arm: str, metric: Metric, rounds: NDArray[np.int64]) -> tuple[Reals, Reals]:
    """Return simulated time (s) and bytes over the air at the ``rounds`` of ``curve``, means over seeds, (rounds,)."""
    seconds, moved = [], []
    for cell in data.of(arm):
        measured = cell.measured(metric.name).filter(pl.col("round").is_in(rounds.tolist()))
        seconds.append(measured["time_s"].to_numpy().astype(np.float64))
        moved.append(moved_bytes(cell.spent, seconds[-1]))
    return np.mean(seconds, axis=0), np.mean(moved, axis=0)


def curve_panel(data: ConditionData, metric: Metric, name: str, noun: str) -> Panel:
    """Draw each arm's mean and 95 % interval over rounds, time and bytes; no figure if measured less than twice."""
    drawn = {arm: curve(data, arm, metric) for arm in data.present}
    if all(len(rounds) < 2 for rounds, _ in drawn.values()):
        return Panel(name=name, title=metric.words, caption="Measured once a run: see the table of final values.")
    at = {arm: progress(data, arm, metric, rounds) for arm, (rounds, _) in drawn.items()}
    axis = time_axis(max(float(seconds.max(initial=0.0)) for seconds, _ in at.values()))
    scale, unit = byte_scale(max(float(moved.max(initial=0.0)) for _, moved in at.values()))
    against = (
        ("", "after round (0: untrained)", {arm: rounds.astype(np.float64) for arm, (rounds, _) in drawn.items()}),
        ("time", axis.label, {arm: seconds / axis.seconds for arm, (seconds, _) in at.items()}),
        ("bytes", f"data over the air so far ({unit})", {arm: moved / scale for arm, (_, moved) in at.items()}),
    )
    values = {arm: found for arm, (_, found) in drawn.items()}
    svg, *others = (
        to_svg(_curves(data, metric, x, values, label), f"{name}-{what}" if what else name)
        for what, label, x in against
    )
    what = f"Mean over seeds, shaded: Student's 95\u202f% interval of that mean, each {noun} by itself."
    none = f"Mean over seeds; fewer than {LEAST_SEEDS} give no interval."
    shaded = any(len(found) >= LEAST_SEEDS for found in values.values())
    return Panel(
        name=name,
        title=metric.words,
        caption=f"{what if shaded else none}\n{metric.caption} Time and data are means over seeds.".strip(),
        svg=svg,
        against=tuple((what, svg) for (what, _, _), svg in zip(against[1:], others, strict=True)),
    )


def _curves(
    data: ConditionData, metric: Metric, x: Mapping[str, Reals], values: Mapping[str, Reals], label: str
) -> Figure:
    """Draw each arm's ``values``, shape (seeds, rounds), at ``x``, shape (rounds,); ``label`` is the x axis's."""
    columns = 3 if max(map(len, data.present)) < 12 else 2 if max(map(len, data.present)) < 22 else 1
    rows = -(-len(data.present) // columns)
    figure, ax = drawing(HALF_IN, 2.75 + 0.16 * rows, top=0.18 + 0.16 * rows)
    for arm, found in values.items():
        colour, style = look(data, arm)
        mean, half = mean_and_interval(found * metric.factor)
        ax.plot(x[arm], mean, color=colour, ls=style, label=shortened(arm, 22 if columns > 1 else 44))
        if half is not None:
            ax.fill_between(x[arm], mean - half, mean + half, color=colour, alpha=0.16, linewidth=0)
    ax.set_xlabel(label)
    ax.set_ylabel(metric.titled)
    ax.xaxis.set_major_locator(MaxNLocator(integer=label.startswith("after"), nbins=8))
    legend(ax, columns)
    return figure


def overview_panel(data: ComparisonData, metric: Metric, name: str) -> Panel:
    """Draw a metric's compared values: one row per condition, one dot with a 95 % interval per arm with cells there."""
    conditions, arms = data.measuring(metric)
    labels = [shortened(condition.name, _LABEL) for condition in conditions]
    columns = 4 if max(map(len, arms)) < 16 else 2
    above = 0.17 * -(-len(arms) // columns)
    height = 0.75 + (0.22 + 0.1 * len(arms)) * len(conditions) + above
    figure, ax = drawing(FULL_IN, height, left=_left_margin_in(labels), right=0.2, top=0.14 + above)
    offsets = (np.arange(len(arms)) - (len(arms) - 1) / 2) * 0.75 / len(arms)
    for offset, arm in zip(offsets, arms, strict=True):
        colour, style = look(conditions[0], arm)
        face = colour if style == "-" else "white"
        ax.plot([], [], "o", color=colour, markerfacecolor=face, markersize=4.5, label=shortened(arm, 34))
        for row, condition in enumerate(conditions):
            if arm not in condition.present:
                continue
            values = condition.values(metric, arm)
            mean, half = mean_and_interval(values[np.isfinite(values)].reshape(-1, 1))
            y = row + offset
            if half is not None:
                ax.plot([mean[0] - half[0], mean[0] + half[0]], [y, y], color=colour, linewidth=1.4)
            ax.plot(mean, [y], "o", color=colour, markerfacecolor=face, markersize=4.5)
    for border in range(1, len(conditions)):
        ax.axhline(border - 0.5, color=PALE, linewidth=0.8)
    named_rows(ax, labels)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel(metric.titled if metric.known is not None else f"{metric.titled}, {metric.compared}")
    legend(ax, columns)
    caption = (
        f"Mean over seeds of the {metric.compared}, with its 95\u202f% interval.\nStudent's interval from "
        f"{LEAST_SEEDS} seeds on, each {data.arm_word} by itself. Intervals that overlap do not tell that nothing "
        "differs: the seeds are paired."
    )
    return Panel(name=name, title=metric.words, caption=caption, svg=to_svg(figure, name), wide=True)


def difference_panel(
    metric: Metric,
    pairs: Sequence[ComparedPair],
    name: str,
    noun: str,
    labels: Sequence[str] = (),
    *,
    wide: bool = True,
) -> Panel:
    """Draw paired differences: one row per pair with one dot per seed, the mean and its interval.

    ``labels`` replace the pairs' own names; if not ``wide``, names are above the rows, not left of them. ``noun`` is
    the word for what is compared.
    """
    labels = labels or [_pair_label(pair) if wide else pair.words for pair in pairs]
    row_in = _ROW_IN if wide else 0.5
    left = _left_margin_in(labels) if wide else 0.2
    figure, ax = drawing(FULL_IN if wide else HALF_IN, 0.75 + row_in * len(pairs), left=left, right=0.2, top=0.1)
    ax.axvline(0, color=GREY, linewidth=1)
    for row, pair in enumerate(pairs):
        shown = pair.differences * metric.factor
        ax.plot(shown, np.full(len(shown), row), "o", markersize=4, markeredgewidth=0, color=BLUE, alpha=0.45)
        found = pair.found
        if found.bounded:
            ends = np.array([found.low, found.high]) * metric.factor
            ax.plot(ends, [row - 0.28] * 2, color=INK, linewidth=1.6, solid_capstyle="butt")
        if found.count:
            ax.plot([found.mean * metric.factor], [row - 0.28], "D", markersize=4.5, color=INK)
    if not wide:
        for row, text in enumerate(labels):
            ax.annotate(
                shortened(text, 58), (0.01, row - 0.54), xycoords=("axes fraction", "data"), fontsize=8, va="center"
            )
    named_rows(ax, labels if wide else [""] * len(labels), top=-0.6 if wide else -0.85)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8 if wide else 5))
    ax.set_xlabel(f"difference in {decapitalised(metric.subject)}{unit_of_difference(metric, brackets=True)}")
    interval = f"line: its {level_words(pairs).replace(' %', THIN + '%')}"
    if not all(pair.found.bounded for pair in pairs):
        interval += ", which is unbounded and not drawn where the seeds are too few"
    caption = (
        f"Each dot is one seed: the first {noun}'s {metric.compared} less the second's. Diamond: the mean; {interval}."
    )
    title = f"Differences in {decapitalised(metric.subject)}"
    return Panel(name=name, title=title, caption=caption, svg=to_svg(figure, name), wide=wide)


def outcome_panel(data: ConditionData, name: str, noun: str) -> Panel:
    """Draw the shares of participations by outcome, a bar per arm (``noun``) that has any; no figure if none has."""
    totals = {arm: sum((cell.outcomes.get(key, 0) for cell in data.of(arm) for key in OUTCOMES), 0)
              for arm in data.present}  # fmt: skip
    kept = [arm for arm in data.present if totals[arm]]
    title = "How participations ended"
    if not kept:
        return Panel(name=name, title=title, caption="Not drawn: nobody took part.")
    shares = {
        key: np.array([sum(cell.outcomes.get(key, 0) for cell in data.of(arm)) / totals[arm] for arm in kept])
        for key in OUTCOMES
    }
    shown = {key: share for key, share in shares.items() if share.any()}
    labels = [shortened(arm, _LABEL) for arm in kept]
    columns = 4
    above = 0.17 * -(-len(shown) // columns)
    height = 0.75 + _ROW_IN * len(kept) + above
    figure, ax = drawing(FULL_IN, height, left=_left_margin_in(labels), right=0.2, top=0.14 + above)
    stacked_rows(ax, labels, ((share * 100, *OUTCOMES[key]) for key, share in shown.items()))
    ax.set(xlim=(0, 100), xlabel="share of participations (%)")
    legend(ax, columns)
    caption = f"All cells of each {noun} together ({count(len(data.cells))} in all). Committed: "
    if len(kept) <= _MOST_IN_CAPTION:
        caption += "; ".join(
            f"{shortened(arm, 30)} {percent(float(share))} of {plural(totals[arm], 'participation')}"
            for arm, share in zip(kept, shares["committed"], strict=True)
        )
    else:
        caption += f"{percent(float(shares['committed'].min()))} to {percent(float(shares['committed'].max()))}"
    caption += "."
    return Panel(name=name, title=title, caption=caption, svg=to_svg(figure, name), wide=True)
