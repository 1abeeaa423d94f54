"""Every setting of CDL, and so of the other steering learners, changes what it is for and leaves the rest as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import pytest
import torch

from learners.cdl import Cdl, CdlSettings
from learners.data.sets import SteeringSet
from vnetsim.experiment import BlurSettings, ExchangeSettings
from vnetsim.learning import LearnerContext, Participant

QUICK: dict[str, Any] = {
    "batch": 8,
    "steps": 2,
    "lr": 1e-2,
    "temperature": 0.5,
    "coupling": "beta",
    "engine": "sequential",
}

FIRST, SECOND, ERRORS, WORK, BYTES, SERIES = "first round", "second round", "errors", "work", "bytes", "series"
MODELS = {FIRST, SECOND, ERRORS}
LATER = {SECOND, ERRORS}


@dataclass(frozen=True)
class Change:
    """Another value, what it changes, and under what."""

    value: Any
    changes: set[str]
    under: dict[str, Any] = field(default_factory=dict)
    topology: str = "complete"


CHANGES = {
    "aggregation": Change("median", MODELS, topology="star"),
    "trim": Change(0.4, MODELS, {"aggregation": "trimmed-mean", "trim": 0.1}, topology="star"),
    "clip_norm": Change(1e-3, MODELS, topology="star"),
    "batch": Change(6, MODELS | {WORK}),
    "steps": Change(3, MODELS | {WORK}),
    "lr": Change(2e-2, MODELS),
    "weight_decay": Change(0.1, MODELS),
    "optimizer": Change("sgd", MODELS),
    "dropout": Change(0.5, MODELS),
    "schedule": Change("cosine", LATER),
    "test_frames": Change(5, {ERRORS}),
    "coupling": Change("unit", LATER),
    "beta": Change(0.9, LATER),
    "divergence_schedule": Change("linear", LATER | {SERIES}),
    "temperature": Change(2.0, LATER),
    "engine": Change("batched", set()),
}
ELSEWHERE = {"precision": "test_precision: frames as small as these are refused"}

BEFORE: dict[str, dict[str, Any]] = {}
"""What was observed without a change, once for all settings."""


@pytest.fixture
def observe(
    on_tiny_roads: SteeringSet,  # noqa: ARG001  the frames
    new_context: Callable[..., LearnerContext],
    participant: Callable[..., Participant],
) -> Callable[..., dict[str, Any]]:
    """Return all that can differ in a run of two rounds."""

    def run(topology: str, **settings: Any) -> dict[str, Any]:
        context = new_context(exchange=ExchangeSettings(topology=topology), blur=BlurSettings(fraction=0.0))  # type: ignore[arg-type]
        learner: Any = Cdl.create(context, CdlSettings(**(QUICK | settings)))
        cost = learner.cost(0)
        found: dict[str, Any] = {
            WORK: cost.work_flop,
            BYTES: cost.upload_bytes if cost.exchange is None else cost.exchange.send_bytes,
            SERIES: [series.name for series in learner.series()],
        }
        for r, name in enumerate((FIRST, SECOND)):
            alone = [participant(r, silo) for silo in range(5 if topology == "star" else 2)]
            group = [participant(r, i, peers=[p for p in alone if p is not me]) for i, me in enumerate(alone)]
            learner.aggregate(learner.train(group))
            model = learner.state_dict()
            found[name] = torch.cat(
                [model[f"model.{n}"].flatten() for n, _ in learner._task.network.named_parameters()]
            )
        found[ERRORS] = learner.evaluate(final=False)["rmse"]
        return found

    return run


def same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_every_setting_is_looked_at() -> None:
    assert {one.name for one in fields(CdlSettings)} == CHANGES.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_changes_what_it_is_for(name: str, observe: Callable[..., dict[str, Any]]) -> None:
    change = CHANGES[name]
    known = repr((change.topology, change.under))
    before = BEFORE[known] = BEFORE.get(known) or observe(change.topology, **change.under)
    after = observe(change.topology, **(change.under | {name: change.value}))
    assert {what for what in before if not same(before[what], after[what])} == change.changes
