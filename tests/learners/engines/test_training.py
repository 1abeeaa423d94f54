"""Local training: what a vehicle draws, what it depends on, and what it leaves untouched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
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
    summarise,
)
from learners.engines.silo_images import SiloImages
from learners.local_training import make_step, mean_loss
from vnetsim.errors import RunError

CPU = torch.device("cpu")
TRAINING = LocalTraining(silo=0, kernel_px=0.0, blurred_fraction=1.0, learning_rate=0.1, seed=7, steps=3)


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
    return dealt.images(next(dealt.draw(training, count, torch.Generator().manual_seed(seed))))


def indices(images: torch.Tensor) -> list[int]:
    return sorted((images[:, 0, 0, 0] * 255).round().int().tolist())


def test_draws_without_replacement_from_its_own_silo():
    drawn = indices(draw(1, 6))
    assert len(set(drawn)) == 6
    assert set(drawn) <= set(range(5, 15))
    assert drawn != indices(draw(1, 6, seed=1))


def test_a_vehicle_that_was_elsewhere_holds_a_part_of_that():
    """As many images as its silo has; of each silo the first, the first share of which blurs."""
    dealt = silos(5, 10, 5)
    training = replace(TRAINING, silo=1, kernel_px=3.0, blurred_fraction=0.5, earlier=((0, 0.4), (2, 0.2)))
    drawn = next(dealt.draw(training, 100, torch.Generator().manual_seed(0)))
    held = dict(zip(drawn["rows"].tolist(), drawn["kernel_px"].tolist(), strict=True))
    assert sorted(held) == [0, 1, 2, 3, 5, 6, 7, 8, 15, 16]
    assert sorted(row for row, kernel_px in held.items() if kernel_px) == [0, 1, 5, 6, 15]
    for earlier, others in ((((2, 0.7),), range(5, 10)), (((0, 0.7), (2, 0.7)), range(5))):
        more = next(dealt.draw(replace(training, earlier=earlier), 100, torch.Generator().manual_seed(0)))
        assert sorted(more["rows"].tolist()) == [*others, *range(15, 20)], "no silo gives more than it has"


def test_the_first_images_of_a_silo_blur():
    sharp, blurred = draw(1, 10), draw(1, 10, kernel_px=1.5, fraction=0.3)
    expected = motion_blur(sharp, torch.full((10,), 1.5))
    for before, after, full in zip(sharp, blurred, expected, strict=True):
        is_first = round(float(before[0, 0, 0]) * 255) < 5 + 3
        assert torch.equal(after, full if is_first else before)
    assert not torch.equal(sharp, blurred)


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


def program(model: nn.Module, *, loss: Loss = square, optimizer: Any = sgd) -> Program:
    """Return the training of ``model`` on batches of 4 images and a random number for each."""
    dealt = silos(5, 10)

    def draw(training: LocalTraining, generator: torch.Generator) -> Iterator[Tensors]:
        for images in dealt.draw(training, 4, generator):
            yield {**images, "noise": torch.rand(len(images["rows"]), generator=generator)}

    def prepare(drawn: Tensors) -> Tensors:
        return {"images": dealt.images(drawn), "noise": drawn["noise"]}

    return Program(
        network=model,
        count=lambda silo: min(4, dealt.size(silo)),
        draw=draw,
        prepare=prepare,
        loss=loss,
        optimizer=optimizer,
    )


def train(what: Program, base: Tensors, training: LocalTraining = TRAINING, **more: Tensors) -> Trained:
    return SequentialEngine().train([TrainingJob(program=what, training=training, base=base, **more)])[0]


def test_one_step_by_hand():
    def loss(model: nn.Module, *_: object) -> tuple[torch.Tensor, Tensors]:
        value = (model.weight**2).sum()  # type: ignore[operator]
        return value, {"loss": value, "weight": model.weight[0].detach().clone()}  # type: ignore[index]

    trained = train(program(Line(), loss=loss), Line().state_dict(), replace(TRAINING, steps=2))
    # gradients 4 and 2 x 1.6 = 3.2; velocities 4 and 0.9 x 4 + 3.2 = 6.8
    assert trained.state["weight"].item() == pytest.approx(2.0 - 0.1 * 4 - 0.1 * 6.8, rel=1e-6)
    assert trained.means["loss"] == pytest.approx((4.0 + 1.6**2) / 2, rel=1e-6)
    assert trained.figures["weight"].tolist() == pytest.approx([2.0, 1.6])  # one row per step
    assert trained.finite
    assert not any(tensor.requires_grad for tensor in (*trained.state.values(), *trained.figures.values()))


def test_a_loss_that_is_not_one_number_is_told():
    for found, what in ((torch.ones(2), r"a tensor of shape \(2,\)"), (0.5, "a float")):
        with pytest.raises(TypeError, match=rf"^loss returned {what}, expected a tensor of shape \(\), such as"):
            make_step(lambda *_, found=found: found)(Line(), {}, {})


def test_the_loss_of_a_round_is_the_mean_over_its_updates():
    updates: Any = [SimpleNamespace(loss=loss) for loss in (1.0, 2.0, 6.0)]
    assert (mean_loss(updates), mean_loss([])) == ({"loss": 3.0}, {})


def test_a_copy_lies_plainly_in_memory_of_its_own():
    """Whatever the layout of the original: layouts decide in which order is added, and so about the last bits."""
    of = {"w": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_(), "t": torch.rand(3, 4).T}
    copied = copy_state(of)
    assert all(torch.equal(copied[name], tensor) and copied[name].is_contiguous() for name, tensor in of.items())
    assert not copied["w"].requires_grad
    copied["t"].zero_()
    assert of["t"].any()


@pytest.mark.parametrize("part", ["state", "optimizer", "figures"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_one_value_in_any_part_makes_a_visit_not_finite(part, value):
    trained = train(program(Line(), optimizer=adam), Line().state_dict())
    assert trained.finite
    name = {"state": "weight", "optimizer": "square.weight", "figures": "loss"}[part]
    getattr(trained, part)[name][-1] = value
    assert [one.finite for one in summarise([trained, replace(trained, state={}, optimizer={}, figures={})])] == [
        False,
        True,
    ]


def test_a_pool_that_does_not_fit_says_so(monkeypatch):
    def no_room(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.Tensor, "to", no_room)
    with pytest.raises(RunError, match=r"^out of memory: the images \(2.88e-06 GB\) do not fit on cpu; lower data"):
        silos(5, 10)
