"""The check of a GPU, rehearsed on the CPU as on a bare machine; recorded rounds learned again from their schedule."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import gpu_check
import pytest
import torch
from device_checks import correctness, paper_run, recording, schedule
from device_checks.other_device import other_device
from device_checks.rows import CheckSetup, Row, Unfinished
from device_checks.tiny_rounds import tiny_learner
from safetensors.torch import load_file
from small_runs import SCENARIOS, Cli

from vnetsim.errors import InputError

CHECK = Path(__file__).parents[1] / "gpu_check.py"
STUDIES = {"cdl": "cdl-table.toml", "fedefm": "fedefm-ablation.toml"}
SHIPPED = CHECK.parent / "device_checks" / "expressway_schedule.json"
LACKING = {"arro3", "cattrs", "cyclopts", "hypothesis", "matplotlib", "ot", "polars", "pytest"} | {
    *("ray", "rich", "simpy", "sklearn", "sumo", "sumolib", "tomli_w", "traci")
}
"""What a machine with torch, torchvision, scipy, numpy and safetensors alone does not have; torch brings jinja2. Nor is
vnetsim installed there."""
BARE = """
import sys
from importlib.machinery import PathFinder

class Bare:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {names} else self.finder.find_spec(name, path, target)

    def find_distributions(self, *context):
        found = PathFinder.find_distributions(*context) if self.finder is PathFinder else ()
        return (one for one in found if one.name != "vnetsim")

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Bare(finder) for finder in sys.meta_path]
"""


BY_THEMSELVES = "mathematics,engines,rounds,paper_run,host_waits,transport,large_bfloat16,small_rounds,same_bits"
"""Parts that are tried on a bare machine; the others in this process."""


@pytest.mark.slow
def test_parts_run_on_a_bare_machine(tmp_path: Path) -> None:
    """Resumable as well: a second command finds nothing left, and repeats what it is told to."""
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sitecustomize.py").write_text(BARE.format(names=LACKING))
    environment = {"PYTHONPATH": str(tmp_path / "bare"), "OMP_NUM_THREADS": "1", "PATH": ""}

    def check(*more: str) -> str:
        tiny = ("--device", "cpu", "--tiny", "--seconds", "9999", "--only", BY_THEMSELVES)
        command = [sys.executable, str(CHECK), *tiny, "--out", str(tmp_path / "out"), *more]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        assert "left: nothing; failed: none" in done.stdout, done.stderr
        return done.stdout

    first = check()
    kept = json.loads((tmp_path / "out" / "gpu_check.json").read_text())["parts"]
    assert {name: part["status"] for name, part in kept.items()} == dict.fromkeys(BY_THEMSELVES.split(","), "finished")
    page = (tmp_path / "out" / "gpu_check.md").read_text()
    assert "A rehearsal" in page
    assert "no verdict: POT cannot be imported here" in page
    assert check().splitlines() == first.splitlines()[-1:], "nothing is done twice"
    again = check("--again", "paper_run")
    assert [line.partition(":")[0] for line in again.splitlines() if line[0] != " "][:-1] == ["paper_run"]
    assert "3 of 3 rounds" in again


PARTS = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
import gpu_check
from device_checks.rows import Part, Row, Unfinished

def times(setup):
    return setup.file.read_text().count("x") if setup.file.exists() else 0

def begun(setup):
    with setup.file.open("a") as file:
        file.write("x")
    return [Row(work=str(times(setup)), reference="", seen="begun")]

def held_at_first(setup):
    rows = begun(setup)
    time.sleep(1500 if times(setup) == 1 else 0)
    return rows

def rounds(setup):
    while times(setup) < 6:
        setup.keep(begun(setup))
        if times(setup) == 2:
            raise Unfinished
        time.sleep(1500 if times(setup) == 4 else 0)
    return [Row(work="rounds", reference="", seen="6")]

def crashed(setup):
    begun(setup)
    os.kill(os.getpid(), signal.SIGSEGV)

def wrong(setup):
    return 1 / 0

def shot_at_first(setup):
    rows = begun(setup)
    if times(setup) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return rows

def parts():
    return [Part(name=name, run=globals().get(name, begun), limit_s=limit_s) for name, limit_s in {parts!r}.items()]

gpu_check.parts, gpu_check.machine = parts, lambda device: {{}}
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(gpu_check.main(sys.argv[1:]))
"""


