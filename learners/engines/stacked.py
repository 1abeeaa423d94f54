"""Training of several vehicles as one: their networks are stacked, and every operation serves all of them.

``torch.func.vmap`` turns the loss of one vehicle into that of a stack. One backward pass gives each vehicle its own
gradient, and one optimizer step moves all. BatchNorm uses each vehicle's own images and statistics. Random draws are
made per vehicle, from its own generator; images are prepared for all vehicles in one batch.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from learners.data.moving import to_device
from learners.engines.optimizers import Rate
from learners.engines.programs import Program, Tensors, Trained, TrainingJob, add_prefix, copy_state, device_of


def stackable(jobs: Sequence[TrainingJob]) -> list[list[int]]:
    """Return groups of jobs (by index) that can be stacked: same program, number of steps, and shapes of tensors.

    A job that mixes in models during training is a group of its own.
    """
    groups: dict[object, list[int]] = {}
    for i, job in enumerate(jobs):
        shapes = [
            tuple((name, tensor.shape) for name, tensor in tensors.items()) for tensors in (job.given, job.optimizer)
        ]
        size = job.training.steps, job.program.count(job.training.silo)
        groups.setdefault((job.program, *size, *shapes, i if job.mixed else None), []).append(i)
    return list(groups.values())


def train_stacked(jobs: Sequence[TrainingJob]) -> list[Trained]:
    """Return the results of a group of ``stackable``, in order; ``summarise`` sets their ``means`` and ``finite``."""
    program = jobs[0].program
    device = device_of(program.network)
    generators = [torch.Generator().manual_seed(job.training.seed) for job in jobs]
    base = _stack([job.base for job in jobs], device)
    copies = copy_state(base)
    trained = {name for name, parameter in program.network.named_parameters() if parameter.requires_grad}
    state = {name: tensor.requires_grad_() if name in trained else tensor for name, tensor in copies.items()}
    parameters = {name: state[name] for name, _ in program.network.named_parameters()}
    given = _stack([job.given for job in jobs], device)
    rates = [job.training.learning_rate for job in jobs]
    rate: Rate = rates[0] if len(set(rates)) == 1 else torch.tensor(rates, dtype=torch.float64)
    optimizer = program.optimizer(parameters, rate, _stack([job.optimizer for job in jobs]))
    step = _Step(program).train()

    def loss_of_one(state: Tensors, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensors]:
        """Return loss and metrics of one vehicle whose network has the tensors ``state``."""
        result: tuple[Tensor, Tensors] = functional_call(step, add_prefix("network.", state), (batch, base))
        return result

    loss = vmap(loss_of_one)
    rows = []
    for _ in range(jobs[0].training.steps):
        drawn = [program.draw(job.training, generator) for job, generator in zip(jobs, generators, strict=True)]
        batch = program.prepare({name: torch.cat([one[name] for one in drawn]) for name in drawn[0]})
        apart = {name: tensor.view(len(jobs), -1, *tensor.shape[1:]) for name, tensor in batch.items()}
        losses, figures = loss(state, {**given, **apart}, base)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rows.append({name: figure.detach() for name, figure in figures.items()})
    kept = optimizer.state()
    stacked = {name: torch.stack([row[name] for row in rows], dim=1) for name in rows[0]}
    return [
        Trained(
            state=copy_state(_of(i, state)), optimizer=copy_state(_of(i, kept)), figures=copy_state(_of(i, stacked))
        )
        for i in range(len(jobs))
    ]


class _Step(nn.Module):
    """A program's loss as a module, so that a call can replace the network's tensors."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.network = copy.deepcopy(program.network)
        self._loss = program.loss

    def forward(self, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensors]:
        """Return loss and metrics of one vehicle."""
        return self._loss(self.network, batch, base)


def _stack(states: Sequence[Tensors], device: torch.device | None = None) -> dict[str, Tensor]:
    """Stack tensors of one name along a new first dimension, on ``device`` if given; shared ones are expanded."""
    common = [name for name, first in states[0].items() if all(state[name] is first for state in states)]
    whole = {
        name: first if name in common else torch.stack([state[name] for state in states])
        for name, first in states[0].items()
    }
    there = whole if device is None else to_device(whole, device)
    return {n: tensor.expand(len(states), *tensor.shape) if n in common else tensor for n, tensor in there.items()}


def _of(vehicle: int, stack: Tensors) -> dict[str, Tensor]:
    """Return one vehicle's tensors; a tensor of shape () is common to all and returned itself."""
    return {name: tensor[vehicle] if tensor.ndim else tensor for name, tensor in stack.items()}
