"""Statistics of paired comparisons of two arms over common seeds.

P-values of several pairs are those of Holm (Scand. J. Statist. 6, 1979): the chance of any false verdict in a family is
at most LEVEL. Holm's test has no intervals, so those are Bonferroni's, all right at once with the confidence 1 - LEVEL.
Where an interval leaves 0 out, p is at most LEVEL; the converse fails for a few pairs that only Holm resolves.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

from analysis.statistics.sign_flips import SignFlips, attained_level, lower_limits, most_rejected, sign_flips, splits_of
from vnetsim.storage.records import Interval

LEVEL = 0.05
"""Level of the tests of a family; its intervals are simultaneous with the confidence 1 - LEVEL."""
LEAST_SEEDS = 3
"""Fewest values for a mean with an interval."""
POWER = 0.8
_SIMULATED = 10
"""Most pairs for which the power of the sign-flip test is simulated; above, the t-test's differs by at most 2 %."""
_DRAWS = 5_000
_MOST_SEEDS = 1_000_000
_MOST_EFFECT = 60.0
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """Statistics of ``count`` paired differences ``first - second``; None for those that need more pairs."""

    count: int
    mean: float  # NaN without any pair
    deviation: float | None  # standard deviation of the differences (n - 1 in the denominator)
    low: float  # lower end of the interval of the mean with the confidence 1 - ``level``
    high: float  # upper end; both ends are infinite if there are too few pairs
    p_value: float | None  # two-sided, not corrected for other tests
    effect: float | None  # d_z, mean over standard deviation; None also if the deviation is zero
    level: float
    method: Interval

    @property
    def bounded(self) -> bool:
        """Whether the pairs suffice for an interval: both ends are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def paired_difference(
    first: ArrayLike, second: ArrayLike, *, level: float = LEVEL, method: Interval = "sign-flip"
) -> PairedDifference:
    """Return the statistics of ``first - second``; a mean or deviation within rounding counts as 0.

    Args:
        first: shape (n,), finite; n may be 0.
        second: shape (n,), paired with ``first``.
        level: level of the test; LEVEL / k for one of k tests.
        method: ``sign-flip`` assumes symmetric differences, ``t`` (Student's) normal ones.
    """
    ours, theirs = (np.asarray(values, dtype=np.float64) for values in (first, second))
    differences = ours - theirs
    count = len(differences)
    mean = float(differences.mean()) if count else math.nan
    deviation = float(differences.std(ddof=1)) if count > 1 else None
    # smaller values are rounding of the subtraction
    rounding = 1e-12 * max(np.abs(ours).max(initial=0.0), np.abs(theirs).max(initial=0.0))
    if abs(mean) <= rounding:
        mean = 0.0
    if deviation is not None and deviation <= rounding:
        deviation = 0.0
    found = SignFlips(p_value=1.0, low=-math.inf, high=math.inf)
    if deviation and method == "t":
        half = float(stats.t.ppf(1 - level / 2, count - 1)) * deviation / math.sqrt(count)
        p_value = 2 * float(stats.t.sf(abs(mean) / (deviation / math.sqrt(count)), count - 1))
        found = SignFlips(p_value=p_value, low=mean - half, high=mean + half)
    elif deviation is not None:
        found = sign_flips(differences, level=level, tolerance=rounding)
    return PairedDifference(
        count=count,
        mean=mean,
        deviation=deviation,
        low=found.low,
        high=found.high,
        p_value=None if deviation is None else found.p_value,
        effect=mean / deviation if deviation else None,
        level=level,
        method=method,
    )


def power_of_paired_t(effect: float, count: int, level: float) -> float:
    """Return the power of the two-sided paired t-test, with ``count`` >= 2 pairs, at the true effect d_z."""
    if level <= 0:
        return 0.0
    shift, freedom = abs(effect) * math.sqrt(count), count - 1
    critical = stats.t.ppf(1 - level / 2, freedom)
    # SciPy's noncentral t is NaN far out, where the upper tail is 1 and the lower tail 0 to every digit
    above, below = stats.nct.sf(critical, freedom, shift), stats.nct.cdf(-critical, freedom, shift)
    return float(np.nan_to_num(above, nan=1.0) + np.nan_to_num(below, nan=0.0))


def power_of(effect: float, count: int, level: float, *, student: bool = False) -> float:
    """Return the power of the sign-flip test, with ``student`` of the paired t-test, at the true effect d_z.

    Differences are taken as normal. ``count`` >= 2 is the number of pairs; ``level`` is already corrected for several
    tests.
    """
    if student or count > _SIMULATED:
        return power_of_paired_t(effect, count, level if student else attained_level(level, count))
    rejected = most_rejected(level, splits_of(count))
    return float(np.searchsorted(_draw_effect_limits(count, rejected), abs(effect)) / _DRAWS) if rejected else 0.0


@cache
def _draw_effect_limits(count: int, rejected: int) -> NDArray[np.float64]:
    """Return, ascending, the effect (d_z) above which the test rejects, for each of ``_DRAWS`` normal samples."""
    samples = np.random.default_rng(0).normal(size=(_DRAWS, count))
    return np.sort(-lower_limits(samples, rejected))


def smallest_effect(count: int, level: float, *, student: bool = False) -> float | None:
    """Return the smallest d_z at which ``power_of`` is ``POWER``; None if there is none up to 60, or ``count`` < 2."""
    if count < 2 or power_of(_MOST_EFFECT, count, level, student=student) < POWER:
        return None
    return float(
        optimize.brentq(
            lambda effect: power_of(effect, count, level, student=student) - POWER, 0.0, _MOST_EFFECT, xtol=1e-4
        )
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's corrected p-values, in the order given.

    The k-th smallest of m is multiplied by m - k + 1; results do not decrease with k and are at most 1.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def spread_of_deviation(count: int) -> tuple[float, float] | None:
    """Return the 90 % range of observed over true deviation of ``count`` normal values; None for fewer than two."""
    if count < 2:
        return None
    low, high = np.sqrt(stats.chi2.ppf((0.05, 0.95), count - 1) / (count - 1))
    return float(low), float(high)


def least_seeds_of_sign_flips(level: float) -> int:
    """Return the fewest seeds at which the sign-flip test can reach a p-value of ``level``: 2 / 2^n <= level."""
    return next(seeds for seeds in itertools.count(1) if most_rejected(level, splits_of(seeds)))


def seeds_needed(effect: float | None, *, level: float, student: bool = False) -> int | None:
    """Return the fewest seeds with which a test resolves the effect d_z with the power ``POWER``; see ``power_of``.

    The effect is treated as the true one; an observed effect is only an estimate of it. None if the effect is None or
    0, or if a million seeds are too few.
    """
    if not effect:
        return None
    counts = range(2 if student else max(least_seeds_of_sign_flips(level), 2), _MOST_SEEDS + 1)
    place = bisect_left(counts, POWER, key=lambda count: power_of(effect, count, level, student=student))
    return counts[place] if place < len(counts) else None
