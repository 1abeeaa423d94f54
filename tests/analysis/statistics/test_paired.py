"""Paired statistics and their power: by hand, published examples, simulation, laws they obey."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from analysis.statistics.paired import (
    LEVEL,
    holm,
    least_seeds_of_sign_flips,
    paired_difference,
    power_of,
    power_of_paired_t,
    seeds_needed,
    smallest_effect,
    spread_of_deviation,
)


def test_figures_worked_by_hand():
    """Differences 1, 2, 3: of 8 sign patterns +++ and --- are as far out. -1, 2, 3, 4 sums to 8: so do 4 of 16."""
    found = paired_difference([2, 4, 6], [1, 2, 3])
    assert (found.count, found.mean, found.deviation, found.effect) == (3, 2.0, 1.0, 2.0)
    assert found.p_value == pytest.approx(2 / 8)
    assert paired_difference([-1, 2, 3, 4], [0, 0, 0, 0]).p_value == pytest.approx(4 / 16)


def test_students_figures_worked_by_hand():
    """1, 2, 3 over 0: t = 2 sqrt(3) with 2 degrees of freedom, whose quantile at 97.5 % is 4.3027."""
    found = paired_difference([1, 2, 3], [0, 0, 0], method="t")
    assert (found.low, found.high) == pytest.approx((2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), rel=1e-5)
    assert found.p_value == pytest.approx(0.0741799, rel=1e-5)
    assert found.low < 0 < paired_difference([1, 2, 3], [0, 0, 0], method="t", level=0.08).low


def test_holm_by_hand():
    """.01 of three counts thrice; .02 twice is .04; .03 alone would be less than the one before."""
    assert holm([0.02, 0.03, 0.01]) == pytest.approx([0.04, 0.04, 0.03])
    assert holm([0.4, 0.9]) == pytest.approx([0.8, 0.9])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_how_far_an_observed_deviation_is_from_the_true_one():
    found = spread_of_deviation(10)
    low, high = found
    assert (round(low, 2), round(high, 2)) == (0.61, 1.37)
    drawn = np.random.default_rng(1).normal(size=(20_000, 10)).std(axis=1, ddof=1)
    assert ((low < drawn) & (drawn < high)).mean() == pytest.approx(0.9, abs=0.01)
    assert spread_of_deviation(1) is None


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


def test_equal_differences_have_no_effect_size():
    found = paired_difference([0.3, 0.4, 0.5, 0.6], [0.1, 0.2, 0.3, 0.4])
    assert (found.deviation, found.effect) == (0.0, None)
    assert found.p_value == pytest.approx(2 / 16)
    assert not found.bounded
    ten = paired_difference(np.arange(10) / 10 + 0.2, np.arange(10) / 10)
    assert (ten.low, ten.high) == (pytest.approx(0.2), pytest.approx(0.2))
    none = paired_difference(np.arange(6), np.arange(6))
    assert (none.mean, none.low, none.high, none.p_value, none.effect) == (0, 0, 0, 1, None)
    assert paired_difference([0.7, 0.1, 0.3], [0.1, 0.3, 0.7]).mean == 0.0  # 2e-17 by subtraction


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_pairs_give_no_interval(count):
    found = paired_difference(np.arange(count) * 2.0, np.zeros(count))
    assert (found.count, found.low, found.high, found.bounded) == (count, -math.inf, math.inf, False)
    assert (found.p_value is None) == (count < 2)
    assert math.isnan(found.mean) == (count == 0)


def test_power_is_what_simulation_gives():
    """Cohen's table: d = 0.5 needs 34 pairs for 80 %; a simulated t-test agrees."""
    for student in (True, False):
        assert seeds_needed(0.5, level=LEVEL, student=student) == 34
        assert seeds_needed(-0.5, level=LEVEL, student=student) == 34
    draws = np.random.default_rng(4).normal(0.5, 1.0, size=(20000, 34))
    t = draws.mean(1) / (draws.std(1, ddof=1) / math.sqrt(34))
    assert np.mean(np.abs(t) > 2.0345) == pytest.approx(power_of_paired_t(0.5, 34, LEVEL), abs=0.01)


def test_the_power_of_few_pairs_at_a_strict_level_is_that_of_students_integral():
    """SciPy's noncentral t has no number for the lower tail there."""
    critical, shift = stats.t.ppf(1 - LEVEL / 110, 2), 4.32 * math.sqrt(3)
    chi2 = stats.chi2.ppf((np.arange(20_000) + 0.5) / 20_000, 2)
    expected = stats.norm.sf(critical * np.sqrt(chi2 / 2) - shift).mean()
    assert power_of_paired_t(4.32, 3, LEVEL / 55) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("count", "level"), [(6, 0.05), (7, 0.05 / 3)])
def test_where_only_equal_signs_are_rejected_the_power_is_known(count, level):
    """All of n normal differences are above 0 with the probability Phi(d)^n."""
    d = optimize.brentq(lambda d: stats.norm.cdf(d) ** count + stats.norm.cdf(-d) ** count - 0.8, 0, 5)
    assert smallest_effect(count, level) == pytest.approx(d, rel=0.03)
    assert power_of(d, count, level) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("student", [True, False])
def test_seeds_needed_are_the_fewest(student):
    for effect in (0.07, 0.9, 1.3):
        for level in (0.05, 0.05 / 3):
            needed = seeds_needed(effect, level=level, student=student)
            assert power_of(effect, needed, level, student=student) >= 0.8
            assert power_of(effect, needed - 1, level, student=student) < 0.8


def test_what_no_number_of_seeds_resolves_and_what_the_fewest_do():
    for effect in (0.0, None, 1e-6):
        assert seeds_needed(effect, level=LEVEL) is None
    assert smallest_effect(5, LEVEL) is None, "five pairs of equal sign have p = 1/16"
    assert smallest_effect(6, LEVEL / 3) is None
    assert [least_seeds_of_sign_flips(level) for level in (0.05, 0.05 / 3)] == [6, 7]
    assert least_seeds_of_sign_flips(1 / 32) == 6, "a p-value of the level is enough"
    assert seeds_needed(50.0, level=LEVEL) == 6
