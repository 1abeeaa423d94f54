"""Wrong input, through the command line: one line, exit status 2, nothing left behind.

Slips in options are in tests/cli, each fault of a recording or scenario in tests/traffic; here one of every kind goes
the whole way.
"""

import math
import re
from pathlib import Path

import polars as pl
import pytest

RSU = ("--rsu", "0,0:50")


def trace(rows: int = 20) -> pl.DataFrame:
    """Two vehicles that pass (0, 0) one behind the other."""
    return pl.DataFrame(
        {
            "timestep_time": float(t),
            "vehicle_id": f"v{v}",
            "vehicle_x": 10.0 * t - 100 - 20 * v,
            "vehicle_y": 0.0,
            "vehicle_speed": 10.0,
            "vehicle_lane": "road_0",
        }
        for t in range(rows)
        for v in range(2)
    )


@pytest.mark.parametrize("command", [("mobility",), ("run", "--learner", "toy", "--rounds", "99")])
@pytest.mark.usefixtures("toy")
def test_a_recording_cut_off(command, refused, tmp_path):
    path = tmp_path / "trace.csv"
    trace().write_csv(path, separator=";")
    path.write_bytes(path.read_bytes()[:-27])  # the windows before have been read by then
    (tmp_path / "run").mkdir()  # an empty folder of the user's stays
    line = refused(*command, path, *RSU, "--out", tmp_path / "run")
    assert line.startswith(f"vnetsim: {path}")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_fault_after_a_finished_round_keeps_it(refused, toy, tmp_path):
    table = trace(rows=60)
    table[-1, "vehicle_x"] = math.nan
    path = tmp_path / "trace.csv"
    table.write_csv(path, separator=";")
    options = ("--learner", toy.name, "--rounds", "9", "--set", "round.deadline_s=10", *RSU)
    line = refused("run", path, *options, "--out", tmp_path / "run")
    assert f"vnetsim: {path}:" in line
    rounds = pl.concat(pl.read_parquet(piece) for piece in (tmp_path / "run" / "rounds").iterdir())
    assert 0 < rounds.height < 9


@pytest.mark.parametrize("option", ["net-file", "additional-files"])
def test_a_faulty_scenario(option, refused, scenarios, tmp_path):
    (tmp_path / "cut.xml").write_text("<net><edge id=")
    text = (scenarios / "urban.sumocfg").read_text()
    text = text.replace('value="intersection/', f'value="{scenarios}/intersection/')
    config = tmp_path / "faulty.sumocfg"
    config.write_text(re.sub(rf'<{option} value="[^"]*"', f'<{option} value="cut.xml"', text))
    line = refused("mobility", config, "--out", tmp_path / "run")
    assert line.startswith(f"vnetsim: {config}: ")
    assert "cut.xml" in line
    assert not (tmp_path / "run").exists()


def test_a_missing_scenario_leaves_nothing(refused, tmp_path):
    config = tmp_path / "gone.sumocfg"
    assert refused("mobility", config, "--out", tmp_path / "run") == f"vnetsim: {config}: no such file.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "data.train_images=50"), "50"),
        (
            ("--learner", "cdl", "--set", "pace.name=coverage", "--set", "data.train_images=110"),
            "pace.name: 'coverage' has no place for the exchange of cdl, where vehicles wait until",
        ),
    ],
)
def test_learning_that_cannot_begin(options, message, refused, scenarios, tmp_path):
    line = refused("run", scenarios / "gaussian.toml", *options, "--out", tmp_path / "run")
    assert message in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("run", "gaussian", "--set", "traffic.warmup_s=5"),
        ("mobility", "gaussian", "--set", "traffic.warmup_s=5"),
        ("compare", "gaussian", "--learners", "flsimco,fedavg", "--seeds", "0", "--set", "traffic.warmup_s=5"),
    ],
    ids=" ".join,
)
def test_a_fault_leaves_not_even_the_folder_of_all_runs(command, refused, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    refused(*command)
    refused(*command, "--out", Path("a", "b", "c"))
    assert list(tmp_path.iterdir()) == []
    Path("runs").mkdir()
    refused(*command)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.parametrize("command", ["run", "mobility", "compare"])
def test_a_folder_of_somebody_elses_keeps_every_file(command, refused, tmp_path):
    names = ["notes.txt", ".bashrc.original", ".notes.12345678.tmp", "deep/.bashrc.original"]
    (tmp_path / "deep").mkdir()
    for name in names:
        (tmp_path / name).write_text("mine")
    more = ("--learners", "flsimco,fedavg", "--seeds", "0") if command == "compare" else ()
    assert f"{tmp_path}: " in (line := refused(command, "gaussian", *more, "--out", tmp_path))
    assert "mpty" in line
    for out in (tmp_path / "notes.txt", tmp_path / "notes.txt" / "run"):
        assert "Not a directory" in refused(command, "gaussian", *more, "--out", out)
    left = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == dict.fromkeys(names, "mine")


def test_an_rsu_without_traffic_is_a_warning_and_a_report(cli, toy, scenarios, tmp_path):
    once = ("--set", "traffic.end_s=60", "--rsu", "300,-300:50")
    for command in (("mobility",), ("run", "--learner", toy.name, "--rounds", 1, "--set", "round.deadline_s=40")):
        folder = tmp_path / command[0]
        done = cli(*command, scenarios / "intersection.sumocfg", *once, "--out", folder, status=0)
        assert "vnetsim: RSU '300,-300' has no road within 150 m; it sees no traffic." in done.err
        assert "none" in done.out
        assert "had no traffic: no vehicle came within" in (folder / "report.html").read_text()
        assert pl.read_parquet(folder / "windows.parquet").is_empty()