class Check:
    """The check with parts of a test in place of its own, each with a file of how often it was begun.

    Args:
        folder: for the check.
        parts: the most that each may take (s), by the name of its function in ``PARTS``; of others that is ``begun``.
    """

    def __init__(self, folder: Path, **parts: float) -> None:
        self.out = folder / "out"
        self._script = folder / "check.py"
        self._script.write_text(PARTS.format(tests=str(CHECK.parent), parts=parts))

    def start(self, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(self._script), "--device", "cpu", "--out", str(self.out), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *more: str) -> tuple[int, str]:
        """Return the exit status, and what the summary says to be left and failed."""
        process = self.start("--seconds", "900", *more)
        printed, _ = process.communicate()
        return process.returncode, printed.partition("gpu_check.md: ")[2].splitlines()[0]

    def ended(self, by: int, part: str, times: int) -> tuple[int, str]:
        """End a check from outside when a part was begun so often; return its status and what it printed."""
        process = self.start("--seconds", "900")
        while self.begun(part) < times:
            time.sleep(0.02)
        process.send_signal(by)
        printed, _ = process.communicate()  # whose output is open as long as the process of the part lives
        return process.returncode, printed

    def kept(self) -> dict[str, tuple[str, str]]:
        parts = json.loads((self.out / "gpu_check.json").read_text())["parts"]
        return {name: (part["status"], part["why"]) for name, part in parts.items()}

    def begun(self, part: str) -> int:
        path = self.out / f"{part}.pt"
        return path.read_text().count("x") if path.exists() else 0


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_part_is_left_and_begun_again(by: int, tmp_path: Path) -> None:
    check = Check(tmp_path, a=300, held_at_first=300)
    status, printed = check.ended(by, "held_at_first", 1)
    assert status == (-by if by == signal.SIGKILL else 130)
    assert "Traceback" not in printed
    assert check.kept() == {"a": ("finished", "")}
    for _ in range(2):  # the second time nothing is left to do
        assert check.run() == (0, "left: nothing; failed: none")
        assert (check.begun("a"), check.begun("held_at_first")) == (1, 2)


def test_a_part_begins_where_its_limit_is_left(tmp_path: Path) -> None:
    check = Check(tmp_path, long=5000, short=500)
    assert check.run() == (0, "left: long; failed: none")
    assert (check.begun("long"), check.begun("short")) == (0, 1)
    assert check.run("--seconds", "6000") == (0, "left: nothing; failed: none")


def test_a_part_that_fails_leaves_the_others_to_run(tmp_path: Path) -> None:
    """It has failed until it is to be repeated: an error or a crash ended it; one that was killed is only left."""
    check = Check(tmp_path, crashed=300, wrong=300, shot_at_first=300)
    failed = {
        "crashed": ("failed", "its process ended with status -11"),
        "wrong": ("failed", "ZeroDivisionError: division by zero"),
    }
    assert check.run() == (1, "left: shot_at_first; failed: crashed, wrong")
    assert check.kept() == failed
    assert check.run() == (1, "left: nothing; failed: crashed, wrong")
    assert check.kept() == failed | {"shot_at_first": ("finished", "")}
    assert (check.begun("crashed"), check.begun("shot_at_first")) == (1, 2)


def test_a_part_that_overruns_its_limit_has_failed_and_one_of_the_commands_is_left() -> None:
    assert gpu_check.fault(-signal.SIGKILL, 30.0, late=True) == "took longer than its limit of 30 s"
    for status, late in ((-signal.SIGKILL, True), (-signal.SIGTERM, False), (0, False), (gpu_check.FAILED, False)):
        assert gpu_check.fault(status, None, late=late) == ""


def test_a_part_of_several_commands_goes_on_after_its_last_round(tmp_path: Path) -> None:
    check = Check(tmp_path, rounds=300, after=300)
    assert check.run() == (0, "left: rounds; failed: none")
    assert (check.begun("rounds"), check.begun("after")) == (2, 1)
    assert check.kept()["rounds"] == ("unfinished", "the next command goes on")
    check.ended(signal.SIGKILL, "rounds", 4)
    assert check.run() == (0, "left: nothing; failed: none")
    assert check.begun("rounds") == 6
    check.run("--again", "rounds")
    assert check.begun("rounds") == 2, "repeated from the first"


def test_a_run_of_a_papers_size_stops_after_a_round_when_its_time_is_up(tmp_path: Path) -> None:
    rows: list[Row] = []
    setup = CheckSetup(device="cpu", tiny=True, ends_s=0, file=tmp_path / "run.pt", keep=rows.extend)
    for _ in range(2):
        with pytest.raises(Unfinished):
            paper_run.paper_run(setup, "fedefm_schedule.json")
    (last,) = paper_run.paper_run(setup, "fedefm_schedule.json")
    assert [one.seen.partition(" rounds")[0].rpartition("; ")[2] for one in rows] == ["1 of 3", "2 of 3", "3 of 3"]
    (whole,) = paper_run.paper_run(dataclasses.replace(setup, ends_s=math.inf, file=tmp_path / "whole.pt"),
                                   "fedefm_schedule.json")  # fmt: skip
    assert whole.values["curve"] == last.values["curve"]


def test_a_device_that_is_not_there_is_said(tmp_path: Path) -> None:
    command = [sys.executable, str(CHECK), "--device", "cuda:99", "--out", str(tmp_path / "out")]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=hidden, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0] == "--device cuda:99: no CUDA device is available here."


