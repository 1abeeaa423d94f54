"""The other commands: mobility on every kind of scenario, report, learners, init."""

import shutil
import subprocess
from pathlib import Path

from vnetsim.learning.kinds import LEARNERS
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.traffic.sumo.session import binary, environment


def test_mobility_of_a_recording(cli, scenarios, tmp_path):
    """One minute of the shipped crossing as SUMO itself records it."""
    recording = tmp_path / "trace.xml.gz"
    options = ("--fcd-output", recording, "--end", "60", "--no-step-log", "true")
    command = [binary("sumo"), "-c", scenarios / "urban.sumocfg", *options]
    subprocess.run(command, check=True, capture_output=True, env=environment())
    net = ("--net", scenarios / "intersection" / "intersection.net.xml")
    done = cli("mobility", recording, "--rsu", "0,0:250", *net, "--out", tmp_path / "run")
    assert (done.status, done.err) == (0, "")
    assert "Vehicles in coverage" in done.out
    assert done.out.splitlines()[-1] == f"report: {tmp_path / 'run' / 'report.html'}"
    run = RunDirectory(tmp_path / "run")
    assert run.read("windows").height > 5
    assert not run.read("map").is_empty()
    assert len(run.manifest()["inputs"]) == 2
    assert run.manifest()["traffic"]["kind"] == "fcd"


def test_mobility_of_a_model_and_of_a_run(cli, small_run, tmp_path):
    model = cli("mobility", "gaussian", "--set", "traffic.end_s=60", "--out", tmp_path / "model")
    assert model.status == 0
    assert (tmp_path / "model" / "report.html").exists()
    live = small_run("gaussian.toml")[0]
    replay = cli("mobility", live, "--no-report", "--out", tmp_path / "replay")
    assert (replay.status, replay.err) == (0, "")
    assert "Median dwell" in replay.out, "the table is printed, with a report or without"
    assert replay.out.splitlines()[-1] == str(tmp_path / "replay")
    assert not (tmp_path / "replay" / "report.html").exists()
    assert not (tmp_path / "replay" / "figures").exists()
    # a table of its own order: windows are numbered as they end
    first, again = (RunDirectory(run).read("windows") for run in (live, tmp_path / "replay"))
    assert again.drop("window").sort("enter_s").equals(first.drop("window").sort("enter_s"))
    manifest = RunDirectory(tmp_path / "replay").manifest()
    assert (manifest["kind"], manifest["status"], manifest["ended_by"]) == ("mobility", "finished", "traffic")


def test_several_rsus_and_the_busiest_junction(cli, scenarios, tmp_path):
    scenario = scenarios / "urban.sumocfg"
    short = ("--set", "traffic.end_s=120")
    two = ("--rsu", "0,0:100", "--rsu", "150,0:40")
    assert cli("mobility", scenario, *two, *short, "--out", tmp_path / "two").status == 0
    run = RunDirectory(tmp_path / "two")
    assert set(run.read("windows")["rsu_id"]) == {"0,0", "150,0"}
    assert [rsu["range_m"] for rsu in run.manifest()["rsus"]] == [100.0, 40.0]
    bare = tmp_path / "bare.sumocfg"
    lines = scenario.read_text().replace('value="intersection/', f'value="{scenarios}/intersection/').splitlines()
    bare.write_text("\n".join(line for line in lines if "additional-files" not in line))
    done = cli("mobility", bare, *short, "--no-report", "--out", tmp_path / "bare", status=0)
    assert done.err.startswith("vnetsim: The scenario has no RSU; took junction 'center', ")
    assert "--rsu JUNCTION or --rsu x,y" in done.err
    again = cli("mobility", tmp_path / "bare", "--no-report", "--out", tmp_path / "again")
    assert (again.status, again.err) == (0, ""), "the note is not repeated on a replay"
    assert "took junction" in str(RunDirectory(tmp_path / "again").manifest()["traffic"]["notes"])


def test_reports_are_rebuilt_to_the_same_bytes(cli, small_run, tmp_path):
    runs = [shutil.copytree(small_run("gaussian.toml")[0], tmp_path / name) for name in "ab"]

    def pages() -> list[bytes]:
        return [path.read_bytes() for run in runs for path in (run / "report.html", *sorted(run.glob("figures/*.svg")))]

    before = pages()
    for run in runs:
        (run / "report.html").unlink()
        next(run.glob("figures/*.svg")).unlink()
    done = cli("report", *runs, status=0)
    assert [line for line in done.out.splitlines() if line.startswith("report: ")] == [
        f"report: {run / 'report.html'}" for run in runs
    ]
    assert pages() == before


def test_learners_are_listed_and_explained(cli):
    listed = cli("learners")
    assert listed.status == 0
    assert {"flsimco", "fedavg", "discard"} <= set(LEARNERS.names())
    assert all(name in listed.out for name in LEARNERS.names())
    one = cli("learners", "discard")
    assert one.status == 0
    assert "limit_kmh" in one.out
    assert "learning.limit_kmh = 100\n" in one.out
    assert "FedAvg over the vehicles at or below a speed limit" in one.out


def test_scenarios_are_copied_and_run_from_where_they_are(cli, toy, monkeypatch, tmp_path):
    done = cli("init", tmp_path / "mine", status=0)
    names = {Path(line).name for line in done.out.splitlines()}
    assert names >= {"intersection.sumocfg", "urban.sumocfg", "expressway.sumocfg", "gaussian.toml"}
    monkeypatch.chdir(tmp_path / "mine")
    for scenario in ("expressway.sumocfg", "gaussian.toml"):
        assert cli("run", scenario, "--learner", toy.name, "--rounds", "2").status == 0
    # a folder of its own for every run, beside the others
    assert cli("run", "gaussian.toml", "--learner", toy.name, "--rounds", "2").status == 0
    assert {path.name for path in Path("runs").iterdir()} == {
        "expressway-toy-seed0",
        "gaussian-toy-seed0",
        "gaussian-toy-seed0-2",
    }
    # a run directory needs no working directory
    monkeypatch.chdir(tmp_path)
    assert cli("run", "mine/runs/expressway-toy-seed0", "--rounds", "1", "--out", "replay").status == 0
