"""Adam whose state can be kept: a silo's moments outlive the vehicle that carried them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

BETA_MEAN = 0.9
BETA_SQUARE = 0.999
EPSILON = 1e-8


class Adam:
    """Adam (Kingma and Ba 2015) with weight decay added to the gradient, the update rule of ``torch.optim.Adam``.

    Not that class itself; see ``learners.training.Sgd``. All parameters that ever get a gradient get one in every
    step, so one count of steps serves them all.

    Args:
        parameters: what to change, by name.
        learning_rate: step size.
        weight_decay: factor of the parameter added to its gradient.
        state: what ``state`` returned after earlier steps; it stays as it is. Empty to begin.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        learning_rate: float,
        weight_decay: float,
        state: Mapping[str, Tensor],
    ) -> None:
        self._parameters = dict(parameters)
        self._learning_rate = learning_rate
        self._weight_decay = weight_decay
        self._steps = int(state["steps"]) if state else 0
        self._means = self._moments("mean", state)
        self._squares = self._moments("square", state)

    def state(self) -> dict[str, Tensor]:
        """Return ``steps`` and, for every parameter that ever had a gradient, ``mean.NAME`` and ``square.NAME``."""
        tensors = {"steps": torch.tensor(self._steps)}
        tensors.update((f"mean.{name}", tensor) for name, tensor in self._means.items())
        tensors.update((f"square.{name}", tensor) for name, tensor in self._squares.items())
        return tensors

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients and clear them; parameters without one stay."""
        self._steps += 1
        size = self._learning_rate / (1 - BETA_MEAN**self._steps)
        root = math.sqrt(1 - BETA_SQUARE**self._steps)
        for name, parameter in self._parameters.items():
            if parameter.grad is None:
                continue
            gradient = parameter.grad.add(parameter, alpha=self._weight_decay)
            mean = self._means.setdefault(name, torch.zeros_like(parameter)).lerp_(gradient, 1 - BETA_MEAN)
            square = self._squares.setdefault(name, torch.zeros_like(parameter))
            square.mul_(BETA_SQUARE).addcmul_(gradient, gradient, value=1 - BETA_SQUARE)
            parameter.addcdiv_(mean, (square.sqrt() / root).add_(EPSILON), value=-size)
            parameter.grad = None

    def _moments(self, kind: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        names = (name for name in self._parameters if f"{kind}.{name}" in state)
        return {name: state[f"{kind}.{name}"].to(self._parameters[name].device, copy=True) for name in names}


def moments_like(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return names, shapes and types of the state that ``Adam`` may have for these parameters."""
    return {"steps": torch.tensor(0)} | {f"{kind}.{n}": t for kind in ("mean", "square") for n, t in parameters.items()}
