"""Paired statistics against examples worked by hand, simulation, and the laws that they must obey."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.comparison_statistics import (
    friedman,
    holm,
    least_seeds_of_sign_flips,
    paired_difference,
    power_of_paired_t,
    seeds_needed,
)


def test_figures_worked_by_hand():
    """Differences 1, 2, 3: mean 2, deviation 1, and of 8 sign patterns only +++ and --- are as far out."""
    found = paired_difference([2, 4, 6], [1, 2, 3])
    assert (found.count, found.mean, found.deviation, found.effect) == (3, 2.0, 1.0, 2.0)
    assert found.p_value == pytest.approx(2 / 8)


def test_the_sign_flips_are_counted():
    """-1, 2, 3, 4 sums to 8; of 16 patterns, sums of at least 8 in size are 10, 8, -8, -10."""
    assert paired_difference([-1, 2, 3, 4], [0, 0, 0, 0]).p_value == pytest.approx(4 / 16)


def test_the_p_value_is_uniform_without_a_difference():
    rng = np.random.default_rng(1)
    found = [paired_difference(row, np.zeros(7)).p_value for row in rng.normal(size=(150, 7))]
    assert 0.4 < np.mean(found) < 0.6
    assert np.mean(np.array(found) < 0.05) < 0.1


def test_the_interval_covers_the_mean_of_a_skewed_distribution():
    rng = np.random.default_rng(2)
    covered = [
        found.low <= 1.0 <= found.high
        for found in (paired_difference(row, np.zeros(20)) for row in rng.exponential(size=(50, 20)))
    ]
    assert 0.8 < np.mean(covered) < 1.0


VALUES = st.lists(
    st.tuples(st.floats(-100, 100, allow_subnormal=False), st.floats(-100, 100, allow_subnormal=False)),
    min_size=3,
    max_size=8,
)


@settings(max_examples=15)
@given(VALUES)
def test_exchanging_the_learners_turns_the_sign(pairs):
    first, second = np.array(pairs).T
    there, back = paired_difference(first, second), paired_difference(second, first)
    assert back.mean == -there.mean
    assert (back.low, back.high) == (-there.high, -there.low)
    assert back.p_value == there.p_value
    assert back.effect == (None if there.effect is None else -there.effect)


def test_a_common_shift_changes_nothing():
    rng = np.random.default_rng(3)
    first, second, shift = np.round(rng.normal(size=(3, 8)) * 256) / 256  # sums of such numbers are exact
    assert paired_difference(first, second) == paired_difference(first + shift, second + shift)


def test_equal_differences_have_no_effect_size():
    found = paired_difference([0.3, 0.4, 0.5, 0.6], [0.1, 0.2, 0.3, 0.4])
    assert (found.deviation, found.effect) == (0.0, None)
    assert found.low == found.high == pytest.approx(0.2)
    assert found.p_value == pytest.approx(2 / 16)
    none = paired_difference([1, 2, 3], [1, 2, 3])
    assert (none.mean, none.low, none.high, none.p_value, none.effect) == (0, 0, 0, 1, None)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_pairs_give_neither_interval_nor_test(count):
    found = paired_difference(np.arange(count) * 2.0, np.zeros(count))
    assert (found.count, found.low, found.high, found.p_value, found.effect) == (count, None, None, None, None)
    assert math.isnan(found.mean) == (count == 0)


def test_what_is_not_paired_is_refused():
    with pytest.raises(ValueError, match="one shape"):
        paired_difference([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="finite"):
        paired_difference([1, 2, math.nan], [1, 2, 3])


def test_holm_on_a_known_example():
    """0.01, 0.04, 0.03, 0.005 become 0.03, 0.06, 0.06, 0.02, as R's p.adjust has them."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_power_is_what_simulation_gives():
    """Cohen's table: d = 0.5 needs 34 pairs for 80 %; a simulated t-test agrees."""
    assert seeds_needed(0.5) == 34
    assert seeds_needed(-0.5) == 34
    draws = np.random.default_rng(4).normal(0.5, 1.0, size=(20000, 34))
    t = draws.mean(1) / (draws.std(1, ddof=1) / math.sqrt(34))
    assert np.mean(np.abs(t) > 2.0345) == pytest.approx(power_of_paired_t(0.5, 34), abs=0.01)


def test_seeds_needed_are_the_fewest():
    for effect in (0.07, 0.3, 0.9):
        for level in (0.05, 0.05 / 3):
            needed = seeds_needed(effect, level=level)
            assert power_of_paired_t(effect, needed, level) >= 0.8 > power_of_paired_t(effect, needed - 1, level)


def test_no_number_of_seeds_resolves_nothing():
    assert seeds_needed(0.0) is None
    assert seeds_needed(None) is None
    assert seeds_needed(1e-6) is None


def test_a_huge_effect_needs_as_many_seeds_as_the_test_has_patterns():
    assert least_seeds_of_sign_flips() == 6
    assert least_seeds_of_sign_flips(0.05 / 3) == 7
    assert seeds_needed(50.0) == 6


def test_friedman_worked_by_hand():
    """Ranks 1, 2, 3 at each of 4 seeds: 12 / (4*3*4) * (16 + 64 + 144) - 3*4*4 = 8, and exp(-4) of chi-square 2."""
    statistic, p = friedman([[1, 2, 3], [2, 5, 9], [0, 1, 2], [4, 5, 6]])
    assert statistic == pytest.approx(8.0)
    assert p == pytest.approx(math.exp(-4))


def test_friedman_needs_three_of_each_and_a_difference():
    assert friedman(np.ones((5, 3))) is None
    assert friedman([[1, 2], [2, 1], [1, 2]]) is None
    assert friedman([[1, 2, 3], [3, 1, 2]]) is None
