"""Arms ranked over conditions: Friedman's test with seeds as its blocks, Nemenyi's critical difference, in words.

Which blocks: seeds in one condition are replicates, and independent; conditions are few, chosen, and share what a seed
decides (traffic, silos, initial weights). Blocks of condition and seed would count one draw of the traffic as often as
there are conditions. So a seed is a block: in it, arms are ranked under each condition, and by the mean of those ranks
once more. That tells whether the order holds for other seeds under these conditions, and nothing of other conditions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.comparison.data import ComparisonData, ConditionData, Metric
from analysis.comparison.measures import COMPARED, FLUCTUATION, TO_TARGET, Target, compared_measures, times_to_target
from analysis.comparison.tables import frame, overview_metrics
from analysis.comparison.verdicts import p_words
from analysis.formatting import NONE, Table, count, decapitalised, named, number, plural, shortened
from analysis.statistics.paired import LEAST_BLOCKS, LEVEL, critical_difference, friedman, holm, seed_ranks
from vnetsim.storage.tables import COMPARISON_RANKS

LEAST_ARMS, LEAST_CONDITIONS = 3, 2
"""With fewer of either there is nothing to rank, or nothing to rank over."""

Values = NDArray[np.float64]

_ABOUT_TESTS = (
    "Blocks are the seeds: they are independent, while conditions share the traffic, silos and initial weights of a "
    "seed. So this says what holds for other seeds under these conditions, and not under others, which were chosen and "
    "not drawn. Where p is at most {level:g}, {noun}s whose mean ranks differ by the critical difference (Nemenyi) or "
    "more are told apart. p is corrected for the rows of this table (Holm), the critical difference for all pairs in "
    "one row."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranked:
    """Arms ranked in a metric of which it is known what is better, over the ``conditions`` that had them all.

    Args:
        mean: rank of each arm, 1 the best, over ``seeds``.
        found: Friedman's statistic, and its p-value corrected for the metrics ranked (Holm); None with fewer than
            three seeds, or where all arms are equal.
        critical: from which difference on two mean ranks are told apart; None without a test.
    """

    metric: Metric
    arms: tuple[str, ...]
    conditions: int
    seeds: int
    mean: Values
    found: tuple[float, float] | None
    critical: float | None


def rank_arms(data: ComparisonData, targets: Mapping[str, Target | None]) -> list[Ranked]:
    """Return the arms' ranks in every metric of which better is known, and in what their commits cost.

    Nothing for fewer than three arms, or two conditions that had them all; ``targets`` are by condition.
    """
    metrics = [*(metric for metric in overview_metrics(data) if metric.better), TO_TARGET, *COMPARED, FLUCTUATION]
    ranked = [found for metric in metrics if (found := _ranked(data, metric, targets)) is not None]
    corrected = iter(holm([one.found[1] for one in ranked if one.found]))
    return [dataclasses.replace(one, found=(one.found[0], next(corrected))) if one.found else one for one in ranked]


def _values(one: ConditionData, metric: Metric, target: Target | None) -> Values | None:
    """Return what a condition has of a metric, shape (seeds, arms present)."""
    if metric is TO_TARGET:
        return times_to_target(one, target)
    if metric in (*COMPARED, FLUCTUATION):
        return one.finals(metric) if metric in compared_measures(one) else None
    own = one.own(metric)
    return one.finals(own) if own in one.metrics else None


def _ranked(data: ComparisonData, metric: Metric, targets: Mapping[str, Target | None]) -> Ranked | None:
    arms = tuple(arm for arm in data.arms if any(arm in one.present for one in data.conditions))
    tables = []
    for one in data.conditions:
        values = _values(one, metric, targets[one.name]) if set(arms) <= set(one.present) else None
        if values is None or np.isnan(values).all(axis=0).any():
            continue
        rows = dict(zip(one.seeds, values, strict=True))
        columns = [one.present.index(arm) for arm in arms]
        tables.append({seed: row[columns] for seed, row in rows.items() if not np.isnan(row[columns]).any()})
    if len(arms) < LEAST_ARMS or len(tables) < LEAST_CONDITIONS:
        return None
    seeds = [seed for seed in data.seeds if all(seed in table for table in tables)]
    if not seeds:
        return None
    ranks = seed_ranks([[table[seed] for seed in seeds] for table in tables], metric.better)
    found = friedman(ranks)
    return Ranked(
        metric=metric,
        arms=arms,
        conditions=len(tables),
        seeds=len(seeds),
        mean=ranks.mean(axis=0),
        found=found,
        critical=critical_difference(len(arms), len(seeds), LEVEL) if found else None,
    )


def rank_rows(ranked: Sequence[Ranked]) -> pl.DataFrame:
    """Return the rows of the table ``comparison_ranks``."""
    rows = [
        (one.metric.name, one.metric.unit, arm, float(mean), one.seeds, one.conditions,
         *(one.found or (None, None)), one.critical)
        for one in ranked
        for arm, mean in zip(one.arms, one.mean, strict=True)
    ]  # fmt: skip
    return frame(COMPARISON_RANKS, rows)


def mean_rank_table(ranked: Sequence[Ranked], noun: str) -> Table:
    """Return the mean rank of each arm in each metric, seeds as blocks."""
    arms = list(dict.fromkeys(arm for one in ranked for arm in one.arms))
    means = [dict(zip(one.arms, one.mean, strict=True)) for one in ranked]
    rows = [(shortened(arm), *(number(mean[arm], 3) if arm in mean else NONE for mean in means)) for arm in arms]
    metrics = [one.metric for one in ranked]
    better = "; ".join(f"{'higher' if one.better > 0 else 'lower'} {decapitalised(one.subject)}" for one in metrics)
    return Table(
        title=f"Mean rank of each {noun}, 1 the best",
        head=(noun, *(one.metric.subject for one in ranked)),
        rows=rows,
        note=f"At each seed {noun}s are ranked under every condition, and by the mean of those ranks once more; the "
        "mean of that over seeds is shown. A run that never reached its target is last in the time to it; where the "
        f"untrained model met it, the time is 0. What is better: {better}.",
    )


def rank_test_table(ranked: Sequence[Ranked], against: str, noun: str, *, withheld: bool = False) -> Table:
    """Return Friedman's test of each metric, with the verdict in words unless it is withheld."""
    rows = [
        (
            one.metric.subject,
            count(one.conditions),
            count(one.seeds),
            number(one.found[0]) if one.found else NONE,
            p_words(one.found[1]).removeprefix("= ").replace(" ", "\u00a0") if one.found else NONE,
            number(one.critical) if one.critical else NONE,
            "withheld: some runs did not meet the traffic" if withheld else verdict(one, against, noun),
        )
        for one in ranked
    ]
    return Table(
        title=f"Friedman's test that all {noun}s are alike",
        head=("ranked by", "conditions", "seeds", "chi-square", "corrected p", "critical difference", "verdict"),
        rows=rows,
        note=_ABOUT_TESTS.format(level=LEVEL, noun=noun),
    )


