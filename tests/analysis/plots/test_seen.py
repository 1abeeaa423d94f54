"""How much a place tells of what is seen there."""

import numpy as np
import pytest

from analysis.plots.seen import explained, told_by_place


def test_groups_explain_all_or_by_chance_nothing_of_a_variance():
    groups = np.repeat(np.arange(50), 20)
    assert explained(3.0 * groups, groups) == 1
    rng = np.random.default_rng(0)
    drawn = [explained(rng.normal(size=1000), groups) for _ in range(200)]
    assert 0 <= np.mean(drawn) < 0.015, "uncorrected it is 0.05"
    half = [explained(rng.normal(size=50)[groups] + rng.normal(size=1000), groups) for _ in range(200)]
    assert np.mean(half) == pytest.approx(0.5, abs=0.03)
    assert np.isnan(explained(np.ones(5), np.zeros(5, int)))
    assert np.isnan(explained(np.arange(5.0), np.arange(5)))


def test_an_image_is_told_by_the_others_from_its_square_and_not_by_itself():
    squares = np.array([0, 1, 1, 2, 2, 2, 3, 3])
    labels = np.array([4, 0, 1, 2, 2, 0, 1, 1])
    assert told_by_place(labels, squares) == 2 / 8, "alone, tied, a majority of one, and a pair"
    assert told_by_place(np.zeros(4, int), np.zeros(4, int)) == 1
