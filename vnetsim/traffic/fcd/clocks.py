"""Finds from a recording's first rows when its vehicles are sampled.

SUMO samples all vehicles at the same instants. In converted tracks rounding may separate equal instants, which are
merged; or each vehicle may report at its own times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from vnetsim.coverage.frames import Integers
from vnetsim.errors import InputError
from vnetsim.traffic.fcd.tables import ROW_COLUMNS, Clock, FcdPart

_HEAD = 1 << 16
"""Number of rows (on average two for each vehicle), or of steps if there are fewer rows, that show the clock."""
_SAME, _ROUNDING = 0.01, 1e-5
"""Instants that differ by up to this share of the step are merged: with a common clock, and with own clocks."""
_FOLLOWS, _FEW, _FEW_FOLLOW = 0.95, 100, 0.5
"""Vehicles share a clock if, averaged over vehicles, at least this share of their rows follows at the next instant;
half with few rows, among which one teleport matters."""


def order_by_vehicle(vehicle: Integers) -> Integers:
    """Return the indices that sort rows by vehicle number (stably: each vehicle's rows keep their order)."""
    few = vehicle - (vehicle.min() if len(vehicle) else 0)
    # NumPy sorts 16-bit numbers by radix, several times as fast
    return np.argsort(few.astype(np.uint16) if few.max(initial=0) < 1 << 16 else few, kind="stable")


def add_clock(parts: Iterator[FcdPart]) -> Iterator[FcdPart]:
    """Yield the parts of a recording with ``clock`` set, and merge instants that rounding separated.

    InputError of ``parts``, for a damaged recording, is raised after all steps before the fault were yielded.
    """
    head: list[FcdPart] = []
    fault: InputError | None = None
    rows = steps = vehicles = 0
    try:
        for part in parts:
            head.append(part)
            rows, steps = rows + len(part.step), steps + len(part.time_s)
            vehicles = max(vehicles, int(part.vehicle.max(initial=-1)) + 1)
            if max(rows, steps) >= _HEAD and rows >= 2 * vehicles:
                break
    except InputError as error:
        fault = error
    if head:
        clock = _find_clock(head)
        same_s = (_SAME if clock.common else _ROUNDING) * (clock.step_s or 0.0)
        for part in _merge_instants(_chain_head(head, parts), same_s):
            yield replace(part, clock=clock)
    if fault is not None:
        raise fault


def _chain_head(head: list[FcdPart], parts: Iterator[FcdPart]) -> Iterator[FcdPart]:
    """Yield the parts in ``head``, removing each to free its memory, then the rest of ``parts``."""
    while head:
        yield head.pop(0)
    yield from parts


def _find_clock(head: list[FcdPart]) -> Clock:
    """Return the clock of the first parts; its step is that between instants, or None, if no vehicle has two rows."""
    instants_s = np.concatenate([part.time_s for part in head])
    before = np.cumsum([0, *(len(part.time_s) for part in head)])
    step = np.concatenate([part.step + first for part, first in zip(head, before, strict=False)])
    vehicle = np.concatenate([part.vehicle for part in head])
    order = order_by_vehicle(vehicle)
    vehicle, step = vehicle[order], step[order]
    own_s = np.diff(instants_s[step])
    found = (vehicle[1:] == vehicle[:-1]) & (own_s > 0)
    whose, own_s = vehicle[1:][found], own_s[found]
    if not len(own_s):
        ahead_s = np.diff(instants_s)
        ahead_s = ahead_s[ahead_s > 0]
        return Clock(step_s=round(float(np.median(ahead_s)), 9) if len(ahead_s) else None, common=True)
    _, first, count = np.unique(whose, return_index=True, return_counts=True)
    step_s = round(float(np.median(own_s[np.lexsort((own_s, whose))][first + (count - 1) // 2])), 9)
    instant = np.cumsum(np.abs(np.diff(instants_s, prepend=instants_s[0])) > _SAME * step_s)[step]
    follows = np.diff(instant)[found] == 1
    share = (np.add.reduceat(follows, first, dtype=np.float64) / count).mean()
    return Clock(step_s=step_s, common=bool(share >= (_FEW_FOLLOW if len(own_s) < _FEW else _FOLLOWS)))


def _merge_instants(parts: Iterator[FcdPart], same_s: float) -> Iterator[FcdPart]:
    """Yield parts; successive steps at most ``same_s`` (s) apart become one step, at the time of the first."""
    before: FcdPart | None = None
    try:
        for part in parts:
            following = part
            if before is not None:
                if abs(part.time_s[0] - before.time_s[-1]) <= same_s:
                    last = int(_find_instant_starts(before, same_s)[-1])  # this instant continues in the next part
                    following = _join(before.between(last, len(before.time_s)), part)
                    before = before.between(0, last)
                if len(before.time_s):
                    yield _merge_steps(before, same_s)
            before = following
    except InputError:  # yield complete parts first
        if before is not None:
            yield _merge_steps(before, same_s)
        raise
    if before is not None:
        yield _merge_steps(before, same_s)


def _find_instant_starts(part: FcdPart, same_s: float) -> Integers:
    """Return the indices of steps at which an instant begins: more than ``same_s`` (s) after the step before."""
    found: Integers = np.flatnonzero(np.r_[True, ~(np.abs(np.diff(part.time_s)) <= same_s)])
    return found


def _merge_steps(part: FcdPart, same_s: float) -> FcdPart:
    """Return a part with the steps of each instant merged into one, at the time of the instant's first step."""
    starts = _find_instant_starts(part, same_s)
    if len(starts) == len(part.time_s):
        return part
    instant = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(part.time_s)))
    where = [part.where[start] for start in starts]
    return replace(part, time_s=part.time_s[starts], where=where, step=instant[part.step])


def _join(first: FcdPart, second: FcdPart) -> FcdPart:
    """Return two successive parts as one, with all steps of both, the first's before the second's."""
    second = replace(second, step=second.step + len(first.time_s))
    pairs = {name: (getattr(first, name), getattr(second, name)) for name in ("time_s", "where", *ROW_COLUMNS)}
    both: dict[str, Any] = {
        name: np.concatenate(pair) if isinstance(pair[0], np.ndarray) else [*pair[0], *pair[1]]
        for name, pair in pairs.items()
    }
    return replace(first, **both)
