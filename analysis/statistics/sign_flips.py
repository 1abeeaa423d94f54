"""The sign-flip (randomisation) test of paired differences, and the interval that belongs to it.

If the differences are symmetric about their centre, each is as likely to lie above it as as far below. The test flips
the signs of the differences in all ways and asks how often the sum is as far from 0 as it is. The interval holds every
shift that the test does not reject when it is taken off the differences. For a shift below the mean, flipping the signs
of a set of differences leads as far out exactly when the mean of the set, or of the others, is not above the shift: the
ends of the interval are therefore order statistics of the means of subsets (Hartigan, JASA 64, 1969), and nothing is
searched for.

Where the differences are not symmetric the interval covers the truth less often than it says, and much less where they
take two values, as where a result jumps at some seeds and not at others: of few seeds all may miss the rarer value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MOST_EXACT = 17
"""Pairs up to which all 2^(n - 1) ways to split them are taken; beyond, random ones."""
_RANDOM_SPLITS = 99_999

GAP = 2 / 3
"""Share of the range of differences that parts two groups."""
LEAST_FOR_GROUPS = 6
"""Fewer differences have no interval at 5 %, and a gap among them says nothing."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SignFlips:
    """The two-sided p-value, and the interval, which is unbounded where so few pairs can reject nothing."""

    p_value: float
    low: float
    high: float


def sign_flips(differences: Floats, *, level: float, tolerance: float = 0.0, seed: int = 0) -> SignFlips:
    """Test that differences are centred at 0, and return all centres that the test does not reject.

    ``p_value <= level`` holds exactly when 0 is outside the closed interval. Turning the signs of all differences
    turns the interval.

    Args:
        differences: shape (n,), n >= 1, finite.
        level: of the test; the interval has the confidence 1 - level.
        tolerance: the rounding of the subtraction; means up to it are 0.
        seed: of the random splits of more than ``MOST_EXACT`` differences.
    """
    mean = float(differences.mean())
    below, above, splits = _split_means(differences, seed)
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
    """Return whether differences, finite and of shape (n,), lie in two groups: then their interval says too much.

    That is when, in ascending order, two neighbours are parted by at least ``GAP`` of the whole range. Normal ones are
    so in 4 % of samples of 6 and less often in larger ones.
    """
    ordered = np.sort(differences)
    span = float(ordered[-1] - ordered[0]) if len(ordered) else 0.0
    return span > 0 and bool(np.diff(ordered).max() >= GAP * span)


def lower_limits(samples: Floats, rejected: int) -> Floats:
    """Return the lower ends of the intervals of many samples at once, as ``sign_flips`` has them.

    Args:
        samples: shape (samples, n) with n <= ``MOST_EXACT``.
        rejected: splits that may be as far out as the data, at least 1.
    """
    count = samples.shape[1]
    taken = (np.arange(1, 2 ** (count - 1))[:, None] >> np.arange(count)) & 1
    sizes, sums = taken.sum(axis=1), samples @ taken.T.astype(np.float64)
    below = np.minimum(sums / sizes, (samples.sum(axis=1, keepdims=True) - sums) / (count - sizes))
    return np.asarray(np.partition(below, rejected - 1, axis=1)[:, rejected - 1])


def splits_of(count: int) -> int:
    """Return into how many ways the test splits ``count`` differences, that of the data among them."""
    return 2 ** (count - 1) if count <= MOST_EXACT else _RANDOM_SPLITS + 1


def most_rejected(level: float, splits: int) -> int:
    """Return how many of the splits may be as far out as the data when the test rejects at a level."""
    return math.floor(level * splits * (1 + 1e-9))


def attained(level: float, count: int) -> float:
    """Return the level that the test has: the greatest possible p-value that is not above ``level``."""
    return most_rejected(level, splits_of(count)) / splits_of(count)


def _split_means(differences: Floats, seed: int) -> tuple[Floats, Floats, int]:
    """Return the lesser and the greater mean of the two parts of each split, and the number of splits.

    The split with one part empty is that of the data, and no row of the result; where it is drawn again, the means are
    minus and plus infinity, for it is as far out as the data whatever the shift.
    """
    count = len(differences)
    if count <= MOST_EXACT:
        sums, sizes = np.zeros(1), np.zeros(1)
        for value in differences[1:]:
            sums, sizes = np.concatenate([sums, sums + value]), np.concatenate([sizes, sizes + 1])
        sums, sizes = sums[1:], sizes[1:]
    else:
        taken = _random_parts(count, seed)
        sums = np.concatenate([part @ differences for part in np.array_split(taken, 10)])
        sizes = taken.sum(axis=1, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = sums / sizes, (differences.sum() - sums) / (count - sizes)
    empty = (sizes == 0) | (sizes == count)
    below, above = np.minimum(one, other), np.maximum(one, other)
    return np.where(empty, -np.inf, below), np.where(empty, np.inf, above), splits_of(count)


@lru_cache(maxsize=1)
def _random_parts(count: int, seed: int) -> NDArray[np.bool_]:
    """Return one part of each random split, shape (splits, count); the same for all tests of so many differences."""
    return np.random.default_rng(seed).integers(0, 2, (_RANDOM_SPLITS, count), dtype=np.bool_)
