"""Which arms and conditions are compared, and the results in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.comparison.data import ComparisonData, ConditionData, Metric, common_series
from analysis.comparison.pairs import Columns, ComparedPair, compare_together
from analysis.formatting import NONE, count, number, plural, shortened
from analysis.statistics.paired import spread_of_deviation

_MOST_NAMED = 3
"""Most resolved pairs in sentences."""


class Family(NamedTuple):
    """Pairs of ``compared`` ("arms" or "conditions") in one metric, ``within`` one condition ("" if alone) or arm."""

    compared: str
    within: str
    metric: Metric
    pairs: Sequence[ComparedPair]


def pairs_in(families: Sequence[Family], condition: str, metric: Metric) -> Sequence[ComparedPair]:
    """Return the pairs of arms under a condition in a metric; empty if they were not compared."""
    return next((pairs for kind, within, one, pairs in families
                 if (kind, within) == ("arms", condition) and one.same(metric)), ())  # fmt: skip


def unit_of_difference(metric: Metric, *, brackets: bool = False) -> str:
    """Return a difference's unit after a space ("points" for %), in ``brackets`` if wanted; empty without a unit."""
    unit = "points" if metric.unit == "%" else metric.dimension
    return unit and (f" ({unit})" if brackets else f" {unit}")


def _short(value: float) -> str:
    """Return a number as text with two significant digits, from 100 on three, which keeps whole numbers below 1000."""
    return number(value, 3 if abs(value) >= 99.5 else 2)


def p_words(p_value: float) -> str:
    """Return a p-value as text, with a sign in front: ``= 0.012``, or ``< 0.001``."""
    return "< 0.001" if p_value < 0.001 else f"= {number(p_value, 2)}"


def figures_of(pair: ComparedPair, metric: Metric) -> tuple[str, str, str, str]:
    """Return mean difference, interval or "unbounded", corrected p and smallest resolved difference as texts."""
    found, interval = pair.found, "unbounded"
    if found.bounded:
        interval = f"{_short(found.low * metric.factor)} to {_short(found.high * metric.factor)}"
    p_value = NONE if pair.p_value is None else p_words(pair.p_value).removeprefix("= ")
    resolves = NONE if pair.resolves is None else _short(pair.resolves * metric.factor)
    return _short(found.mean * metric.factor), interval, p_value, resolves


def level_words(pairs: Sequence[ComparedPair]) -> str:
    """Return "95 % interval", or "simultaneous 95 % interval" if a pair was one of several tests."""
    several = any(pair.tests > 1 for pair in pairs)
    return f"{'simultaneous ' * several}95 % interval"


def corrected_words(pairs: Sequence[ComparedPair]) -> str:
    """Return sentences on the number of tests for which p and intervals are corrected; empty for fewer than two."""
    tests = max((pair.tests for pair in pairs), default=0)
    if tests < 2:
        return ""
    more = " here and in other tables of this page" * (tests > len(pairs))
    return (
        f"p is corrected for {count(tests)} differences{more} (Holm) and decides the verdict. Intervals are "
        "simultaneous for all of them (Bonferroni): a few may contain 0 where Holm resolves the difference."
    )


RESOLVES = "the smallest true difference that these seeds resolve with 80 % power"
"""Meaning of ``resolves`` as a column's head."""


def spread_words(seeds: int) -> str:
    """Return a sentence on the uncertainty of the observed standard deviation; empty for fewer than two seeds."""
    spread = spread_of_deviation(seeds)
    if spread is None:
        return ""
    low, high = spread
    return (
        f"This follows from the observed deviation of the differences, which with {plural(seeds, 'seed')} is "
        f"{low:.2f} to {high:.2f} times the true one (90 % of the time, for normal differences)."
    )


def verdict_sentences(pairs: Sequence[ComparedPair], metric: Metric) -> list[str]:
    """Return sentences on up to three resolved pairs, then on numbers of others; a single unresolved pair is named."""
    judged = [pair for pair in pairs if not pair.withheld or pair.equal]
    resolved = [pair for pair in judged if pair.resolved]
    lines = []
    for pair in resolved[:_MOST_NAMED]:
        names = (pair.first, pair.second) if pair.resolved > 0 else (pair.second, pair.first)
        by = f"{_short(abs(pair.found.mean) * metric.factor)}{unit_of_difference(metric)}"
        low, high = sorted(pair.resolved * end * metric.factor for end in (pair.found.low, pair.found.high))
        span = f"{_short(low)} to {_short(high)}" if pair.found.bounded else "unbounded"
        lines.append(
            f"{metric.subject}: {shortened(names[0])} is higher than {shortened(names[1])} by {by} "
            f"({level_words(pairs)} {span})."
        )
    if more := len(resolved) - _MOST_NAMED:
        lines += [f"{plural(more, 'more difference')} {'is' if more == 1 else 'are'} resolved."] * (more > 0)
    if withheld := len(pairs) - len(judged):
        of = f"{count(withheld)} of {count(len(pairs))} differences have" if len(pairs) > 1 else "the difference has"
        lines.append(f"{metric.subject}: {of} no verdict, because the runs did not meet the traffic.")
    unresolved = [pair for pair in judged if not pair.resolved]
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


