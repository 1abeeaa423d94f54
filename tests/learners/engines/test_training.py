"""Local training: what a vehicle draws, what it depends on, and what it leaves untouched."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from learner_checks import equal
from torch import nn

from learners.data.motion import motion_blur
from learners.engines.optimizers import Adam, Optimizer, Rate, Sgd
from learners.engines.programs import (
    LocalTraining,
    Loss,
    Program,
    SequentialEngine,
    Tensors,
    Trained,
    TrainingJob,
    copy_state,
    frozen,
    read,
)
from learners.engines.silo_images import SiloImages
from learners.tasks.task import Task, TrainingSettings
from vnetsim.errors import RunError
from vnetsim.learning import LearnerContext, Participant

CPU = torch.device("cpu")
TRAINING = LocalTraining(silo=0, kernel_px=0.0, blurred_fraction=1.0, learning_rate=0.1, seed=7)


def silos(*sizes: int) -> SiloImages:
    total = sum(sizes)
    # the first pixel is the image's index in the pool
    images = torch.arange(total, dtype=torch.uint8)[:, None, None, None] * torch.ones(1, 3, 8, 8, dtype=torch.uint8)
    images[:, :, :, 4:] = 255
    ends = np.cumsum(sizes)
    return SiloImages(images, [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)], device=CPU)


def draw(silo: int, count: int, *, seed: int = 0, kernel_px: float = 0.0, fraction: float = 1.0) -> torch.Tensor:
    dealt = silos(5, 10)
    training = replace(TRAINING, silo=silo, kernel_px=kernel_px, blurred_fraction=fraction)
    return dealt.images(dealt.draw(training, count, torch.Generator().manual_seed(seed)))


def indices(images: torch.Tensor) -> list[int]:
    return sorted((images[:, 0, 0, 0] * 255).round().int().tolist())


def test_draws_without_replacement_from_its_own_silo() -> None:
    drawn = indices(draw(1, 6))
    assert len(set(drawn)) == 6
    assert set(drawn) <= set(range(5, 15))
    assert drawn != indices(draw(1, 6, seed=1))


def test_the_first_images_of_a_silo_blur() -> None:
    sharp, blurred = draw(1, 10), draw(1, 10, kernel_px=3.5, fraction=0.3)
    expected = motion_blur(sharp, torch.full((10,), 3.5))
    for before, after, full in zip(sharp, blurred, expected, strict=True):
        is_first = round(float(before[0, 0, 0]) * 255) < 5 + 3
        assert torch.equal(after, full if is_first else before)
    assert not torch.equal(sharp, blurred)


def test_label_counts() -> None:
    labels = torch.tensor([0] * 5 + [1, 2] * 5)
    assert silos(5, 10).label_counts(labels, 4).tolist() == [[5, 0, 0, 0], [0, 5, 5, 0]]


def test_draws_lie_on_the_cpu_and_name_rows_of_the_pool() -> None:
    drawn = silos(5, 10).draw(replace(TRAINING, silo=1, kernel_px=3.5, blurred_fraction=0.3), 10, torch.Generator())
    assert {name: tensor.device for name, tensor in drawn.items()} == {"rows": CPU, "kernel_px": CPU}
    expected = torch.where(drawn["rows"] < 5 + 3, 3.5, 0.0)
    assert torch.equal(drawn["kernel_px"], expected)


def test_images_of_several_vehicles_are_those_of_each() -> None:
    dealt, generator = silos(5, 10), torch.Generator().manual_seed(0)
    trainings = [replace(TRAINING, silo=1, kernel_px=kernel_px) for kernel_px in (0.0, 0.7, 2.5, 6.0)]
    draws = [dealt.draw(training, 4, generator) for training in trainings]
    together = dealt.images({name: torch.cat([drawn[name] for drawn in draws]) for name in draws[0]})
    assert torch.equal(together, torch.cat([dealt.images(drawn) for drawn in draws]))


class Line(nn.Module):
    """A model small enough to follow by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0]))
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += 1
        return self.weight * images.square().mean(dim=(1, 2, 3))


def square(model: nn.Module, batch: Tensors, _: Tensors) -> tuple[torch.Tensor, Tensors]:
    loss = ((model(batch["images"]) + batch["noise"]) ** 2).mean()
    return loss, {"loss": loss}


def sgd(parameters: Mapping[str, torch.Tensor], rate: Rate, _: Tensors) -> Optimizer:
    return Sgd(parameters, learning_rate=rate, momentum=0.9, weight_decay=0.0)


