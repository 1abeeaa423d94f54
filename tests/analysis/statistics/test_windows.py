"""What windows say: vehicles in coverage, speed on the map, and dwell though the run's end cuts windows off."""

import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import write_table

from analysis.loading import load
from analysis.report.page import build_report
from analysis.report.possible import long_enough, vehicles
from analysis.statistics.windows import (
    dwell,
    entries,
    in_coverage,
    merged_windows,
    speed_map,
    survival,
)
from vnetsim.storage.run_directory import RunDirectory

INSTANTS = st.integers(0, 40).map(lambda k: k / 4)
INTERVALS = st.lists(st.tuples(INSTANTS, st.integers(1, 20).map(lambda k: k / 4)), min_size=1, max_size=12)


@given(INTERVALS, INSTANTS)
def test_vehicles_in_coverage_equal_brute_force(intervals, instant):
    rows = [(begin, begin + length) for begin, length in intervals]
    curve = in_coverage(pl.DataFrame(rows, schema={"enter_s": pl.Float64, "exit_s": pl.Float64}, orient="row"))
    assert curve.at(np.array([instant])).tolist() == [sum(enter <= instant < leave for enter, leave in rows)]
    edges = np.linspace(0, 20, 8)
    assert (curve.means(edges) * np.diff(edges)).sum() == pytest.approx(sum(length for _, length in intervals))


def test_overlapping_windows_of_a_vehicle_are_one():
    rows = [("a", 0.0, 10.0), ("a", 5.0, 8.0), ("a", 9.0, 12.0), ("b", 3.0, 4.0), ("a", 20.0, 21.0)]
    found = merged_windows(pl.DataFrame(rows, schema=["vehicle_id", "enter_s", "exit_s"], orient="row"))
    assert sorted(found.drop("part").rows()) == [("a", 0.0, 12.0), ("a", 20.0, 21.0), ("b", 3.0, 4.0)]
    assert in_coverage(found).peak == 2


def window(x, y, t, *, speed=10.0, entry="crossing", leave="crossing"):
    return {
        "enter_s": t[0], "exit_s": t[-1], "entry_cause": entry, "exit_cause": leave, "entry_speed_mps": speed,
        "path_length_m": float(np.hypot(np.diff(x), np.diff(y)).sum()),
        "path_time_s": list(map(float, t)), "path_x_m": list(map(float, x)), "path_y_m": list(map(float, y)),
    }  # fmt: skip


def map_of(*rows):
    return speed_map(pl.DataFrame(rows), (0.0, 100.0, 0.0, 50.0), 100)


def test_speed_map_of_constant_speed():
    result = map_of(window([0, 40, 100], [25, 25, 25], [0, 4, 10]))
    assert result.cell_m == 1.0
    assert result.mean_mps.shape == (50, 100)
    assert result.mean_mps[24:27] == pytest.approx(np.full((3, 100), 10.0))
    assert np.isnan(np.delete(result.mean_mps, [24, 25, 26], axis=0)).all()


def test_speed_map_shows_queues_and_does_not_join_windows():
    still = map_of(window([0, 50, 50, 100], [25, 25, 25, 25], [0, 5, 65, 70]))
    assert still.mean_mps[25, 50] < 0.2
    assert still.mean_mps[25, 20] == pytest.approx(10.0)
    apart = map_of(window([0, 10], [10, 10], [0, 1]), window([90, 100], [40, 40], [0, 1]))
    assert np.isnan(apart.mean_mps[:, 30:70]).all()


def lasting(lengths_s, *, cut=(), begun=()):
    """Windows that begin at 10 s and last ``lengths_s``; those of ``cut`` and ``begun`` are not whole."""
    return pl.DataFrame(
        [
            {
                "enter_s": 10.0, "exit_s": 10.0 + length, "entry_cause": "begin" if i in begun else "crossing",
                "exit_cause": "end" if i in cut else "crossing", "entry_speed_mps": 1.0 + i,
            }
            for i, length in enumerate(lengths_s)
        ]
    )  # fmt: skip


def test_a_window_cut_off_lasted_longer():
    """Kaplan-Meier by hand: S(2) = 4/5, S(6) = 4/5 * 1/2, so the median is 6; of what was seen it would be 4."""
    assert dwell(lasting([1.0, 2.0, 7.0, 9.0])).median_s == 4.5
    assert dwell(lasting([3.0])).brief == "3.00\u202fs"
    found = dwell(lasting([2.0, 3.0, 4.0, 6.0, 8.0], cut={1, 2}))
    assert (found.median_s, found.cut, found.windows, found.at_least_s) == (6.0, 2, 5, 4.0)
    assert found.brief == "6.00\u202fs (2 of 5 cut off)"
    assert "the end of the run cut 2 of 5 windows off" in found.sentence
    gaps = lasting([1.0, 2.0, 3.0, 4.0, 6.0, 8.0], cut={2, 3}, begun={0}).with_columns(
        pl.col("entry_cause", "exit_cause").replace({"end": "gap", "begin": "gap"})
    )
    assert (dwell(gaps).median_s, dwell(gaps).cut, dwell(gaps).begun) == (6.0, 2, 1)
    assert "the end of the run or a gap of the recording cut 2 of 5 windows off" in dwell(gaps).sentence


