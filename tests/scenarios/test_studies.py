"""The shipped studies: every size is planned, and the quick one of each is run."""

import functools
import html
import json
import math
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import torch

from vnetsim.cli import main
from vnetsim.run_directory import RunDirectory
from vnetsim.scenarios import copy_scenarios
from vnetsim.study import Plan
from vnetsim.study_command import Request

FOLDER = Path(__file__).parents[2] / "scenarios" / "studies"

CELLS = {  # arms under all conditions x seeds
    ("cdl-table", "small"): (3 + 2) * 7,
    ("cdl-table", "driving-log"): (3 + 2) * 7,
    ("cdl-table", "paper"): (3 + 2 + 2 + 2) * 10,
    ("fedefm-ablation", "small"): 2 * 3 * 6,
    ("fedefm-ablation", "npz"): 2 * 3 * 7,
    ("fedefm-ablation", "paper"): (3 + 1) * 3 * 10,
    ("flsimco-fig3", "small"): 2 * 3 * 6,
    ("flsimco-fig3", "cifar10"): 2 * 3 * 7,
    ("flsimco-fig3", "paper"): 2 * 3 * 10,
    ("flsimco-fig4", "small"): 3 * 2 * 7,
    ("flsimco-fig4", "cifar10"): 3 * 2 * 7,
    ("flsimco-fig4", "paper"): 3 * 2 * 10,
    ("flsimco-fig5", "small"): 3 * 8,
    ("flsimco-fig5", "cifar10"): 3 * 8,
    ("flsimco-fig5", "paper"): 3 * 20,
}
NAMES = sorted({name for name, _ in CELLS})
QUICK = {
    "steering": ("data.train_images=330", "learning.test_frames=50", "learning.steps=2"),
    "classification": ("data.train_images=800", "data.test_images=100", "learning.steps=2", "learning.local_test=50"),
    "contrastive": (
        *("data.train_images=1900", "data.test_images=100", "learning.bank=200", "learning.knn_k=20"),
        *("learning.steps=1", "learning.batch=16", "learning.linear_probe=never"),
    ),
}
"""Less of everything, for the learners of a task."""
TASKS = {"cdl-table": "steering", "fedefm-ablation": "classification"}


@functools.cache
def planned(name: str, size: str | None = None, folder: Path = FOLDER) -> Plan:
    return Request(scenario=str(folder / f"{name}.toml"), size=size).plan([])[0]


def test_every_study_is_listed_here_and_told_of_in_the_readme() -> None:
    files = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.toml")}
    assert {(name, size) for name, file in files.items() for size in file["sizes"]} == set(CELLS)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, file in files.items():
        assert f"`{name}.toml`" in readme
        assert next(iter(file["sizes"])) == "small", "the default"
        assert any(note.startswith("Assumed: ") for note in file["notes"])


@pytest.mark.parametrize(("name", "size"), CELLS)
def test_every_size_is_planned_without_its_data(name: str, size: str) -> None:
    plan = planned(name, size)
    assert len(plan.cells) == CELLS[name, size]
    assert len({cell.experiment.seed for cell in plan.cells}) == len(plan.traffics), "a traffic for each seed"


@pytest.mark.parametrize(("name", "size"), CELLS)
def test_there_are_seeds_enough_to_resolve_a_pair(name: str, size: str) -> None:
    """The least p-value of n paired differences is 2 / 2^n (all signs alike); Holm multiplies it by the pairs."""
    plan = planned(name, size)
    seeds = len({cell.experiment.seed for cell in plan.cells})
    arms = Counter(cell.condition for cell in plan.cells if cell.experiment.seed == 0)
    assert all(2 / 2**seeds * math.comb(count, 2) < 0.05 for count in arms.values())


