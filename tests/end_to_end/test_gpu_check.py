"""The check of a GPU, rehearsed on the CPU as on a bare machine; recorded rounds learned again from their schedule."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from device_checks import schedule
from safetensors.torch import load_file

CHECK = Path(__file__).parents[1] / "gpu_check.py"
SHIPPED = CHECK.parent / "device_checks" / "expressway_schedule.json"
LACKING = {"arro3", "cattrs", "cyclopts", "hypothesis", "libsumo", "matplotlib", "ot", "polars", "pytest"} | {
    *("ray", "rich", "simpy", "sklearn", "sumo", "sumolib", "tomli_w", "traci")
}
"""What a machine with torch, torchvision, scipy, numpy and safetensors alone does not have; torch brings jinja2."""
BARE = """
import sys

class Bare:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {names} else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Bare(finder) for finder in sys.meta_path]
"""


@pytest.mark.slow
def test_all_parts_run_on_a_bare_machine(tmp_path: Path) -> None:
    """Resumable as well: a second command finds nothing left, and repeats what it is told to."""
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sitecustomize.py").write_text(BARE.format(names=LACKING))
    environment = {"PYTHONPATH": str(tmp_path / "bare"), "OMP_NUM_THREADS": "1", "PATH": ""}

    def check(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(CHECK), "--device", "cpu", "--tiny", "--out", str(tmp_path / "out"), *more]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)

    done = check()
    assert done.returncode == 0, done.stderr
    assert "left: nothing; failed: none" in done.stdout, done.stderr
    kept = json.loads((tmp_path / "out" / "gpu_check.json").read_text())["parts"]
    assert {name for name, part in kept.items() if part["status"] != "finished"} == {"pytest"}  # no GPU
    page = (tmp_path / "out" / "gpu_check.md").read_text()
    assert "A rehearsal" in page
    assert "not run: the device is no GPU" in page
    again = check("--again", "transport")
    assert [line.partition(":")[0] for line in again.stdout.splitlines()[:-1]] == ["transport"]


def test_a_replayed_schedule_gives_the_model_of_its_run(small_run: Callable[..., tuple[Path, Any]]) -> None:
    run = small_run("gaussian.toml")[0]
    text = schedule.written(schedule.exported(run))
    recorded = json.loads(text)
    assert sum(map(len, recorded["participants"])) > 3
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the run had
    try:
        learner = schedule.create(recorded, "cpu")
        learner.evaluate(final=False)
        figures = dict(schedule.replay(recorded, learner))
    finally:
        torch.set_num_threads(threads)
    assert len(figures) == 3
    expected = load_file(run / "model.safetensors")
    state = {name: tensor for name, tensor in learner.state_dict().items() if name.startswith("model.")}
    assert {f"model.{name}" for name in expected} == state.keys()
    assert all(torch.equal(state[f"model.{name}"], tensor) for name, tensor in expected.items())


def test_the_shipped_schedule_is_of_the_papers_size() -> None:
    shipped = schedule.read(SHIPPED)
    assert shipped["learner"] == "flsimco"
    assert shipped["silos"] == 95
    assert len(shipped["participants"]) == shipped["rounds"] == 100
    assert schedule.participants(shipped, 99)


def test_a_schedule_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schedule.json").write_text('{"format": 0}')
    with pytest.raises(ValueError, match="no schedule of this version"):
        schedule.read(tmp_path / "schedule.json")
