"""Statistics of paired comparisons: what a difference between two learners over common seeds shows, and what not.

A pair of learners is compared by the differences of their results at the same seed, so that what a seed decides for
both (silos, radio, initial weights) cancels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

LEVEL = 0.05
"""Level of the tests; intervals have the confidence 1 - LEVEL."""
POWER = 0.8
LEAST_SEEDS = 3
"""Fewer paired values give no interval and no test."""

_RESAMPLES = 9_999
_SIGN_FLIPS = 99_999  # all of them, and so an exact test, up to 16 seeds
_MOST_SEEDS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """What paired differences ``first - second`` show; figures that they do not allow are None.

    Args:
        count: number of pairs.
        mean: mean difference; NaN without any pair.
        deviation: standard deviation of the differences (n - 1 in the denominator).
        low: lower end of the BCa bootstrap interval of the mean; ``high`` the upper end.
        high: see ``low``.
        p_value: of the two-sided sign-flip permutation test.
        effect: d_z, mean over standard deviation; None also when the deviation is zero.
    """

    count: int
    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    p_value: float | None
    effect: float | None


def paired_difference(first: ArrayLike, second: ArrayLike, *, seed: int = 0) -> PairedDifference:
    """Compare paired values.

    The interval is Efron's bias-corrected and accelerated bootstrap (1987); the test flips the signs of the differences
    in all ways, or in 99,999 random ways for more than 16 pairs. Exchanging ``first`` and ``second`` negates mean,
    interval and effect exactly and leaves the p-value as it is.

    Args:
        first: shape (n,).
        second: shape (n,), paired with ``first``.
        seed: of the resampling.

    Raises:
        ValueError: different lengths, or values that are not finite.
    """
    ours, theirs = (np.asarray(values, dtype=np.float64) for values in (first, second))
    if ours.ndim != 1 or ours.shape != theirs.shape:
        raise ValueError(f"paired values must have one shape (n,), got {ours.shape} and {theirs.shape}")
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise ValueError("paired values must be finite")
    differences = ours - theirs
    count = len(differences)
    mean = float(differences.mean()) if count else math.nan
    deviation = float(differences.std(ddof=1)) if count > 1 else None
    scale = max(np.abs(ours).max(initial=0.0), np.abs(theirs).max(initial=0.0))
    if deviation is not None and deviation <= 1e-12 * scale:
        deviation = 0.0  # equal but for the rounding of the subtraction
    if count < LEAST_SEEDS or deviation is None:
        return PairedDifference(
            count=count, mean=mean, deviation=deviation, low=None, high=None, p_value=None, effect=None
        )
    turned = -1.0 if mean < 0 else 1.0
    low, high = _interval(turned * differences, seed) if deviation else (turned * mean, turned * mean)
    if turned < 0:
        low, high = -high, -low
    return PairedDifference(
        count=count,
        mean=mean,
        deviation=deviation,
        low=low,
        high=high,
        p_value=_sign_flip_p(turned * differences, seed),
        effect=mean / deviation if deviation else None,
    )


def _interval(differences: NDArray[np.float64], seed: int) -> tuple[float, float]:
    """Return the BCa interval of the mean, or the percentile interval where BCa is undefined."""
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that BCa is undefined shows in its result
            found = stats.bootstrap(
                (differences,),
                np.mean,
                n_resamples=_RESAMPLES,
                confidence_level=1 - LEVEL,
                method=method,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            break
    return float(found.low), float(found.high)


def _sign_flip_p(differences: NDArray[np.float64], seed: int) -> float:
    if not differences.any():
        return 1.0
    found = stats.permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_SIGN_FLIPS,
        batch=10_000,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for being several (Holm, 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def power_of_paired_t(effect: float, count: int, level: float = LEVEL) -> float:
    """Return the power of the two-sided paired t-test at the true effect d_z with ``count`` >= 2 pairs."""
    shift, freedom = abs(effect) * math.sqrt(count), count - 1
    critical = stats.t.ppf(1 - level / 2, freedom)
    power = float(stats.nct.sf(critical, freedom, shift) + stats.nct.cdf(-critical, freedom, shift))
    # SciPy's noncentral t gives up far out, where the power is 1 to every digit
    return power if math.isfinite(power) else 1.0


def least_seeds_of_sign_flips(level: float = LEVEL) -> int:
    """Return the fewest seeds at which the sign-flip test can reach a p-value below ``level``: 2 / 2^n < level."""
    count = 1
    while 2.0 ** (1 - count) >= level:
        count += 1
    return count


def seeds_needed(effect: float | None, *, power: float = POWER, level: float = LEVEL) -> int | None:
    """Return the seeds at which a paired t-test resolves the effect d_z with the given power.

    At least as many as the sign-flip test needs to reach the level at all. The effect is taken as the true one, which
    an observed effect is only roughly.

    Args:
        effect: d_z; None or 0 cannot be resolved.
        power: in (0, 1).
        level: of the test; for one of k Holm-corrected pairs, LEVEL / k is on the safe side.

    Returns:
        the number, None when no number, or none up to a million, would do.
    """
    if not effect:
        return None
    low, high = 1, max(least_seeds_of_sign_flips(level), 2)
    while power_of_paired_t(effect, high, level) < power:
        low, high = high, 2 * high
        if high > _MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if power_of_paired_t(effect, middle, level) < power:
            low = middle
        else:
            high = middle
    return max(high, least_seeds_of_sign_flips(level))


def friedman(values: ArrayLike) -> tuple[float, float] | None:
    """Return statistic and p-value (chi-square approximation) of Friedman's test that all learners are alike.

    Args:
        values: shape (seeds, learners).

    Returns:
        None for fewer than three learners or seeds, or when all learners are equal at every seed.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 3 or len(table) < LEAST_SEEDS or not np.ptp(table, axis=1).any():
        return None
    found = stats.friedmanchisquare(*table.T)
    return float(found.statistic), float(found.pvalue)
