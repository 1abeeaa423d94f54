"""The optimizers are torch's, by name; one that restarts in place is as good as new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from learners.engines.optimizers import Adam, CombinedOptimizer, Optimizer, Rate, Sgd
from learners.engines.programs import remove_prefix

SHAPES = {"matrix": (3, 2), "vector": (4,), "unused": (1,)}


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
def test_equals_torch(make, theirs):
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


def both(parameters: Mapping[str, Tensor], rate: Rate, state: Mapping[str, Tensor]) -> Optimizer:
    matrix, others = ({n: one for n, one in parameters.items() if (n == "matrix") is first} for first in (True, False))
    parts = {"a.": adam(matrix, rate, remove_prefix("a.", state)), "b.": adam(others, rate, remove_prefix("b.", state))}
    return CombinedOptimizer(parts)


@pytest.mark.parametrize("make", [sgd, adam, both])
def test_an_optimizer_that_restarts_is_a_new_one(make):
    before = parameters(start(9))
    earlier = make(before, 0.3, {})
    for i in range(3):
        step(earlier, before, start(i))
    for state in ({}, earlier.state()):
        ours, theirs = parameters(start(1)), parameters(start(1))
        used = make(ours, 0.06, {})
        step(used, ours, start(2))
        places = {name: tensor.data_ptr() for name, tensor in used.state().items()}
        with torch.no_grad():
            for name, parameter in ours.items():
                parameter.copy_(theirs[name])
        used.restart(state)
        new = make(theirs, 0.06, state)
        for i in range(2):
            step(used, ours, start(4 + i))
            step(new, theirs, start(4 + i))
        assert all(torch.equal(ours[name], theirs[name]) for name in SHAPES)
        assert used.state().keys() == new.state().keys()
        assert all(torch.equal(tensor, new.state()[name]) for name, tensor in used.state().items())
        assert places == {name: tensor.data_ptr() for name, tensor in used.state().items()}


def test_a_state_that_an_optimizer_continues_from_is_not_changed():
    ours = parameters(start(0))
    optimizer = adam(ours, 0.06, {})
    step(optimizer, ours, start(1))
    kept = {name: tensor.clone() for name, tensor in optimizer.state().items()}
    given = {name: tensor.clone() for name, tensor in kept.items()}
    step(adam(ours, 0.06, given), ours, start(2))
    assert all(torch.equal(given[name], kept[name]) for name in kept)
