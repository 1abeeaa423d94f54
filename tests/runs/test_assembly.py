"""What a run is made of is found once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import vnetsim
from vnetsim.experiment import Experiment
from vnetsim.learning.registry import LEARNERS
from vnetsim.plugins import Kind
from vnetsim.runs.assembly import assemble
from vnetsim.storage import structure

SCENARIOS = Path(__file__).parents[2] / "scenarios"
TINY = {"silos": {"count": 10}, "data": {"train_images": 400, "test_images": 50}, "learning": {"steps": 1}}


def test_a_run_finds_every_plugin_and_checks_every_setting_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Counter[tuple[str, str]] = Counter()
    made: Counter[type] = Counter()
    find, converter = Kind.find, structure._converter()

    def finding(kind: Kind, name: str) -> type[Any]:
        found[kind.name, name] += 1
        return find(kind, name)

    class Counting:
        @staticmethod
        def structure(values: Any, kind: type) -> Any:
            made[kind] += 1
            return converter.structure(values, kind)

    monkeypatch.setattr(Kind, "find", finding)
    monkeypatch.setattr(structure, "_converter", Counting)
    learner = "fedavg-classification"
    vnetsim.run("gaussian", learner=learner, rounds=1, settings=TINY, out=tmp_path / "run", progress=False)
    assert {kind for kind, _ in found} > {"learner", "selection policy", "pace", "radio model", "traffic source"}
    assert {plugin: times for plugin, times in found.items() if times != 1} == {}
    assert (made[Experiment], made[LEARNERS.find(learner).Settings]) == (1, 1)


def test_a_model_on_the_clock_takes_the_place_of_that_of_the_schedules_learner() -> None:
    given: dict[str, Any] = {**TINY, "schedule.learner": "fedco", "schedule.learning": {"batch": 8, "steps": 2}}
    costs = {}
    for model in ("trained", "resnet18"):
        experiment = vnetsim.Experiment("gaussian", learner="flsimco", settings={**given, "cost.model": model})
        assembly = assemble(experiment)
        learner, costs[model] = assembly.made(assembly.context("cpu"))
        assert learner.name == "flsimco"
    trained, charged = costs["trained"][0], costs["resnet18"][0]
    model = trained.model
    assert model is not None
    assert model.other_upload_bytes == 8 * 128 * 4, "a batch of keys"
    assert charged.upload_bytes == 44_976_544 + model.other_upload_bytes
    assert charged.download_bytes == 44_976_544 + model.other_download_bytes
    assert charged.work_flop == 16 * 4 * 1_110_966_272, "forward and backward for the query, forward for the key"
