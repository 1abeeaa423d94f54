"""Power of paired comparisons: against closed forms, published tables and simulation."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from analysis.statistics.paired import (
    LEVEL,
    least_seeds_of_sign_flips,
    power_of,
    power_of_paired_t,
    seeds_needed,
    smallest_effect,
)
from analysis.statistics.sign_flips import sign_flips


def test_power_is_what_simulation_gives() -> None:
    """Cohen's table: d = 0.5 needs 34 pairs for 80 %; a simulated t-test agrees."""
    for student in (True, False):
        assert seeds_needed(0.5, level=LEVEL, student=student) == 34
        assert seeds_needed(-0.5, level=LEVEL, student=student) == 34
    draws = np.random.default_rng(4).normal(0.5, 1.0, size=(20000, 34))
    t = draws.mean(1) / (draws.std(1, ddof=1) / math.sqrt(34))
    assert np.mean(np.abs(t) > 2.0345) == pytest.approx(power_of_paired_t(0.5, 34, LEVEL), abs=0.01)


def test_what_ten_and_twenty_seeds_see_of_three_pairs() -> None:
    """d_z 1.23 and .79 with Student's t at 5/3 %, rounded up; the sign-flip test sees a little less at ten."""
    found = [smallest_effect(count, LEVEL / 3, student=True) for count in (10, 20)]
    assert [math.ceil(100 * effect) / 100 for effect in found if effect] == [1.23, 0.79]
    assert smallest_effect(10, LEVEL / 3) == pytest.approx(1.26, abs=0.03)
    assert smallest_effect(20, LEVEL / 3) == pytest.approx(0.784, abs=0.01)


@pytest.mark.parametrize(("count", "level"), [(6, 0.05), (7, 0.05 / 3)])
def test_where_only_equal_signs_are_rejected_the_power_is_known(count: int, level: float) -> None:
    """All of n normal differences are above 0 with the probability Phi(d)^n."""
    d = optimize.brentq(lambda d: stats.norm.cdf(d) ** count + stats.norm.cdf(-d) ** count - 0.8, 0, 5)
    assert smallest_effect(count, level) == pytest.approx(d, rel=0.03)
    assert power_of(d, count, level) == pytest.approx(0.8, abs=0.02)


def test_the_simulated_power_goes_over_into_that_of_t() -> None:
    """At 11 pairs the t-test's is taken; a simulated sign-flip test of the effect it sees agrees to 3 points."""
    effect = smallest_effect(11, LEVEL)
    assert effect is not None
    draws = np.random.default_rng(3).normal(effect, 1.0, size=(1500, 11))
    assert np.mean([sign_flips(row, level=LEVEL).p_value <= LEVEL for row in draws]) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("student", [True, False])
def test_seeds_needed_are_the_fewest(student: bool) -> None:
    for effect in (0.07, 0.9, 1.3):
        for level in (0.05, 0.05 / 3):
            needed = seeds_needed(effect, level=level, student=student)
            assert needed is not None
            assert power_of(effect, needed, level, student=student) >= 0.8
            assert power_of(effect, needed - 1, level, student=student) < 0.8


def test_no_number_of_seeds_resolves_nothing() -> None:
    for effect in (0.0, None, 1e-6):
        assert seeds_needed(effect, level=LEVEL) is None
    assert smallest_effect(5, LEVEL) is None, "five pairs of equal sign have p = 1/16"
    assert smallest_effect(6, LEVEL / 3) is None


def test_a_huge_effect_needs_as_many_seeds_as_the_test_has_patterns() -> None:
    assert least_seeds_of_sign_flips(0.05) == 6
    assert least_seeds_of_sign_flips(0.05 / 3) == 7
    assert least_seeds_of_sign_flips(1 / 32) == 6, "a p-value of the level is enough"
    assert seeds_needed(50.0, level=LEVEL) == 6