def adam(parameters: Mapping[str, torch.Tensor], rate: Rate, state: Tensors) -> Optimizer:
    return Adam(parameters, learning_rate=rate, weight_decay=0.0, state=state)


def program(model: nn.Module, *, steps: int = 3, loss: Loss = square, optimizer: Any = sgd) -> Program:
    """Return the training of ``model`` on batches of 4 images and a random number for each."""
    dealt = silos(5, 10)

    def draw(training: LocalTraining, generator: torch.Generator) -> Tensors:
        images = dealt.draw(training, 4, generator)
        return {**images, "noise": torch.rand(len(images["rows"]), generator=generator)}

    def prepare(drawn: Tensors) -> Tensors:
        return {"images": dealt.images(drawn), "noise": drawn["noise"]}

    return Program(
        network=model,
        steps=steps,
        count=lambda silo: min(4, dealt.size(silo)),
        draw=draw,
        prepare=prepare,
        loss=loss,
        optimizer=optimizer,
    )


def train(what: Program, base: Tensors, training: LocalTraining = TRAINING, **more: Tensors) -> Trained:
    return SequentialEngine().train([TrainingJob(program=what, training=training, base=base, **more)])[0]


def test_one_step_by_hand() -> None:
    def loss(model: nn.Module, *_: object) -> tuple[torch.Tensor, Tensors]:
        value = (model.weight**2).sum()  # type: ignore[operator]
        return value, {"loss": value, "weight": model.weight[0].detach().clone()}  # type: ignore[index]

    trained = train(program(Line(), steps=2, loss=loss), Line().state_dict())
    # gradients 4 and 2 x 1.6 = 3.2; velocities 4 and 0.9 x 4 + 3.2 = 6.8
    assert trained.state["weight"].item() == pytest.approx(2.0 - 0.1 * 4 - 0.1 * 6.8, rel=1e-6)
    assert trained.mean("loss") == pytest.approx((4.0 + 1.6**2) / 2, rel=1e-6)
    assert trained.figures["weight"].tolist() == pytest.approx([2.0, 1.6])  # one row per step
    assert trained.finite
    assert not any(tensor.requires_grad for tensor in (*trained.state.values(), *trained.figures.values()))


def test_a_visit_depends_on_its_arguments_alone() -> None:
    engine, what, base = SequentialEngine(), program(Line()), Line().state_dict()
    other_base = {"weight": torch.tensor([-5.0]), "seen": torch.tensor(3)}
    first, _, again = engine.train(
        [
            TrainingJob(program=what, training=TRAINING, base=base),
            TrainingJob(program=what, training=replace(TRAINING, silo=1, seed=8), base=other_base),
            TrainingJob(program=what, training=TRAINING, base=base),
        ]
    )
    assert torch.equal(first.state["weight"], again.state["weight"])
    assert torch.equal(first.figures["loss"], again.figures["loss"])
    assert first.state["seen"].item() == 3
    for change in ({"seed": 8}, {"silo": 1}, {"learning_rate": 0.2}, {"kernel_px": 4.0}):
        other = engine.train([TrainingJob(program=what, training=replace(TRAINING, **change), base=base)])[0]  # type: ignore[arg-type]
        assert other.mean("loss") != first.mean("loss"), change


def test_a_visit_leaves_what_it_was_given_and_keeps_what_it_returned() -> None:
    def loss(model: nn.Module, batch: Tensors, given: Tensors) -> tuple[torch.Tensor, Tensors]:
        value, _ = square(model, batch, given)
        return value + (model.weight - batch["anchor"]).square().sum(), {"loss": value}  # type: ignore[operator]

    model, engine = Line(), SequentialEngine()
    what = program(model, loss=loss, optimizer=adam)
    begun = train(what, Line().state_dict(), given={"anchor": torch.tensor([1.0])})
    job = TrainingJob(
        program=what,
        training=TRAINING,
        base=begun.state,
        given={"anchor": torch.tensor([1.0])},
        optimizer=begun.optimizer,
    )
    given = copy.deepcopy((job.base, job.given, job.optimizer))
    first = engine.train([job])[0]
    kept = copy.deepcopy((first.state, first.optimizer, first.figures))
    engine.train([replace(job, given={"anchor": torch.tensor([9.0])})])
    assert all(equal(now, before) for now, before in zip((job.base, job.given, job.optimizer), given, strict=True))
    assert all(
        equal(now, before) for now, before in zip((first.state, first.optimizer, first.figures), kept, strict=True)
    )
    assert equal(model.state_dict(), Line().state_dict())  # the program's network is copied
    assert first.optimizer["steps"].item() == 6  # three of the first time, three of the second
    assert not equal(first.optimizer, begun.optimizer)


