"""Ranks, Friedman's test and the critical difference, against a published example and simulation."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from analysis.statistics.paired import critical_difference, friedman, seed_ranks

AUC = [
    [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970],
]  # fmt: skip
"""Four classifiers on 14 data sets: Demsar (2006), JMLR 7, Table 6; two that are equal there after rounding have ranks
2 and 3."""


def test_demsars_example() -> None:
    """Its mean ranks, statistic and critical differences; the paper's statistic does not allow for ties, this does."""
    ranks = seed_ranks([AUC], 1)
    blocks, k = ranks.shape
    mean = ranks.mean(axis=0)
    assert mean == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    without_ties = 12 * blocks / (k * (k + 1)) * ((mean**2).sum() - k * (k + 1) ** 2 / 4)
    assert without_ties == pytest.approx(9.28, abs=0.005)
    ties = sum(t**3 - t for row in ranks for t in np.unique(row, return_counts=True)[1])
    found = friedman(ranks)
    assert found is not None
    assert found[0] == pytest.approx(without_ties / (1 - ties / (blocks * (k**3 - k))))
    assert found[1] == pytest.approx(stats.chi2.sf(found[0], k - 1))
    assert critical_difference(4, 14, 0.05) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(4, 14, 0.10) == pytest.approx(1.12, abs=0.005)


def test_lower_is_better_and_never_is_last() -> None:
    assert seed_ranks([[[30.0, np.inf, 10.0, np.inf]]], -1).tolist() == [[2, 3.5, 1, 3.5]]


def test_a_seeds_ranking_is_that_of_its_mean_ranks_over_conditions() -> None:
    """At the first seed the arms have ranks 1 2 3 and 2 1 3, means 1.5 1.5 3; at the second 3 2 1 and 3 1 2."""
    values = [[[9, 8, 7], [1, 2, 3]], [[5, 6, 1], [0, 9, 8]]]
    assert seed_ranks(values, 1).tolist() == [[1.5, 1.5, 3], [3, 1.5, 1.5]]


def alike(rng: np.random.Generator, seeds: int, arms: int) -> NDArray[np.float64]:
    """Six conditions, no arm better than another; an arm's luck at a seed is mostly that of all conditions."""
    luck = rng.normal(size=(1, seeds, arms))
    return luck + 0.5 * rng.normal(size=(6, seeds, arms))


@pytest.mark.parametrize(("seeds", "arms"), [(6, 4), (9, 11)])
def test_arms_that_are_alike_are_told_apart_as_seldom_as_the_level_says(seeds: int, arms: int) -> None:
    """With seeds as blocks, 5 % at most; with every condition and seed as a block, one luck counts six times."""
    rng = np.random.default_rng(7)
    critical = critical_difference(arms, seeds, 0.05)
    rejected, apart, wrong = 0, 0, 0
    repeats = 300
    for _ in range(repeats):
        values = alike(rng, seeds, arms)
        ranks = seed_ranks(values, 1)
        found, naive = friedman(ranks), friedman(values.reshape(-1, arms))
        assert found is not None
        assert naive is not None
        rejected += found[1] <= 0.05
        apart += np.ptp(ranks.mean(axis=0)) >= critical
        wrong += naive[1] <= 0.05
    most = stats.binom.ppf(0.999, repeats, 0.05)
    assert max(rejected, apart) <= most
    assert wrong > 3 * most


def test_arms_that_differ_are_told_apart() -> None:
    values = alike(np.random.default_rng(1), 9, 4)
    values[:, :, 2] += 4
    ranks = seed_ranks(values, 1)
    found = friedman(ranks)
    assert found is not None
    assert found[1] < 0.01
    mean = ranks.mean(axis=0)
    assert mean[2] == 1
    assert np.delete(mean, 2).max() - mean[2] > critical_difference(4, 9, 0.05)
