"""Recordings from elsewhere: clocks that differ by rounding, vehicles sampled apart, pauses, ids used again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from coverage_laws import open_scenario

import vnetsim
from analysis.loading import load
from analysis.report.notices import notices
from vnetsim.coverage.windows import Left, TrafficInfo, Window

Row = tuple[float, str, float, str]
"""Time (s), id, x (m), type."""


def record(path: Path, rows: list[Row], speed_mps: float = 20.0) -> Path:
    """Write rows in their order; those of one time that follow each other are a step."""
    if path.suffix == ".xml":
        lines, now_s = ["<fcd-export>"], None
        for time_s, name, x_m, kind in rows:
            if time_s != now_s:
                lines += ["</timestep>"] * (now_s is not None) + [f'<timestep time="{time_s!r}">']
                now_s = time_s
            lines.append(f'<vehicle id="{name}" x="{x_m}" y="0" speed="{speed_mps}" type="{kind}" lane="r_0"/>')
        path.write_text("\n".join([*lines, "</timestep></fcd-export>"]))
        return path
    time_s, name, x_m, kind = (list(column) for column in zip(*rows, strict=True))
    table = {"timestep_time": time_s, "vehicle_id": name, "vehicle_x": x_m, "vehicle_type": kind}
    frame = pl.DataFrame({**table, "vehicle_y": 0.0, "vehicle_speed": speed_mps, "vehicle_lane": "r_0"})
    (frame.write_csv if path.suffix == ".csv" else frame.write_parquet)(path)
    return path


def read(path: Path, **settings: object) -> tuple[list[Window], TrafficInfo]:
    traffic = open_scenario(path, **{"rsu": ("0,0:100",), **settings})
    windows = [event.window for event in traffic.events() if isinstance(event, Left)]
    return windows, traffic.info


def causes(windows: list[Window]) -> list[tuple[str, float, float, str, str]]:
    return [(w.vehicle_id, round(w.enter_s, 3), round(w.exit_s, 3), w.entry_cause, w.exit_cause) for w in windows]


CLOCKS: dict[str, Callable[[int, int], float]] = {
    "rounded": lambda first, i: first * 0.1 + i * 0.1,
    "since 1970": lambda first, i: (1118846980.0 + first * 0.1) + i * 0.1,
    "a little apart": lambda first, i: round((first + i) * 0.1 + 2e-4 * (first % 4), 4),
}


@pytest.mark.parametrize("by_time", [True, False], ids=["sorted by time", "sorted by frame"])
@pytest.mark.parametrize(("clock", "suffix"), [*zip(CLOCKS, ("xml", "csv", "parquet"), strict=True)])
def test_instants_that_rounding_sets_apart_are_one(clock, suffix, by_time, tmp_path, monkeypatch):
    monkeypatch.setattr("vnetsim.traffic.fcd.tables._TEXT_ROWS", 40)  # instants go on in the next part
    monkeypatch.setattr("vnetsim.traffic.fcd.tables._BATCH_ROWS", 80)
    monkeypatch.setattr("vnetsim.traffic.fcd.readers._STEPS", 5)
    rows = [
        (CLOCKS[clock](7 * k + 3, i), f"car{k}", -150 + 2.0 * i, "car", 7 * k + 3 + i)
        for k in range(5)
        for i in range(151)
    ]
    rows.sort(key=(lambda row: row[:2]) if by_time else (lambda row: (row[4], -int(row[1][-1]))))
    windows, info = read(record(tmp_path / f"v.{suffix}", [row[:4] for row in rows]))
    begin_s = info.begin_s
    assert [(w.vehicle_id, w.entry_cause, w.exit_cause) for w in windows] == [
        (f"car{k}", "crossing", "crossing") for k in range(5)
    ]
    for k, window in enumerate(windows):
        assert window.enter_s - begin_s == pytest.approx(0.7 * k + 2.5, abs=2e-3)
        assert window.exit_s - window.enter_s == pytest.approx(10.0, abs=2e-3)
    assert (info.step_s, info.notes) == (pytest.approx(0.1), ())


def taxis(lost: tuple[int, ...] = (), count: int = 8) -> list[Row]:
    """At 10 m/s along the road, each reports every 10 s at a second of its own; the first loses some reports."""
    rows = [
        (10 * i + 1.3 * k, f"taxi{k}", -300.0 + 100 * i, "taxi")
        for k in range(count)
        for i in range(7)
        if k or i not in lost
    ]
    return sorted(rows)


def test_where_vehicles_sample_apart_each_path_is_its_own_rows(tmp_path):
    windows, info = read(record(tmp_path / "v.csv", taxis(), 10.0))
    assert causes(windows) == [(f"taxi{k}", 20 + 1.3 * k, 40 + 1.3 * k, "crossing", "crossing") for k in range(8)]
    assert info.step_s == 10.0
    (note,) = info.notes
    assert (
        "every 10 s in the median, and its path goes on over up to 30 s without a row (traffic.longest_gap_s)" in note
    )


@pytest.mark.parametrize(
    ("lost", "longest_gap_s", "expected"),
    [
        ((3, 4), None, [(20, 40, "crossing", "crossing")]),
        ((2, 3, 4), None, []),  # from 200 m on one side to 200 m on the other
        ((3, 4, 5), 50.0, [(20, 40, "crossing", "crossing")]),
        ((), 5.0, []),
    ],
)
def test_how_long_a_vehicle_may_be_silent_is_a_setting(lost, longest_gap_s, expected, tmp_path):
    path = record(tmp_path / "v.csv", taxis(lost), 10.0)
    windows, info = read(path, longest_gap_s=longest_gap_s)
    assert [row[1:] for row in causes(windows) if row[0] == "taxi0"] == expected
    assert info.silences == (0 if expected else 1 if lost else 48)
    assert info.glimpsed == ({} if lost else {"0,0": 8})


def test_a_silence_inside_a_disc_ends_its_window_and_begins_another(tmp_path):
    rows = [row for row in taxis() if row[1] != "taxi0" or not 15 < row[0] < 55]
    windows, info = read(record(tmp_path / "v.csv", rows, 10.0), rsu=("0,0:1000",))
    assert [row[1:] for row in causes(windows) if row[0] == "taxi0"] == [(0, 10, "begin", "gap")]
    assert {row[3:] for row in causes(windows) if row[0] != "taxi0"} == {("begin", "end")}
    rows += [(70.0, "taxi0", 400.0, "taxi")]
    windows, info = read(record(tmp_path / "v.csv", sorted(rows), 10.0), rsu=("0,0:1000",))
    assert [row[1:] for row in causes(windows) if row[0] == "taxi0"] == [
        (0, 10, "begin", "gap"),
        (60, 70, "gap", "end"),
    ]
    assert "2 windows begin or end where the recording says nothing" in info.notes[-1]


@pytest.mark.parametrize("suffix", ["xml", "csv"])
def test_two_recordings_behind_each_other_are_not_one_path(suffix, tmp_path):
    once = [(float(i), "v", 5.0 * i - 30, "car") for i in range(12)]
    rows = [*once, *((time_s + 600, *rest) for time_s, *rest in once)]
    windows, info = read(record(tmp_path / f"v.{suffix}", rows, 5.0))  # type: ignore[arg-type]
    assert causes(windows) == [("v", 0, 11, "begin", "gap"), ("v", 600, 611, "gap", "end")]
    assert info.silences == 1
    (note,) = info.notes
    assert "2 windows begin or end where the recording says nothing of their vehicle for longer than 3 s" in note


def test_while_nobody_is_there_no_row_is_missing(tmp_path):
    """As with SUMO's --fcd-output.skip-empty; of several who are gone at once, the recording paused."""
    rows = [
        (t, name, x_m, "car")
        for begin_s, name in ((0, "a"), (100, "b"))
        for t, x_m in ((begin_s, 0.0), (begin_s + 1, 5.0))
    ]
    path = record(tmp_path / "v.csv", rows, 5.0)  # type: ignore[arg-type]
    assert causes(read(path)[0]) == [("a", 0, 1, "begin", "arrival"), ("b", 100, 101, "departure", "end")]
    rows += [(t, "c", x_m, kind) for t, _, x_m, kind in rows[:2]]
    path = record(tmp_path / "v.csv", sorted(rows), 5.0)  # type: ignore[arg-type]
    assert {row[3:] for row in causes(read(path)[0])} == {("begin", "gap"), ("gap", "end")}


