"""Ranks over blocks: Friedman's test, and by how much mean ranks must differ to be told apart.

Friedman (1937), The use of ranks to avoid the assumption of normality, JASA 32; Nemenyi (1963), Distribution-free
multiple comparisons; both as Demsar (2006), Statistical comparisons of classifiers over multiple data sets, JMLR 7,
puts them together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]

LEAST_BLOCKS = 3
"""Fewer blocks, or fewer columns, give no test."""


def ranks_of(values: ArrayLike, better: int) -> Floats:
    """Return the ranks in each block, 1 the best; equal values share the mean of their ranks.

    Args:
        values: the columns are ranked along the last axis; infinity where better is lower is the worst there is.
        better: 1 where higher is better, -1 where lower is.
    """
    found: Floats = np.asarray(stats.rankdata(-better * np.asarray(values, dtype=np.float64), axis=-1), np.float64)
    return found


def seed_ranks(values: ArrayLike, better: int) -> Floats:
    """Return one ranking a seed: columns are ranked under each condition, and by the mean of those ranks once more.

    Seeds are the blocks of the test. Conditions are no blocks of it: at one seed they have traffic, initial weights and
    silos in common, so that an arm's luck is the same under several of them, and conditions were chosen, not drawn.

    Args:
        values: shape (conditions, seeds, columns), all known.
        better: see ``ranks_of``.

    Returns:
        shape (seeds, columns), 1 the best.
    """
    return ranks_of(ranks_of(values, better).mean(axis=0), -1)


def friedman(values: ArrayLike) -> tuple[float, float] | None:
    """Return statistic and p-value (chi-square approximation, ties allowed for) of the test that all columns are alike.

    Args:
        values: shape (blocks, columns).

    Returns:
        None for fewer than three columns or blocks, or when all columns are equal in every block.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < LEAST_BLOCKS or len(table) < LEAST_BLOCKS:
        return None
    if not (table != table[:, :1]).any():
        return None
    found = stats.friedmanchisquare(*table.T)
    return float(found.statistic), float(found.pvalue)


def critical_difference(columns: int, blocks: int, level: float) -> float:
    """Return from which difference on two mean ranks are told apart (Nemenyi).

    q / sqrt(2) times sqrt(k (k + 1) / (6 N)), with q the quantile of the studentised range of k columns and N blocks:
    the chance that any two of k equal columns are that far apart is ``level``.
    """
    quantile = float(stats.studentized_range.ppf(1 - level, columns, np.inf))
    return quantile / math.sqrt(2) * math.sqrt(columns * (columns + 1) / (6 * blocks))
