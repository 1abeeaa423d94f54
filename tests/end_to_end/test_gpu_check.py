"""The check of a GPU, rehearsed on the CPU as on a bare machine."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpu_check
import pytest
import torch
from device_checks import correctness, registered
from device_checks.other_device import other_device
from device_checks.rows import CheckSetup
from device_checks.tiny_rounds import AlteredEngine, Disturbed, tiny_learner
from torch.utils._python_dispatch import TorchDispatchMode

from learners.engines.programs import SequentialEngine

CHECK = Path(__file__).parents[1] / "gpu_check.py"
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


BY_THEMSELVES = (
    "mathematics,engines_flsimco,engines_fedavg-steering,rounds_fedavg-steering,paper_fedefm,host_waits,transport,"
    "large_bfloat16,small_rounds,same_bits_flsimco"
)
"""Parts that are tried on a bare machine; the others in this process."""


@pytest.mark.slow
def test_parts_run_on_a_bare_machine(tmp_path):
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
        assert "WRONG" not in done.stdout
        return done.stdout

    first = check()
    kept = json.loads((tmp_path / "out" / "gpu_check.json").read_text())["parts"]
    assert {name: part["status"] for name, part in kept.items()} == dict.fromkeys(BY_THEMSELVES.split(","), "finished")
    page = (tmp_path / "out" / "gpu_check.md").read_text()
    assert "A rehearsal" in page
    assert "no verdict: POT cannot be imported here" in page
    assert check().splitlines() == first.splitlines()[-1:], "nothing is done twice"
    again = check("--again", "paper_fedefm")
    assert [line.partition(":")[0] for line in again.splitlines() if line[0] != " "][:-1] == ["paper_fedefm"]
    assert "correctness: right, 5 of 5 parts done" in first


PARTS = """
import os, signal, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import gpu_check
from device_checks.rows import Part, Row

def fine(setup):
    return [Row(work="fine", reference="", seen="fine")]

def held_at_first(setup):
    begun = Path({begun!r})
    if not begun.exists():
        begun.touch()
        time.sleep(1500)
    return fine(setup)

def crashed(setup):
    os.kill(os.getpid(), signal.SIGSEGV)

def wrong(setup):
    return 1 / 0

def endless(setup):
    subprocess.run(["sleep", "1500"])

def parts():
    return [
        Part(name=name, run=globals()[name], limit_s=limit_s, group={group!r}) for name, limit_s in {parts!r}.items()
    ]

