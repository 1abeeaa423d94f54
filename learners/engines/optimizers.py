"""Optimizers of local training, written so that they step the models of one vehicle or of many stacked ones alike.

Stacked, every parameter has the vehicles as its first dimension, and step sizes may differ between them. They are not
torch's own classes: making one of those imports torch's compiler, longer than the training of several vehicles takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

BETA_MEAN = 0.9
BETA_SQUARE = 0.999
EPSILON = 1e-8

Rate = float | Tensor
"""A step size: one number, or one for each stacked model, shape (V,)."""


class Optimizer(Protocol):
    """What changes parameters by their gradients."""

    def step(self) -> None:
        """Apply the gradients and clear them; parameters without one stay."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return what it needs to continue later; empty when nothing."""
        ...


class Sgd:
    """Stochastic gradient descent with momentum and weight decay, the update rule of ``torch.optim.SGD``.

    Its velocity ends with the local training.

    Args:
        parameters: what to change, by name.
        learning_rate: step size.
        momentum: factor of the previous update.
        weight_decay: factor of the parameter added to its gradient.
    """

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
        for name, parameter in self._parameters.items():
            if parameter.grad is None:
                continue
            gradient = parameter.grad.add(parameter, alpha=self._weight_decay)
            before = self._velocity.get(name)
            velocity = gradient if before is None else before.mul_(self._momentum).add_(gradient)
            self._velocity[name] = velocity
            _descend(parameter, velocity, self._learning_rate)
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return nothing: a local training begins at rest."""
        return {}


class Adam:
    """Adam (Kingma and Ba 2015) with weight decay added to the gradient, the update rule of ``torch.optim.Adam``.

    Its state can be kept, so that a silo's moments outlive the vehicle that carried them. All parameters that ever get
    a gradient get one in every step, so one count of steps serves them all.

    Args:
        parameters: what to change, by name.
        learning_rate: step size.
        weight_decay: factor of the parameter added to its gradient.
        state: what ``state`` returned after earlier steps; it stays as it is. Empty to begin.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        *,
        learning_rate: Rate,
        weight_decay: float,
        state: Mapping[str, Tensor],
    ) -> None:
        self._parameters = dict(parameters)
        self._learning_rate = learning_rate
        self._weight_decay = weight_decay
        # float64 on the CPU: powers of the betas near 1 keep their digits, and one number comes from no device
        self._steps = state["steps"].to("cpu", copy=True) if state else torch.tensor(0)
        self._means = self._moments("mean", state)
        self._squares = self._moments("square", state)

    def state(self) -> dict[str, Tensor]:
        """Return ``steps`` and, for every parameter that ever had a gradient, ``mean.NAME`` and ``square.NAME``."""
        tensors = {"steps": self._steps}
        tensors.update((f"mean.{name}", tensor) for name, tensor in self._means.items())
        tensors.update((f"square.{name}", tensor) for name, tensor in self._squares.items())
        return tensors

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients and clear them; parameters without one stay."""
        self._steps = self._steps + 1
        steps = self._steps.to(torch.float64)
        size, root = 1 / (1 - BETA_MEAN**steps), (1 - BETA_SQUARE**steps).sqrt()
        rate = _plain(self._learning_rate * size)
        for name, parameter in self._parameters.items():
            if parameter.grad is None:
                continue
            gradient = parameter.grad.add(parameter, alpha=self._weight_decay)
            mean = self._means.setdefault(name, torch.zeros_like(parameter)).lerp_(gradient, 1 - BETA_MEAN)
            square = self._squares.setdefault(name, torch.zeros_like(parameter))
            square.mul_(BETA_SQUARE).addcmul_(gradient, gradient, value=1 - BETA_SQUARE)
            spread = (square.sqrt() / _for(parameter, _plain(root))).add_(EPSILON)
            _descend(parameter, mean / spread, rate)
            parameter.grad = None

    def _moments(self, kind: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        names = (name for name in self._parameters if f"{kind}.{name}" in state)
        return {name: state[f"{kind}.{name}"].to(self._parameters[name].device, copy=True) for name in names}


class CombinedOptimizer:
    """Several optimizers that step one after the other.

    Args:
        optimizers: each with the prefix under which its state is kept.
    """

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        self._optimizers = dict(optimizers)

    def step(self) -> None:
        """Let each apply its gradients."""
        for optimizer in self._optimizers.values():
            optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Return all states, each under its prefix."""
        return {
            f"{prefix}{name}": tensor
            for prefix, optimizer in self._optimizers.items()
            for name, tensor in optimizer.state().items()
        }


def moments_like(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return names, shapes and types of the state that ``Adam`` may have for these parameters."""
    return {"steps": torch.tensor(0)} | {f"{kind}.{n}": t for kind in ("mean", "square") for n, t in parameters.items()}


def _plain(rate: Rate) -> Rate:
    """Return a tensor of one value as a number, which spares a copy to the device."""
    return float(rate) if isinstance(rate, Tensor) and rate.ndim == 0 else rate


def _for(parameter: Tensor, rate: Rate) -> Rate:
    """Return a rate in a shape that multiplies a parameter, each stacked model by its own."""
    if not isinstance(rate, Tensor):
        return rate
    return rate.to(device=parameter.device, dtype=parameter.dtype).view(-1, *[1] * (parameter.ndim - 1))


def _descend(parameter: Tensor, direction: Tensor, rate: Rate) -> None:
    factor = _for(parameter, rate)
    if isinstance(factor, Tensor):
        parameter.sub_(direction * factor)
    else:
        parameter.sub_(direction, alpha=factor)
