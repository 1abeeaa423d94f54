"""What a run is made of is found once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from vnetsim.display import progress_display
from vnetsim.experiment import Experiment
from vnetsim.plugins import Kind
from vnetsim.runs.assembly import assemble
from vnetsim.runs.runner import start_run
from vnetsim.storage.structure import structure

TINY = {"silos": {"count": 10}, "data": {"train_images": 400, "test_images": 50}, "learning": {"steps": 1}}


def test_a_run_finds_every_plugin_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = structure(
        {"scenario": "gaussian", "learner": "fedavg-classification", "rounds": 1, **TINY}, Experiment, ""
    )
    found: Counter[tuple[str, str]] = Counter()
    find = Kind.find

    def counted(kind: Kind, name: str) -> type:
        found[kind.name, name] += 1
        return find(kind, name)

    monkeypatch.setattr(Kind, "find", counted)
    with progress_display() as progress:
        start_run(assemble(experiment), tmp_path / "run", command=["vnetsim"], progress=progress)
    assert {kind for kind, _ in found} > {"learner", "selection policy", "pace", "radio model", "traffic source"}
    assert {plugin: times for plugin, times in found.items() if times != 1} == {}
