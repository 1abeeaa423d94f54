"""The page of chosen places: its map of a large net."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.report.places import places_page
from vnetsim.coverage.rsu import Rsu

CANDIDATES = [Rsu(id=name, x_m=x_m, y_m=500.0, range_m=300.0) for name, x_m in (("a", 0.0), ("b", 1000.0))]
RSUS = pl.DataFrame(
    {"id": ["b"], "x_m": [1000.0], "y_m": [500.0], "range_m": [300.0], "adds": [9], "reached": [9], "share": [0.9]}
)


@pytest.fixture
def map_with(tmp_path):
    def draw(lanes: list[np.ndarray]) -> str:
        places_page(tmp_path, "city.sumocfg", RSUS, CANDIDATES, lanes, 10, [])
        return Path(tmp_path / "map.svg").read_text()

    return draw


def test_many_lanes_around_the_candidates_are_one_picture(map_with):
    generator = np.random.default_rng(0)
    lanes = [generator.uniform(200, 800, 2) + generator.uniform(0, 50, (10, 2)) for _ in range(2_500)]
    assert "<image" in map_with(lanes)
    far = [lane + 9e5 for lane in lanes]
    assert "<image" not in map_with([*lanes[:100], *far]), "lanes elsewhere are not drawn"