@pytest.mark.parametrize("name", ["flsimco-fig3", "flsimco-fig4", "flsimco-fig5"])
def test_flsimcos_published_setting(name: str) -> None:
    for cell in planned(name, "paper").cells:
        experiment, learning = cell.experiment, cell.experiment.learning
        assert (learning["encoder"], learning["batch"], learning["steps"]) == ("resnet18", 512, 2)
        assert (learning["lr"], learning["momentum"], learning["weight_decay"]) == (0.06, 0.9, 5e-4)
        assert (experiment.silos.count, experiment.data.name, experiment.data.min_images) == (95, "cifar10", 520)
        assert experiment.blur.threshold_kmh == 100
        if cell.learner == "fedco":
            assert (learning["queue"], learning["keys"]) == (4096, 0)  # 0: as many as a batch


def test_fig_3_is_of_three_distributions() -> None:
    data = {cell.condition: cell.experiment.data for cell in planned("flsimco-fig3").cells}
    kinds = {name: (one.partition, one.alpha) for name, one in data.items() if one.partition != "iid"}
    assert kinds == {"Dirichlet 0.1": ("dirichlet", 0.1), "Dirichlet 1": ("dirichlet", 1.0)}
    assert data["IID"].partition == "iid"


def test_cdls_published_setting() -> None:
    plan = planned("cdl-table", "paper")
    for cell in plan.cells:
        experiment, learning = cell.experiment, cell.experiment.learning
        assert (learning["batch"], learning["steps"], learning["lr"], learning["weight_decay"]) == (32, 1, 1e-3, 1e-5)
        assert (experiment.rounds, experiment.silos.count, experiment.data.image_px) == (3600, 11, 200)
        assert experiment.exchange.topology == cell.condition
        if cell.learner == "cdl":
            assert (learning["beta"], learning["coupling"]) == (0.5, "unit")
    assert {cell.condition for cell in plan.cells if cell.learner == "fedavg-steering"} == {"star"}


def test_fedefms_shares_of_unseen_labels() -> None:
    for size in ("small", "paper"):
        cells = planned("fedefm-ablation", size).cells
        shares = {cell.condition: cell.experiment.data.unseen_share for cell in cells}
        assert shares == {"0 % unseen": 0.0, "50 % unseen": 0.5, "100 % unseen": 1.0}
        assert {cell.experiment.data.partition for cell in cells} == {"label-skew"}


def test_a_copy_of_the_scenarios_has_studies_that_can_be_planned(tmp_path: Path) -> None:
    copy_scenarios(tmp_path / "mine")
    for name in NAMES:
        plan = planned(name, folder=tmp_path / "mine" / "studies")
        assert len(plan.cells) == CELLS[name, "small"]
        assert all(Path(one.scenario).is_relative_to(tmp_path) for one in plan.traffics)


def call(*arguments: object) -> None:
    """Call ``vnetsim`` in this process, with one torch thread: several wait for each other where cores are few."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    torch.set_num_threads(threads)
    assert stopped.value.code == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_study_runs(name: str, tmp_path: Path) -> None:
    options = [word for setting in QUICK[TASKS.get(name, "contrastive")] for word in ("--set", setting)]
    few = ("--seeds", "0:1", "--rounds", "1", "--device", "cpu", *options)
    call("compare", FOLDER / f"{name}.toml", *few, "--out", tmp_path / "study")
    record = json.loads((tmp_path / "study" / "comparison.json").read_text())
    cells = [RunDirectory(tmp_path / "study" / "cells" / cell["folder"]) for cell in record["cells"]]
    assert len(cells) == sum(cell.experiment.seed == 0 for cell in planned(name).cells)
    for cell in cells:
        assert cell.manifest()["status"] == "finished"
        assert cell.read("rounds")["committed"].sum() > 0
    assert record["title"] in html.unescape((tmp_path / "study" / "comparison.html").read_text())
    if name == "flsimco-fig3":
        by_condition = {cell["condition"]: run for cell, run in zip(record["cells"], cells, strict=True)}
        call("report", *(run.path for run in by_condition.values()))
        # as the page says: nothing is drawn where all silos are alike
        drawn = {condition: (run.path / "figures" / "silos.svg").is_file() for condition, run in by_condition.items()}
        assert drawn == {"IID": False, "Dirichlet 0.1": True, "Dirichlet 1": True}
