"""Who sees whom along streets."""

import numpy as np
import pytest

from vnetsim.radio.sight import Streets

CROSS = [np.array([[-300.0, 0.0], [300.0, 0.0]]), np.array([[0.0, -300.0], [0.0, 300.0]])]
BEND = [np.array([[0.0, 0.0], [100.0, 0.0], [150.0, 80.0]])]


@pytest.mark.parametrize(
    ("one_m", "other_m", "clear"),
    [
        ((0.0, 0.0), (250.0, 0.0), True),
        ((0.0, 0.0), (3.0, -250.0), True),
        ((100.0, 0.0), (0.0, 100.0), False),  # round the corner
        ((12.0, 9.0), (9.0, 12.0), False),  # the very corner of the houses
        ((8.0, 9.0), (9.0, 12.0), True),
        ((0.0, 10.5), (0.0, 11.0), True),  # on the other street
        ((100.0, 10.5), (100.0, 0.0), False),  # behind the front of the houses
        ((100.0, 10.0), (200.0, 10.0), True),  # along it
    ],
)
def test_streets_that_cross(one_m, other_m, clear):
    streets = Streets([*CROSS, CROSS[0][:1]], [(0.0, 0.0)])  # a lane of one point is none
    assert streets.is_clear(one_m, other_m) is clear
    assert streets.is_clear(other_m, one_m) is clear


def test_a_street_is_seen_to_its_bend():
    streets = Streets(BEND, [(0.0, 0.0)])
    assert streets.is_clear((0.0, 0.0), (105.0, 8.0))
    assert not streets.is_clear((0.0, 0.0), (150.0, 80.0))
    assert streets.is_clear((100.0, 0.0), (150.0, 80.0))


def test_an_rsu_beside_the_road_sees_the_nearest_of_it():
    assert not Streets(CROSS, []).is_clear((100.0, 35.0), (100.0, 0.0))
    streets = Streets(CROSS, [(100.0, 35.0)])
    assert streets.is_clear((100.0, 35.0), (100.0, 0.0))
    assert not streets.is_clear((100.0, 35.0), (200.0, 0.0))
