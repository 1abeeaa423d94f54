import dataclasses

import polars as pl
import pytest

from analysis.loading import load
from analysis.report.breakdown import by_rsu, by_type
from analysis.report.headline import headline


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


def test_by_rsu_in_full_and_vehicles_counted_once(tmp_path, make_run):
    name = "a junction with a rather long name, joined from four others"
    rsus = ((name, 500.0, 500.0, 250.0), ("b", 600.0, 500.0, 200.0), ("silent", 9000.0, 0.0, 100.0))
    run = load(make_run(tmp_path / "run", vehicles=90, rsus=rsus))
    windows = run.windows.filter(pl.col("rsu_id") != "silent").with_columns(
        vehicle_id=pl.int_range(pl.len()).over("rsu_id").cast(pl.String)  # each vehicle of b is one of the first's
    )
    assert (
        by_rsu(dataclasses.replace(run, manifest=dataclasses.replace(run.manifest, rsus=run.manifest.rsus[:1]))) == []
    )
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


def test_what_a_handed_over_participation_moved_counts_at_each_rsu(tmp_path, make_run):
    run = load(make_run(tmp_path / "run", vehicles=90, rsus=(("a", 500.0, 500.0, 250.0), ("b", 600.0, 500.0, 200.0))))
    one = run.participations.filter(rsu_id="a").head(1).with_columns(download_bytes=1e6, upload_bytes=2e6)
    handed = {"participation": one["participation"], "from_rsu_id": ["a"], "to_rsu_id": ["b"], "link_bytes": [4e5]}
    (table,) = by_rsu(dataclasses.replace(run, participations=one, handovers=pl.DataFrame(handed)))
    assert [row["data over its link"] for row in columns(table)] == ["400\u202fkB", "2.60\u202fMB"]
    (table,) = by_rsu(dataclasses.replace(run, participations=one))
    assert [row["data over its link"] for row in columns(table)] == ["3.00\u202fMB", "0\u202fB"]


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
