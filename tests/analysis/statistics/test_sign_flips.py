"""The sign-flip test and its interval: against brute force and against SciPy."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from analysis.statistics.paired import LEVEL
from analysis.statistics.sign_flips import MOST_EXACT, attained_level, in_two_groups, lower_limits, sign_flips

Floats = NDArray[np.float64]


def brute_p(differences: Floats) -> float:
    """The definition: the share of all sign patterns whose sum is as far from 0."""
    sums = np.array([np.dot(signs, differences) for signs in product((1, -1), repeat=len(differences))])
    return float(np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-12))


@pytest.mark.parametrize("count", [2, 5, 6, 8, 12])
@pytest.mark.parametrize("level", [0.05, 0.05 / 3, 0.2])
def test_the_interval_holds_the_shifts_that_are_not_rejected(count, level):
    """Just inside each end the test by its definition does not reject, just outside it does."""
    differences = np.random.default_rng(count).normal(0.4, 1, count)
    found = sign_flips(differences, level=level)
    assert found.p_value == pytest.approx(brute_p(differences))
    if 2 / 2**count > level:
        assert (found.low, found.high) == (-math.inf, math.inf)
        assert brute_p(differences - 1e6) > level
        return
    for end, out in ((found.low, -1), (found.high, 1)):
        assert brute_p(differences - (end - out * 1e-6)) > level
        assert brute_p(differences - (end + out * 1e-6)) <= level


def test_many_samples_at_once():
    samples = np.random.default_rng(2).normal(size=(20, 8))
    ends = [sign_flips(sample, level=0.05).low for sample in samples]
    assert lower_limits(samples, 6) == pytest.approx(ends)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-8, 8), min_size=2, max_size=9), st.sampled_from([0.05, 0.025, 0.1]))
def test_zero_is_outside_exactly_when_p_is_at_most_the_level(values, level):
    """Also where differences are tied: sums of tenths are not exact, and must count as what they are."""
    differences = np.array(values) * 0.1
    found = sign_flips(differences, level=level, tolerance=1e-12)
    assert found.p_value == pytest.approx(brute_p(np.array(values, dtype=np.float64)))
    assert (found.p_value <= level) == (found.low > 0 or found.high < 0)
    turned = sign_flips(-differences, level=level, tolerance=1e-12)
    assert (turned.low, turned.high, turned.p_value) == (-found.high, -found.low, found.p_value)


@pytest.mark.parametrize("count", [4, 9, MOST_EXACT, 25])
def test_the_p_value_is_that_of_scipy(count):
    differences = np.random.default_rng(count).normal(0.5, 1, count)
    theirs = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", vectorized=True, n_resamples=99_999, rng=1
    )
    ours = sign_flips(differences, level=0.05).p_value
    assert ours == pytest.approx(float(theirs.pvalue), rel=1e-9 if count <= 16 else 0.1)


def test_many_pairs_are_split_at_random_and_the_interval_is_near_students():
    differences = np.random.default_rng(5).normal(1.0, 1.0, 40)
    found = sign_flips(differences, level=0.05)
    half = stats.t.ppf(0.975, 39) * differences.std(ddof=1) / math.sqrt(40)
    assert found.low == pytest.approx(differences.mean() - half, abs=0.03)
    assert found.high == pytest.approx(differences.mean() + half, abs=0.03)
    assert found == sign_flips(differences, level=0.05), "the same seed, the same splits"
    shifted = sign_flips(differences - found.low - 1e-9, level=0.05)
    assert shifted.p_value == pytest.approx(0.05, abs=2e-4)


def test_attained_levels():
    """Of 2^n patterns so many are rejected at 5 %: 2 of 64, 6 of 128, 12 of 256, 204 of 4096."""
    assert [attained_level(LEVEL, count) for count in (6, 7, 8, 12)] == [2 / 64, 6 / 128, 12 / 256, 204 / 4096]


def test_two_groups_are_told_from_one():
    rng = np.random.default_rng(3)
    for count, most in ((6, 0.06), (8, 0.02), (12, 0.005)):
        assert np.mean([in_two_groups(row) for row in rng.normal(size=(2000, count))]) <= most
        jumps = np.arange(count) < count // 3
        jittered = jumps + rng.normal(0, 0.05, (200, count))
        assert np.mean([in_two_groups(row) for row in jittered]) > 0.9
    assert not in_two_groups(np.full(8, 0.25))
    assert in_two_groups(np.array([0.0, 0, 0, 0, 0, 5.0]))
