"""Figures of a comparison: curves with intervals, paired differences, outcomes side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy import stats

from analysis.comparison_loading import ComparisonData, Metric
from analysis.comparison_statistics import LEAST_SEEDS, LEVEL
from analysis.comparison_verdicts import Pair, unit_of_difference
from analysis.formatting import clean, count, percent, plural
from analysis.style import BLUE, CYCLE, FULL_IN, GREY, HALF_IN, INK, OUTCOMES, Panel, axes, legend, to_svg

_ROW_IN = 0.34


def mean_and_interval(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return mean and half-width of Student's 95 % interval over seeds, by round.

    Args:
        values: shape (seeds, rounds).

    Returns:
        both of shape (rounds,); no half-width for fewer than three seeds.
    """
    mean = values.mean(axis=0)
    seeds = len(values)
    if seeds < LEAST_SEEDS:
        return mean, None
    return mean, stats.t.ppf(1 - LEVEL / 2, seeds - 1) * values.std(axis=0, ddof=1) / np.sqrt(seeds)


def curve(data: ComparisonData, learner: str, metric: Metric) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rounds at which every cell of a learner measured a metric, and the values (seeds, rounds)."""
    tables = [cell.metrics.filter(pl.col("name") == metric.name) for cell in data.of(learner)]
    found = [dict(table.select("round", "value").iter_rows()) for table in tables]
    rounds = sorted(set.intersection(*(set(values) for values in found))) if found else []
    values = [[one[r] for r in rounds] for one in found]
    return np.array(rounds, np.int64), np.array(values, np.float64).reshape(len(found), len(rounds))


def curve_panel(data: ComparisonData, metric: Metric, number: int) -> Panel:
    """Draw a metric over rounds: a line a learner, its mean over seeds with the 95 % interval."""
    name = f"curves-{number}"
    drawn = {learner: curve(data, learner, metric) for learner in data.learners}
    if all(len(rounds) < 2 for rounds, _ in drawn.values()):
        return Panel(name=name, title=metric.label, caption="Measured once a run: see the table of final values.")
    columns = 3 if max(map(len, data.learners)) < 12 else 2
    rows = -(-len(data.learners) // columns)
    figure = Figure((HALF_IN, 2.75 + 0.16 * rows))
    ax = axes(figure, top=0.18 + 0.16 * rows)
    shaded = False
    for index, (learner, (rounds, values)) in enumerate(drawn.items()):
        colour = CYCLE[index % len(CYCLE)]
        mean, half = mean_and_interval(values * metric.factor)
        style = "-" if index < len(CYCLE) else "--"
        ax.plot(rounds, mean, color=colour, ls=style, label=clean(learner, 24))
        if half is not None:
            ax.fill_between(rounds, mean - half, mean + half, color=colour, alpha=0.16, linewidth=0)
            shaded = True
    ax.set_xlabel("rounds aggregated")
    ax.set_ylabel(f"{metric.label} ({metric.unit})" if metric.unit else metric.label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    legend(ax, columns)
    what = "Mean over seeds, shaded: Student's 95 % interval of that mean, each learner by itself."
    none = f"Mean over seeds; fewer than {LEAST_SEEDS} give no interval."
    end = "" if metric.caption.endswith(".") or not metric.caption else "."
    return Panel(
        name=name,
        title=metric.label,
        caption=f"{metric.caption}{end} {what if shaded else none}".strip(),
        svg=to_svg(figure, name),
    )


def difference_panel(metric: Metric, pairs: Sequence[Pair], number: int) -> Panel:
    """Draw the paired differences of a metric: a dot a seed, the mean and its interval, a row a pair of learners."""
    name = f"differences-{number}"
    figure = Figure((FULL_IN, 0.75 + _ROW_IN * len(pairs)))
    ax = axes(figure, left=2.1, right=0.2, top=0.1)
    ax.axvline(0, color=GREY, linewidth=1)
    for row, pair in enumerate(pairs):
        shown = pair.differences * metric.factor
        ax.plot(shown, np.full(len(shown), row), "o", markersize=4, markeredgewidth=0, color=BLUE, alpha=0.45)
        found = pair.found
        if found.low is not None and found.high is not None:
            ends = np.array([found.low, found.high]) * metric.factor
            ax.plot(ends, [row - 0.28] * 2, color=INK, linewidth=1.6, solid_capstyle="butt")
        if found.count:
            ax.plot([found.mean * metric.factor], [row - 0.28], "D", markersize=4.5, color=INK)
    ax.set_yticks(range(len(pairs)), [clean(pair.words, 44) for pair in pairs])
    ax.set_ylim(len(pairs) - 0.5, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"difference in {metric.label}{unit_of_difference(metric, brackets=True)}")
    caption = (
        "Each dot is one seed: the first learner's final value less the second's. Diamond and line: their mean and its "
        "95 % bootstrap interval."
    )
    return Panel(name=name, title=metric.label, caption=caption, svg=to_svg(figure, name), wide=True)


def outcome_panel(data: ComparisonData) -> Panel:
    """Draw how participations ended, a bar a learner."""
    totals = {learner: sum((cell.outcomes.get(key, 0) for cell in data.of(learner) for key in OUTCOMES), 0)
              for learner in data.learners}  # fmt: skip
    kept = [learner for learner in data.learners if totals[learner]]
    title = "How participations ended"
    if not kept:
        return Panel(name="outcomes", title=title, caption="Not drawn: nobody took part.")
    shares = {
        key: np.array([sum(cell.outcomes.get(key, 0) for cell in data.of(name)) / totals[name] for name in kept])
        for key in OUTCOMES
    }
    shown = {key: share for key, share in shares.items() if share.any()}
    columns = 4
    rows = -(-len(shown) // columns)
    figure = Figure((FULL_IN, 0.75 + _ROW_IN * len(kept) + 0.17 * rows))
    ax = axes(figure, left=1.6, right=0.2, top=0.14 + 0.17 * rows)
    left = np.zeros(len(kept))
    for key, share in shown.items():
        words, colour = OUTCOMES[key]
        ax.barh(range(len(kept)), share * 100, left=left * 100, height=0.68, color=colour, label=words)
        left += share
    ax.set_yticks(range(len(kept)), [clean(name, 30) for name in kept])
    ax.set_ylim(len(kept) - 0.5, -0.5)
    ax.set_xlim(0, 100)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("share of participations (%)")
    legend(ax, columns)
    committed = [
        f"{clean(name, 30)} {percent(float(share))} of {plural(totals[name], 'participation')}"
        for name, share in zip(kept, shares["committed"], strict=True)
    ]
    caption = f"All cells of a learner together ({count(len(data.cells))} in all). Committed: {'; '.join(committed)}."
    return Panel(name="outcomes", title=title, caption=caption, svg=to_svg(figure, "outcomes"), wide=True)
