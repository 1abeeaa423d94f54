"""Which of many candidate places reach most vehicles: longest stays in their discs, and a greedy choice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vnetsim.coverage.frames import Integers
from vnetsim.coverage.windows import Floats


class Stays(NamedTuple):
    """The longest stay of each path in each disc that it enters: arrays of equal length."""

    disc: Integers  # index of the disc
    path: Integers  # number of the path
    stay_s: Floats  # length of the stay (s), > 0


NO_STAYS = Stays(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


class Pick(NamedTuple):
    """A chosen place: its index, and the number of vehicles that it reaches and no earlier pick does."""

    place: int
    adds: int


def longest_stays(path: Integers, time_s: Floats, x_m: Floats, y_m: Floats, discs: Floats) -> Stays:
    """Return the longest stay of each path in each disc that it enters, sorted by disc and path.

    Crossings of circles are exact; a vehicle on a circle is outside. There must be at least one point and one disc.

    Args:
        path: number of each point's path, from 0, not decreasing, (N,); between points of a path vehicles drive
            straight.
        time_s: time of each point, not decreasing on a path (s), (N,).
        x_m: x of each point (m), (N,).
        y_m: y of each point (m), (N,).
        discs: x, y and radius of each disc (m), (C, 3).
    """
    joined = path[1:] == path[:-1]
    dx_m, dy_m, lasts_s = (np.where(joined, np.diff(values), 0.0) for values in (x_m, y_m, time_s))
    reach_m = float(np.hypot(dx_m, dy_m).max(initial=0.0))
    found = []
    for disc, (centre_x_m, centre_y_m, radius_m) in enumerate(discs.tolist()):
        east_m, north_m = x_m - centre_x_m, y_m - centre_y_m
        squared = east_m * east_m + north_m * north_m
        inside = squared < radius_m**2
        both = inside[1:] & inside[:-1] & joined
        # segments that may cross the circle, and the parts of them at which they do
        at = np.flatnonzero(joined & ~both & (squared[:-1] < (radius_m + reach_m) ** 2))
        enter, leave = _crossings(east_m[at], north_m[at], dx_m[at], dy_m[at], radius_m)
        comes, goes = inside[at + 1], inside[at]
        enter_s, leave_s = (time_s[at] + np.clip(share, 0.0, 1.0) * lasts_s[at] for share in (enter, leave))
        begin_s, end_s = time_s.copy(), time_s.copy()
        begin_s[at[comes] + 1], end_s[at[goes]] = enter_s[comes], leave_s[goes]
        begins = np.flatnonzero(inside & ~np.append(False, both))
        ends = np.flatnonzero(inside & ~np.append(both, False))
        through = ~comes & ~goes & (enter_s < leave_s)
        longest_s = np.zeros(int(path[-1]) + 1)
        np.maximum.at(longest_s, path[begins], end_s[ends] - begin_s[begins])
        np.maximum.at(longest_s, path[at[through]], (leave_s - enter_s)[through])
        stayed = np.flatnonzero(longest_s)
        found.append(Stays(np.full(len(stayed), disc), stayed, longest_s[stayed]))
    return Stays(*map(np.concatenate, zip(*found, strict=True)))


def _crossings(x_m: Floats, y_m: Floats, dx_m: Floats, dy_m: Floats, radius_m: float) -> tuple[Floats, Floats]:
    """Return the shares of segments at which their lines enter and leave a disc around (0, 0); equal for a miss."""
    squared = dx_m * dx_m + dy_m * dy_m
    across = x_m * dy_m - y_m * dx_m
    half = np.sqrt(np.maximum(squared * radius_m**2 - across * across, 0.0))
    middle = -(x_m * dx_m + y_m * dy_m)
    squared = np.maximum(squared, np.finfo(np.float64).tiny)
    return (middle - half) / squared, (middle + half) / squared


def choose_greedily(
    place: Integers, vehicle: Integers, places: int, budget: int, order: Integers
) -> tuple[list[Pick], int]:
    """Return places that together reach many vehicles, in order of choice, and a bound on what ``budget`` places reach.

    Each step takes the place that reaches most vehicles that no earlier one reached. This reaches at least 1 - 1/e
    (63%) of what the best choice does: Nemhauser, Wolsey and Fisher, Mathematical Programming 14 (1978). The bound is a
    number of vehicles that no choice exceeds: those reached after some step, plus the ``budget`` largest gains then.

    Args:
        place: place of each pair of a place and a vehicle that it reaches, each pair once, (N,).
        vehicle: vehicle of each pair, from 0, (N,).
        places: number of places.
        budget: most places to choose; fewer are chosen if the others would add nobody.
        order: rank of each place; among places that add equally many the lowest is chosen, (places,).
    """
    missed = np.ones(int(vehicle.max(initial=-1)) + 1, dtype=np.bool_)
    picks: list[Pick] = []
    bound = len(missed)
    while True:
        gains = np.bincount(place[missed[vehicle]], minlength=places)
        bound = min(bound, int(len(missed) - missed.sum() + np.sort(gains)[-budget:].sum()))
        if len(picks) == budget or not gains.max(initial=0):
            return picks, bound
        best = np.flatnonzero(gains == gains.max())
        picked = int(best[np.argmin(order[best])])
        picks.append(Pick(picked, int(gains[picked])))
        missed[vehicle[place == picked]] = False
