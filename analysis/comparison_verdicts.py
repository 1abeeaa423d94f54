"""What a comparison shows for every pair of arms, in words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from analysis.comparison_data import ConditionData, Metric, shortened
from analysis.comparison_statistics import (
    LEAST_SEEDS,
    LEVEL,
    PairedDifference,
    friedman,
    holm,
    least_seeds_of_sign_flips,
    paired_difference,
    seeds_needed,
)
from analysis.formatting import THIN, count, number, plural


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """Two arms compared in one metric, under one condition.

    Args:
        first: arm.
        second: arm; differences are first less second.
        differences: by seed, of the seeds at which both have a value.
        found: their statistics.
        holm_p: p-value corrected for all pairs of this metric and condition; None without a test.
        needed: seeds that would resolve the observed difference; None when no number would.
        verdict: one sentence without its full stop.
    """

    first: str
    second: str
    differences: NDArray[np.float64]
    found: PairedDifference
    holm_p: float | None
    needed: int | None
    verdict: str

    @property
    def words(self) -> str:
        """The pair as figures and tables name it."""
        return f"{shortened(self.first)} \u2212 {shortened(self.second)}"

    @property
    def resolved(self) -> int:
        """1 where the first is resolved to be higher, -1 where the second is, 0 where nothing is resolved."""
        if self.holm_p is None or self.holm_p >= LEVEL:
            return 0
        return 1 if self.found.mean > 0 else -1


def unit_of_difference(metric: Metric, *, brackets: bool = False) -> str:
    """Return the unit of a difference, with what parts it from a number or a label; per cent differ by points."""
    unit = "points" if metric.unit == "%" else metric.unit
    return unit and (f" ({unit})" if brackets else f" {unit}")


def p_words(p_value: float) -> str:
    """Return a p-value with its sign of relation."""
    return "< 0.001" if p_value < 0.001 else f"= {number(p_value, 2)}"


def compare_pairs(data: ConditionData, metric: Metric) -> list[Pair]:
    """Compare every pair of arms that have cells in a metric, at the seeds that both have.

    p-values are Holm-corrected over those pairs of this metric and condition that can be tested.
    """
    finals = data.finals(metric)
    names = list(combinations(range(len(data.present)), 2))
    differences, found = [], []
    for i, j in names:
        both = np.isfinite(finals[:, i]) & np.isfinite(finals[:, j])
        differences.append(finals[both, i] - finals[both, j])
        found.append(paired_difference(finals[both, i], finals[both, j]))
    tested = [k for k, one in enumerate(found) if one.p_value is not None]
    corrected = dict(zip(tested, holm([found[k].p_value or 0.0 for k in tested]), strict=True))
    level = LEVEL / max(len(tested), 1)
    result = []
    for k, (i, j) in enumerate(names):
        first, second = data.present[i], data.present[j]
        needed = _needed(found[k], level)
        result.append(
            Pair(
                first=first,
                second=second,
                differences=differences[k],
                found=found[k],
                holm_p=corrected.get(k),
                needed=needed,
                verdict=verdict(metric, first, second, found[k], corrected.get(k), needed),
            )
        )
    return result


def _needed(found: PairedDifference, level: float) -> int | None:
    if found.deviation == 0.0 and found.mean:
        return least_seeds_of_sign_flips(level)
    return seeds_needed(found.effect, level=level)


def verdict(
    metric: Metric, first: str, second: str, found: PairedDifference, holm_p: float | None, needed: int | None
) -> str:
    """Return in words what the differences ``first - second`` show."""
    seeds = plural(found.count, "seed")
    if found.low is None or found.high is None or holm_p is None:
        return f"{seeds} in common: too few for an interval, which takes {LEAST_SEEDS}"
    if found.mean == 0 and found.deviation == 0:
        return f"equal at all {seeds}"
    if holm_p >= LEVEL:
        more = f"; {count(needed)} needed" if needed is not None and needed > found.count else ""
        return f"no difference resolved at {seeds}{more}"
    higher, sign = (shortened(first), 1.0) if found.mean > 0 else (shortened(second), -1.0)
    ends = sorted(sign * metric.factor * end for end in (found.low, found.high))
    return (
        f"{higher} higher by {number(abs(found.mean) * metric.factor, 2)}{unit_of_difference(metric)} "
        f"(95{THIN}% interval {number(ends[0], 2)} to {number(ends[1], 2)}, Holm p {p_words(holm_p)})"
    )


def friedman_words(data: ConditionData, metric: Metric, noun: str = "arm") -> str:
    """Return the result of Friedman's test over the seeds at which all arms have a value; empty without one."""
    finals = data.finals(metric)
    whole = finals[np.isfinite(finals).all(axis=1)]
    found = friedman(whole)
    if found is None:
        return ""
    return (
        f"Friedman's test that all {len(data.present)} {noun}s are alike, over {plural(len(whole), 'seed')}: "
        f"chi-square {number(found[0])}, p {p_words(found[1])}."
    )
