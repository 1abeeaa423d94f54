"""Tables and figures of who takes part, from a few made-up windows."""

import polars as pl
import pytest
from made_cells import cell, condition

from analysis.comparison.bias import (
    overlap_table,
    spread_over_directions,
    spread_over_speeds,
)
from analysis.comparison.data import CellData, ConditionData
from analysis.formatting import NONE


def of(arm: str, seed: int, participants: tuple[str, ...], updates: list[int]) -> CellData:
    """Four windows: two slow ones from the north, 30 s each, and two fast ones from the east, 10 s each."""
    windows = {"speed_kmh": [31.0, 33.0, 38.0, 39.0], "approach": [0, 0, 1, 1], "dwell_s": [30.0, 30.0, 10.0, 10.0]}
    rounds = {("single", number): frozenset(names) for number, names in enumerate(participants)}
    table = pl.DataFrame({**windows, "updates": updates})
    return cell(arm, seed, [], participants=rounds, windows=table, settings={"silos.approaches": 2})


@pytest.fixture
def two() -> ConditionData:
    return condition(
        [
            of("a", 0, ("vw", "vx"), [1, 1, 1, 1]),
            of("a", 1, ("vw", "vw"), [1, 1, 1, 1]),
            of("</svg>b", 0, ("vw", "xy"), [2, 2, 0, 0]),
            of("c", 1, ("", ""), [0, 0, 0, 0]),
        ]
    )


def test_overlaps_pair_the_seeds_that_both_have(two: ConditionData) -> None:
    """a keeps v of {v, w} at seed 0 and both at seed 1; with b it shares both, then x alone; c has nobody."""
    table = overlap_table(two, "arm")
    assert table.head == ("arm", "updates", "round to round", "with a", "with </svg>b", "with c")
    assert table.rows == [
        ("a", "8", "75.0 \u00b1 35.4", NONE, "75.0", "0.0"),
        ("</svg>b", "4", "0.0", "75.0", NONE, NONE),
        ("c", "0", NONE, "0.0", NONE, NONE),
    ]


def test_an_arm_alone_is_compared_with_itself_over_rounds_only(two: ConditionData) -> None:
    alone = condition(two.cells[:1])
    assert overlap_table(alone, "arm").rows == [("a", "4", "50.0")]


def test_updates_beside_windows_and_time_in_coverage(two: ConditionData) -> None:
    """Half of the windows and 60 of 80 s are slow, as half of the updates of a are and all of b."""
    speeds = spread_over_speeds(two)
    assert speeds.labels == ("30\u201335", "35\u201340")
    assert speeds.together.windows.tolist() == [0.5, 0.5]
    assert speeds.together.dwell.tolist() == [0.75, 0.25]
    directions = spread_over_directions(two)
    assert directions.labels == ("0\u00b0", "180\u00b0")
    assert {arm: found.updates.tolist() for arm, found in speeds.by_arm.items()} == {
        "a": [0.5, 0.5], "</svg>b": [1.0, 0.0], "c": [0.0, 0.0]
    }  # fmt: skip
