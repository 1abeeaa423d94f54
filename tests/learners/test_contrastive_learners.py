"""What the contrastive learners have in common, and that they differ by their weights alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from device_checks import learner_class as learner_class_of
from device_checks import registered
from learner_checks import equal, mark_all_only

from learners.data.sets import ImageSet
from learners.encoders import forward_flop
from learners.engines.programs import draw_first
from learners.fedavg import Discard, FedAvg
from learners.flsimco import FLSimCo
from learners.mathematics.weights import blur_weights
from learners.tasks.contrastive import count_neighbours
from vnetsim.experiment.rounds import MODELS
from vnetsim.learning import LearnerContext, Participant

QUICK = {"batch": 8, "bank": 40}

MakeParticipant = Callable[..., Participant]


CONTRASTIVE = [cls for cls in map(learner_class_of, registered()) if cls.task == "contrastive"]


@pytest.fixture(params=mark_all_only(CONTRASTIVE, {"flsimco", "fedco"}))
def learner_class(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def new(tiny: ImageSet, context: LearnerContext) -> Callable[..., Any]:  # noqa: ARG001  replaces the images
    """Return a maker of learners on the tiny set."""

    def make(cls: Any, given: LearnerContext | None = None, **settings: Any) -> Any:
        return cls.create(given or context, cls.Settings(**(QUICK | settings)))

    return make


def test_the_papers_model_on_the_clock_is_the_one_that_can_be_trained(new: Callable[..., Any]) -> None:
    """What ``cost.model = "resnet18"`` charges, 44.98 MB each way and 1.11 GFLOP an image of 32 x 32 pixels."""
    learner = new(FLSimCo, encoder="resnet18")
    assert MODELS["resnet18"][:2] == (learner.cost(0).upload_bytes, forward_flop(learner._task.network, (3, 32, 32)))
    assert new(FLSimCo).cost(0).of(*MODELS["resnet18"][:3]).upload_bytes == learner.cost(0).upload_bytes


def test_local_statistics_are_not_sent(
    learner_class: Any, new: Callable[..., Any], participant: MakeParticipant
) -> None:
    average, local = new(learner_class), new(learner_class, batchnorm="local")
    assert local.cost(0).upload_bytes < average.cost(0).upload_bytes
    vehicles = [participant(0, i) for i in range(2)]
    update = local.train(vehicles)[0]
    assert not any("running" in name or "tracked" in name for name in update.state)
    assert update.loss == average.train(vehicles)[0].loss  # training uses the batch's own statistics
    before = local.state_dict()
    local.aggregate(local.train(vehicles))
    after = local.state_dict()
    assert torch.equal(before["model.trunk.bn1.running_mean"], after["model.trunk.bn1.running_mean"])
    assert not torch.equal(before["model.fc.weight"], after["model.fc.weight"])
    assert 0 <= local.evaluate(final=False)["knn_accuracy"] <= 1


def test_the_learning_rate_falls_with_time_where_time_ends_the_run(
    new: Callable[..., Any], new_context: Callable[..., LearnerContext], participant: MakeParticipant
) -> None:
    """Of those whose update counts, the figure is of who started last; half way it is half of the first."""
    learner = new(FLSimCo, new_context(rounds=None))
    started = [replace(participant(0, number), passed=passed) for number, passed in enumerate((0.25, 0.5))]
    assert learner._task.learning_rate(0.0) == learner._task.settings.lr
    assert learner.aggregate(learner.train(started)).metrics["learning_rate"] == pytest.approx(0.03)
    assert "learning_rate" not in learner.aggregate([]).metrics


def test_learning_rate_follows_a_cosine(new: Callable[..., Any]) -> None:
    learner = new(FLSimCo, lr=0.08)
    rates = [learner.aggregate([]).metrics["learning_rate"] for _ in range(6)]
    cosine = [0.04 * (1 + np.cos(np.pi * r / 4)) for r in range(4)]
    assert rates == pytest.approx([*cosine, 0.0, 0.0], abs=1e-15)


def test_the_methods_differ_by_their_weights_alone(new: Callable[..., Any], participant: MakeParticipant) -> None:
    vehicles = [participant(0, i, speed_mps=kmh / 3.6) for i, kmh in enumerate((60, 80, 100, 120, 150))]
    states, weights, deviations = [], {}, {}
    for cls in (FLSimCo, FedAvg, Discard):
        learner = new(cls)
        updates = learner.train(vehicles)
        states.append([dict(update.state) for update in updates])
        done = learner.aggregate(updates)
        weights[cls.name], deviations[cls.name] = list(done.weights), done.metrics["weight_deviation"]
    assert all(equal(a, b) and equal(b, c) for a, b, c in zip(*states, strict=True))
    assert weights["flsimco"] == pytest.approx(blur_weights([60, 80, 100, 120, 150]).tolist(), rel=1e-12)
    assert weights["fedavg"] == [0.2] * 5
    assert weights["discard"] == pytest.approx([1 / 3] * 3 + [0, 0])
    by_hand = np.array([0.220588, 0.210784, 0.200980, 0.191176, 0.176471])
    assert deviations["flsimco"] == pytest.approx(np.sqrt(np.mean((5 * by_hand - 1) ** 2)), abs=1e-5)
    assert deviations["fedavg"] == 0
    assert deviations["discard"] == pytest.approx(np.sqrt((3 * (2 / 3) ** 2 + 2) / 5))


def test_discard_keeps_the_model_when_all_are_too_fast(new: Callable[..., Any], participant: MakeParticipant) -> None:
    learner = new(Discard, limit_kmh=50.0)
    before = learner.state_dict()
    done = learner.aggregate(learner.train([participant(0, i, speed_mps=20.0) for i in range(2)]))
    assert list(done.weights) == [0.0, 0.0]
    assert "weight_deviation" not in done.metrics
    assert torch.equal(learner.state_dict()["model.fc.weight"], before["model.fc.weight"])


def test_the_bank_is_a_random_part_of_the_training_images(new: Callable[..., Any], tiny: ImageSet) -> None:
    def rows(bank: int) -> list[int]:
        task = new(FLSimCo, bank=bank)._task
        held = task.silos.pool[task._bank]
        return [int((tiny.train == image).flatten(1).all(dim=1).nonzero()) for image in held]

    part = rows(40)
    assert len(set(part)) == 40
    assert part == rows(40)
    assert sorted(part) != list(range(40))
    assert sorted(rows(0)) == list(range(len(tiny.train)))


def test_one_in_250_of_the_bank_vote(new: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    voting = [count_neighbours(bank) for bank in (50_000, 12_500, 9_500, 2_000, 375, 96)]
    assert voting == [200, 50, 38, 8, 2, 1]
    asked = []
    monkeypatch.setattr(
        "learners.tasks.contrastive.knn_predict",
        lambda q, *_, k, temperature, **__: asked.append((k, temperature)) or q[:, 0].long(),
    )
    for settings in ({"bank": 0}, {"bank": 40}):
        learner = new(FLSimCo, **settings)
        learner.evaluate(final=False)
        said = f"{asked[-1][0]} of {settings['bank'] or 96} clean training images vote"
        assert learner.describe().facts["kNN"] == said
    assert asked == [(1, 0.1)] * 2


def test_plain_negatives_are_the_images_themselves(
    new: Callable[..., Any], participant: MakeParticipant, tiny: ImageSet
) -> None:
    """As the vehicle sees them; a third pass of the encoder, which a vehicle pays for, and the record says so."""
    views, plain = new(FLSimCo, steps=1), new(FLSimCo, steps=1, negatives="plain", engine="sequential")
    assert plain.cost(0).work_flop == views.cost(0).work_flop * 3 / 2
    assert plain.describe().facts["Negatives"].startswith("the other images without augmentation")
    assert views.describe().facts["Negatives"].startswith("the other images' second views")
    who = participant(0, 0, speed_mps=1.0)  # no blur
    program = plain._local._program
    drawn = draw_first(program, plain._task.local_training_of(who), torch.Generator().manual_seed(0))
    center, spread = (torch.tensor(c).view(1, 3, 1, 1) for c in (tiny.mean, tiny.std))
    normalised = (tiny.train / 255 - center) / spread
    for image in program.prepare(drawn)["plain"]:
        assert float((normalised - image).abs().amax(dim=(1, 2, 3)).min()) < 1e-5
    assert plain.train([who])[0].loss != views.train([who])[0].loss
