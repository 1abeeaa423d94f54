"""A run that was interrupted, killed or failed goes on to the bits it would have had."""

import errno
import fcntl
import os
import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from small_runs import held, interrupted_at

from learners.flsimco import FLSimCo
from vnetsim.runs.writer import choose_folder
from vnetsim.storage import disk
from vnetsim.storage.run_directory import RunDirectory

WALK = Path(__file__).with_name("walk_learners.py")


@pytest.mark.parametrize(
    ("name", "call", "finished"),
    [
        pytest.param("evaluate", 0, 0, marks=pytest.mark.all_only),
        ("aggregate", 1, 1),
        pytest.param("sample_images", 0, 3, marks=pytest.mark.all_only),
    ],
)
def test_ctrl_c_names_the_command_that_goes_on_to_the_same_bits(
    name, call, finished, cli, small, small_run, results_of, scenarios, tmp_path, monkeypatch
):
    whole = small_run("gaussian.toml")[0]
    monkeypatch.setenv("VNETSIM_CORES", "2")  # those bits do not depend on it
    folder = tmp_path / "a run"  # a blank needs quotes
    with interrupted_at(FLSimCo, name, call):
        stopped = cli("run", scenarios / "gaussian.toml", *small, "--out", folder)
    assert stopped.status == 130
    resume = f"vnetsim resume {shlex.quote(str(folder))}"
    assert stopped.err == f"vnetsim: interrupted after {finished} of 3 rounds. Go on with: {resume}\n"
    assert RunDirectory(folder).manifest()["status"] == "interrupted"
    rounds = RunDirectory(folder).read("rounds").height if finished else 0
    assert rounds == finished
    assert cli("report", folder).status == 0
    assert "interrupted" in (folder / "report.html").read_text()

    done = cli(*shlex.split(stopped.err.partition("vnetsim resume")[2].join(("resume ", ""))), status=0)
    assert done.out.splitlines()[-1] == f"report: {folder / 'report.html'}"
    assert results_of(folder) == results_of(whole)
    manifest = RunDirectory(folder).manifest()
    assert (manifest["status"], manifest["ended_by"]) == ("finished", "rounds")


def test_ctrl_c_with_sumo_running(cli, small, small_run, results_of, scenarios, tmp_path):
    folder = tmp_path / "run"
    with interrupted_at(FLSimCo, "train", 2):
        assert cli("run", scenarios / "intersection.sumocfg", *small, "--out", folder).status == 130
    done = cli("resume", folder)
    assert (done.status, done.err) == (0, ""), "one's own scenario is trusted"
    found = results_of(folder)
    assert {"model.safetensors", "samples.npz", "experiment.toml", "checkpoint/progress.json"} < found.keys()
    assert found == results_of(small_run("intersection.sumocfg")[0])


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["manifest.json", "checkpoint/progress.json", "checkpoint/state-000002*"])
def test_kill_9(moment, cli, refused, results_of, tmp_path):
    """When a file is there; the run then stands still in its third round, however late this is seen."""
    command = ("run", "gaussian", "--learner", f"{WALK}:Walk", "--rounds", "4", "--set", "traffic.end_s=120")
    assert cli(*command, "--out", tmp_path / "whole").status == 0
    folder = tmp_path / "run"
    with held(*command, "--out", folder) as process:
        while not list(folder.glob(moment)):
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGSTOP)
        assert refused("resume", folder, "--trust") == f"vnetsim: {folder}: another vnetsim process is writing there.\n"
    assert process.returncode == -signal.SIGKILL
    assert RunDirectory(folder).manifest()["status"] == "running"
    assert cli("resume", folder, "--trust").status == 0
    assert results_of(folder) == results_of(tmp_path / "whole")


@pytest.fixture
def stopped(toy, cli, tmp_path) -> Path:
    """A recording's run, interrupted in its third round."""
    trace = tmp_path / "trace.csv"
    rows = [f"{t}.0;v{v};{-90 + 10 * t - 40 * v};{v};10;road_0" for t in range(60) for v in range(12)]
    trace.write_text(
        "\n".join(("timestep_time;vehicle_id;vehicle_x;vehicle_y;vehicle_speed;vehicle_lane", *rows)) + "\n"
    )
    folder = tmp_path / "run"
    options = ("--learner", "toy", "--rsu", "0,0:100", "--set", "round.quorum=1", "--rounds", "3")
    with interrupted_at(toy, "train", 2):
        assert cli("run", trace, *options, "--out", folder).status == 130
    return folder


def test_a_recordings_run_goes_on(stopped, cli):
    done = cli("resume", stopped)
    assert (done.status, done.err) == (0, "")
    again = cli("resume", stopped)
    assert again.status == 0
    assert again.err == f"vnetsim: {stopped}: the run had already finished; nothing to do.\n"
    assert again.out == done.out


def _delete_checkpoint(run: Path) -> None:
    shutil.rmtree(run / "checkpoint")


def _cut_state(run: Path) -> None:
    path = next((run / "checkpoint").glob("state-*"))
    path.write_bytes(path.read_bytes()[:-1])


def _foreign_state(run: Path) -> None:
    progress = (run / "checkpoint" / "progress.json").read_bytes()
    RunDirectory(run).put({"checkpoint/progress.json": progress.replace(b"state-", b"stage-")})


def _lose_checksums(run: Path) -> None:
    (run / "checksums.sha256").unlink()


def _change_input(run: Path) -> None:
    with (run.parent / "trace.csv").open("a") as file:
        file.write("\n")


