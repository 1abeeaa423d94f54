"""Stays in discs against the scalar crossings, and the greedy choice against all choices."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest

from vnetsim.coverage.greedy import choose_greedily, longest_stays
from vnetsim.coverage.windows import crossings


def longest_stay(path: list[tuple[float, float, float]], disc: tuple[float, float, float]) -> float:
    """Return the longest stay (s) of one path, segment by segment."""
    (x_m, y_m, radius_m), longest_s, since_s = disc, 0.0, None
    for (t, x, y), (u, p, q) in pairwise(path):
        enter, leave = (min(max(share, 0.0), 1.0) for share in crossings(x - x_m, y - y_m, p - x, q - y, radius_m))
        starts, ends = (math.hypot(a - x_m, b - y_m) < radius_m for a, b in ((x, y), (p, q)))
        since_s = (t if since_s is None else since_s) if starts else t + enter * (u - t)
        if starts or ends or enter < leave:
            longest_s = max(longest_s, (u if ends else t + leave * (u - t)) - since_s)
        since_s = since_s if ends else None
    return longest_s


@pytest.mark.parametrize("seed", range(6))
def test_the_longest_stay_is_exact(seed):
    generator = np.random.default_rng(seed)
    discs = np.column_stack((generator.uniform(-200, 200, (5, 2)), generator.uniform(20, 150, 5)))
    paths = []
    for points in (2, 3, 40, 100):
        steps = generator.normal(0, 60, (points, 2)) * (generator.random((points, 1)) < 0.7)  # some stand
        paths.append(np.column_stack((np.cumsum(generator.uniform(0, 2, points)), np.cumsum(steps, axis=0))))
    number = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
    found = longest_stays(number, *np.concatenate(paths).T, discs)
    stays = {(disc, path): stay_s for disc, path, stay_s in zip(*found, strict=True)}
    for path, points in enumerate(paths):
        for disc, circle in enumerate(discs.tolist()):
            expected = longest_stay(points.tolist(), tuple(circle))
            assert stays.get((disc, path), 0.0) == pytest.approx(expected, abs=1e-9)


def reached(place: np.ndarray, vehicle: np.ndarray, chosen: tuple[int, ...]) -> int:
    return len(np.unique(vehicle[np.isin(place, chosen)]))


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_against_all_choices(seed):
    generator = np.random.default_rng(seed)
    reaches = generator.random((8, 30)) < generator.uniform(0.02, 0.4)
    place, vehicle = np.nonzero(reaches)
    for budget in (1, 2, 3, 4):
        picks, bound = choose_greedily(place, vehicle, 8, budget, generator.permutation(8))
        best = max(reached(place, vehicle, chosen) for chosen in combinations(range(8), budget))
        total = sum(pick.adds for pick in picks)
        assert total == reached(place, vehicle, tuple(pick.place for pick in picks))
        assert (1 - 1 / math.e) * best <= total <= best <= bound
        assert budget > 1 or total == best
        adds = [pick.adds for pick in picks]
        assert adds == sorted(adds, reverse=True)


def test_places_that_share_no_vehicle_are_chosen_best_first_and_none_that_adds_nobody():
    place, vehicle = np.array([0, 1, 1, 2, 2, 2]), np.arange(6)
    picks, bound = choose_greedily(place, vehicle, 4, 4, np.arange(4))
    assert [tuple(pick) for pick in picks] == [(2, 3), (1, 2), (0, 1)]
    assert bound == 6


def test_ties_are_broken_by_the_order():
    place, vehicle = np.arange(4), np.arange(4)
    for order in ([3, 2, 1, 0], [1, 0, 3, 2]):
        picks, _ = choose_greedily(place, vehicle, 4, 4, np.array(order))
        assert [pick.place for pick in picks] == np.argsort(order).tolist()
