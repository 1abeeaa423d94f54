"""Draws that several policies make of a few candidates."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from vnetsim.simulation.selection import Candidate


def shuffled(candidates: Sequence[Candidate], generator: np.random.Generator) -> list[Candidate]:
    """Return candidates in random order. Sorted afterwards, equals are drawn: in order of entry the first would win."""
    return [candidates[place] for place in generator.permutation(len(candidates)).tolist()]


def drawn(weights: Sequence[float], generator: np.random.Generator) -> int:
    """Return one index in proportion to ``weights``, at least 0."""
    sums = list(accumulate(weights))
    return bisect_right(sums, generator.random() * sums[-1], hi=len(sums) - 1)
