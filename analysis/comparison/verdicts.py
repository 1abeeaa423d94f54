"""What a comparison shows for every pair, of arms or of conditions, in figures and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.comparison.data import ComparisonData, ConditionData, Metric, in_common
from analysis.formatting import NONE, THIN, count, number, plural, shortened
from analysis.statistics.paired import (
    LEAST_SEEDS,
    LEVEL,
    PairedDifference,
    friedman,
    least_seeds_of_sign_flips,
    paired_difference,
    seeds_needed,
    smallest_effect,
)
from vnetsim.storage.records import Interval


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedPair:
    """Two arms, or two conditions, compared in one metric.

    Args:
        first: label; differences are first less second.
        second: label.
        differences: by seed, of the seeds at which both have a value.
        found: their statistics.
        tests: pairs of the family that were tested, over which p-values and intervals are corrected.
        p_value: corrected; None where the seeds are too few for any test.
        least: seeds with which a pair of this family could be resolved at all.
        seen: the true difference that these seeds resolve with 80 % power, if the differences scatter as observed;
            None where they could resolve none.
        needed: seeds that would resolve the observed difference with 80 % power; None when no number would.
    """

    first: str
    second: str
    differences: NDArray[np.float64]
    found: PairedDifference
    tests: int
    p_value: float | None
    least: int
    seen: float | None
    needed: int | None

    @property
    def words(self) -> str:
        """The pair as figures and tables name it."""
        return f"{shortened(self.first)} \u2212 {shortened(self.second)}"

    @property
    def resolved(self) -> int:
        """1 where the first is resolved to be higher, -1 where the second is, 0 where nothing is resolved."""
        return 0 if self.p_value is None else self.found.resolved

    @property
    def equal(self) -> bool:
        """Whether there is no difference at any seed."""
        return self.found.mean == 0 and self.found.deviation == 0

    @property
    def verdict(self) -> str:
        """What the differences show, without their figures."""
        if self.found.count < self.least:
            return "too few seeds"
        if self.equal:
            return f"equal at all {plural(self.found.count, 'seed')}"
        if not self.resolved:
            more = "" if self.needed is None else f"; {count(self.needed)} seeds needed"
            return f"not resolved{more}"
        return f"{shortened(self.first if self.resolved > 0 else self.second)} higher"


class Family(NamedTuple):
    """Pairs that are corrected together: ``compared`` are ``arms`` under a condition, or ``conditions`` with an arm."""

    compared: str
    within: str
    metric: Metric
    pairs: Sequence[ComparedPair]


def pairs_in(families: Sequence[Family], condition: str, metric: Metric) -> Sequence[ComparedPair]:
    """Return the pairs of arms under a condition in a metric; none where they were not compared."""
    return next((pairs for kind, within, one, pairs in families
                 if (kind, within) == ("arms", condition) and one.same(metric)), ())  # fmt: skip


def unit_of_difference(metric: Metric, *, brackets: bool = False) -> str:
    """Return the unit of a difference, with what parts it from a number or a label; per cent differ by points."""
    unit = "points" if metric.unit == "%" else metric.dimension
    return unit and (f" ({unit})" if brackets else f" {unit}")


def p_words(p_value: float) -> str:
    """Return a p-value with its sign of relation."""
    return "< 0.001" if p_value < 0.001 else f"= {number(p_value, 2)}"


def figures_of(pair: ComparedPair, metric: Metric) -> tuple[str, str, str, str]:
    """Return mean difference, its interval, corrected p-value and the difference these seeds see, as text."""
    found, interval = pair.found, "unbounded"
    if found.bounded:
        interval = f"{number(found.low * metric.factor, 2)} to {number(found.high * metric.factor, 2)}"
    p_value = NONE if pair.p_value is None else p_words(pair.p_value).removeprefix("= ")
    seen = NONE if pair.seen is None else number(pair.seen * metric.factor, 2)
    return number(found.mean * metric.factor, 2), interval, p_value, seen


def level_words(pairs: Sequence[ComparedPair]) -> str:
    """Return what the intervals of some pairs are called: simultaneous where there are several."""
    several = any(pair.tests > 1 for pair in pairs)
    return f"{'simultaneous ' * several}95 % interval"


def power_words(pairs: Sequence[ComparedPair], metric: Metric) -> str:
    """Return what differences the seeds of some pairs could have seen; empty where that is none."""
    seen = sorted(pair.seen * metric.factor for pair in pairs if pair.seen is not None)
    if not seen:
        return ""
    low, high = number(seen[0], 2), number(seen[-1], 2)
    span = f"{low if low == high else f'{low} to {high}'}{unit_of_difference(metric)}{', by pair,' * (low != high)}"
    return f"These seeds would have resolved a true difference of {span} with 80{THIN}% power."


def verdict_sentences(pairs: Sequence[ComparedPair], metric: Metric, most: int = 3) -> list[str]:
    """Return what pairs show in a metric, in words: those resolved first, at most ``most``, then how many are not."""
    resolved = [pair for pair in pairs if pair.resolved]
    lines = []
    for pair in resolved[:most]:
        names = (pair.first, pair.second) if pair.resolved > 0 else (pair.second, pair.first)
        by = f"{number(abs(pair.found.mean) * metric.factor, 2)}{unit_of_difference(metric)}"
        low, high = sorted(abs(end * metric.factor) for end in (pair.found.low, pair.found.high))
        lines.append(
            f"{metric.subject}: {shortened(names[0])} is higher than {shortened(names[1])} by {by} "
            f"({level_words(pairs)} {number(low, 2)} to {number(high, 2)})."
        )
    if more := len(resolved) - most:
        lines += [f"{plural(more, 'more difference')} {'is' if more == 1 else 'are'} resolved."] * (more > 0)
    unresolved = [pair for pair in pairs if not pair.resolved]
    if len(unresolved) == 1 and unresolved[0].equal:
        first, second = shortened(unresolved[0].first), shortened(unresolved[0].second)
        lines.append(f"{metric.subject}: {first} and {second} are {unresolved[0].verdict}.")
    elif len(unresolved) == 1:
        mean, interval, _, _ = figures_of(unresolved[0], metric)
        of = f"{mean}{unit_of_difference(metric)}, {level_words(pairs)} {interval}"
        lines.append(f"{metric.subject}: the difference {unresolved[0].words} is not resolved ({of}).")
    elif len(unresolved) == len(pairs):
        lines.append(f"{metric.subject}: none of the {count(len(pairs))} differences is resolved.")
    elif unresolved:
        lines.append(f"{metric.subject}: {count(len(unresolved))} of {count(len(pairs))} differences are not resolved.")
    return lines


def compare_pairs(data: ConditionData, metric: Metric) -> list[ComparedPair]:
    """Compare every pair of arms that have cells in a metric, at the seeds that both have."""
    values = data.finals(metric)
    return compare_columns(data.present, values, data.method, data.against) if varies(metric, values) else []


def across_conditions(data: ComparisonData) -> list[Family]:
    """Compare conditions, arm by arm, at the seeds that both have; nothing where there is one condition only.

    p-values and intervals are corrected over the pairs of conditions of one arm and metric. Only metrics of which
    better is known are compared, or all where none is; one that a condition measures differently is not, nor one that
    no seed changes.
    """
    if len(data.conditions) < 2:
        return []
    found = []
    for arm in data.arms:
        cells = [cell for cell in data.cells if cell.entry.arm == arm]
        same, _ = in_common(cells, data.record.last_evaluations)
        same = [one for one in same if any(cell.final(one) is not None for cell in cells)]
        for metric in [one for one in same if one.better] or same:
            at = {(cell.entry.condition, cell.entry.seed): cell.final(metric) for cell in cells}
            names = [one.name for one in data.conditions if any(one.name == name for name, _ in at)]
            values = np.array([[at.get((name, seed)) for name in names] for seed in data.seeds], dtype=np.float64)
            values = values.reshape(len(data.seeds), len(names))
            if len(names) > 1 and varies(metric, values):
                pairs = compare_columns(names, values, data.record.interval)
                found.append(Family("conditions", arm, metric, pairs))
    return found


def varies(metric: Metric, values: NDArray[np.float64]) -> bool:
    """Return whether seeds change a metric, or may; where they do not, a test over them would say nothing.

    Only what is one figure a run, and neither good nor bad, is looked at; ``values`` have shape (seeds, columns), NaN
    where there is none.
    """
    several = np.isfinite(values).sum(axis=0) > 1
    if metric.known != 0 or not several.any():
        return True
    return bool((np.fmax.reduce(values, axis=0) > np.fmin.reduce(values, axis=0)).any())


def pairs_of(labels: Sequence[str], against: str = "") -> list[tuple[int, int]]:
    """Return which columns are compared: all pairs, or the others less the one they are compared against."""
    if not against or against not in labels:
        return list(combinations(range(len(labels)), 2))
    last = labels.index(against)
    return [(column, last) for column in range(len(labels)) if column != last]


def compare_columns(
    labels: Sequence[str], values: NDArray[np.float64], method: Interval, against: str = ""
) -> list[ComparedPair]:
    """Compare every pair of columns at the rows that both have, or all of them with one.

    p-values and intervals are corrected over those pairs that can be tested: with fewer seeds a pair can be resolved
    by nothing, and costs the others nothing.

    Args:
        labels: of the columns.
        values: shape (seeds, columns), NaN where there is none.
        method: of test and interval.
        against: the only column with which the others are compared; empty for all pairs.
    """
    names = pairs_of(labels, against)
    both = [np.isfinite(values[:, i]) & np.isfinite(values[:, j]) for i, j in names]
    alone = _least(LEVEL, method)
    testable = [bool(rows.sum() >= alone) for rows in both]
    tests = max(sum(testable), 1)
    level = LEVEL / tests
    result = []
    for (i, j), rows, tested in zip(names, both, testable, strict=True):
        found = paired_difference(values[rows, i], values[rows, j], level=level, method=method)
        usable = found.p_value if tested else None
        least = _least(level if any(testable) else LEVEL / max(len(names), 1), method)
        result.append(
            ComparedPair(
                first=labels[i],
                second=labels[j],
                differences=values[rows, i] - values[rows, j],
                found=found,
                tests=tests,
                p_value=None if usable is None else min(1.0, tests * usable),
                least=least,
                seen=_seen(found),
                needed=_needed(found, least),
            )
        )
    return result


def verdict_against(pairs: Sequence[ComparedPair], first: str, arm: str, seeds: int) -> str:
    """Return where an arm lies against the ``first``: higher, lower, not resolved; empty where they were not compared.

    ``seeds`` is how many were planned.
    """
    for pair in pairs:
        if {pair.first, pair.second} == {first, arm} and arm != first:
            if pair.p_value is None:
                return f"{plural(pair.found.count, 'seed')} of {count(seeds)}"
            return {0: "not resolved", 1: "higher", -1: "lower"}[pair.resolved * (1 if pair.first == arm else -1)]
    return ""


def _least(level: float, method: Interval) -> int:
    return LEAST_SEEDS if method == "t" else least_seeds_of_sign_flips(level)


def _seen(found: PairedDifference) -> float | None:
    if not found.deviation:
        return None
    effect = smallest_effect(found.count, found.level, student=found.method == "t")
    return None if effect is None else effect * found.deviation


def _needed(found: PairedDifference, least: int) -> int | None:
    """Return the seeds needed; more than there are, where these did not do."""
    if found.deviation == 0.0 and found.mean:
        return least
    needed = seeds_needed(found.effect, level=found.level, student=found.method == "t")
    if needed is None:
        return None
    return max(needed, least, 0 if found.resolved else found.count + 1)


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


def finite(value: float) -> float | None:
    """Return a number, None for one that is not finite, as tables have it."""
    return value if math.isfinite(value) else None
