import dataclasses
import re

import polars as pl
import pytest

from analysis.loading import load
from analysis.plots.participation import outcome_panel, spent_panel, timeline_panel, weight_panel
from analysis.report.breakdown import by_rsu, by_type
from analysis.report.headline import headline
from analysis.style import clock, log_ticks, reach, styled, time_axis
from vnetsim.experiment import RoundSettings


@pytest.fixture
def run(tmp_path, make_run):
    return load(make_run(tmp_path / "run", vehicles=120))


def columns(table):
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def test_by_vehicle_type(run):
    (table,) = by_type(run)
    rows = columns(table)
    assert [row["type"] for row in rows] == ["car", "truck"]
    assert sum(int(row["windows"]) for row in rows) == run.windows.height
    trucks = run.windows.filter(pl.col("vehicle_type") == "truck")
    parts = run.participations.filter(pl.col("vehicle_id").is_in(trucks["vehicle_id"].to_list()))
    invited = parts.filter(pl.col("outcome") != "not_selected")
    committed = (invited["outcome"] == "committed").mean()
    assert rows[1]["invited"] == str(invited.height)
    assert rows[1]["committed"] == f"{committed * 100:.0f}\u202f%"
    one = dataclasses.replace(run, windows=run.windows.with_columns(vehicle_type=pl.lit("car")))
    assert by_type(one) == []


def test_many_types_are_not_many_rows(run):
    many = run.windows.with_columns(vehicle_type="kind " + (pl.col("window") % 40).cast(pl.String))
    rows = columns(by_type(dataclasses.replace(run, windows=many))[0])
    assert len(rows) == 15
    assert rows[-1]["type"] == "26 other types"
    assert sum(int(row["windows"]) for row in rows) == run.windows.height


def test_by_rsu_in_full_and_vehicles_counted_once(tmp_path, make_run):
    name = "a junction with a rather long name, joined from four others"
    rsus = ((name, 500.0, 500.0, 250.0), ("b", 600.0, 500.0, 200.0), ("silent", 9000.0, 0.0, 100.0))
    run = load(make_run(tmp_path / "run", vehicles=90, rsus=rsus))
    windows = run.windows.filter(pl.col("rsu_id") != "silent").with_columns(
        vehicle_id=pl.int_range(pl.len()).over("rsu_id").cast(pl.String)  # each vehicle of b is one of the first's
    )
    assert by_rsu(dataclasses.replace(run, rsus=run.rsus[:1])) == []
    found = dataclasses.replace(run, windows=windows)
    (table,) = by_rsu(found)
    rows = columns(table)
    assert [row["RSU"] for row in rows] == [name, "b", "silent"]
    assert (rows[0]["vehicles"], rows[1]["windows"], rows[2]["windows"]) == ("30", "30", "0")
    assert rows[2]["median dwell"] == "\u2013"
    committed = run.participations.filter(pl.col("outcome") == "committed")["rsu_id"].to_list()
    assert [int(row["committed"]) for row in rows] == [committed.count(rsu.id) for rsu in run.rsus]
    assert "Together the RSUs cover 30 vehicles" in table.note
    assert dict(headline(found))["Vehicles in coverage"] == "30 (60 windows)"


def test_rsus_stand_in_the_order_of_their_numbers(tmp_path, make_run):
    rsus = tuple((name, 500.0, 500.0, 250.0) for name in ("J10", "J9", "m0", "2", "J"))
    (table,) = by_rsu(load(make_run(tmp_path / "run", vehicles=30, rsus=rsus)))
    assert [row["RSU"] for row in columns(table)] == ["2", "J", "J9", "J10", "m0"]


def test_ways_to_end_add_up_to_all_who_were_invited(run):
    late = run.participations.with_columns(
        outcome=pl.when(pl.col("outcome") == "stale").then(pl.lit("deadline")).otherwise("outcome")
    )
    for parts, way in ((run.participations, "too stale"), (late, "round closed first")):
        (table,) = by_type(dataclasses.replace(run, participations=parts))
        ways = table.head[table.head.index("committed") :]
        assert way in ways
        for row in columns(table):
            assert sum(float(row[name].split("\u202f")[0]) for name in ways) == pytest.approx(100, abs=2)


def test_axes_count_from_the_beginning_and_are_stretched_by_no_outlier():
    axis = time_axis(900.0, 54000.0)
    assert (axis.label, axis.of(54060.0)) == ("simulated time since 15:00 h (min)", 1.0)
    assert time_axis(900.0).label == "simulated time (min)"
    assert clock(3661.0) == "1:01:01"
    assert reach(pl.Series([*[1.0] * 300, 150.0]).to_numpy()) < 2
    assert reach(pl.Series([1.0, 2.0, 2.9]).to_numpy()) > 2.9
    assert log_ticks(3.0, 40.0) == [5.0, 10.0, 20.0]
    assert all(len(log_ticks(low, high)) <= 6 for low in (1e-3, 0.5, 3.0) for high in (50.0, 4e3, 2e8))


def test_a_vehicle_that_was_never_invited_is_no_participation(run):
    with styled():
        caption = outcome_panel(run).caption
    outcomes = run.participations["outcome"]
    invited = int((outcomes != "not_selected").sum())
    assert 0 < invited < len(outcomes)
    assert caption.startswith(
        f"{invited} participations, {100 * (outcomes == 'committed').sum() / invited:.0f}\u202f% "
    )
    assert f"{len(outcomes) - invited} windows without an invitation in grey." in caption


def test_the_timeline_has_the_windows_that_were_invited_first(run):
    invited = run.participations.filter(pl.col("outcome") != "not_selected").sort("start_s", "vehicle_id")
    earlier = run.participations.head(1).with_columns(
        outcome=pl.lit("not_selected"), start_s=0.0, enter_s=0.0, vehicle_id=pl.lit("never")
    )
    with styled():
        panel = timeline_panel(dataclasses.replace(run, participations=pl.concat([earlier, invited])))
    names = re.findall(r">([^<]*)</text>", panel.svg)
    first = invited["vehicle_id"].unique(maintain_order=True).to_list()
    assert [name for name in names if name in {*first, "never"}] == first[:40]
    assert panel.caption.startswith(f"The first 40 of {len(first)} windows with an invitation, one row per window.")


def test_the_figure_of_what_was_used_says_what_drops_vehicles(run):
    every_fifth = pl.when(pl.int_range(pl.len()) % 5 == 0).then(pl.lit("stale")).otherwise("outcome")
    parts = run.participations.with_columns(outcome=every_fifth)
    stale = -(-parts.height // 5)
    experiments = (dataclasses.replace(run.experiment, round=RoundSettings(max_staleness=n)) for n in (0, 2))
    found = (dataclasses.replace(run, participations=parts, experiment=one) for one in experiments)
    with styled():
        at_once, later = (spent_panel(one).caption for one in found)
    assert f"{stale} were still at work when their round had its quorum, and were dropped" in at_once
    assert "were dropped" not in later


def test_equal_weights_need_no_figure(run):
    equal = run.participations.with_columns(
        weight=pl.when(pl.col("outcome") == "committed").then(1 / pl.len().over("round", "outcome"))
    )
    panel = weight_panel(dataclasses.replace(run, participations=equal))
    assert panel.svg == ""
    assert "weighed the same in their round" in panel.caption