def test_rounds_that_learn_otherwise_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step size of a tenth more on the device, in whose place the CPU stands."""

    def made(name: str, device: str, **settings: Any) -> Any:
        return tiny_learner(name, device, **settings, **({"lr": 0.066} if settings["engine"] == "batched" else {}))

    monkeypatch.setattr(correctness, "tiny_learner", made)
    monkeypatch.setattr(correctness, "learners_of", lambda _: ["fedavg", "flsimco"])
    rows = correctness.rounds(CheckSetup(device="cpu", tiny=True, ends_s=0, file=tmp_path))
    assert {row.work.rpartition(", ")[2]: row.met for row in rows} == {"sequential": True, "batched": False}


ELSEWHERE = {"engines", "rounds", "small_rounds", "same_bits", "host_waits"}
"""Parts whose learners, engines and rounds other tests hold to their device."""


def test_the_parts_keep_to_their_device(tmp_path: Path) -> None:
    """On tensors that count as lying on another device; it has no bfloat16."""
    ran = [part for part in gpu_check.parts() if part.name not in ELSEWHERE and "bfloat16" not in part.name]
    assert len(ran) == 9
    for part in ran:
        with other_device() as device:
            setup = CheckSetup(device=device, tiny=True, ends_s=math.inf, file=tmp_path / part.name)
            rows = part.run(setup)
        assert rows
        assert not part.decides or all(row.met for row in rows)


EXCHANGES = ("exchange.range_m=2000", "round.quorum=4", "round.invited=8", "silos.count=10", "rounds=3")
OPTIONS = {
    "flsimco": (
        *("rounds=3", "learning.batch=8", "learning.steps=1", "learning.bank=100"),
        *("learning.linear_probe=never", "data.train_images=400", "data.test_images=100", "silos.count=10"),
        "round.max_staleness=2",
    ),
    "cdl": (*EXCHANGES, "data.train_images=330", "learning.test_frames=50", "learning.steps=1", "learning.batch=8"),
    "fedefm": (
        *(*EXCHANGES, "data.train_images=400", "data.test_images=100", "learning.steps=1", "learning.batch=8"),
        "learning.local_test=50",
    ),
}


@pytest.mark.parametrize("learner", OPTIONS)
def test_a_replayed_schedule_gives_the_model_of_its_run(learner: str, tmp_path: Path, cli: Cli) -> None:
    settings = (f"learner={learner}", *OPTIONS[learner])
    given = tuple(part for one in settings for part in ("--set", one))
    assert cli("run", "gaussian", "--device", "cpu", *given, "--out", tmp_path / "run").status == 0
    recording.export(str(tmp_path / "run"), str(tmp_path / "schedule.json"))
    recorded = schedule.read(tmp_path / "schedule.json")
    joined = [schedule.participants(recorded, round_) for round_ in range(3)]
    assert sum(map(len, joined)) > 3
    assert any(one.peers for round_ in joined for one in round_) == (learner != "flsimco")
    recording.export("gaussian", str(tmp_path / "before"), *settings)
    untrained = schedule.read(tmp_path / "before")
    assert untrained["participants"] == recorded["participants"], "nothing has to be trained for a schedule"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the run had
    try:
        made = schedule.create(recorded, "cpu")
        figures = dict(schedule.replay(recorded, made))
    finally:
        torch.set_num_threads(threads)
    assert len(figures) == 3
    expected = load_file(tmp_path / "run" / "model.safetensors")
    state = {name: tensor for name, tensor in made.state_dict().items() if name.startswith("model.")}
    assert {f"model.{name}" for name in expected} == state.keys()
    assert all(torch.equal(state[f"model.{name}"], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (("selection.name=oort",), "chooses vehicles by their training losses"),
        (("aggregation.name=fedbuff", "learner=fedavg-classification"), "holds synchronous rounds"),
    ],
)
def test_what_a_schedule_cannot_hold_is_refused(settings: tuple[str, ...], why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=why):
        recording.export("gaussian", str(tmp_path / "schedule.json"), *settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("learner", "silos"), [("cdl", 11), ("fedefm", 20)])
def test_the_shipped_schedules_have_the_sizes_of_their_studies(learner: str, silos: int) -> None:
    shipped = schedule.read(SHIPPED.with_name(f"{learner}_schedule.json"))
    main = schedule.read(SHIPPED)
    assert (main["learner"], main["silos"], len(main["participants"]), main["rounds"]) == ("flsimco", 95, 100, 100)
    assert (shipped["learner"], shipped["silos"], shipped["blur"]["fraction"]) == (learner, silos, 0)
    assert len(shipped["participants"]) == shipped["rounds"] == 30
    study = tomllib.loads((SCENARIOS / "studies" / STUDIES[learner]).read_text())["sizes"]["paper"]["settings"]
    assert {key: shipped["learning"][key] for key in study["learning"] if key != "test_frames"} == {
        key: value for key, value in study["learning"].items() if key != "test_frames"
    }
    joined = [one for round_ in range(30) for one in schedule.participants(shipped, round_)]
    assert all(peer.silo < silos for one in joined for peer in one.peers)
    assert any(one.peers for one in joined)


def test_a_schedule_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schedule.json").write_text('{"format": 0}')
    with pytest.raises(ValueError, match="no schedule of this version"):
        schedule.read(tmp_path / "schedule.json")
