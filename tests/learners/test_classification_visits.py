"""Visits of the classification learners, step by step with torch's own optimizer; no setting is its default."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

from learners.classification_fedavg import ClassificationFedAvg
from learners.data.sets import ImageSet
from learners.engines.programs import LocalTraining
from learners.fedco import FedCo
from learners.fedefm import FedEFM
from learners.flsimco import FLSimCo
from learners.tasks.classification import ClassificationSettings
from vnetsim.errors import InputError
from vnetsim.learning import LearnerContext, Participant

TRUNK = {"small": 77_680, "resnet18": 11_168_832}


@pytest.mark.parametrize("encoder", TRUNK)
@pytest.mark.parametrize("cls", [FLSimCo, FedCo, FedEFM, ClassificationFedAvg], ids=lambda cls: cls.name)
@pytest.mark.usefixtures("tiny")
def test_the_encoder_is_the_one_named(cls: Any, encoder: str, context: LearnerContext) -> None:
    """Its trunk has the documented size, below a projection to 128 values or a head of three labels."""
    learner = cls.create(context, cls.Settings(encoder=encoder))
    width = 64 if encoder == "small" else 512
    outputs = 128 if cls in {FLSimCo, FedCo} else 3
    described = learner.describe()
    assert (described.encoder, described.parameters) == (encoder, TRUNK[encoder] + (width + 1) * outputs)
    assert learner.state_dict()["model.trunk.conv1.weight"].shape == (16 if encoder == "small" else 64, 3, 3, 3)
    with pytest.raises(InputError, match=r"learning\.encoder: unknown encoder 'resnet19'"):
        cls.Settings(encoder="resnet19")


def descended(
    learner: Any,
    start: Mapping[str, Tensor],
    training: LocalTraining,
    images: ImageSet,
    given: Mapping[str, Any],
    *,
    steps: int,
    teachers: Mapping[Any, float] | None = None,
) -> tuple[dict[str, Tensor], float]:
    """Return what torch's SGD makes of a model on a vehicle's images, and the mean loss; ``teachers`` have weights."""
    network = copy.deepcopy(learner._task.network).train()
    network.load_state_dict(start)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=training.learning_rate, momentum=given["momentum"], weight_decay=given["weight_decay"]
    )
    generator = torch.Generator().manual_seed(training.seed)
    mean, std = (torch.tensor(channel).view(1, 3, 1, 1) for channel in (images.mean, images.std))
    losses = []
    for _ in range(steps):
        drawn = next(learner._task.silos.draw(training, given["batch"], generator))
        assert len(drawn["rows"]) == given["batch"]
        shown = (learner._task.silos.images(drawn) - mean) / std
        logits = network(shown)
        loss = labels = cross_entropy(logits, images.train_labels[drawn["rows"]])
        if teachers:
            beta, t = given["beta"], given["temperature"]
            shares = [max(weight, 0.0) for weight in teachers.values()]
            loss = (1 - beta) * labels * (sum(shares) if given["variant"] == "literal" else 1)
            for share, teacher in zip(shares, teachers, strict=True):
                with torch.no_grad():
                    taught = softmax(teacher(shown) / t, dim=1)
                loss = loss + share * beta * t**2 * kl_div(
                    log_softmax(logits / t, dim=1), taught, reduction="batchmean"
                )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return network.state_dict(), sum(losses) / steps


def close(update: Any, expected: Mapping[str, Tensor], loss: float) -> None:
    assert update.loss == pytest.approx(loss, rel=1e-4)
    for name, tensor in expected.items():
        torch.testing.assert_close(update.state[name], tensor, rtol=1e-3, atol=1e-4)


GIVEN: dict[str, Any] = {
    "batch": 8,
    "steps": 3,
    "lr": 0.03,
    "momentum": 0.8,
    "weight_decay": 0.02,
    "beta": 0.4,
    "temperature": 2.0,
    "variant": "literal",
    "overseas_steps": 2,
    "max_teachers": 4,
}


def test_a_plain_visit_is_sgd_on_the_cross_entropy(
    context: LearnerContext, tiny: ImageSet, participant: Callable[..., Participant]
) -> None:
    given = {name: GIVEN[name] for name in ("batch", "steps", "lr", "momentum", "weight_decay")}
    learner = ClassificationFedAvg.create(context, ClassificationSettings(engine="sequential", **given))
    who = participant(0, 4)
    training = LocalTraining(
        silo=4,
        kernel_px=context.experiment.camera.kernel_px(who.speed_mps, 16),
        blurred_fraction=1.0,
        learning_rate=given["lr"],
        seed=context.streams.integer("training", 0, who.vehicle_id),
        steps=given["steps"],
    )
    start = learner._models.newest()
    close(learner.train([who])[0], *descended(learner, start, training, tiny, given, steps=given["steps"]))


@pytest.mark.parametrize("changes", [{}, {"variant": "labels-once", "max_teachers": 1}], ids=str)
def test_a_taught_visit_is_sgd_on_the_loss_with_teachers_trained_at_their_hosts(
    changes: dict[str, Any],
    new_fedefm: Callable[..., FedEFM],
    group: Callable[..., list[Participant]],
    context: LearnerContext,
    tiny: ImageSet,
) -> None:
    """Copies trained for ``overseas_steps`` at each host; their weights are those that the vehicle reports."""
    given = GIVEN | changes
    learner = new_fedefm(engine="sequential", **given)
    learner.aggregate([])
    me, start = group(1)[0], learner._models.newest()
    update = learner.train([me])[0]
    teachers = {}
    for host in me.peers[: given["max_teachers"]]:
        copied, _ = descended(
            learner, start, learner._local._training_at_host(me, host), tiny, given, steps=given["overseas_steps"]
        )
        teacher = copy.deepcopy(learner._task.network).train()
        teacher.load_state_dict(copied)
        teachers[teacher] = float(update.exchanges[host.vehicle_id])
    assert len(update.exchanges) == len(teachers) == min(given["max_teachers"], 2)
    training = LocalTraining(
        silo=me.silo,
        kernel_px=context.experiment.camera.kernel_px(me.speed_mps, 16),
        blurred_fraction=1.0,
        learning_rate=given["lr"] * (1 + 0.5**0.5) / 2,  # round 1 of 4
        seed=context.streams.integer("training", 1, me.vehicle_id),
        steps=given["steps"],
    )
    close(update, *descended(learner, start, training, tiny, given, steps=given["steps"], teachers=teachers))