def across_arms(data: ComparisonData, shown: Sequence[tuple[ConditionData, Metric]]) -> list[Family]:
    """Compare the arms for each (condition, metric) in ``shown``; return a family for each, in order.

    P-values and intervals are corrected over all families' pairs. A family has no pairs if no seed changes its metric.
    """
    columns = []
    for one, metric in shown:
        values = one.finals(metric)
        columns.append(Columns(one.present if varies(metric, values) else (), values, one.against))
    found = compare_together(columns, data.record.interval)
    return [Family("arms", one.name, metric, pairs) for (one, metric), pairs in zip(shown, found, strict=True)]


def across_conditions(data: ComparisonData) -> list[Family]:
    """Compare conditions arm by arm at common seeds; return a family per arm and metric, none for one condition.

    P-values and intervals are corrected over all arms' pairs in one metric. Compared are the metrics with a preferred
    direction, or all if none has one; and under the first arm with cells the outcomes of the traffic, which all arms
    share. Metrics that a condition measures differently, or that no seed changes, are left out, and so are outcomes of
    the same traffic in all conditions.
    """
    if len(data.conditions) < 2:
        return []
    found: dict[tuple[str, str], list[tuple[str, Metric, Columns]]] = {}
    first = next((arm for arm in data.arms if any(cell.entry.arm == arm for cell in data.cells)), "")
    for arm in data.arms:
        cells = [cell for cell in data.cells if cell.entry.arm == arm]
        same, _ = common_series(cells, data.record.last_evaluations)
        same = [one for one in same if any(cell.final(one) is not None for cell in cells)]
        of_traffic = [one for one in same if one.name in cells[0].traffic.outcomes]
        own = [one for one in same if one not in of_traffic]
        own = [one for one in own if one.better] or own
        for metric in [*own, *(of_traffic if arm == first else ())]:
            at = {(cell.entry.condition, cell.entry.seed): cell.final(metric) for cell in cells}
            names = [one.name for one in data.conditions if any(one.name == name for name, _ in at)]
            values = np.array([[at.get((name, seed)) for name in names] for seed in data.seeds], dtype=np.float64)
            values = values.reshape(len(data.seeds), len(names))
            if len(names) > 1 and varies(metric, values) and (metric in own or _differ(values)):
                found.setdefault((metric.name, metric.unit), []).append((arm, metric, Columns(names, values)))
    families = [
        Family("conditions", arm, metric, pairs)
        for tables in found.values()
        for (arm, metric, _), pairs in zip(
            tables, compare_together([columns for *_, columns in tables], data.record.interval), strict=True
        )
    ]
    return sorted(families, key=lambda one: data.arms.index(one.within))


def _differ(values: NDArray[np.float64]) -> bool:
    """Return whether columns differ in any row of ``values``; NaN is a missing value, and is ignored."""
    return bool((np.fmax.reduce(values, axis=1) > np.fmin.reduce(values, axis=1)).any())


def varies(metric: Metric, values: NDArray[np.float64]) -> bool:
    """Return whether seeds change a metric; a test over seeds is meaningless if they do not.

    Only metrics with one value per run and no preferred direction are checked, and only if a column has two values;
    True for all others. ``values`` has shape (seeds, columns), NaN for a missing value.
    """
    several = np.isfinite(values).sum(axis=0) > 1
    if metric.known != 0 or not several.any():
        return True
    return bool((np.fmax.reduce(values, axis=0) > np.fmin.reduce(values, axis=0)).any())


def verdict_against(pairs: Sequence[ComparedPair], first: str, arm: str, seeds: int) -> str:
    """Return the verdict on an arm against ``first``: higher, lower, not resolved or withheld; empty if not compared.

    If the seeds are too few for a test, the text says how many there are, as "1 seed of 10" (``seeds``: the planned
    number).
    """
    pair = next((one for one in pairs if {one.first, one.second} == {first, arm} and arm != first), None)
    if pair is None:
        return ""
    if pair.p_value is None:
        return f"{plural(pair.found.count, 'seed')} of {count(seeds)}"
    if pair.withheld and not pair.equal:
        return "withheld"
    return {0: "not resolved", 1: "higher", -1: "lower"}[pair.resolved * (1 if pair.first == arm else -1)]