def verdict(ranked: Ranked, against: str, noun: str) -> str:
    """Return in words which arms are told apart: from the one they are compared against, else from each other."""
    if ranked.seeds < LEAST_BLOCKS:
        return f"{plural(ranked.seeds, 'seed')}: too few, at least {LEAST_BLOCKS} are needed"
    if ranked.found is None:
        return f"all {noun}s are equal"
    if ranked.found[1] > LEVEL:
        return "not told apart"
    apart = list(_apart(ranked))
    if against in ranked.arms:
        better = [first for first, second in apart if second == against]
        worse = [second for first, second in apart if first == against]
        words = [f"{side} than {shortened(against)}: {named(names)}" for side, names in
                 (("better", better), ("worse", worse)) if names]  # fmt: skip
        return "; ".join(words) or f"not all alike, but none told apart from {shortened(against)}"
    if not apart:
        return "not all alike, but no two told apart"
    pairs = [f"{shortened(first)} better than {shortened(second)}" for first, second in apart]
    return named(pairs, "; ")


def _apart(ranked: Ranked) -> Iterator[tuple[str, str]]:
    """Yield the pairs that are told apart, the better one first, in order of their mean ranks."""
    mean = ranked.mean
    order = np.argsort(mean, kind="stable")
    for place, first in enumerate(order):
        for second in order[place + 1 :]:
            if mean[second] - mean[first] >= (ranked.critical or np.inf):
                yield ranked.arms[first], ranked.arms[second]
