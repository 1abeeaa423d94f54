"""Every setting of the contrastive learners changes what it says and nothing else, by the amount it says."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from device_checks.tiny_data import view_one, view_two

from learners.data.sets import ImageSet
from learners.engines.programs import LocalTraining
from learners.fedavg import Discard
from learners.fedco import FedCo
from learners.flsimco import FLSimCo
from learners.tasks import contrastive
from vnetsim.learning import LearnerContext, Participant

QUICK = {"batch": 6, "steps": 2, "bank": 40, "engine": "sequential"}
LEARNERS = (FLSimCo, Discard, FedCo)
BASELINES_TOO = {"t_alpha", "t_beta", "negatives"}

COMMON: Mapping[str, tuple[object, set[str]]] = {
    "batch": (8, {"update", "model", "cost"}),
    "steps": (3, {"update", "model", "cost"}),
    "lr": (0.05, {"update", "model"}),
    "momentum": (0.0, {"update", "model"}),
    "weight_decay": (0.5, {"update", "model"}),
    "batchnorm": ("local", {"update", "model", "evaluation", "cost"}),
    "bank": (41, {"evaluation"}),
    "linear_probe": ("never", {"evaluation"}),
    "aggregation": ("median", {"model"}),
    "clip_norm": (0.01, {"model"}),
}
OWN: Mapping[str, tuple[object, set[str]]] = {
    "t_alpha": (0.2, {"update", "model"}),
    "t_beta": (0.5, {"update", "model"}),
    "negatives": ("plain", {"update", "model", "cost"}),
    "limit_kmh": (60.0, {"model"}),
    "temperature": (0.2, {"update", "model", "silo"}),
    "queue": (20, {"update", "model", "silo", "cost"}),
    "key_encoder": ("visit", {"silo"}),
}
"""Another value of each setting, and all that it changes."""
ELSEWHERE = {
    "encoder": "test_encoders",
    "precision": "test_precision",
    "engine": "test_engines",
    "trim": "test_robust: it says how much trimmed-mean trims",
}
"""Settings that another module tests."""


@pytest.fixture
def new(tiny: ImageSet, context: LearnerContext) -> Callable[..., Any]:  # noqa: ARG001  replaces the images
    def make(cls: Any, **settings: Any) -> Any:
        own = {"queue": 48} if cls is FedCo else {}  # by itself it follows the keys
        return cls.create(context, cls.Settings(**(QUICK | own | settings)))

    return make


def test_every_setting_has_a_row() -> None:
    named = {field.name for cls in LEARNERS for field in fields(cls.Settings)}
    assert named == COMMON.keys() | OWN.keys() | ELSEWHERE.keys()


def observed(learner: Any, participant: Callable[..., Participant]) -> dict[str, Any]:
    """Return a round and an evaluation of a learner, part by part; models as nested lists of their bytes."""
    asked: list[object] = []
    knn = contrastive.knn_predict

    def seen(queries: Any, bank: Any, labels: Any, **options: Any) -> Any:
        asked.append((queries.sum().item(), bank.sum().item(), tuple(labels.tolist()), tuple(options.values())))
        return knn(queries, bank, labels, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contrastive, "knn_predict", seen)
        metrics = learner.evaluate(final=True)
    cost = learner.cost(0)
    vehicles = [participant(0, i, speed_mps=speed) for i, speed in enumerate((15.0, 20.0, 25.0))]
    updates = learner.train(vehicles)

    def raw(state: Mapping[str, torch.Tensor]) -> list[object]:
        return [(name, tensor.numpy().tobytes()) for name, tensor in sorted(state.items())]

    update = [(update.loss, raw(update.state)) for update in updates]
    silo = [raw(update.kept) for update in updates]
    learner.aggregate(updates)
    model = {name: t for name, t in learner.state_dict().items() if name.startswith("model.")}
    return {
        "update": update,
        "silo": silo,
        "model": raw(model),
        "evaluation": (asked, sorted(metrics)),
        "cost": cost,
    }


@pytest.mark.parametrize(
    ("cls", "setting"),
    [
        pytest.param(cls, field.name, id=f"{cls.name} {field.name}")
        for cls in LEARNERS
        for field in fields(cls.Settings)
        # what all have in common is looked at in one of them
        if field.name not in ELSEWHERE and (cls is FLSimCo or field.name in OWN.keys() - BASELINES_TOO)
    ],
)
def test_a_setting_changes_what_it_says_and_nothing_else(
    cls: Any,
    setting: str,
    new: Callable[..., Any],
    participant: Callable[..., Participant],
) -> None:
    value, expected = {**OWN, **COMMON}[setting]
    base = observed(new(cls), participant)
    other = observed(new(cls, **{setting: value}), participant)
    changed = {part for part in base if base[part] != other[part]}
    assert changed == expected


def test_a_visit_is_sgd_on_eq_6_to_8(
    new: Callable[..., Any],
    context: LearnerContext,
    tiny: ImageSet,
    participant: Callable[..., Participant],
) -> None:
    """Step by step with torch's own optimizer and the loss as printed; no setting is its default."""
    given: dict[str, Any] = {
        "t_alpha": 0.2,
        "t_beta": 0.7,
        "momentum": 0.8,
        "weight_decay": 0.01,
        "lr": 0.05,
        "steps": 3,
        "batch": 6,
    }
    learner, who = new(FLSimCo, **given), participant(0, 4)
    network = copy.deepcopy(learner._task.network).train()
    optimizer = torch.optim.SGD(
        network.parameters(), lr=given["lr"], momentum=given["momentum"], weight_decay=given["weight_decay"]
    )
    generator = torch.Generator().manual_seed(context.streams.integer("training", 0, who.vehicle_id))
    kernel = context.camera.kernel_px(who.speed_mps, 16)
    training = LocalTraining(silo=4, kernel_px=kernel, blurred_fraction=1.0, learning_rate=given["lr"], seed=0)
    losses = []
    for _ in range(given["steps"]):
        images = learner._task.silos.images(learner._task.silos.draw(training, given["batch"], generator))
        q = network(view_one(images, generator, tiny.mean, tiny.std))
        k = network(view_two(images, generator, tiny.mean, tiny.std))
        rows = []
        for similarity in (q @ k.T, k @ q.T):
            p_alpha, p_beta = ((similarity / t).softmax(dim=1).diagonal() for t in (given["t_alpha"], given["t_beta"]))
            rows.append(((1 - p_beta) / (1 - p_alpha)).detach() * -p_alpha.log())
        loss = torch.stack(rows).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    update = learner.train([who])[0]
    assert update.loss == pytest.approx(np.mean(losses), rel=1e-5)
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(update.state[name], tensor, rtol=1e-4, atol=1e-5)
