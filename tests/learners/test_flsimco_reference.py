"""The shipped learner ``flsimco`` is the method of ``learners.flsimco_reference``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from device_checks.tiny_data import draw_view_one, draw_view_two
from torch import Tensor

from learners.data.augment import apply_view
from learners.data.sets import ImageSet
from learners.encoders import create_encoder
from learners.engines.silo_images import SiloImages
from learners.flsimco import FLSimCo
from learners.flsimco_reference import Vehicle, draw_batches, flsimco
from vnetsim.learning import LearnerContext, Participant

ROUNDS = 2


@pytest.fixture
def double_precision(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    images = SiloImages.images
    monkeypatch.setattr(SiloImages, "images", lambda silos, drawn: images(silos, drawn).double())
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_precision")
def test_the_learner_trains_the_models_of_the_reference(
    tiny: ImageSet, new_context: Callable[..., LearnerContext], participant: Callable[..., Participant]
) -> None:
    """Two rounds of three vehicles of unequal speed, from the same weights and with the same draws."""
    learner = FLSimCo.create(new_context(rounds=ROUNDS), FLSimCo.Settings(batch=8, steps=2, bank=40))
    task: Any = learner._task
    initial = copy.deepcopy(task.network)
    rounds = [
        [
            replace(participant(number, 3 * number + i, speed_mps=speed), passed=number / ROUNDS)
            for i, speed in enumerate((5.0, 20.0, 40.0))
        ]
        for number in range(ROUNDS)
    ]

    def batches(who: Participant) -> Iterator[tuple[Tensor, Tensor]]:
        training = task.local_training_of(who)
        generator = torch.Generator().manual_seed(training.seed)
        for drawn in task.silos.draw(training, 8, generator):
            images = task.silos.images(drawn)
            yield tuple(  # type: ignore[misc]
                apply_view(images, draw(8, (16, 16), generator), tiny.mean, tiny.std)
                for draw in (draw_view_one, draw_view_two)
            )

    vehicles = [[Vehicle(who.speed_mps, list(batches(who))) for who in group] for group in rounds]
    expected = flsimco(initial, vehicles).state_dict()
    for group in rounds:
        learner.aggregate(learner.train(group))
    trained = learner.state_dict()
    for name, tensor in expected.items():
        torch.testing.assert_close(trained[f"model.{name}"], tensor, rtol=1e-9, atol=1e-9)


def test_the_reference_trains_on_views_of_its_own(tiny: ImageSet) -> None:
    before = create_encoder("small", seed=0)
    images = tiny.train[:6].float() / 255
    after = flsimco(copy.deepcopy(before), [[Vehicle(20.0, draw_batches(images, batch=4))]])
    changes = [new - old for new, old in zip(after.parameters(), before.parameters(), strict=True)]
    assert all(change.isfinite().all() for change in changes)
    assert any(change.any() for change in changes)
