"""One run whose vehicles are trained by a Ray cluster of this machine: same files, also when Ray is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Refused = Callable[..., str]

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'vnetsim[ray]')"
)

LEARNER = '''
import os
import signal
from pathlib import Path

import torch

from learners.fedavg import FedAvg
from learners.federated import FederatedLearner, federated_averaging
from learners.tasks.contrastive import ContrastiveTask

TRIGGER = Path({trigger!r})


class Fragile(FederatedLearner):
    """Kills the process that trains it, not that of the run, or Ray's on the machine, its parent; once.

    Its loss draws from torch's global generator.
    """

    name, task, paper, Settings = FedAvg.name, FedAvg.task, FedAvg.paper, FedAvg.Settings

    @staticmethod
    def parts(context, settings):
        task = ContrastiveTask(context, settings)

        def loss(model, batch, base):
            if TRIGGER.exists() and os.environ.get("OF_THE_RUN") != str(os.getpid()):
                killed = os.getppid() if TRIGGER.read_text() == "raylet" else os.getpid()
                TRIGGER.unlink()
                os.kill(killed, signal.SIGKILL)
            return task.loss(model, batch, base) * (0.5 + torch.rand(()))

        return federated_averaging(context, settings, task, loss=loss)
'''
DRIVER = """
import os
os.environ["OF_THE_RUN"] = str(os.getpid())
from vnetsim.cli.commands import main
main()
"""
SMALL = (
    *("--device", "cpu", "--rounds", "3", "--set", "learning.batch=8", "--set", "learning.steps=1"),
    *("--set", "learning.bank=100", "--set", "learning.linear_probe=never"),
    *("--set", "data.train_images=400", "--set", "data.test_images=100", "--set", "silos.count=10"),
    *("--set", "traffic.end_s=120"),
)
TOLD = {"manifest.json", "checksums.sha256", ".lock", "report.html", "figures"}
"""When and how a run was made."""


def files_of(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] not in TOLD]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@needs_ray
@pytest.mark.slow
def test_two_workers_and_what_is_killed_in_mid_round(tmp_path: Path) -> None:
    trigger = tmp_path / "kill"
    (tmp_path / "fragile.py").write_text(LEARNER.format(trigger=str(trigger)))
    learner = "--learner", f"{tmp_path / 'fragile.py'}:Fragile"
    ray = "--engine", "ray", "--workers", "2"

    def vnetsim(*command: str) -> tuple[int, list[str]]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, *command, *learner], cwd=tmp_path, text=True, capture_output=True,
            check=False, env=environment,
        )  # fmt: skip
        assert "raylet" not in done.stdout
        lines = [line for line in done.stderr.splitlines() if " elapsed" not in line]  # progress of a slow machine
        return done.returncode, lines

    run = "run", "gaussian", *SMALL, "--out"
    assert vnetsim(*run, "here") == (0, [])
    trigger.write_text("worker")
    assert vnetsim(*run, "there", *ray) == (0, [])
    assert not trigger.exists()
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    device = {name: json.loads((tmp_path / name / "manifest.json").read_text())["device"] for name in ("here", "there")}
    assert device["there"].pop("ray") == {"machines": 1, "cpus": 2, "gpus": 0}
    assert device["there"] == device["here"]

    trigger.write_text("raylet")
    assert vnetsim(*run, "again", *ray)[0] != 0  # Ray ends the process without a word
    assert not trigger.exists()
    assert vnetsim("resume", "again") == (0, [])
    assert files_of(tmp_path / "again") == files_of(tmp_path / "here")


def test_options_that_do_not_go_together(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def line(*options: str) -> str:
        said = refused("run", "gaussian", *options, "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return said

    assert "--workers 2: one run trains on all cores by itself; for processes add --engine ray" in line(
        "--workers", "2"
    )
    assert "--address h:1: is that of a Ray cluster; add --engine ray" in line("--address", "h:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "Ray is not installed" in line("--engine", "ray")
    assert "Ray is not installed" in refused("resume", tmp_path, "--engine", "ray")