@pytest.mark.parametrize("cut", [{0, 1, 2}, {1, 2}])
def test_a_median_beyond_what_was_seen_is_shown_as_a_bound(cut):
    found = dwell(lasting([5.0, 16.0, 20.0], cut=cut))
    assert found.brief == f"more than 16.0\u202fs ({len(cut)} of 3 cut off)"


def test_vehicles_inside_from_the_beginning_are_left_out():
    found = dwell(lasting([1.0, 9.0, 9.0], begun={0}))
    assert (found.median_s, found.windows, found.begun) == (9.0, 2, 1)
    assert dwell(lasting([1.0, 3.0], begun={0, 1})).windows == 2
    assert dwell(lasting([1.0]).clear()).windows == 0


def test_a_vehicle_that_was_cut_off_may_be_covered_long_enough(tmp_path, make_run):
    """By hand: of 1, 2 (cut), 3 and 4 s S(3) = 3/4 * 1/2; whose longest counts, and not who was inside before."""
    members = pl.DataFrame({"longest_s": [1.0, 2.0, 3.0, 4.0, None], "cut": [False, True, False, False, None]})
    assert [long_enough(members, needed_s) for needed_s in (0.5, 2.5, 3.0)] == [1, 0.75, 0.375]
    assert long_enough(members.tail(1), 1.0) is None
    run = make_run(tmp_path / "run", vehicles=4)
    ends = [("a", 0.0, 9.0, "begin", "crossing"), ("a", 20.0, 22.0, "crossing", "end"), ("b", 0.0, 7.0, "begin", "end"),
            ("c", 1.0, 2.0, "crossing", "crossing"), ("c", 5.0, 9.0, "crossing", "crossing")]  # fmt: skip
    columns = ["vehicle_id", "enter_s", "exit_s", "entry_cause", "exit_cause"]
    table = pl.DataFrame(ends, schema=columns, orient="row")
    first = load(run)
    found = vehicles(replace(first, windows=first.windows.head(1).drop(columns).join(table, how="cross")))
    assert found.select("vehicle_id", "longest_s", "cut").rows() == [
        ("a", 2.0, True),
        ("b", None, None),
        ("c", 4.0, False),
    ]


def test_the_median_is_where_exactly_half_have_ended():
    """S(2.34) = 1/2 as a fraction: multiplied in floating point it may come out above a half."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        values = np.round(rng.exponential(3.0, rng.integers(2, 40)), 1)
        cut = rng.random(len(values)) < rng.random()
        left, median = Fraction(1), math.inf
        for value in np.unique(values):
            ended = int(((values == value) & ~cut).sum())
            left *= 1 - Fraction(ended, int((values >= value).sum()))
            if ended and left <= Fraction(1, 2):
                median = float(value)
                break
        assert survival(values, cut).quantile_s(0.5) == median


def test_a_vehicle_that_departs_inside_has_no_speed_at_entry():
    rows = lasting([1.0, 2.0]).with_columns(entry_cause=pl.Series(["departure", "crossing"]))
    assert entries(rows)["entry_speed_mps"].to_list() == [2.0]
    assert entries(rows.head(1)).height == 1


def test_a_page_has_one_median_dwell_and_one_median_speed(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=120)
    directory = RunDirectory(run)
    table = directory.read("windows")
    late = table["exit_s"] > 600
    write_table(directory, "windows", table.with_columns(
        exit_cause=pl.when(late).then(pl.lit("end")).otherwise("exit_cause"),
        entry_speed_mps=pl.when(pl.col("entry_cause") == "departure").then(0.0).otherwise("entry_speed_mps"),
    ).rows())  # fmt: skip
    numbers = dict(build_report(run).headline)
    page = (run / "report.html").read_text(encoding="utf-8")
    expected = dwell(load(run).windows)
    assert expected.cut > 30
    assert numbers["Median dwell"] == expected.brief
    assert set(re.findall(r"[Mm]edian dwell(?:</dt><dd>)? ?([\d.]+)", page)) == {expected.median.split("\u202f")[0]}
    assert f"n = {entries(table).height}, median {numbers['Median speed at entry']}." in page
