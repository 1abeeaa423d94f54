"""What paired comparisons over so many seeds can see, and how many would see a given difference."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from analysis.statistics.sign_flips import attained, lower_limits, most_rejected, splits_of

POWER = 0.8
_SIMULATED = 10
"""Pairs up to which the power of the sign-flip test is simulated; beyond, that of the t-test is the same to 2 %."""
_DRAWS = 5_000
_MOST_SEEDS = 1_000_000
_MOST_EFFECT = 60.0


def power_of_paired_t(effect: float, count: int, level: float) -> float:
    """Return the power of the two-sided paired t-test at the true effect d_z with ``count`` >= 2 pairs."""
    if level <= 0:
        return 0.0
    shift, freedom = abs(effect) * math.sqrt(count), count - 1
    critical = stats.t.ppf(1 - level / 2, freedom)
    power = float(stats.nct.sf(critical, freedom, shift) + stats.nct.cdf(-critical, freedom, shift))
    # SciPy's noncentral t gives up far out, where the power is 1 to every digit
    return power if math.isfinite(power) else 1.0


def power_of(effect: float, count: int, level: float, *, student: bool = False) -> float:
    """Return the power of the test at the true effect d_z, for normal differences.

    Args:
        effect: d_z, mean over standard deviation of the differences.
        count: pairs, at least 2.
        level: of the test, corrected for there being several.
        student: that of the t-test instead of the sign-flip test.
    """
    if student or count > _SIMULATED:
        return power_of_paired_t(effect, count, level if student else attained(level, count))
    rejected = most_rejected(level, splits_of(count))
    return float(np.searchsorted(_effects_seen(count, rejected), abs(effect)) / _DRAWS) if rejected else 0.0


@cache
def _effects_seen(count: int, rejected: int) -> NDArray[np.float64]:
    """Return from which effect on each of many normal samples is rejected, sorted: its lower limit, turned."""
    samples = np.random.default_rng(0).normal(size=(_DRAWS, count))
    return np.sort(-lower_limits(samples, rejected))


def smallest_effect(count: int, level: float, *, power: float = POWER, student: bool = False) -> float | None:
    """Return the smallest d_z that ``count`` pairs see with the given power; None where they can see none."""
    if count < 2 or power_of(_MOST_EFFECT, count, level, student=student) < power:
        return None
    return float(
        optimize.brentq(
            lambda effect: power_of(effect, count, level, student=student) - power, 0.0, _MOST_EFFECT, xtol=1e-4
        )
    )


def least_seeds_of_sign_flips(level: float) -> int:
    """Return the fewest seeds at which the sign-flip test can reach a p-value of ``level``: 2 / 2^n <= level."""
    count = 1
    while not most_rejected(level, splits_of(count)):
        count += 1
    return count


def seeds_needed(effect: float | None, *, level: float, power: float = POWER, student: bool = False) -> int | None:
    """Return the seeds at which the test resolves the effect d_z with the given power.

    The effect is taken as the true one, which an observed effect is only roughly.

    Args:
        effect: d_z; None or 0 cannot be resolved.
        level: of the test, corrected for there being several.
        power: in (0, 1).
        student: of the t-test instead of the sign-flip test.

    Returns:
        the number, None when no number, or none up to a million, would do.
    """
    if not effect:
        return None
    low, high = 1, 2 if student else max(least_seeds_of_sign_flips(level), 2)
    while power_of(effect, high, level, student=student) < power:
        low, high = high, 2 * high
        if high > _MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if power_of(effect, middle, level, student=student) < power:
            low = middle
        else:
            high = middle
    return high
