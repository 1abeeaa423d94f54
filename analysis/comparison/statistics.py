"""Statistics of paired comparisons: what a difference between two arms over common seeds shows, and what not.

A pair is compared by the differences of its results at the same seed, so that what a seed decides for both (silos,
radio, initial weights) cancels.

Several pairs are corrected by Bonferroni: each is tested, and has its interval, at LEVEL over the number of pairs.
Holm's step-down test resolves a little more, but has no intervals that agree with it; here p-value and interval are two
sides of one test, and all intervals of a family hold at once with the confidence 1 - LEVEL.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from analysis.statistics.sign_flips import SignFlips, sign_flips
from vnetsim.storage.comparison import LEAST_FOR_BCA, Interval

LEVEL = 0.05
"""Level of the tests of a family; its intervals hold together with the confidence 1 - LEVEL."""
LEAST_SEEDS = 3
"""Fewer values give no mean with an interval of its own."""

_RESAMPLES = 9_999
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """What paired differences ``first - second`` show; figures that they do not allow are None.

    Args:
        count: number of pairs.
        mean: mean difference; NaN without any pair.
        deviation: standard deviation of the differences (n - 1 in the denominator).
        low: lower end of the interval of the mean with the confidence 1 - ``level``; minus infinity where so few pairs
            give none.
        high: upper end, likewise.
        p_value: two-sided, of the test by itself.
        effect: d_z, mean over standard deviation; None also when the deviation is zero.
        level: of the test.
        method: of test and interval.
    """

    count: int
    mean: float
    deviation: float | None
    low: float
    high: float
    p_value: float | None
    effect: float | None
    level: float
    method: Interval

    @property
    def bounded(self) -> bool:
        """Whether the pairs were enough for an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def resolved(self) -> int:
        """1 where the first is resolved to be higher, -1 where the second is, 0 where neither is.

        Test and interval both must say so; only those of BCa can differ.
        """
        if self.p_value is None or self.p_value > self.level * (1 + 1e-9) or self.low <= 0 <= self.high:
            return 0
        return 1 if self.low > 0 else -1


def paired_difference(
    first: ArrayLike, second: ArrayLike, *, level: float = LEVEL, method: Interval = "sign-flip", seed: int = 0
) -> PairedDifference:
    """Compare paired values.

    ``sign-flip`` is the randomisation test with its interval; it asks of the differences that they be symmetric about
    their mean, and nothing of their size. ``t`` is Student's; it asks that they be normal. ``bca`` is the sign-flip
    test with Efron's bias-corrected and accelerated bootstrap interval (1987), from ``LEAST_FOR_BCA`` pairs on.
    Exchanging ``first`` and ``second`` negates mean, interval and effect exactly and leaves the p-value as it is.

    Args:
        first: shape (n,).
        second: shape (n,), paired with ``first``.
        level: of the test; of one among k, LEVEL / k.
        method: of test and interval.
        seed: of what is drawn at random: splits of many pairs, resamples.

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
    if method == "bca" and count < LEAST_FOR_BCA:
        method = "sign-flip"
    found = SignFlips(p_value=1.0, low=-math.inf, high=math.inf)
    if deviation is not None:
        if method == "t" and deviation:
            found = _student(mean, deviation, count, level)
        else:
            found = sign_flips(differences, level=level, scale=scale, seed=seed)
        if method == "bca" and deviation:
            turned = -1.0 if mean < 0 else 1.0
            ends = _bootstrap(turned * differences, level, seed)
            low, high = ends if turned > 0 else (-ends[1], -ends[0])
            found = SignFlips(p_value=found.p_value, low=low, high=high)
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


def _student(mean: float, deviation: float, count: int, level: float) -> SignFlips:
    error = deviation / math.sqrt(count)
    half = float(stats.t.ppf(1 - level / 2, count - 1)) * error
    p_value = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    return SignFlips(p_value=p_value, low=mean - half, high=mean + half)


def _bootstrap(differences: Floats, level: float, seed: int) -> tuple[float, float]:
    """Return the BCa interval of the mean, or the percentile interval where BCa is undefined."""
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that BCa is undefined shows in its result
            found = stats.bootstrap(
                (differences,),
                np.mean,
                n_resamples=_RESAMPLES,
                confidence_level=1 - level,
                method=method,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            break
    return float(found.low), float(found.high)


def bonferroni(p_value: float, tests: int) -> float:
    """Return a p-value corrected for being one of several."""
    return min(1.0, tests * p_value)
