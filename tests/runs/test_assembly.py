"""What a run is made of is found once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import vnetsim
from vnetsim.experiment import Experiment
from vnetsim.learning.registry import find_learner
from vnetsim.plugins import Kind
from vnetsim.storage import structure

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
    assert (made[Experiment], made[find_learner(learner).Settings]) == (1, 1)