def test_an_id_that_comes_again_as_another_type_is_another_vehicle(tmp_path):
    def drive(begin_s: float, kind: str) -> list[Row]:
        return [(float(begin_s + i), "v", -200.0 + 20 * i, kind) for i in range(21)]

    other = [(float(t), "far", 5000.0, "car") for t in range(140)]  # the clock runs on
    rows = [*drive(0, "bicycle"), *drive(30, "car"), *drive(60, "bus"), *drive(90, "car"), *drive(115, "bicycle")]
    windows, info = read(record(tmp_path / "v.csv", sorted([*rows, *other], key=lambda row: row[0])))
    assert [(w.vehicle_id, w.vehicle_type, w.enter_s) for w in windows] == [
        ("v (car)", "car", 35.0),
        ("v (bus)", "bus", 65.0),
        ("v (car)", "car", 95.0),
    ]
    assert info.left_out == 1
    assert "1 of type bicycle" in info.notes[-1]


def test_no_vehicle_came_is_said_only_where_none_did(tmp_path):
    rows: list[Row] = [(float(t), "v", -200.0 + 20 * t, "bicycle") for t in range(21)]
    rows += [(float(t), "w", 5000.0, "car") for t in range(21)]
    rows += [(9.0, "once", 0.0, "car")]
    path = record(tmp_path / "v.csv", sorted(rows))
    made = vnetsim.mobility(path, rsu=("0,0:100", "9000,0:100"), out=tmp_path / "run", progress=False)
    here, there = list(notices(load(made.path)))[:2]
    assert "no path of a vehicle that takes part came within 100 m of (0, 0)" in here
    assert "1 vehicle near the RSUs left out by type" in here
    assert "1 vehicle seen there at one instant only" in here
    assert "one instant" not in there
    record(path, [row for row in rows if row[1] == "w"])
    made = vnetsim.mobility(path, rsu=("0,0:100",), out=tmp_path / "nobody", progress=False)
    assert next(iter(notices(load(made.path)))).startswith("RSU 0,0 had no traffic: no vehicle came within 100 m")
