"""Optimizers of local training.

torch's own classes import its compiler when created, which takes longer than the training of several vehicles. Like
them, these step all parameters in a few operations on lists, which take few kernels on a GPU.
"""

# ruff: noqa: SLF001 - torch has no other names for operations on lists

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from learners.data.moving import copy_each, has_fixed_shapes, to_device

BETA_MEAN = 0.9
BETA_SQUARE = 0.999
EPSILON = 1e-8

Rate = float | Tensor
"""A step size: a number, or a tensor of shape () on the parameters' device."""


class Optimizer(Protocol):
    """Changes parameters in place by their gradients."""

    def step(self) -> None:
        """Apply the gradients and clear them; parameters without one stay."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return the state to continue from later, its tensors not copied; empty if there is none."""
        ...

    def restart(self, state: Mapping[str, Tensor]) -> None:
        """Overwrite the present state in place with a copy of an earlier result of ``state``; empty: as if new."""
        ...


class Sgd:
    """Stochastic gradient descent with momentum and weight decay, the update rule of ``torch.optim.SGD``."""

    def __init__(
        self, parameters: Mapping[str, Tensor], *, learning_rate: Rate, momentum: float, weight_decay: float
    ) -> None:
        self._parameters = dict(parameters)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._velocity: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients and clear them; parameters without one stay."""
        stepped = {name: one for name, one in self._parameters.items() if one.grad is not None}
        if not stepped:
            return
        gradients = _decayed_gradients(stepped, self._weight_decay)
        before = [self._velocity[name] for name in stepped if name in self._velocity]
        if before:
            torch._foreach_mul_(before, self._momentum)
            torch._foreach_add_(before, [gradients[name] for name in stepped if name in self._velocity])
        self._velocity = {**gradients, **self._velocity}
        _descend(stepped, [self._velocity[name] for name in stepped], self._learning_rate)

    def state(self) -> dict[str, Tensor]:
        """Return an empty dict: each local training starts with velocity 0."""
        return {}

    def restart(self, state: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        """Set the velocity to 0, whatever ``state`` is."""
        torch._foreach_zero_(list(self._velocity.values()))


class Adam:
    """Adam (Kingma and Ba 2015) with weight decay added to the gradient, the update rule of ``torch.optim.Adam``.

    Unlike torch's, it has one count of steps for all parameters. So every parameter must have a gradient in every step
    or in none. A silo can keep its state: ``state`` is what ``state`` returned earlier, and is not changed; empty to
    begin.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], *, learning_rate: Rate, weight_decay: float, state: Mapping[str, Tensor]
    ) -> None:
        self._parameters = dict(parameters)
        self._learning_rate = learning_rate
        self._weight_decay = weight_decay
        device = next((one.device for one in self._parameters.values()), torch.device("cpu"))
        kept = to_device(state, device)
        self._steps = kept["steps"].clone() if state else torch.zeros((), dtype=torch.int64, device=device)
        self._means = self._moments("mean", kept)
        self._squares = self._moments("square", kept)

    def state(self) -> dict[str, Tensor]:
        """Return ``steps`` and, for every parameter that ever had a gradient, ``mean.NAME`` and ``square.NAME``."""
        tensors = {"steps": self._steps}
        tensors.update((f"mean.{name}", tensor) for name, tensor in self._means.items())
        tensors.update((f"square.{name}", tensor) for name, tensor in self._squares.items())
        return tensors

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients and clear them; parameters without one stay. One more step counts for all parameters."""
        self._steps.add_(1)
        steps = self._steps.to(torch.float64)  # powers of the betas near 1 keep their digits
        size, root = 1 / (1 - BETA_MEAN**steps), (1 - BETA_SQUARE**steps).sqrt()
        stepped = {name: one for name, one in self._parameters.items() if one.grad is not None}
        if not stepped:
            return
        gradients = list(_decayed_gradients(stepped, self._weight_decay).values())
        for name, parameter in stepped.items():
            if name not in self._means:
                self._means[name], self._squares[name] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        means, squares = ([moments[name] for name in stepped] for moments in (self._means, self._squares))
        torch._foreach_lerp_(means, gradients, 1 - BETA_MEAN)
        torch._foreach_mul_(squares, BETA_SQUARE)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - BETA_SQUARE)
        spreads = torch._foreach_sqrt(squares)
        torch._foreach_div_(spreads, _rate_for(root, spreads[0]))
        torch._foreach_add_(spreads, EPSILON)
        _descend(stepped, torch._foreach_div(means, spreads), self._learning_rate * size)

    def restart(self, state: Mapping[str, Tensor]) -> None:
        """Copy steps and moments of ``state`` into the present tensors; those that ``state`` lacks become 0."""
        here = self.state()
        self._steps.zero_()
        if moments := [*self._means.values(), *self._squares.values()]:
            torch._foreach_zero_(moments)
        copy_each([here[name] for name in state], list(state.values()))

    def _moments(self, kind: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return copies of ``state``'s moments of a kind ("mean" or "square"), by parameter; empty if it has none."""
        kept = {name.removeprefix(f"{kind}."): one for name, one in state.items() if name.startswith(f"{kind}.")}
        # in the layout of the parameter, without which a GPU takes a kernel for each tensor of a list
        return {
            name: one.clone() if one.device.type == "cpu" else torch.empty_like(self._parameters[name]).copy_(one)
            for name, one in kept.items()
        }


class CombinedOptimizer:
    """Several optimizers, each given with the prefix of its state's names, that step one after the other."""

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        self._optimizers = dict(optimizers)

    def step(self) -> None:
        """Let each optimizer, in order, apply and clear its gradients."""
        for optimizer in self._optimizers.values():
            optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of all states, their names with the optimizer's prefix."""
        return {
            f"{prefix}{name}": tensor
            for prefix, optimizer in self._optimizers.items()
            for name, tensor in optimizer.state().items()
        }

    def restart(self, state: Mapping[str, Tensor]) -> None:
        """Let each optimizer continue from the part of ``state`` under its prefix."""
        for prefix, optimizer in self._optimizers.items():
            optimizer.restart({n.removeprefix(prefix): one for n, one in state.items() if n.startswith(prefix)})


def _decayed_gradients(parameters: Mapping[str, Tensor], weight_decay: float) -> dict[str, Tensor]:
    """Return, by name, gradient + ``weight_decay`` * parameter, and clear the gradients; every parameter has one."""
    tensors = list(parameters.values())
    gradients = torch._foreach_add([one.grad for one in tensors if one.grad is not None], tensors, alpha=weight_decay)
    for parameter in tensors:
        parameter.grad = None
    return dict(zip(parameters, gradients, strict=True))


def _rate_for(rate: Rate, like: Tensor) -> float | Tensor:
    """Return a rate as a number, but a tensor as one of ``like``'s type where reading it would block the device."""
    return rate.to(like.dtype) if isinstance(rate, Tensor) and has_fixed_shapes(like.device) else float(rate)


def _descend(parameters: Mapping[str, Tensor], directions: list[Tensor] | tuple[Tensor, ...], rate: Rate) -> None:
    """Subtract the rate times ``directions`` (one per parameter) from the parameters (one or more), in place."""
    tensors = list(parameters.values())
    factor = _rate_for(rate, tensors[0])
    if tensors[0].device.type != "cpu":  # a number and a tensor give the same bits
        torch._foreach_sub_(tensors, torch._foreach_mul(directions, factor))
    elif isinstance(factor, float):
        torch._foreach_sub_(tensors, directions, alpha=factor)
    else:  # with the bits of a number on a CPU
        torch._foreach_addcmul_(tensors, directions, [factor] * len(directions), value=-1)