gpu_check.parts, gpu_check.machine = parts, lambda device: {{}}
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(gpu_check.main(sys.argv[1:]))
"""


class Check:
    """The check with parts of a test in place of its own.

    Args:
        folder: for the check.
        group: of all parts.
        parts: the most that each may take (s), by the name of its function in ``PARTS``.
    """

    def __init__(self, folder: Path, group: str = "", **parts: float) -> None:
        self.out, self.begun, self._script = folder / "out", folder / "begun", folder / "check.py"
        self._script.write_text(PARTS.format(tests=str(CHECK.parent), parts=parts, group=group, begun=str(self.begun)))

    def start(self, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(self._script), "--device", "cpu", "--out", str(self.out), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *more: str) -> tuple[int, str]:
        """Return the exit status, and what the summary says to be left and failed."""
        process = self.start("--seconds", "900", *more)
        printed, _ = process.communicate()  # ends when no process of a part is left
        return process.returncode, printed.partition("gpu_check.md: ")[2].splitlines()[0]

    def kept(self) -> dict[str, tuple[str, str]]:
        parts = json.loads((self.out / "gpu_check.json").read_text())["parts"]
        return {name: (part["status"], part["why"]) for name, part in parts.items() if part["status"] != "running"}


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("group", ["", "together"])
def test_an_interrupted_part_is_left_and_begun_again(by, group, tmp_path):
    check = Check(tmp_path, group, fine=300, held_at_first=300)
    process = check.start("--seconds", "900")
    while not check.begun.exists():
        time.sleep(0.02)
    process.send_signal(by)
    printed, _ = process.communicate()  # whose output is open as long as the process of the part lives
    assert process.returncode == (-by if by == signal.SIGKILL else 130)
    assert "Traceback" not in printed
    assert check.kept() == {"fine": ("finished", "")}
    for _ in range(2):  # the second time nothing is left to do
        assert check.run() == (0, "left: nothing; failed: none")


@pytest.mark.parametrize("group", ["", "together"])
def test_what_fails_leaves_the_others_to_run(group, tmp_path):
    """An error, a crash or its limit; a part is begun where its limit is left, and what has failed is not repeated."""
    check = Check(tmp_path, group, crashed=300, endless=1, fine=5000, wrong=300)
    assert check.run() == (1, "left: fine; failed: crashed, endless, wrong")
    failed = {
        "crashed": ("failed", "its process ended with status -11"),
        "endless": ("failed", "took longer than its limit of 1 s"),
        "wrong": ("failed", "ZeroDivisionError: division by zero"),
    }
    assert check.kept() == failed
    assert check.run("--seconds", "6000") == (1, "left: nothing; failed: crashed, endless, wrong")
    assert check.kept() == failed | {"fine": ("finished", "")}


def test_tests_for_a_gpu_are_collected_without_sumo():
    bare = "import sys; sys.modules |= dict.fromkeys(('sumo', 'sumolib', 'traci', 'libsumo')); import pytest; "
    command = [sys.executable, "-c", f"{bare}sys.exit(pytest.main())", "--collect-only", "-q", "-m", "cuda"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(CHECK.parent)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "error" not in done.stdout
    assert "::" in done.stdout


def test_a_device_that_is_not_there_is_said(tmp_path):
    command = [sys.executable, str(CHECK), "--device", "cuda:99", "--out", str(tmp_path / "out")]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=hidden, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0] == "--device cuda:99: no CUDA device is available here."


@pytest.fixture
def eager(monkeypatch) -> Iterator[None]:
    """Train one vehicle after the other, in this thread, with one thread as the check does."""
    monkeypatch.setattr("learners.tasks.task.create_engine", lambda *_, **__: SequentialEngine())
    monkeypatch.setattr(correctness, "create_engine", lambda *_: SequentialEngine())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


HERE = CheckSetup(device="cpu", tiny=True, ends_s=0)


def test_rounds_that_learn_otherwise_are_told(monkeypatch, eager):  # noqa: ARG001
    """A step size of a tenth more on the device, in whose place the CPU stands; initial weights off in one place."""
    learners: list[Any] = []

    def made(name: str, device: str, **settings: Any) -> Any:
        last = {"lr": rate} if len(learners) == 1 + correctness.SAMPLES else {}
        learners.append(tiny_learner(name, device, **last, **settings))
        return learners[-1]

    monkeypatch.setattr(correctness, "tiny_learner", made)
    for rate, met in ((0.06, True), (0.066, False)):  # noqa: B007 - `made` reads it
        learners.clear()
        (row,) = correctness.rounds(HERE, "flsimco")
        assert row.met is met, row


def test_an_engine_that_rounds_otherwise_is_told(monkeypatch, eager):  # noqa: ARG001
    (row,) = correctness.engines(HERE, "fedavg")
    assert (row.met, row.seen) == (True, "the same bits")
    monkeypatch.setattr(correctness, "create_engine", lambda *_: AlteredEngine(Disturbed(0)))
    (row,) = correctness.engines(HERE, "fedavg")
    assert row.met is False


LAUNCH_S = 40e-6
"""The launch of a kernel on the slowest GPU seen."""


class Launches(TorchDispatchMode):
    """Counts operations."""

    count = 0

    def __torch_dispatch__(self, operation: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        self.count += 1
        return operation(*arguments, **(options or {}))


@pytest.mark.slow
def test_the_parts_of_correctness_end_within_a_minute(eager):  # noqa: ARG001
    """All operations of all learners, those of the CPU's runs too, as if each took a launch on the device."""
    for part in (correctness.engines, correctness.rounds, correctness.same_bits):
        with Launches() as launched:
            for name in registered():
                part(HERE, name)
        seconds = launched.count * LAUNCH_S
        print(f"{part.__name__}: {launched.count} operations, {seconds:.0f} s")
        assert seconds < 60


ELSEWHERE = {"small_rounds", "host_waits"}
"""Parts whose learners, engines and rounds other tests hold to their device."""


def test_the_parts_keep_to_their_device():
    """On tensors that count as lying on another device; it has no bfloat16."""
    ran = [
        part
        for part in gpu_check.parts()
        if part.name not in ELSEWHERE and not part.group and "bfloat16" not in part.name
    ]
    assert len(ran) == 8
    for part in ran:
        with other_device() as device:
            setup = CheckSetup(device=device, tiny=True, ends_s=math.inf)
            rows = part.run(setup)
        assert rows
        assert not part.decides or all(row.met for row in rows)
