"""When runs reach a target, against cases worked by hand."""

from dataclasses import replace

import polars as pl
import pytest
from made_cells import ACCURACY, LOSS, cell, comparison, condition

from analysis.comparison.data import ConditionData, Metric
from analysis.comparison.measures import first_reached, target_of, target_rows
from analysis.comparison.sections import Compared
from analysis.formatting import NONE

ERROR = Metric(name="rmse", label="Average model", unit="RMSE", caption="")


def test_the_first_measurement_that_is_good_enough():
    rising = cell("a", 0, [0.1, 0.3, 0.5, 0.4])
    assert first_reached(rising, ACCURACY, 0.3) == (1, 10.0, 1e3, 3.0)
    assert first_reached(rising, ACCURACY, 0.4) == (2, 20.0, 2e3, 6.0)
    assert first_reached(rising, ACCURACY, 0.1) == (0, 0.0, 0.0, 0.0)
    assert first_reached(rising, ACCURACY, 0.51) == (None,) * 4


def test_of_errors_smaller_is_better():
    falling = cell("a", 0, [0.9, 0.5, 0.2], metric="rmse")
    assert first_reached(falling, ERROR, 0.5)[0] == 1
    worst = target_of(condition([falling, cell("b", 0, [0.9, 0.8, 0.6], metric="rmse")], (), LOSS, ERROR))
    assert (worst.arm, worst.value, worst.metric) == ("b", 0.6, ERROR)
    assert target_rows(worst, "arm").title == "RMSE, average model: first at most 0.600"


def test_a_target_that_no_learning_was_needed_for_is_told():
    falls, rises = cell("a", 0, [0.4, 0.2]), cell("b", 0, [0.1, 0.3])
    for first, untrained in ((falls, True), (cell("a", 0, [0.1, 0.2]), False)):
        target = target_of(condition([first, rises], (), ACCURACY))
        assert target.value == 0.2
        assert ("the untrained model met it" in target_rows(target, "arm").note) == untrained


@pytest.fixture
def two() -> ConditionData:
    """a ends at 0.5 and 0.7; b at 0.3 and 0.4, so that its mean, 0.35, is the target, which its first seed misses."""
    return condition(
        [
            cell("a", 0, [0.1, 0.2, 0.5]),
            cell("a", 1, [0.1, 0.6, 0.7]),
            cell("b", 0, [0.1, 0.2, 0.3]),
            cell("b", 1, [0.1, 0.2, 0.4]),
        ],
        (),
        LOSS,
        ACCURACY,
    )


def test_the_worst_arm_sets_the_target(two):
    target = target_of(two)
    assert (target.arm, target.value) == ("b", pytest.approx(0.35))
    assert target.reached["round"].to_list() == [2, 1, None, 2]
    table = target_rows(target, "arm")
    assert table.title == "Accuracy: first at least 35.0\u202f%"
    assert table.rows == [
        ("a", "2 of 2", "1.5", "15.0\u202fs", "1.50\u202fkB", "4.50"),
        ("b", "1 of 2", "2", "20.0\u202fs", "2.00\u202fkB", "6.00"),
    ]
    assert "worst arm here, b" in table.note
    rows = target.reached.select("arm", "seed", "round", "simulated_s", "bytes", "device_s").rows()
    assert rows[2] == ("b", 0, None, None, None, None)
    assert rows[3] == ("b", 1, 2, 20.0, 2e3, 6.0)


def test_a_seed_that_one_arm_lacks(two):
    less = replace(two, cells=two.cells[:2] + two.cells[3:])
    target = target_of(less)
    assert target.value == pytest.approx(0.4)
    assert [row[1] for row in target_rows(target, "arm").rows] == ["2 of 2", "1 of 1"]


def test_nobody_reaches_a_target_that_is_passed_before_and_lost():
    """The last values count for the target, the first for reaching it."""
    target = target_of(condition([cell("a", 0, [0.1, 0.9, 0.2]), cell("b", 0, [0.1, 0.15, 0.3])], (), ACCURACY))
    assert target.reached.row(0)[7:11] == (1, 10.0, 1e3, 3.0)
    none = replace(target, reached=target.reached.head(1).with_columns(round=pl.lit(None, pl.Int64)))
    assert target_rows(none, "arm").rows == [("a", "0 of 1", NONE, NONE, NONE, NONE)]


def test_without_a_known_direction_there_is_no_target(two):
    unknown = replace(two, metrics=(LOSS,))
    assert target_of(unknown) is None
    assert Compared(comparison(unknown)).tables()["comparison_targets"].height == 0
