"""Conditions compared with each other: the same arm under two of them, paired by seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.comparison.data import CellData, ComparisonData, in_common
from analysis.comparison.verdicts import Family, compare_columns, varies
from analysis.formatting import shortened

_MOST_NAMED = 4


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
        cells = [cell for cell in data.cells if cell.arm == arm]
        same, _ = in_common(cells, data.record.last_evaluations)
        same = [one for one in same if any(cell.final(one.name, one.last) is not None for cell in cells)]
        for metric in [one for one in same if one.better] or same:
            at = {(cell.condition, cell.seed): cell.final(metric.name, metric.last) for cell in cells}
            names = [one.name for one in data.conditions if any(cell.condition == one.name for cell in cells)]
            values = np.array([[at.get((name, seed)) for name in names] for seed in data.seeds], dtype=np.float64)
            values = values.reshape(len(data.seeds), len(names))
            if len(names) > 1 and varies(metric, values):
                pairs = compare_columns(names, values, data.record.interval)
                found.append(Family("conditions", arm, metric, pairs))
    return found


def what_differs(data: ComparisonData, across: Family) -> str:
    """Return what is not the same between the conditions that are compared: settings, traffic and RSUs."""
    cells = {(cell.condition, cell.seed): cell for cell in data.cells if cell.arm == across.within}
    found: dict[str, list[str]] = {}
    for pair in across.pairs:
        both = [(cells.get((pair.first, seed)), cells.get((pair.second, seed))) for seed in data.seeds]
        common = [(first, second) for first, second in both if first is not None and second is not None]
        if common:
            found.setdefault(_apart(common, timing_only=data.record.timing_only), []).append(pair.words)
    if len(found) == 1:
        return f"What differs between the conditions: {next(iter(found))}."
    return " ".join(f"What differs in {_named(pairs)}: {what}." for what, pairs in found.items())


def _apart(common: Sequence[tuple[CellData, CellData]], *, timing_only: bool) -> str:
    keys: dict[str, None] = {}
    for first, second in common:
        ours, theirs = ({**cell.settings, **cell.learning} for cell in (first, second))
        keys |= dict.fromkeys(key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key))
    traffic = any(first.traffic_sha256 != second.traffic_sha256 for first, second in common)
    words = [_named(list(keys))] if keys else []
    if traffic:
        learns = ", so that a seed has initial weights and data in common, but not who passes"
        words.append(f"the recorded traffic{learns * (not timing_only)}")
    if places := [(first.rsus, second.rsus) for first, second in common if first.rsus != second.rsus]:
        words.append(f"the RSU (at {places[0][0]} and at {places[0][1]})")
    return "; ".join(words) or "no setting"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(shortened(name) for name in names[:_MOST_NAMED]) + more
