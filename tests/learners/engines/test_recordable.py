"""A training step has fixed shapes and reads no value: recorded for one vehicle, it is every vehicle's, to the bit."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from device_checks import learner_class, registered
from device_checks.recorder import Operations, OperationsLane
from device_checks.tiny_data import SILOS, draw_view_one, draw_view_two
from device_checks.tiny_rounds import SETTINGS, jobs_of, tiny_data
from device_checks.training_work import context
from torch import Tensor, nn

from learners.data.augment import apply_view
from learners.data.moving import fixed_shapes
from learners.engines.programs import SequentialEngine, Tensors
from learners.engines.recorded import RecordedEngine

SCENARIOS = Path(__file__).parents[3] / "scenarios"
OWN = {"fedprox.py": "FedProx", "scaffold.py": "Scaffold", "plugins/rotation.py": "RotNet"}
"""Learners of the documentation, each in a file."""
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in sorted(registered())),
    *((name, {}) for name in OWN),
    *((name, {"precision": "bfloat16"}) for name in ("flsimco", "fedavg-classification")),
    ("fedco", {"key_encoder": "rsu", "precision": "bfloat16"}),
    ("cdl", {"optimizer": "adam-kept", "coupling": "joint"}),
    ("dsgd", {"optimizer": "sgd"}),
    ("fedefm", {"variant": "labels-once", "precision": "bfloat16"}),
]
SHORT = ("fedavg-classification",)
"""Learners whose steps are quick; `make test-all` records the others as well."""


def kind_of(name: str) -> Any:
    if name not in OWN:
        return learner_class(name)
    spec = importlib.util.spec_from_file_location(f"recorded_{Path(name).stem}", SCENARIOS / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return getattr(module, OWN[name])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param(
            name,
            settings,
            id="-".join([name, *map(str, settings.values())]),
            marks=[] if name in SHORT and not settings else [pytest.mark.slow],
        )
        for name, settings in VARIANTS
    ],
)
def test_replayed_steps_are_those_of_the_sequential_engine(name: str, settings: dict[str, Any]) -> None:
    kind = kind_of(name)
    given = SETTINGS.get(kind.task, {"batch": 4, "steps": 2}) | settings
    with tiny_data():
        learner = kind.create(context("cpu", SILOS, rounds=4), kind.Settings(**given))
    operations: list[Operations] = []

    class Watched(OperationsLane):
        def record(self, call: Callable[[], None]) -> Callable[[], None]:
            call()
            operations.append(Operations(call))
            return operations[-1].replay

    engine, constants = RecordedEngine(Watched, lanes=2), set[int]()
    for jobs in filter(None, jobs_of(learner)):  # FedEFM trains nobody overseas where no one has met
        mixed = [(0.5, jobs[-1].base)]  # between two steps
        again = [*jobs, replace(jobs[0], mixed=mixed, training=replace(jobs[0].training, learning_rate=0.01))]
        for ours, theirs in zip(engine.train(again), SequentialEngine().train(again), strict=True):
            for part in ("state", "optimizer", "figures"):
                found, expected = getattr(ours, part), getattr(theirs, part)
                assert found.keys() == expected.keys()
                assert all(torch.equal(found[n], expected[n]) for n in expected), part
            assert (ours.means, ours.finite) == (theirs.means, theirs.finite)
        constants |= storages([job.program.constants for job in jobs])
    assert engine.remark == "recorded steps, 2 at a time"
    # a graph in the store outlives its program; those of a user's classes are not stored
    own = storages([recording for replicas in engine._replicas.values() for recording in replicas.recordings])
    assert name in OWN or storages([one.read for one in operations]) <= own | constants


def storages(found: Any, seen: set[int] | None = None) -> set[int]:
    """Return where the tensors lie that an object refers to, but for those of a recording's program."""
    seen = set() if seen is None else seen
    if isinstance(found, Tensor):
        return {found.untyped_storage().data_ptr()}
    if id(found) in seen or (callable(found) and not isinstance(found, nn.Module)):
        return set()
    seen.add(id(found))
    parts = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else []
    return set[int]().union(*(storages(one, seen) for one in [*parts, *getattr(found, "__dict__", {}).values()]))


@pytest.mark.parametrize("draw", [draw_view_one, draw_view_two])
@pytest.mark.parametrize("count", [3, 64])
def test_views_of_fixed_shapes_are_the_others_to_the_bit(draw: Callable[..., Tensors], count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    images = torch.rand(count, 3, 32, 32, generator=generator)
    drawn = draw(count, (32, 32), generator)
    plain = apply_view(images, drawn, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    given = images, drawn, torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.4])
    found = torch.zeros_like(images)
    with fixed_shapes():
        recorded = Operations(lambda: found.copy_(apply_view(*given)))
    found.zero_()
    recorded.replay()
    assert torch.equal(plain, found)


def test_what_cannot_be_recorded_fails() -> None:
    for call in (lambda one: one[one > 0], lambda one: one * float(one.sum())):
        with pytest.raises(RuntimeError, match="synchronizing"):
            Operations(partial(call, torch.arange(3.0)))