def test_a_copy_lies_plainly_in_memory_of_its_own() -> None:
    """Whatever the layout of the original: layouts decide in which order is added, and so about the last bits."""
    of = {"w": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_(), "t": torch.rand(3, 4).T}
    copied = copy_state(of)
    assert all(torch.equal(copied[name], tensor) and copied[name].is_contiguous() for name, tensor in of.items())
    assert not copied["w"].requires_grad
    copied["t"].zero_()
    assert of["t"].any()


@pytest.mark.parametrize("part", ["state", "optimizer", "figures"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_one_value_in_any_part_makes_a_visit_not_finite(part: str, value: float) -> None:
    trained = train(program(Line(), optimizer=adam), Line().state_dict())
    assert trained.finite
    name = {"state": "weight", "optimizer": "square.weight", "figures": "loss"}[part]
    getattr(trained, part)[name][-1] = value
    assert [one.finite for one in read([trained, replace(trained, state={}, optimizer={}, figures={})])] == [
        False,
        True,
    ]


class Small(nn.Module):
    """A network with statistics."""

    def __init__(self, *, seed: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(3), nn.Linear(3, 2)
        generator = torch.Generator().manual_seed(seed)
        for tensor in (*self.parameters(), self.norm.running_mean):
            nn.init.normal_(tensor, generator=generator)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(self.norm(x))
        return result


@pytest.mark.parametrize("training", [True, False])
def test_frozen_is_another_network_and_moves_no_statistics(training: bool) -> None:
    own, other = Small(seed=0).train(training), Small(seed=1).train(training)
    before, state = copy.deepcopy(own.state_dict()), copy.deepcopy(other.state_dict())
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(2))
    output = frozen(own, state, x)
    assert equal(state, other.state_dict())
    assert equal(own.state_dict(), before)
    assert torch.equal(output, other(x))
    assert not torch.equal(output, own(x))


class Bare(Task):
    """Images and a network alone."""

    training = loss = evaluate = series = describe = None  # type: ignore[assignment]


def test_images_per_training(context: LearnerContext) -> None:
    def images(*, steps: int, batch: int) -> list[int]:
        task = Bare(
            context,
            TrainingSettings(steps=steps, batch=batch),
            train=torch.zeros(13, 3, 8, 8, dtype=torch.uint8),
            test=torch.zeros(2, 3, 8, 8, dtype=torch.uint8),
            indices=[np.arange(3), np.arange(3, 13)],
            network=nn.Conv2d(3, 2, 3),
        )
        drawn = [
            sum(len(what.draw(replace(TRAINING, silo=silo), torch.Generator())["rows"]) for _ in range(what.steps))
            for what in [task.program(square, draw=lambda *_: {}, prepare=lambda *_: {}, optimizer=sgd)]
            for silo in (0, 1)
        ]
        counted = [task.images_per_training(silo) for silo in (0, 1)]
        assert counted == drawn
        return counted

    assert images(steps=3, batch=2) == [6, 6]
    assert images(steps=2, batch=8) == [6, 16]


def test_a_training_says_its_steps_only_where_it_is_not_whole(
    context: LearnerContext, participant: Callable[..., Participant]
) -> None:
    """A whole one takes those of its program, which may be others than the settings'."""
    task = Bare(
        context,
        TrainingSettings(steps=6),
        train=torch.zeros(6, 3, 8, 8, dtype=torch.uint8),
        test=torch.zeros(2, 3, 8, 8, dtype=torch.uint8),
        indices=[np.arange(6)],
        network=nn.Conv2d(3, 2, 3),
    )
    steps = {share: task.local_training_of(participant(0, 0, work_share=share)).steps for share in (1.0, 0.5, 0.01)}
    assert steps == {1.0: 0, 0.5: 3, 0.01: 1}


def test_a_pool_that_does_not_fit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.Tensor, "to", no_room)
    with pytest.raises(RunError, match=r"^out of memory: the images \(2.88e-06 GB\) do not fit on cpu; lower data"):
        silos(5, 10)
