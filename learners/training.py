"""Local training of the vehicles of a round: the sequential reference engine.

A visit is a function of the model it starts from, its silo and its seed; nothing of one visit reaches another, so a
participant's result does not depend on who else takes part. An engine that trains several vehicles in one batch
must reproduce this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from learners.silos import Silos

Objective = Callable[[nn.Module, Tensor, torch.Generator], Tensor]
"""Loss of a model on images in [0, 1], shape (B, C, H, W); the generator feeds random views."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One local training.

    Args:
        silo: the images.
        kernel_px: length of the motion kernel they are blurred with (px).
        blurred_fraction: share of the silo that blurs.
        learning_rate: step size.
        seed: seed of every random draw of this visit.
    """

    silo: int
    kernel_px: float
    blurred_fraction: float
    learning_rate: float
    seed: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Trained:
    """Result of a visit.

    Args:
        state: the model's state, a copy that nothing else refers to.
        loss: mean loss over the steps.
        finite: whether every value of ``state`` is.
    """

    state: dict[str, Tensor]
    loss: float
    finite: bool


class Sgd:
    """Stochastic gradient descent with momentum and weight decay, the update rule of ``torch.optim.SGD``.

    Not that class itself: making one imports torch's compiler, longer than the training of several vehicles takes.

    Args:
        parameters: what to change.
        learning_rate: step size.
        momentum: factor of the previous update.
        weight_decay: factor of the parameter added to its gradient.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, learning_rate: float, momentum: float, weight_decay: float
    ) -> None:
        self._parameters = list(parameters)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._velocity: list[Tensor | None] = [None] * len(self._parameters)

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients and clear them; parameters without one stay."""
        for i, parameter in enumerate(self._parameters):
            if parameter.grad is None:
                continue
            gradient = parameter.grad.add(parameter, alpha=self._weight_decay)
            velocity = self._velocity[i]
            velocity = gradient if velocity is None else velocity.mul_(self._momentum).add_(gradient)
            self._velocity[i] = velocity
            parameter.sub_(velocity, alpha=self._learning_rate)
            parameter.grad = None


class SequentialEngine:
    """Trains one vehicle after the other in one workspace model.

    Args:
        model: the workspace, on the silos' device; its state is overwritten by every visit.
        silos: the images.
        objective: the loss of a step.
        steps: optimizer steps per visit.
        batch: images per step; a smaller silo gives all it has.
        momentum: see ``Sgd``; a new optimizer at each visit.
        weight_decay: see ``Sgd``.
    """

    def __init__(
        self,
        model: nn.Module,
        silos: Silos,
        *,
        objective: Objective,
        steps: int,
        batch: int,
        momentum: float,
        weight_decay: float,
    ) -> None:
        self._model = model
        self._silos = silos
        self._objective = objective
        self._steps = steps
        self._batch = batch
        self._momentum = momentum
        self._weight_decay = weight_decay

    def images_per_visit(self, silo: int) -> int:
        """Return how many images a visit to ``silo`` draws over all its steps."""
        return self._steps * min(self._batch, self._silos.size(silo))

    def train(self, base: Mapping[str, Tensor], visit: Visit) -> Trained:
        """Return what a vehicle makes of the model ``base``, which stays as it is."""
        generator = torch.Generator(self._silos.device).manual_seed(visit.seed)
        model = self._model
        model.load_state_dict(base)
        model.train()
        optimizer = Sgd(
            model.parameters(),
            learning_rate=visit.learning_rate,
            momentum=self._momentum,
            weight_decay=self._weight_decay,
        )
        losses = []
        for _ in range(self._steps):
            images = self._silos.draw(
                visit.silo,
                self._batch,
                kernel_px=visit.kernel_px,
                blurred_fraction=visit.blurred_fraction,
                generator=generator,
            )
            loss = self._objective(model, images, generator)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.detach())
        state = copy_state(model.state_dict())
        finite = torch.stack([tensor.isfinite().all() for tensor in state.values()]).all()
        return Trained(state=state, loss=float(torch.stack(losses).mean()), finite=bool(finite))


def cosine(first: float, round_: int, rounds: int) -> float:
    """Return the step size of a round: ``first`` in round 0, falling along half a cosine to 0 after ``rounds``."""
    return first * (1 + math.cos(math.pi * min(round_ / rounds, 1.0))) / 2


def copy_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a detached copy of a model's state, in the plain memory layout."""
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
