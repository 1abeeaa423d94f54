import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.statistics import windows as coverage_statistics
from analysis.statistics.windows import averaged, in_coverage, speed_map, with_chords

INSTANTS = st.integers(0, 40).map(lambda k: k / 4)
INTERVALS = st.lists(st.tuples(INSTANTS, st.integers(1, 20).map(lambda k: k / 4)), max_size=12)


def curve_of(intervals):
    enter = np.array([begin for begin, _ in intervals], float)
    return in_coverage(enter, enter + np.array([length for _, length in intervals], float)), enter


@given(INTERVALS, INSTANTS)
def test_step_curve_equals_brute_force(intervals, instant):
    curve, _ = curve_of(intervals)
    index = int(np.searchsorted(curve.time_s, instant, side="right")) - 1
    value = int(curve.value[index]) if index >= 0 else 0
    assert value == sum(begin <= instant < begin + length for begin, length in intervals)


@given(INTERVALS)
def test_mean_is_total_time_over_span(intervals):
    curve, _ = curve_of(intervals)
    total = sum(length for _, length in intervals)
    assert curve.mean(0.0, 20.0) == pytest.approx(total / 20)
    edges = np.linspace(0, 20, 8)
    assert (averaged(curve, edges) * np.diff(edges)).sum() == pytest.approx(total)


def test_averages_of_a_known_curve():
    curve = in_coverage(np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    assert averaged(curve, np.array([0.0, 1.0, 2.0, 4.0])) == pytest.approx([1.0, 2.0, 0.5])


def window(x, y, t, *, speed=10.0, entry="crossing", leave="crossing"):
    return {
        "enter_s": t[0], "exit_s": t[-1], "entry_cause": entry, "exit_cause": leave, "entry_speed_mps": speed,
        "path_length_m": float(np.hypot(np.diff(x), np.diff(y)).sum()),
        "path_time_s": list(map(float, t)), "path_x_m": list(map(float, x)), "path_y_m": list(map(float, y)),
    }  # fmt: skip


def test_chord_over_entry_speed():
    rows = [
        window([0, 30, 30], [0, 0, 40], [5, 8, 20]),  # turns: path 70 m, chord 50 m
        window([0, 30], [0, 0], [0, 3], entry="departure"),
        window([0, 30], [0, 0], [0, 3], leave="arrival"),
        window([0, 30], [0, 0], [0, 3], speed=0.0),
    ]
    result = with_chords(pl.DataFrame(rows))
    assert result["chord_m"].to_list() == [50.0]
    assert result["chord_time_s"].to_list() == [5.0]
    assert result["dwell_s"].to_list() == [15.0]


EXTENT = (0.0, 100.0, 0.0, 50.0)


def test_speed_map_of_constant_speed():
    result = speed_map(pl.DataFrame([window([0, 40, 100], [25, 25, 25], [0, 4, 10])]), EXTENT, 100)
    assert result.cell_m == 1.0
    assert result.mean_mps.shape == (50, 100)
    driven = result.mean_mps[24:27]
    assert driven == pytest.approx(np.full((3, 100), 10.0))
    assert np.isnan(np.delete(result.mean_mps, [24, 25, 26], axis=0)).all()


def test_speed_map_shows_queues():
    still = window([0, 50, 50, 100], [25, 25, 25, 25], [0, 5, 65, 70])
    result = speed_map(pl.DataFrame([still]), EXTENT, 100)
    assert result.mean_mps[25, 50] < 0.2
    assert result.mean_mps[25, 20] == pytest.approx(10.0)


def test_speed_map_does_not_join_windows():
    rows = [window([0, 10], [10, 10], [0, 1]), window([90, 100], [40, 40], [0, 1])]
    result = speed_map(pl.DataFrame(rows), EXTENT, 100)
    assert np.isnan(result.mean_mps[:, 30:70]).all()


def test_speed_map_takes_every_kth_window_of_a_large_run(monkeypatch):
    monkeypatch.setattr(coverage_statistics, "MAX_MAP_SAMPLES", 1000)
    rows = [window([0, 100], [25, 25], [0, 10]) for _ in range(40)]
    result = speed_map(pl.DataFrame(rows), EXTENT, 100)
    assert result.every == 5
    assert np.nanmax(result.mean_mps) == pytest.approx(10.0)
