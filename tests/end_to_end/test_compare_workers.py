"""Comparisons whose cells run in several processes: same bits, no orphans, and a process that dies harms one cell."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from small_runs import group_is_gone

from vnetsim.experiment import Experiment
from vnetsim.learning.device import CORES
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.study import workers
from vnetsim.study.cells import CellJob
from vnetsim.study.progress import StudyProgress

Cli = Callable[..., Any]
Refused = Callable[..., str]

WALKS = Path(__file__).with_name("walk_learners.py")
SHORT = ("--rounds", "4", "--device", "cpu", "--set", "gaussian.duration_s=120")
PAGE = ("comparison.parquet", "comparison.csv", "comparison.html")
TWO = ("--workers", "2")


def command(*options: str) -> tuple[str, ...]:
    """Four cells, in the folder ``all`` of the working directory."""
    learners = f"{WALKS}:Walk,{WALKS}:Shifted"
    return "compare", "gaussian", "--learners", learners, "--seeds", "0:2", *SHORT, *options, "--out", "all"


def start(where: Path, *options: str, trouble: str = "") -> subprocess.Popen[str]:
    """Start a real ``vnetsim`` with a process group of its own, as a shell does."""
    where.mkdir(exist_ok=True)
    (where / "trouble").write_text(trouble)
    return subprocess.Popen(
        [sys.executable, "-c", "from vnetsim.launch import main; main()", *command(*options)],
        cwd=where,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "WALK_TROUBLE": str(where / "trouble") if trouble else "",
        },
    )


WARNINGS = ("can resolve no difference", "The runs saw little", "The rounds were over", "All images stay sharp")
PROGRESS = " elapsed"  # of a machine that takes a minute


def run(where: Path, *options: str, trouble: str = "") -> tuple[int, list[str]]:
    """Return exit status and lines on standard error; what a page warns of is left out."""
    process = start(where, *options, trouble=trouble)
    lines = process.communicate()[1].splitlines()
    return process.returncode, [line for line in lines if not any(words in line for words in (*WARNINGS, PROGRESS))]


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the results of a comparison and of all its cells, by path."""
    cells = [path for path in (folder / "cells").rglob("*") if path.is_file()]
    told = {"manifest.json", "checksums.sha256", ".lock"}  # when and how a cell ran
    kept = [path for path in cells if path.name not in told] + [folder / name for name in PAGE]
    # the page names the command
    return {str(path.relative_to(folder)): path.read_bytes().replace(b" --workers 2", b"") for path in kept}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The results of one process that nothing disturbed."""
    where = tmp_path_factory.mktemp("whole")
    assert run(where) == (0, [])
    return files_of(where / "all")


@pytest.mark.slow
def test_two_workers_give_the_bits_of_one_process(whole: dict[str, bytes], tmp_path: Path) -> None:
    assert run(tmp_path / "a", *TWO) == (0, [])
    assert files_of(tmp_path / "a" / "all") == whole


@pytest.mark.slow
def test_bits_depend_neither_on_workers_nor_on_threads(small: tuple[str, ...], tmp_path: Path) -> None:
    """With real learners, whose sums differ in the last bits with the number of threads that torch takes."""
    learners = ("--learners", "flsimco,fedco", "--seeds", "0:1", *small, "--set", "learning.batch=32")
    results = []
    for threads, options in (("2", ()), ("1", TWO)):
        call = [sys.executable, "-m", "vnetsim", "compare", "gaussian", *learners, *options, "--out", "all"]
        (tmp_path / threads).mkdir()
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(call, cwd=tmp_path / threads, env=environment, check=True, capture_output=True)
        results.append(files_of(tmp_path / threads / "all"))
    assert results[0] == results[1]


@pytest.mark.slow
def test_a_worker_that_dies_fails_its_cell_alone(whole: dict[str, bytes], tmp_path: Path) -> None:
    status, lines = run(tmp_path / "a", *TWO, trouble="kill Walk 1")
    assert status == 1
    words = "its process was ended by SIGKILL (kill -9, or no memory was left). Its finished rounds are kept."
    assert f" of 4 (Walk, seed 1) failed: {words}" in lines[0]
    assert lines[-1] == "vnetsim: 1 of 4 cells failed; the same command runs them again."
    assert pl.read_parquet(tmp_path / "a" / "all" / "comparison.parquet").height == 3
    (cell,) = (tmp_path / "a" / "all" / "cells").glob("Walk-seed1-*")
    assert RunDirectory(cell).read("rounds").height == 2, "it died in its third round"
    assert run(tmp_path / "a", *TWO) == (0, [])
    assert files_of(tmp_path / "a" / "all") == whole


@pytest.mark.slow
def test_a_full_disk_stops_all_cells(whole: dict[str, bytes], tmp_path: Path) -> None:
    status, lines = run(tmp_path / "a", *TWO, trouble="full Walk 0")
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith("vnetsim: all: no space is left on the disk, so the comparison was stopped. ")
    assert "Go on with the same command: vnetsim compare" in lines[0]
    for cell in (tmp_path / "a" / "all" / "cells").glob("*-seed1-*"):
        assert RunDirectory(cell).manifest()["status"] != "finished"
    assert run(tmp_path / "a", *TWO) == (0, [])
    assert files_of(tmp_path / "a" / "all") == whole


@pytest.mark.slow
def test_a_signal_leaves_no_process(whole: dict[str, bytes], tmp_path: Path) -> None:
    process = start(tmp_path / "a", *TWO, trouble="hold")
    # each of two cells has begun; one of them may have several files by then
    while len({path.parts[-3] for path in (tmp_path / "a" / "all" / "cells").glob("*/rounds/*")}) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)  # as a batch system does; Ctrl-C and SIGHUP: below
    error = process.communicate()[1]
    assert process.returncode == 130
    assert error.startswith("vnetsim: interrupted after 0 of 4 cells. What is finished is kept. Go on with the same")
    assert error.count("\n") == 1
    assert group_is_gone(process.pid)
    cells = list((tmp_path / "a" / "all" / "cells").iterdir())
    assert {RunDirectory(cell).manifest()["status"] for cell in cells} == {"running"}, "as after kill -9"
    assert len(cells) == 2
    assert run(tmp_path / "a", *TWO) == (0, [])
    assert files_of(tmp_path / "a" / "all") == whole


@pytest.mark.slow
def test_kill_9_of_the_parent_leaves_no_process(refused: Refused, tmp_path: Path, monkeypatch: Any) -> None:
    process = start(tmp_path / "a", *TWO, trouble="hold")
    while not list((tmp_path / "a" / "all" / "cells").glob("*/rounds/*")):
        assert process.poll() is None
        time.sleep(0.02)
    monkeypatch.chdir(tmp_path / "a")
    assert refused(*command()) == "vnetsim: all: another vnetsim process is writing there.\n"
    process.kill()
    process.communicate()
    assert group_is_gone(process.pid)


@pytest.mark.slow
def test_interrupted_at_random_moments(whole: dict[str, bytes], tmp_path: Path) -> None:
    """Drawn from the first round that a process finishes on; one process and two workers in turn.

    A round takes half a second or more, so that 16 of them are never over before the last moment.
    """
    draws = random.Random(1)
    for moment in range(3):  # tests/crashes stops a comparison at every change
        before = rounds_of(tmp_path / "a")
        process = start(tmp_path / "a", *(TWO if moment % 2 else ()), trouble="pause")
        while rounds_of(tmp_path / "a") <= before:
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(draws.uniform(0, 0.8))
        if moment == 2:
            process.kill()
        else:
            os.killpg(process.pid, (signal.SIGINT, signal.SIGHUP)[moment])
        error = process.communicate()[1]
        assert group_is_gone(process.pid)
        assert process.returncode in (130, -signal.SIGINT, -signal.SIGHUP, -signal.SIGKILL)
        if process.returncode == 130:
            assert error.count("\n") == 1, error
    assert run(tmp_path / "a", *TWO) == (0, [])
    assert files_of(tmp_path / "a" / "all") == whole


def rounds_of(where: Path) -> set[Path]:
    """Return the files that the rounds of all cells have left."""
    return set((where / "all" / "cells").glob("*/rounds/*"))


def job(name: str = "a", device: str = "auto") -> CellJob:
    return CellJob(
        name=name,
        where=f"cell 1 of 2 ({name})",
        words=name,
        root=Path("/nowhere"),
        experiment=Experiment(scenario="traffic/x", device=device),
        command=(),
    )


def test_workers_take_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_gpus", lambda: ["2", "5"])
    assert workers._environments([], 0) == [], "all cells had finished"
    whole, share = str(torch.get_num_threads()), str(max(1, torch.get_num_threads() // 2))
    found = workers._environments([job(), job(device="cuda")], 3)
    assert [one["CUDA_VISIBLE_DEVICES"] for one in found] == ["2", "5", "2"]
    assert workers._environments([job(), job(device="cpu")], 2) == [{CORES: share}] * 2
    assert workers._environments([job(device="cuda:1")], 1) == [{CORES: whole}], "what the user chose holds"


class Shown:
    def __init__(self) -> None:
        self.text = ""
        self.done: tuple[float, float | None] = 0.0, None
        self.time_s = 0.0

    def stage(self, text: str) -> None:
        self.text = text

    def note(self, text: str) -> None:
        raise AssertionError(text)

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        self.time_s, self.done = time_s, (done, total)


def test_one_display_for_all_cells() -> None:
    shown = Shown()
    display = StudyProgress(shown, total=12, done=3)
    assert display.place == "after 3 of 12 cells"
    display.begin(job("walk, seed 0"))
    assert display.place == "in cell 1 of 2 (walk, seed 0)"
    display.begin(job("shifted, seed 0"))
    display.advance("walk, seed 0", time_s=20.0, done=5, total=20)
    display.stage("shifted, seed 0", "preparing the data")
    assert shown.text.splitlines() == [
        "3 of 12 cells",
        "  walk, seed 0: round 5 of 20",
        "  shifted, seed 0: preparing the data",
    ]
    assert (shown.done, shown.time_s) == ((3.25, 12), 20.0)
    display.end(job("walk, seed 0"))
    assert (shown.done, shown.time_s) == ((4.0, 12), 20.0)
    assert display.place == "in cell 1 of 2 (shifted, seed 0)"
    for number in range(20):
        display.begin(job(str(number)))
    assert shown.text.splitlines()[-1] == "  and 13 more"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "0"), "--workers 0: must be at least 1."),
        (("--address", "auto"), "--address auto: is that of a Ray cluster; add --engine ray."),
    ],
)
def test_wrong_options(options: tuple[str, ...], message: str, refused: Refused, tmp_path: Path) -> None:
    learners = ("--learners", f"{WALKS}:Walk,{WALKS}:Shifted")
    assert message in refused("compare", "gaussian", *learners, *options, "--out", tmp_path / "all")
    assert not (tmp_path / "all").exists()
