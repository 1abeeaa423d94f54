"""Paired statistics against examples worked by hand, simulation, and the laws that they must obey."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.statistics.paired import (
    friedman,
    paired_difference,
)


def test_figures_worked_by_hand():
    """Differences 1, 2, 3: mean 2, deviation 1, and of 8 sign patterns only +++ and --- are as far out."""
    found = paired_difference([2, 4, 6], [1, 2, 3])
    assert (found.count, found.mean, found.deviation, found.effect) == (3, 2.0, 1.0, 2.0)
    assert found.p_value == pytest.approx(2 / 8)


def test_the_sign_flips_are_counted():
    """-1, 2, 3, 4 sums to 8; of 16 patterns, sums of at least 8 in size are 10, 8, -8, -10."""
    assert paired_difference([-1, 2, 3, 4], [0, 0, 0, 0]).p_value == pytest.approx(4 / 16)


def test_students_figures_worked_by_hand():
    """1, 2, 3 over 0: t = 2 sqrt(3) with 2 degrees of freedom, whose quantile at 97.5 % is 4.3027."""
    found = paired_difference([1, 2, 3], [0, 0, 0], method="t")
    assert (found.low, found.high) == pytest.approx((2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), rel=1e-5)
    assert found.p_value == pytest.approx(0.0741799, rel=1e-5)
    assert found.resolved == 0
    assert paired_difference([1, 2, 3], [0, 0, 0], method="t", level=0.08).resolved == 1


def test_bca_is_resolved_only_where_test_and_interval_agree():
    rng = np.random.default_rng(3)
    found = [paired_difference(row, np.zeros(15), method="bca") for row in rng.normal(0.5, 1, (40, 15))]
    apart = [one for one in found if (one.p_value <= 0.05) != (one.low > 0 or one.high < 0)]
    assert apart, "BCa is shorter"
    assert not any(one.resolved for one in apart)
    assert any(one.resolved for one in found)


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
    assert found.p_value == pytest.approx(2 / 16)
    assert not found.bounded
    ten = paired_difference(np.arange(10) / 10 + 0.2, np.arange(10) / 10)
    assert (ten.low, ten.high) == (pytest.approx(0.2), pytest.approx(0.2))
    assert ten.resolved == 1
    none = paired_difference(np.arange(6), np.arange(6))
    assert (none.mean, none.low, none.high, none.p_value, none.effect) == (0, 0, 0, 1, None)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_pairs_give_no_interval(count):
    found = paired_difference(np.arange(count) * 2.0, np.zeros(count))
    assert (found.count, found.low, found.high, found.bounded) == (count, -math.inf, math.inf, False)
    assert (found.p_value is None) == (count < 2)
    assert found.resolved == 0
    assert math.isnan(found.mean) == (count == 0)


def test_what_is_not_paired_is_refused():
    with pytest.raises(ValueError, match="one shape"):
        paired_difference([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="finite"):
        paired_difference([1, 2, math.nan], [1, 2, 3])


def test_friedman_worked_by_hand():
    """Ranks 1, 2, 3 at each of 4 seeds: 12 / (4*3*4) * (16 + 64 + 144) - 3*4*4 = 8, and exp(-4) of chi-square 2."""
    statistic, p = friedman([[1, 2, 3], [2, 5, 9], [0, 1, 2], [4, 5, 6]])
    assert statistic == pytest.approx(8.0)
    assert p == pytest.approx(math.exp(-4))


def test_friedman_needs_three_of_each_and_a_difference():
    assert friedman(np.ones((5, 3))) is None
    assert friedman([[1, 2], [2, 1], [1, 2]]) is None
    assert friedman([[1, 2, 3], [3, 1, 2]]) is None
