"""Local training: the optimizer, what a visit depends on, and what it leaves untouched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from learners.data.motion import motion_blur
from learners.silos import Silos
from learners.training import SequentialEngine, Sgd, Visit
from vnetsim.errors import InputError

CPU = torch.device("cpu")
VISIT = Visit(silo=0, kernel_px=0.0, blurred_fraction=1.0, learning_rate=0.1, seed=7)


def silos(*sizes: int) -> Silos:
    total = sum(sizes)
    # the first pixel is the image's index in the pool
    images = torch.arange(total, dtype=torch.uint8)[:, None, None, None] * torch.ones(1, 3, 8, 8, dtype=torch.uint8)
    images[:, :, :, 4:] = 255
    ends = np.cumsum(sizes)
    return Silos(images, [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)], device=CPU)


def draw(silo: int, count: int, *, seed: int = 0, kernel_px: float = 0.0, fraction: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return silos(5, 10).draw(silo, count, kernel_px=kernel_px, blurred_fraction=fraction, generator=generator)


def indices(images: torch.Tensor) -> list[int]:
    return sorted((images[:, 0, 0, 0] * 255).round().int().tolist())


def test_draws_without_replacement_from_its_own_silo() -> None:
    drawn = indices(draw(1, 6))
    assert len(set(drawn)) == 6
    assert set(drawn) <= set(range(5, 15))
    assert drawn != indices(draw(1, 6, seed=1))


def test_a_small_silo_gives_all_it_has() -> None:
    assert indices(draw(0, 100)) == list(range(5))


def test_the_first_images_of_a_silo_blur() -> None:
    sharp, blurred = draw(1, 10), draw(1, 10, kernel_px=3.5, fraction=0.3)
    expected = motion_blur(sharp, torch.full((10,), 3.5))
    for before, after, full in zip(sharp, blurred, expected, strict=True):
        is_first = round(float(before[0, 0, 0]) * 255) < 5 + 3
        assert torch.equal(after, full if is_first else before)
    assert not torch.equal(sharp, blurred)


def test_a_kernel_of_one_pixel_changes_nothing() -> None:
    assert torch.equal(draw(1, 10, kernel_px=1.0), draw(1, 10))


def test_label_counts() -> None:
    labels = torch.tensor([0] * 5 + [1, 2] * 5)
    assert silos(5, 10).label_counts(labels, 4).tolist() == [[5, 0, 0, 0], [0, 5, 5, 0]]


def test_a_silo_of_one_image_is_refused() -> None:
    with pytest.raises(InputError, match="silo 1 holds 1 images and needs at least 2"):
        silos(3, 1)


def test_sgd_equals_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(3, 2, generator=generator), torch.randn(4, generator=generator), torch.randn(1)]
    ours, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    sgd = Sgd(ours, learning_rate=0.06, momentum=0.9, weight_decay=5e-4)
    reference = torch.optim.SGD(theirs, lr=0.06, momentum=0.9, weight_decay=5e-4)
    for _ in range(4):
        for a, b in zip(ours[:2], theirs[:2], strict=True):  # the last has no gradient
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        sgd.step()
        reference.step()
        assert all(parameter.grad is None for parameter in ours)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


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


def square(model: nn.Module, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    noise = torch.rand(len(images), generator=generator)
    result: torch.Tensor = ((model(images) + noise) ** 2).mean()
    return result


def engine(model: nn.Module, *, steps: int = 3, objective: object = square) -> SequentialEngine:
    return SequentialEngine(
        model,
        silos(5, 10),
        objective=objective,  # type: ignore[arg-type]
        steps=steps,
        batch=4,
        momentum=0.9,
        weight_decay=0.0,
    )


def test_one_step_by_hand() -> None:
    def objective(model: nn.Module, *_: object) -> torch.Tensor:
        return (model.weight**2).sum()  # type: ignore[operator]

    model = Line()
    trained = engine(model, steps=2, objective=objective).train(Line().state_dict(), VISIT)
    # gradients 4 and 2 x 1.6 = 3.2; velocities 4 and 0.9 x 4 + 3.2 = 6.8
    assert trained.state["weight"].item() == pytest.approx(2.0 - 0.1 * 4 - 0.1 * 6.8, rel=1e-6)
    assert trained.loss == pytest.approx((4.0 + 1.6**2) / 2, rel=1e-6)
    assert trained.finite


def test_a_visit_depends_on_its_arguments_alone() -> None:
    model = Line()
    trainer, base = engine(model), Line().state_dict()
    first = trainer.train(base, VISIT)
    trainer.train({"weight": torch.tensor([-5.0]), "seen": torch.tensor(3)}, replace(VISIT, silo=1, seed=8))
    again = trainer.train(base, VISIT)
    assert torch.equal(first.state["weight"], again.state["weight"])
    assert first.loss == again.loss
    assert first.state["seen"].item() == 3
    assert base["weight"].item() == 2.0
    for change in ({"seed": 8}, {"silo": 1}, {"learning_rate": 0.2}, {"kernel_px": 4.0}):
        other = trainer.train(base, replace(VISIT, **change))
        assert other.loss != first.loss, change


def test_global_random_state_is_left_alone() -> None:
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    engine(Line()).train(Line().state_dict(), VISIT)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (np.random.get_state(legacy=False)["state"]["key"] == numpy_state).all()  # noqa: NPY002


def test_divergence_is_reported() -> None:
    trained = engine(Line()).train(Line().state_dict(), replace(VISIT, learning_rate=1e30))
    assert not trained.finite


def test_images_per_visit() -> None:
    assert [engine(Line()).images_per_visit(silo) for silo in (0, 1)] == [12, 12]
    small = SequentialEngine(Line(), silos(3, 10), objective=square, steps=2, batch=8, momentum=0, weight_decay=0)
    assert [small.images_per_visit(silo) for silo in (0, 1)] == [6, 16]
