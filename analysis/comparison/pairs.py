"""Pairs of arms or of conditions, compared seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.formatting import count, plural, shortened
from analysis.statistics.paired import (
    LEAST_SEEDS,
    LEVEL,
    PairedDifference,
    holm,
    least_seeds_of_sign_flips,
    paired_difference,
    seeds_needed,
    smallest_effect,
)
from vnetsim.storage.records import Interval


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedPair:
    """Two arms, or two conditions, compared in one metric."""

    first: str  # label; differences are first minus second
    second: str  # label
    differences: NDArray[np.float64]  # by seed, for the seeds at which both have a value
    found: PairedDifference  # statistics of the differences
    # number of tested pairs in the family (all pairs if none was tested), for which p-values (Holm) and intervals
    # (Bonferroni) are corrected
    tests: int
    p_value: float | None  # corrected; None if the seeds are too few for any test
    least: int  # fewest seeds with which a pair of this family could be resolved
    # the smallest true difference that these seeds resolve with 80 % power, if the differences scatter as observed;
    # None if they resolve none
    resolves: float | None
    needed: int | None  # seeds that would resolve the observed difference with 80 % power; None if no number would
    withheld: bool = False  # True if no verdict is given because the runs did not meet the traffic, see ``traffic_met``

    @property
    def words(self) -> str:
        """Name of the pair, first minus second, for figures and tables; long labels are shortened."""
        return f"{shortened(self.first)} \u2212 {shortened(self.second)}"

    @property
    def resolved(self) -> int:
        """1 if the first is higher, -1 if the second is; 0 if p is above ``LEVEL`` or the verdict is withheld."""
        return 0 if self.withheld else _sign(self.found, self.p_value)

    @property
    def equal(self) -> bool:
        """Whether all differences are 0; False for fewer than two seeds."""
        return self.found.mean == 0 and self.found.deviation == 0

    @property
    def verdict(self) -> str:
        """The verdict in words without the difference, for example "A higher" or "not resolved; 12 seeds needed"."""
        if self.found.count < self.least and not _sign(self.found, self.p_value):
            return "too few seeds"
        if self.equal:
            return f"equal at all {plural(self.found.count, 'seed')}"
        if self.withheld:
            return "withheld: did not meet the traffic"
        if not self.resolved:
            more = "" if self.needed is None else f"; {count(self.needed)} seeds needed"
            return f"not resolved{more}"
        return f"{shortened(self.first if self.resolved > 0 else self.second)} higher"

    @property
    def brief(self) -> str:
        """The verdict in a few words for the terminal; "higher" or "lower" says how the first is against the second."""
        if self.resolved:
            return "higher" if self.resolved > 0 else "lower"
        if self.verdict == "too few seeds":
            return self.verdict
        if self.equal or self.withheld:
            return "equal" if self.equal else "withheld"
        return "not resolved" if self.needed is None else f"needs {count(self.needed)} seeds"


def _sign(found: PairedDifference, p_value: float | None) -> int:
    """Return the sign of the mean difference if p is at most ``LEVEL``; 0 otherwise, and for p None or mean 0."""
    if p_value is None or p_value > LEVEL * (1 + 1e-9) or not found.mean:
        return 0
    return 1 if found.mean > 0 else -1


class Columns(NamedTuple):
    """``values`` (seeds, columns), NaN if missing; columns are compared in all pairs, or each with ``against``."""

    labels: Sequence[str]
    values: NDArray[np.float64]
    against: str = ""


def _pairs_of(labels: Sequence[str], against: str) -> Sequence[tuple[int, int]]:
    """Return pairs of column numbers: each other column with ``against``, or all pairs if that is no label."""
    if not against or against not in labels:
        return list(combinations(range(len(labels)), 2))
    last = labels.index(against)
    return [(column, last) for column in range(len(labels)) if column != last]


def compare_together(tables: Sequence[Columns], method: Interval) -> list[list[ComparedPair]]:
    """Compare the columns of each table in pairs, over rows in which both have a value; return a list per table.

    All pairs of all tables are one family. P-values (Holm) and intervals (Bonferroni) are corrected over the pairs that
    have enough seeds to be tested. Pairs with fewer seeds cannot be resolved, and do not count.
    """
    pairs = [(place, i, j) for place, one in enumerate(tables) for i, j in _pairs_of(one.labels, one.against)]
    columns = [(tables[place].values[:, i], tables[place].values[:, j]) for place, i, j in pairs]
    both = [np.isfinite(ours) & np.isfinite(theirs) for ours, theirs in columns]
    testable = [bool(rows.sum() >= _least_seeds(LEVEL, method)) for rows in both]
    tests = sum(testable) or max(len(pairs), 1)
    level = LEVEL / tests
    least = _least_seeds(level, method)
    found = [
        paired_difference(ours[rows], theirs[rows], level=level, method=method)
        for (ours, theirs), rows in zip(columns, both, strict=True)
    ]
    raw = [one.p_value if enough else None for one, enough in zip(found, testable, strict=True)]
    corrected = iter(holm([p_value for p_value in raw if p_value is not None]))
    result: list[list[ComparedPair]] = [[] for _ in tables]
    for (place, i, j), (ours, theirs), rows, one, p_value in zip(pairs, columns, both, found, raw, strict=True):
        p_holm = None if p_value is None else next(corrected)
        effect = smallest_effect(one.count, one.level, student=method == "t") if one.deviation else None
        result[place].append(
            ComparedPair(
                first=tables[place].labels[i],
                second=tables[place].labels[j],
                differences=ours[rows] - theirs[rows],
                found=one,
                tests=tests,
                p_value=p_holm,
                least=least,
                resolves=None if effect is None else effect * (one.deviation or 0.0),
                needed=_needed_seeds(one, least, resolved=bool(_sign(one, p_holm))),
            )
        )
    return result


def correct_together(pairs: Sequence[ComparedPair]) -> list[ComparedPair]:
    """Correct the pairs' raw p-values over all of them (Holm); return new pairs. A p of None and intervals stay."""
    corrected = iter(holm([pair.p_value for pair in pairs if pair.p_value is not None]))
    return [pair if pair.p_value is None else replace(pair, p_value=next(corrected)) for pair in pairs]


def _least_seeds(level: float, method: Interval) -> int:
    """Return the fewest seeds for a test: ``LEAST_SEEDS`` for "t", else as many as let sign flips reach ``level``."""
    return LEAST_SEEDS if method == "t" else least_seeds_of_sign_flips(level)


def _needed_seeds(found: PairedDifference, least: int, *, resolved: bool) -> int | None:
    """Return seeds needed for 80 % power: at least ``least``, more than now unless ``resolved``; None if impossible."""
    if found.deviation == 0.0 and found.mean:
        return least
    needed = seeds_needed(found.effect, level=found.level, student=found.method == "t")
    if needed is None:
        return None
    return max(needed, least, 0 if resolved else found.count + 1)
