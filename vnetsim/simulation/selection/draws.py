"""What NumPy draws and computes of a few values, to the bit and from the same random numbers, in less time.

A policy is asked at nearly every event, with a dozen candidates. NumPy's checks of its arguments then take most of the
time of a choice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np


def drawn(weights: Sequence[float], generator: np.random.Generator) -> int:
    """Return one index in proportion to ``weights`` (above 0), as ``generator.choice`` does."""
    return bisect_right(_cumulated(_shares(weights)), generator.random())


def drawn_without_replacement(weights: Sequence[float], count: int, generator: np.random.Generator) -> list[int]:
    """Return ``count`` indices, at most all, as ``generator.choice(..., replace=False)`` does."""
    shares = _shares(weights)
    found: dict[int, None] = {}  # each once, in order
    while len(found) < count:
        sums = _cumulated(shares)
        for number in generator.random(count - len(found)).tolist():
            index = bisect_right(sums, number)
            found[index] = None
            shares[index] = 0.0
    return list(found)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile of some values, as ``numpy.quantile`` does."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = int(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    part = place - below
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def _shares(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    if type(total) is not int:  # NumPy adds in an order of its own, which shows in all but whole numbers
        total = float(np.array(weights, dtype=np.float64).sum())
    return [weight / total for weight in weights]


def _cumulated(shares: Sequence[float]) -> list[float]:
    sums = list(accumulate(shares))
    last = sums[-1]
    return [one / last for one in sums]
