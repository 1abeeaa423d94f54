"""The sign-flip (randomisation) test of paired differences, and its interval.

The test assumes that the differences are symmetric about their centre. It flips their signs in all ways and counts how
often the sum is at least as far from 0 as the observed sum. The interval contains every shift that the test does not
reject; its ends are order statistics of the means of subsets (Hartigan, JASA 64, 1969). Differences in two groups, as
when a result jumps at some seeds only, are covered less often: see ``in_two_groups``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MOST_EXACT = 17
"""Most pairs for which all 2^(n - 1) splits are computed; above, splits are random."""
_RANDOM_SPLITS = 99_999
GAP = 2 / 3
"""Least gap between two groups, as a share of the range of differences."""
LEAST_FOR_GROUPS = 6
"""Fewest differences with an interval at 5 %; with fewer, a gap means nothing."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SignFlips:
    """Two-sided p-value and interval; the interval is unbounded if the pairs are too few to reject anything."""

    p_value: float
    low: float
    high: float


def sign_flips(differences: Floats, *, level: float, tolerance: float = 0.0) -> SignFlips:
    """Test that differences are centred at 0, and return the interval of centres that the test does not reject.

    ``p_value <= level`` exactly if 0 is outside the closed interval. Negating all differences negates the interval.

    Args:
        differences: shape (n,), n >= 1, finite.
        level: level of the test; the interval has the confidence 1 - level.
        tolerance: rounding of the subtraction; means up to it count as 0.
    """
    mean = float(differences.mean())
    below, above, splits = _split_means(differences)
    for means in (below, above):
        means[np.abs(means) <= tolerance] = 0.0
    if abs(mean) <= tolerance:
        p_value = 1.0
    else:
        as_far = np.count_nonzero(below <= 0) if mean > 0 else np.count_nonzero(above >= 0)
        p_value = float((1 + as_far) / splits)
    rejected = most_rejected(level, splits)
    if rejected == 0:
        return SignFlips(p_value=p_value, low=-math.inf, high=math.inf)
    low = float(np.partition(below, rejected - 1)[rejected - 1])
    high = -float(np.partition(-above, rejected - 1)[rejected - 1])
    return SignFlips(p_value=p_value, low=low, high=high)


def in_two_groups(differences: Floats) -> bool:
    """Return whether finite differences (n,) form two groups, so that the interval of ``sign_flips`` is too narrow.

    They do if a gap between two neighbours is at least ``GAP`` of the range. Normal differences do in 4 % of samples
    of 6, and less often in larger samples.
    """
    ordered = np.sort(differences)
    span = float(ordered[-1] - ordered[0]) if len(ordered) else 0.0
    return span > 0 and bool(np.diff(ordered).max() >= GAP * span)


def lower_limits(samples: Floats, rejected: int) -> Floats:
    """Return the lower ends of the intervals of ``sign_flips`` for samples (samples, n), n <= ``MOST_EXACT``.

    ``rejected``, at least 1, comes from ``most_rejected``. The result has the shape (samples,).
    """
    count = samples.shape[1]
    taken = (np.arange(1, 2 ** (count - 1))[:, None] >> np.arange(count)) & 1
    sizes, sums = taken.sum(axis=1), samples @ taken.T.astype(np.float64)
    below = np.minimum(sums / sizes, (samples.sum(axis=1, keepdims=True) - sums) / (count - sizes))
    return np.asarray(np.partition(below, rejected - 1, axis=1)[:, rejected - 1])


def splits_of(count: int) -> int:
    """Return how many splits of ``count`` differences the test looks at, including that of the data."""
    return 2 ** (count - 1) if count <= MOST_EXACT else _RANDOM_SPLITS + 1


def most_rejected(level: float, splits: int) -> int:
    """Return how many splits, the data's included, may be as far out as the data if the test rejects; 0: never."""
    return math.floor(level * splits * (1 + 1e-9))


def attained_level(level: float, count: int) -> float:
    """Return the greatest possible p-value of ``count`` pairs that is not above ``level``; 0 if there is none."""
    return most_rejected(level, splits_of(count)) / splits_of(count)


def _split_means(differences: Floats) -> tuple[Floats, Floats, int]:
    """Return each other split's lower and higher part mean (-inf, inf if a part is empty), and ``splits_of``."""
    # the data's own split has an empty part and is left out; a random split equal to it is always as far out: +-inf
    count = len(differences)
    if count <= MOST_EXACT:
        sums, sizes = np.zeros(1), np.zeros(1)
        for value in differences[1:]:
            sums, sizes = np.concatenate([sums, sums + value]), np.concatenate([sizes, sizes + 1])
        sums, sizes = sums[1:], sizes[1:]
    else:
        taken = _draw_splits(count)
        sums = np.concatenate([part @ differences for part in np.array_split(taken, 10)])
        sizes = taken.sum(axis=1, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = sums / sizes, (differences.sum() - sums) / (count - sizes)
    empty = (sizes == 0) | (sizes == count)
    below, above = np.minimum(one, other), np.maximum(one, other)
    return np.where(empty, -np.inf, below), np.where(empty, np.inf, above), splits_of(count)


@lru_cache(maxsize=1)
def _draw_splits(count: int) -> NDArray[np.bool_]:
    """Return which differences are in one part of each random split, shape (splits, count); always the same."""
    return np.random.default_rng(0).integers(0, 2, (_RANDOM_SPLITS, count), dtype=np.bool_)
