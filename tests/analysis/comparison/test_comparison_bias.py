"""Tables and figures of who takes part, from a few made-up windows."""

import polars as pl
import pytest
from made_cells import cell, condition

from analysis.comparison.bias import (
    spread_over_directions,
    spread_over_speeds,
)
from analysis.comparison.data import CellData, ConditionData


def of(arm: str, seed: int, updates: list[int]) -> CellData:
    """Four windows: two slow ones from the north, 30 s each, and two fast ones from the east, 10 s each."""
    windows = {"speed_kmh": [31.0, 33.0, 38.0, 39.0], "approach": [0, 0, 1, 1], "dwell_s": [30.0, 30.0, 10.0, 10.0]}
    table = pl.DataFrame({**windows, "updates": updates})
    return cell(arm, seed, [], windows=table, settings={"silos.approaches": 2})


@pytest.fixture
def two() -> ConditionData:
    return condition(
        [
            of("a", 0, [1, 1, 1, 1]),
            of("a", 1, [1, 1, 1, 1]),
            of("</svg>b", 0, [2, 2, 0, 0]),
            of("c", 1, [0, 0, 0, 0]),
        ]
    )


def test_updates_beside_windows_and_time_in_coverage(two: ConditionData) -> None:
    """Half of the windows and 60 of 80 s are slow, as half of the updates of a are and all of b."""
    speeds = spread_over_speeds(two)
    assert speeds.labels == ("30\u201335", "35\u201340")
    assert speeds.together["windows"].tolist() == [0.5, 0.5]
    assert speeds.together["dwell_s"].tolist() == [0.75, 0.25]
    directions = spread_over_directions(two)
    assert directions.labels == ("0\u00b0", "180\u00b0")
    assert {arm: found["updates"].tolist() for arm, found in speeds.by_arm.items()} == {
        "a": [0.5, 0.5], "</svg>b": [1.0, 0.0], "c": [0.0, 0.0]
    }  # fmt: skip
