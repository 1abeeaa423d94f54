"""The optimizers are torch's, by name; they step one model as they step many stacked ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from learners.engines.optimizers import Adam, Optimizer, Rate, Sgd

SHAPES = {"matrix": (3, 2), "vector": (4,), "unused": (1,)}
Make = Callable[..., Optimizer]


def sgd(parameters: Mapping[str, Tensor], rate: Rate, state: Mapping[str, Tensor]) -> Optimizer:
    assert not state
    return Sgd(parameters, learning_rate=rate, momentum=0.9, weight_decay=5e-4)


def adam(parameters: Mapping[str, Tensor], rate: Rate, state: Mapping[str, Tensor]) -> Optimizer:
    return Adam(parameters, learning_rate=rate, weight_decay=5e-4, state=state)


def start(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def parameters(tensors: Mapping[str, Tensor]) -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(tensor.clone()) for name, tensor in tensors.items()}


def step(optimizer: Any, of: Mapping[str, nn.Parameter], gradients: Mapping[str, Tensor]) -> None:
    for name, gradient in gradients.items():
        if name != "unused":
            of[name].grad = gradient.clone()
    optimizer.step()


@pytest.mark.parametrize(
    ("make", "theirs"),
    [
        (sgd, lambda them: torch.optim.SGD(them, lr=0.06, momentum=0.9, weight_decay=5e-4)),
        (adam, lambda them: torch.optim.Adam(them, lr=0.06, weight_decay=5e-4)),
    ],
    ids=["sgd", "adam"],
)
def test_equals_torch(make: Make, theirs: Callable[..., torch.optim.Optimizer]) -> None:
    small = {"vector": torch.full(SHAPES["vector"], 1e-8)}  # as small as Adam's epsilon
    ours, reference = (parameters({**start(0), "vector": torch.zeros(SHAPES["vector"])}) for _ in range(2))
    optimizer, other = make(ours, 0.06, {}), theirs(reference.values())
    for i in range(4):
        step(optimizer, ours, start(10 + i) | small)
        step(other, reference, start(10 + i) | small)
        assert all(parameter.grad is None for parameter in ours.values())
    for name, parameter in ours.items():
        torch.testing.assert_close(parameter, reference[name], rtol=1e-6, atol=1e-7)
    assert torch.equal(ours["unused"], start(0)["unused"])


@pytest.mark.parametrize("make", [sgd, adam])
@pytest.mark.parametrize("rates", [(0.06, 0.06, 0.06), (0.06, 0.01, 0.3)], ids=["one rate", "rates"])
def test_stacked_models_are_stepped_like_each_alone(make: Make, rates: tuple[float, ...]) -> None:
    alone = [parameters(start(seed)) for seed in range(3)]
    stack = parameters({name: torch.stack([start(seed)[name] for seed in range(3)]) for name in SHAPES})
    optimizers = [make(one, rate, {}) for one, rate in zip(alone, rates, strict=True)]
    combined = make(stack, torch.tensor(rates, dtype=torch.float64), {})
    for i in range(3):
        gradients = [start(100 * i + seed) for seed in range(3)]
        for optimizer, one, gradient in zip(optimizers, alone, gradients, strict=True):
            step(optimizer, one, gradient)
        step(combined, stack, {name: torch.stack([gradient[name] for gradient in gradients]) for name in SHAPES})
    for i, one in enumerate(alone):
        for name, parameter in one.items():
            torch.testing.assert_close(stack[name][i], parameter, rtol=1e-6, atol=1e-7)


def test_stacked_models_may_have_taken_different_numbers_of_steps() -> None:
    alone = [parameters(start(seed)) for seed in range(2)]
    optimizers: list[Optimizer] = []
    for steps, one in zip((1, 40), alone, strict=True):
        optimizers.append(adam(one, 0.06, {}))
        for i in range(steps):
            step(optimizers[-1], one, start(i))
    states = [optimizer.state() for optimizer in optimizers]
    stack = parameters({name: torch.stack([one[name].detach() for one in alone]) for name in SHAPES})
    combined = adam(stack, 0.06, {name: torch.stack([state[name] for state in states]) for name in states[0]})
    step(combined, stack, {name: torch.stack([start(50)[name], start(51)[name]]) for name in SHAPES})
    for seed, optimizer, one in zip((50, 51), optimizers, alone, strict=True):
        step(optimizer, one, start(seed))
    for i, one in enumerate(alone):
        for name, parameter in one.items():
            torch.testing.assert_close(stack[name][i], parameter, rtol=1e-6, atol=1e-7)
    assert combined.state()["steps"].tolist() == [2, 41]