def _other_version(run: Path) -> None:
    RunDirectory(run).write_json("manifest.json", RunDirectory(run).manifest() | {"vnetsim": "0.0.1"})


def _other_traffic(run: Path) -> None:
    text = (run / "experiment.toml").read_text()
    RunDirectory(run).put({"experiment.toml": text.replace("quorum = 1\n", "quorum = 2\n").encode()})


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (_delete_checkpoint, "run/checkpoint/progress.json: gone since it was written; put it back."),
        (_cut_state, "state-000002.safetensors: altered or damaged since it was written, by its SHA-256; put it back."),
        (_foreign_state, "stage-000002.safetensors: missing."),
        (_lose_checksums, "checksums.sha256: missing, so that nothing here can be checked; put it back."),
        (_change_input, "trace.csv: changed or gone since the run started"),
        (_other_version, "made by vnetsim 0.0.1; resume it with that version"),
        (_other_traffic, "round 0: the simulated traffic differs from the recorded one"),
    ],
)
def test_what_cannot_be_resumed_is_left_as_it_was(harm, message, stopped, refused, results_of):
    harm(stopped)
    before = results_of(stopped)
    assert message in refused("resume", stopped)
    assert results_of(stopped) == before


def test_one_process_at_a_time(stopped, refused, results_of):
    before = results_of(stopped)
    with (stopped / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another vnetsim process is writing there" in refused("resume", stopped)
    assert results_of(stopped) == before


@pytest.mark.usefixtures("toy")
def test_a_directory_filled_since_it_was_chosen_is_left_alone(refused, monkeypatch, tmp_path):
    """Two processes may choose the same free name; the second to get there must not take over the first one's run."""
    monkeypatch.chdir(tmp_path)

    def then_filled(*arguments: Any) -> Path:
        chosen = choose_folder(*arguments)
        chosen.mkdir(parents=True)
        (chosen / "manifest.json").write_text("of another process")
        return chosen

    monkeypatch.setattr("vnetsim.api.calls.choose_folder", then_filled)
    assert ": the output directory is not empty" in refused("run", "gaussian", "--learner", "toy")
    (folder,) = (tmp_path / "runs").iterdir()
    assert [path.name for path in folder.iterdir()] == ["manifest.json"]
    assert (folder / "manifest.json").read_text() == "of another process"


@pytest.mark.parametrize("command", ["mobility", "run", "compare"])
def test_a_folder_in_which_only_a_lock_stands_is_taken(command, cli, refused, tmp_path):
    """A kill at the very start leaves it; there is nothing yet to go on with."""
    (tmp_path / ".lock").touch()
    for asked in ("resume", "report"):
        line = refused(asked, tmp_path)
        assert "not a run directory, it has no manifest.json. A run stopped there before it began" in line
        assert "call `vnetsim run` with this --out" in line
    once = ("--set", "traffic.end_s=15", "--set", "round.quorum=1", "--set", "round.deadline_s=8")
    learns = ("--rounds", "1", "--device", "cpu")
    more = {
        "mobility": ("--no-report",),
        "run": ("--learner", f"{WALK}:Walk", *learns),
        "compare": ("--learners", f"{WALK}:Walk,{WALK}:Shifted", "--seeds", "0", *learns),
    }
    cli(command, "gaussian", *once, *more[command], "--out", tmp_path, status=0)


def test_what_a_kill_left_of_a_finished_run_goes_when_it_is_resumed(cli, tmp_path):
    folder = tmp_path / "run"
    assert cli("mobility", "gaussian", "--set", "traffic.end_s=15", "--no-report", "--out", folder).status == 0
    (folder / ".checksums.sha256.0123abcd.tmp").write_text("half")
    (folder / ".mine.tmp").write_text("mine")
    before = {path.name for path in folder.iterdir()}
    done = cli("resume", folder)
    assert "had already finished" in done.err
    assert before - {path.name for path in folder.iterdir()} == {".checksums.sha256.0123abcd.tmp"}


def test_a_finished_run_in_a_folder_that_may_not_be_written_has_nothing_to_do(cli, monkeypatch, tmp_path):
    folder = tmp_path / "run"
    assert cli("mobility", "gaussian", "--set", "traffic.end_s=15", "--out", folder).status == 0

    def fails(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for change in ("write", "replace", "unlink", "make_folder", "remove_folder"):
        monkeypatch.setattr(disk, change, fails)
    done = cli("resume", folder)
    assert (done.status, done.err) == (0, f"vnetsim: {folder}: the run had already finished; nothing to do.\n")
    assert "Vehicles in coverage" in done.out


@pytest.mark.all_only
def test_a_run_of_a_length_of_time_goes_on_to_the_same_bits(toy, cli, results_of, tmp_path):
    options = ("--learner", "toy", "--time", "15", "--set", "round.quorum=1", "--set", "compute.spread=0")
    assert cli("run", "gaussian", *options, "--out", tmp_path / "whole").status == 0
    with interrupted_at(toy, "train", 3):
        stopped = cli("run", "gaussian", *options, "--out", tmp_path / "run")
    assert (stopped.status, "interrupted after 3 rounds. Go on" in stopped.err) == (130, True)
    assert cli("resume", tmp_path / "run").status == 0
    assert results_of(tmp_path / "run") == results_of(tmp_path / "whole")
    run = RunDirectory(tmp_path / "run")
    assert (run.manifest()["ended_by"], run.manifest()["time_s"]) == ("time", 15.0)
    assert run.read("rounds").height > 3
    assert max(run.read("rounds")["close_s"].max(), run.read("participations")["end_s"].max()) <= 15.0  # type: ignore[type-var,operator]
