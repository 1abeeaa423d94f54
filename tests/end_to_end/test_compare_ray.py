"""Comparisons on a Ray cluster of this machine: same bits, also when a worker is killed, and clear refusals."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_runs import group_is_gone

from vnetsim.experiment import Experiment
from vnetsim.storage.folder import Folder, disk
from vnetsim.study import workers_ray
from vnetsim.study.cells import CellJob

Refused = Callable[..., str]

WALKS = Path(__file__).with_name("walk_learners.py")
SHORT = ("--rounds", "4", "--device", "cpu", "--set", "gaussian.duration_s=120")
RAY = ("--engine", "ray", "--workers", "2")
PAGE = ("comparison.parquet", "comparison.csv")

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'vnetsim[ray]')"
)

IN_PLACE = "from vnetsim.cli.commands import main; main()"
SENT = f"""
import contextlib
import vnetsim.study.workers_ray
vnetsim.study.workers_ray._shared_folder_mark = lambda root: contextlib.nullcontext(".seen-nowhere")
{IN_PLACE}
"""
"""A driver whose folder no worker sees, so that files are sent and come back."""
ALONE = f"""
import ray._private.services as services
services._find_address_from_flag, services.find_bootstrap_address = lambda _: set(), lambda _: None
{IN_PLACE}
"""
"""A driver that sees no cluster on this machine, such as another test's: ``auto`` would join it."""


def start(where: Path, *options: str, trouble: str = "", driver: str = IN_PLACE) -> subprocess.Popen[str]:
    where.mkdir(exist_ok=True)
    (where / "trouble").write_text(trouble)
    learners = f"{WALKS}:Walk,{WALKS}:Shifted"
    command = "compare", "gaussian", "--learners", learners, "--seeds", "0:2", *SHORT, *options, "--out", "all"
    return subprocess.Popen(
        [sys.executable, "-c", driver, *command],
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


def run(where: Path, *options: str, **more: str) -> tuple[int, list[str]]:
    """Return exit status and lines on standard error; what a page warns of, and progress, is left out."""
    process = start(where, *options, **more)
    lines = process.communicate()[1].splitlines()
    lines = [line for line in lines if " elapsed" not in line]
    told = [line for line in lines if not line.startswith("vnetsim: ") or "fail" in line or "ray" in line.lower()]
    return process.returncode, told


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the results of a comparison and of all its cells, by path."""
    cells = [path for path in (folder / "cells").rglob("*") if path.is_file()]
    told = {"manifest.json", "checksums.sha256", ".lock"}  # when and how a cell ran
    kept = [path for path in cells if path.name not in told] + [folder / name for name in PAGE]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The results without Ray."""
    where = tmp_path_factory.mktemp("whole")
    assert run(where) == (0, [])
    return files_of(where / "all")


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("driver", [IN_PLACE, SENT], ids=["folder seen by the workers", "files sent"])
def test_two_workers_one_killed_midway(driver: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    where = tmp_path / "a"
    assert run(where, *RAY, trouble="kill Walk 1 once", driver=driver) == (0, [])
    assert not (where / "trouble").exists(), "the worker killed itself in its third round"
    assert files_of(where / "all") == whole
    assert not list((where / "all").glob(".seen-*"))
    before = {path: path.stat().st_mtime_ns for path in (where / "all" / "cells").rglob("*.parquet")}
    assert run(where) == (0, []), "what Ray ran is finished for this machine"
    assert {path: path.stat().st_mtime_ns for path in before} == before


@needs_ray
@pytest.mark.slow
def test_a_cell_that_always_dies_fails_alone(tmp_path: Path) -> None:
    status, lines = run(tmp_path / "a", *RAY, trouble="kill Walk 1")
    assert status == 1
    assert "(Walk, seed 1) failed: its task on the Ray cluster was lost: " in lines[0]
    assert lines[-1] == "vnetsim: 1 of 4 cells failed; the same command runs them again."
    assert pl.read_parquet(tmp_path / "a" / "all" / "comparison.parquet").height == 3


@needs_ray
@pytest.mark.slow
def test_ctrl_c_ends_the_cluster(whole: dict[str, bytes], tmp_path: Path) -> None:
    process = start(tmp_path / "a", *RAY, trouble="hold")
    while not list((tmp_path / "a" / "all" / "cells").glob("*/rounds/*")):
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate()[1]
    assert process.returncode == 130
    assert error.startswith("vnetsim: interrupted after 0 of 4 cells.")
    assert error.count("\n") == 1, error
    assert group_is_gone(process.pid)
    assert run(tmp_path / "a") == (0, [])
    assert files_of(tmp_path / "a" / "all") == whole


def refusal(refused: Refused, tmp_path: Path, *options: object) -> str:
    learners = ("--learners", f"{WALKS}:Walk,{WALKS}:Shifted")
    line = refused("compare", "gaussian", *learners, "--engine", "ray", *options, "--out", tmp_path / "all")
    assert not (tmp_path / "all").exists()
    return line


def test_without_ray(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "Ray is not installed; do that with: pip install 'vnetsim[ray]'." in refusal(refused, tmp_path)


def test_addresses_at_which_there_is_no_cluster(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        line = refusal(refused, tmp_path, "--address", address)
    assert f"--address {address}: no Ray cluster answers there: " in line
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr("vnetsim.runs.ray_cluster.JOIN_S", 0.5)
        address = f"127.0.0.1:{other.getsockname()[1]}"
        line = refusal(refused, tmp_path, "--address", address)
    assert f"--address {address}: something listens there, but no Ray cluster" in line
    for wrong in ("somewhere", "ray://127.0.0.1:10001", "127.0.0.1:"):
        assert "write HOST:PORT of the cluster's head" in refusal(refused, tmp_path, "--address", wrong)
    line = refusal(refused, tmp_path, "--address", "auto", "--workers", "3")
    assert "the cluster of --address decides how many cells run at once" in line


@needs_ray
@pytest.mark.slow
def test_no_cluster_to_be_found(tmp_path: Path) -> None:
    status, lines = run(tmp_path / "a", "--engine", "ray", "--address", "auto", driver=ALONE)
    assert status == 2
    assert len(lines) == 1
    assert lines[0].startswith("vnetsim: --address auto: no Ray cluster answers: Could not find any running Ray")


def test_files_written_last_say_that_all_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    replace = disk.replace

    def watched(source: Path, target: Path) -> None:
        written.append(target.name)
        replace(source, target)

    monkeypatch.setattr(disk, "replace", watched)
    names = ("checksums.sha256", "a.parquet", "manifest.json", "checkpoint/z")
    workers_ray._write(Folder(tmp_path), "cells/x", {f"cells/x/{name}": b"" for name in names})
    assert written == ["checksums.sha256", "a.parquet", "z", "manifest.json"]


def test_another_version_on_the_machine(tmp_path: Path) -> None:
    experiment = Experiment(scenario="traffic/x")
    job = CellJob(name="a", where="", words="", root=tmp_path, experiment=experiment, command=())
    board: Any = None
    outcome, files = workers_ray._cell(job, "", "0.0.1", board, [])
    assert "install the same version on all machines" in outcome.error
    assert not files
