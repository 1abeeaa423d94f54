"""Comparisons whose cells run in several processes, of this machine or of a Ray cluster on it.

Same bits, no orphans, and a process that dies harms one cell at most.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from small_runs import group_is_gone

import vnetsim
from vnetsim.experiment import Experiment
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.study.cells import CellJob
from vnetsim.study.workers_ray import _run_cell

WALKS = Path(__file__).with_name("walk_learners.py")
SHORT = ("--rounds", "4", "--device", "cpu", "--set", "traffic.end_s=120", "--set", "radio.state=probability")
PAGE = ("comparison.parquet", "comparison.csv")
TWO = ("--workers", "2")
RAY = ("--engine", "ray", "--workers", "2")

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'vnetsim[ray]')"
)

PROGRAM = "from vnetsim.__main__ import main; main()"


def command(*options: str) -> tuple[str, ...]:
    """Four cells, in the folder ``all`` of the working directory."""
    learners = f"{WALKS}:Walk,{WALKS}:Shifted"
    return "compare", "gaussian", "--learners", learners, "--seeds", "0:2", *SHORT, *options, "--out", "all"


def start(where: Path, *options: str, trouble: str = "") -> subprocess.Popen[str]:
    """Start a real ``vnetsim`` with a process group of its own, as a shell does."""
    where.mkdir(exist_ok=True)
    (where / "trouble").write_text(trouble)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *command(*options)],
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


def begun(process: subprocess.Popen[str], where: Path, cells: int) -> None:
    """Wait until so many cells have finished a round."""
    while len({path.parts[-3] for path in (where / "all" / "cells").glob("*/rounds/*")}) < cells:
        assert process.poll() is None
        time.sleep(0.02)


WARNINGS = ("can resolve no difference", "The runs saw little", "The rounds were over", "All images stay sharp")
PROGRESS = " elapsed"  # of a machine that takes a minute


def run(where: Path, *options: str, **more: str) -> tuple[int, list[str]]:
    """Return exit status and lines on standard error; what a page warns of, and progress, is left out."""
    process = start(where, *options, **more)
    lines = process.communicate()[1].splitlines()
    return process.returncode, [line for line in lines if not any(words in line for words in (*WARNINGS, PROGRESS))]


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the results of a comparison and of all its cells, by path."""
    cells = [path for path in (folder / "cells").rglob("*") if path.is_file()]
    told = {"manifest.json", "checksums.sha256", ".lock"}  # when and how a cell ran
    kept = [path for path in cells if path.name not in told] + [folder / name for name in PAGE]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    """The results of one process that nothing disturbed."""
    where = tmp_path_factory.mktemp("whole")
    assert run(where) == (0, [])
    return files_of(where / "all")


@pytest.mark.slow
def test_bits_depend_neither_on_workers_nor_on_threads(small, tmp_path):
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
def test_a_worker_that_dies_fails_its_cell_alone(whole, tmp_path):
    status, lines = run(tmp_path / "a", *TWO, trouble="kill Walk 1")
    assert status == 1
    words = "its process was ended by SIGKILL (kill -9, or no memory was left). What it had saved is kept."
    assert f" of 4 (Walk, seed 1) failed: {words}" in lines[0]
    assert lines[-1] == "vnetsim: 1 of 4 cells failed; the same command runs them again."
    assert pl.read_parquet(tmp_path / "a" / "all" / "comparison.parquet").height == 3
    (cell,) = (tmp_path / "a" / "all" / "cells").glob("Walk-seed1-*")
    assert RunDirectory(cell).read("rounds").height == 2, "it died in its third round"
    assert run(tmp_path / "a", *TWO) == (0, [])
    assert files_of(tmp_path / "a" / "all") == whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda one: one.name
)
def test_no_signal_leaves_a_process(stop, whole, refused, tmp_path, monkeypatch):
    """Sent to the group, as terminals and batch systems do, but for SIGKILL, which reaches the parent alone."""
    where = tmp_path / "a"
    process = start(where, *TWO, trouble="hold")
    begun(process, where, 2)
    if stop == signal.SIGKILL:
        monkeypatch.chdir(where)
        assert refused(*command()) == "vnetsim: all: another vnetsim process is writing there.\n"
        process.kill()
        process.communicate()
    else:
        os.killpg(process.pid, stop)
        error = process.communicate()[1]
        assert process.returncode == 130
        assert error.startswith(
            "vnetsim: interrupted after 0 of 4 cells. What is finished is kept. Go on with the same"
        )
        assert error.count("\n") == 1
    assert group_is_gone(process.pid)
    cells = list((where / "all" / "cells").iterdir())
    assert {RunDirectory(cell).manifest()["status"] for cell in cells} == {"running"}, "as after kill -9"
    assert len(cells) == 2
    if stop in {signal.SIGHUP, signal.SIGKILL}:
        assert run(where, *(TWO if stop == signal.SIGHUP else ())) == (0, [])
        assert files_of(where / "all") == whole


@needs_ray
@pytest.mark.slow
def test_two_workers_one_killed_midway(whole, tmp_path):
    where = tmp_path / "a"
    assert run(where, *RAY, trouble="kill Walk 1 once") == (0, [])
    assert not (where / "trouble").exists(), "the worker killed itself in its third round"
    assert files_of(where / "all") == whole
    before = {path: path.stat().st_mtime_ns for path in (where / "all" / "cells").rglob("*.parquet")}
    assert run(where) == (0, []), "what Ray ran is finished for this machine"
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_machine_that_does_not_see_the_folder_says_so():
    experiment = Experiment(scenario="traffic/x")
    job = CellJob(name="a", where="cell 1 of 2", words="a", root=Path("/nowhere"), experiment=experiment, command=(),
                  timing_only=False)  # fmt: skip
    told = _run_cell(job, vnetsim.__version__, None)
    assert told.error.endswith(
        " does not see the folder /nowhere; choose an --out that all machines share, at the same path."
    )


def test_without_ray(refused, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    assert "Ray is not installed; do that with: pip install 'vnetsim[ray]'." in refused(*command(*RAY))
    assert "--address h:1: is that of a Ray cluster; add --engine ray" in refused(*command("--address", "h:1"))
    assert list(tmp_path.iterdir()) == []
