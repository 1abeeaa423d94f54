"""Vehicles that meet several RSUs, in a table of windows small enough to count by hand."""

import polars as pl
import pytest

from analysis.plots.several_rsus import multiplicity, successions

WINDOWS = pl.DataFrame(
    [
        ("a", "north", 0.0, 10.0),
        ("a", "south", 8.0, 20.0),  # in both for 2 s
        ("b", "south", 0.0, 5.0),
        ("a", "east", 25.0, 30.0),  # after 5 s in none
        ("b", "south", 6.0, 7.0),  # the same RSU again is no succession
        ("b", "north", 7.0, 9.0),
        ("c", "north", 3.0, 4.0),
    ],
    schema=["vehicle_id", "rsu_id", "enter_s", "exit_s"],
    orient="row",
)


def test_successions_tell_gaps_and_overlaps() -> None:
    assert successions(WINDOWS).rows() == [
        ("a", "north", "south", -2.0),
        ("a", "south", "east", 5.0),
        ("b", "south", "north", 0.0),
    ]


def test_the_mean_number_of_discs_is_that_of_the_time_in_coverage() -> None:
    held, covered = 10 + 12 + 5 + 5 + 1 + 2 + 1, 20 + 5 + 5 + 3 + 1
    assert multiplicity(WINDOWS) == pytest.approx(held / covered)
    assert multiplicity(WINDOWS.clear()) == 0
