"""Computes missing speeds of a recording from positions, in memory that does not grow with its length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from vnetsim.coverage.tracker import largest_move_m
from vnetsim.errors import InputError
from vnetsim.traffic.fcd.tables import FcdPart

COMPUTED = "Speeds that the recording does not have are computed from the positions."
_ROWS = 50_000
"""Number of rows before and after in which a vehicle's neighbouring rows are searched."""
_NEARER = 1.5
"""The next drive of a vehicle is used if the previous one took more than this many times as long."""


def with_speeds(parts: Iterator[FcdPart], notes: list[str]) -> Iterator[FcdPart]:
    """Yield parts with missing speeds set to the mean speed since the vehicle's previous row.

    The first row of a vehicle, and a row after a pause or a jump, gets the mean speed until the next row. A vehicle
    with a single row gets 0.
    """
    before: list[FcdPart] = []
    held: list[FcdPart] = []
    fault: InputError | None = None
    try:
        for part in parts:
            if not held and not np.isnan(part.speed_mps).any():
                before = [part]
                yield part
                continue
            if COMPUTED not in notes:
                notes.append(COMPUTED)
            held.append(part)
            rows = np.cumsum([len(one.ids) for one in held])
            if rows[-1] >= 2 * _ROWS:
                first = int(np.searchsorted(rows, _ROWS)) + 1
                done = _fill_speeds(before, held[:first], held[first:])
                yield from done
                before, held = done, held[first:]
    except InputError as error:  # yield complete parts first
        fault = error
    yield from _fill_speeds(before, held, [])
    if fault is not None:
        raise fault


def _fill_speeds(before: Sequence[FcdPart], parts: Sequence[FcdPart], after: Sequence[FcdPart]) -> list[FcdPart]:
    """Return ``parts`` with missing speeds computed; ``before`` and ``after`` are only looked at."""
    if not any(np.isnan(part.speed_mps).any() for part in parts):
        return list(parts)
    every = [*before, *parts, *after]
    vehicle = np.concatenate([part.vehicle for part in every])
    order = np.argsort(vehicle, kind="stable")
    time_s = np.concatenate([part.time_s[part.step] for part in every])[order]
    x_m, y_m = (np.concatenate([getattr(part, name) for part in every])[order] for name in ("x_m", "y_m"))
    # for each row the drive that ends at it, and one more after the last row
    same = np.concatenate(([False], np.diff(vehicle[order]) == 0, [False]))
    step_s = np.where(same, np.concatenate(([np.nan], np.diff(time_s), [np.nan])), np.nan)
    moved_m = np.concatenate(([np.nan], np.hypot(np.diff(x_m), np.diff(y_m)), [np.nan]))
    mean_mps = moved_m / step_s
    beside_mps = np.fmax(np.append(np.nan, mean_mps[:-1]), np.append(mean_mps[1:], np.nan))
    mean_mps[moved_m > largest_move_m(beside_mps, step_s)] = np.nan  # a jump
    ends_mps, begins_mps = mean_mps[:-1], mean_mps[1:]
    begins = np.isnan(ends_mps) | (~np.isnan(begins_mps) & (step_s[:-1] > _NEARER * step_s[1:]))
    speed_mps = np.empty(len(order))
    speed_mps[order] = np.nan_to_num(np.where(begins, begins_mps, ends_mps))
    ends = np.cumsum([len(part.ids) for part in every])
    found = []
    for part, own in zip(every, np.split(speed_mps, ends[:-1]), strict=True):
        missing = np.isnan(part.speed_mps)
        found.append(replace(part, speed_mps=np.where(missing, own, part.speed_mps)) if missing.any() else part)
    return found[len(before) : len(before) + len(parts)]
