"""The check of a GPU, rehearsed on the CPU as on a bare machine; recorded rounds learned again from their schedule."""

import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import gpu_check
import pytest
import torch
from device_checks import schedule
from device_checks.other_device import other_device
from device_checks.rows import CheckSetup
from safetensors.torch import load_file
from small_runs import SCENARIOS, Cli

from vnetsim.errors import InputError

CHECK = Path(__file__).parents[1] / "gpu_check.py"
STUDIES = {"cdl": "cdl-table.toml", "fedefm": "fedefm-ablation.toml"}
SHIPPED = CHECK.parent / "device_checks" / "expressway_schedule.json"
LACKING = {"arro3", "cattrs", "cyclopts", "hypothesis", "libsumo", "matplotlib", "ot", "polars", "pytest"} | {
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


ELSEWHERE = {"engines", "rounds", "small_rounds", "same_bits", "same_bits_deterministic"}
"""Parts whose learners, engines and rounds other tests hold to their device."""


def test_the_parts_keep_to_their_device(tmp_path: Path) -> None:
    """On tensors that count as lying on another device; it has no bfloat16, and pytest would want a GPU."""
    parts = [part for part in gpu_check.parts() if part.name not in {*ELSEWHERE, "pytest"}]
    ran = [part for part in parts if not part.name.startswith("large_bfloat16")]
    assert len(ran) == 9
    for part in ran:
        with other_device() as device:
            rows = part.run(
                CheckSetup(device=device, tiny=True, seconds=200, folder=str(tmp_path), schedule=str(SHIPPED),
                           began_s=time.monotonic())
            )  # fmt: skip
        assert rows
        assert part.name not in gpu_check.CHECKS or all(row.met for row in rows)


EXCHANGES = ("exchange.range_m=2000", "round.quorum=4", "round.invited=8", "silos.count=10", "rounds=3")
OPTIONS = {
    "flsimco": (
        *("rounds=3", "learning.batch=8", "learning.steps=1", "learning.bank=100", "learning.knn_k=10"),
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
    gpu_check.main(["export", str(tmp_path / "run"), str(tmp_path / "schedule.json")])
    recorded = schedule.read(tmp_path / "schedule.json")
    joined = [schedule.participants(recorded, round_) for round_ in range(3)]
    assert sum(map(len, joined)) > 3
    assert any(one.peers for round_ in joined for one in round_) == (learner != "flsimco")
    gpu_check.main(["export", "gaussian", str(tmp_path / "before"), *settings])
    untrained = schedule.read(tmp_path / "before")
    assert untrained["participants"] == recorded["participants"], "nothing has to be trained for a schedule"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the run had
    try:
        made = schedule.create(recorded, "cpu")
        made.evaluate(final=False)
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
        (("round.selection=oort",), "chooses by training losses"),
        (("round.aggregation=fedbuff", "learner=fedavg-classification"), "holds synchronous rounds"),
    ],
)
def test_what_a_schedule_cannot_hold_is_refused(settings: tuple[str, ...], why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=why):
        gpu_check.export("gaussian", str(tmp_path / "schedule.json"), *settings)
    assert not list(tmp_path.iterdir())


def test_the_shipped_schedule_is_of_the_papers_size() -> None:
    shipped = schedule.read(SHIPPED)
    assert shipped["learner"] == "flsimco"
    assert shipped["silos"] == 95
    assert len(shipped["participants"]) == shipped["rounds"] == 100
    assert schedule.participants(shipped, 99)


@pytest.mark.parametrize(("learner", "silos"), [("cdl", 11), ("fedefm", 20)])
def test_the_shipped_schedules_of_exchanges_have_the_sizes_of_their_studies(learner: str, silos: int) -> None:
    shipped = schedule.read(SHIPPED.with_name(f"{learner}_schedule.json"))
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
