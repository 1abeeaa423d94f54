"""Local training of the vehicles of a round: its description, and the engine that trains one vehicle after the other.

A method describes its local training once, as a ``Program``. An engine runs the jobs of a round with the same result:
one by one here (the reference), side by side on the cores of a CPU (``side_by_side``), or by replaying recorded steps
on a GPU (``recorded``). The result of a local training depends only on its start tensors, its silo and its seed;
``train_alone`` ensures this also for networks that draw from the global generators, as dropout does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from learners.data.moving import to_device
from learners.engines.compiled import convert_compile_errors
from learners.engines.optimizers import Optimizer, Rate
from learners.mathematics.mixing import mix_on_board
from vnetsim.errors import RunError
from vnetsim.learning.device import largest_modulus, out_of_memory, read
from vnetsim.learning.global_generators import seeded

Tensors = Mapping[str, Tensor]
State = Tensors
"""Tensors of a model by name, as in ``torch.nn.Module.state_dict``."""
Given = ParamSpec("Given")
Result = TypeVar("Result")
Loss = Callable[[nn.Module, Tensors, Tensors], tuple[Tensor, Tensors]]
OURS = ("learners", "torch")
"""Packages whose classes do not change what they compute while a process runs."""
OF_NETWORKS = 0x5DEECE66D
"""XOR with a job's seed gives the seed of its network's draws, so that they differ from the draws of its images."""


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """One local training.

    Args:
        silo: the images.
        kernel_px: length of the motion kernel that blurs them (px).
        blurred_fraction: share of the silo that blurs.
        learning_rate: step size.
        seed: seed of every random draw of this local training.
        steps: optimizer steps, one or more.
        earlier: other silos whose images are a part of the vehicle's data, with their shares.
        until_s: the vehicle has images that were taken by then (s), but at least a batch; of images without a time all.
        flips_labels: whether the vehicle trains on wrong labels; see ``vnetsim.learning.conduct``.
    """

    silo: int
    kernel_px: float
    blurred_fraction: float
    learning_rate: float
    seed: int
    steps: int
    earlier: tuple[tuple[int, float], ...] = ()
    until_s: float = math.inf
    flips_labels: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """The local training of a method, the same for all vehicles; every function is pure and safe in any thread.

    Args:
        network: the network to train, on the device; engines work on copies of it.
        count: returns the images per step at a silo.
        draw: yields all random draws of each step, on the CPU: the first dimension of every tensor counts the images.
        prepare: makes a batch of the draws, on the device. It treats each image by itself, since a batch may be that of
            many vehicles.
        loss: returns loss and metrics of a step, given the network, the batch with ``TrainingJob.given``, and
            ``TrainingJob.base`` on the device.
        optimizer: makes an optimizer of the network's parameters by name, with a step size, continued from a state.
        value: all that a step depends on but tensors: programs of equal value and equal ``constants`` take the same
            steps. None if only the program itself is known to.
        constants: the tensors that ``prepare`` and ``loss`` read besides their arguments; needed with a ``value``.
    """

    network: nn.Module
    count: Callable[[int], int]
    draw: Callable[[LocalTraining, torch.Generator], Iterable[Tensors]]
    prepare: Callable[[Tensors], Tensors]
    loss: Loss
    optimizer: Callable[[Mapping[str, Tensor], Rate, Tensors], Optimizer]
    value: object = None
    constants: Sequence[Tensor] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingJob:
    """A local training to carry out; its tensors are not changed.

    Args:
        program: what to do.
        training: silo, blur, step size and seed.
        base: the state that the network starts from, all its tensors by name.
        given: further tensors of every batch, by name.
        optimizer: the optimizer's state to continue from; empty for a new one.
        mixed: models to mix in, each after a share of the steps, in [0, 1]; see ``mix_on_board``. Tensors that the
            network lacks are ignored.
    """

    program: Program
    training: LocalTraining
    base: Tensors
    given: Tensors = field(default_factory=dict)
    optimizer: Tensors = field(default_factory=dict)
    mixed: Sequence[tuple[float, Tensors]] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """Result of a local training; nothing else refers to its tensors.

    Args:
        state: the network's state.
        optimizer: the optimizer's state.
        figures: metrics that the loss returned, by name, one row per step.
        means: means over the steps of the metrics with one number per step; set by ``summarise``.
        finite: whether all values of both states and all metrics are finite; set by ``summarise``.
    """

    state: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    figures: dict[str, Tensor]
    means: Mapping[str, float] = field(default_factory=dict)
    finite: bool = True


def summarise(results: Sequence[Trained]) -> list[Trained]:
    """Return the results, in order, with ``means`` and ``finite`` set; wait for the device once for all of them."""
    named = [(i, name) for i, one in enumerate(results) for name, rows in one.figures.items() if rows.ndim == 1]
    rows = [results[i].figures[name].double().mean() for i, name in named]
    largest = [
        largest_modulus([*one.state.values(), *one.optimizer.values(), *one.figures.values()]) for one in results
    ]
    found = iter(read([*rows, *largest]))
    means: list[dict[str, float]] = [{} for _ in results]
    for i, name in named:
        means[i][name] = next(found)
    return [
        replace(one, means=of, finite=math.isfinite(modulus))
        for one, of, modulus in zip(results, means, found, strict=True)
    ]


def to_host(results: Sequence[Trained]) -> list[Trained]:
    """Return the results, in order, with both states in this machine's memory; wait for the device once for all."""
    states = [state for one in results for state in (one.state, one.optimizer)]
    every = {f"{i}.{name}": tensor for i, state in enumerate(states) for name, tensor in state.items()}
    here = iter(to_device(every, torch.device("cpu")).values())
    moved = iter([dict(zip(state, here, strict=False)) for state in states])
    return [replace(one, state=next(moved), optimizer=next(moved)) for one in results]


class Engine(Protocol):
    """Runs the local training of a round."""

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return results in the order of the jobs, each independent of others; RunError if memory is short for one."""
        ...


class SequentialEngine:
    """Trains one vehicle after the other, each on all processor cores: the reference."""

    def __init__(self) -> None:
        self._workspaces: dict[Program, nn.Module] = {}

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs; RunError if there is not enough memory for one job."""
        return summarise([self._train(job) for job in jobs])

    def _train(self, job: TrainingJob) -> Trained:
        """Return a job's result, on a copy of the network that later jobs reuse; RunError if memory is short."""
        if job.program not in self._workspaces:
            self._workspaces[job.program] = copy.deepcopy(job.program.network)
        trained = run_if_memory_suffices(train_alone, job, self._workspaces[job.program])
        if trained is None:
            raise RunError(
                f"out of memory: the training of a single vehicle (silo {job.training.silo}) does not fit; lower "
                "learning.batch or take a smaller learning.encoder."
            )
        return trained


def run_if_memory_suffices(
    call: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs
) -> Result | None:
    """Return the result of a call; None if it raises because GPU or host memory is exhausted. Pass on other errors."""
    try:
        return call(*arguments, **named)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return None


def train_alone(job: TrainingJob, network: nn.Module) -> Trained:
    """Return ``train_one``'s result; the global generators, which no other thread may use, are seeded and restored."""
    with seeded(job.training.seed ^ OF_NETWORKS, device_of(network)):
        return train_one(job, network)


def train_one(job: TrainingJob, network: nn.Module) -> Trained:
    """Return the result of a local training, without ``means`` and ``finite``, which ``summarise`` sets.

    ``network`` is a copy of the program's network that nobody else uses meanwhile; its state is overwritten.
    """
    program = job.program
    generator = torch.Generator().manual_seed(job.training.seed)
    base = to_device(job.base, device_of(network))
    network.load_state_dict(base)
    network.zero_grad(set_to_none=True)  # a training that ran out of memory leaves some
    network.train()
    optimizer = program.optimizer(dict(network.named_parameters()), job.training.learning_rate, job.optimizer)
    rows = []
    steps = job.training.steps
    due = [(round(share * steps), other) for share, other in job.mixed]
    for step, drawn in enumerate(program.draw(job.training, generator)):
        mix_into(network, [other for when, other in due if when == step])
        batch = add_given(program.prepare(drawn), job.given)
        loss, figures = program.loss(network, batch, base)
        with convert_compile_errors():
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rows.append(figures)
    mix_into(network, [other for when, other in due if when == steps])
    return Trained(
        state=copy_state(network.state_dict()),
        optimizer=copy_state(optimizer.state()),
        figures={name: torch.stack([row[name].detach() for row in rows]) for name in rows[0]},
    )


def draw_first(program: Program, training: LocalTraining, generator: torch.Generator) -> Tensors:
    """Return the random draws of a local training's first step, on the CPU; ``generator`` advances."""
    return next(iter(program.draw(replace(training, steps=1), generator)))


def identify_step(step: Loss, network: nn.Module, task: Any) -> object:
    """Return a value that == finds equal for equal steps (not hashable); None for users' classes or unsaved buffers."""
    owner = getattr(step, "__self__", task)
    kinds = [type(one) for one in (task, owner, *network.modules())]
    tensors = network.state_dict(keep_vars=True)
    ours = all(one.__module__.partition(".")[0] in OURS for one in (step, *kinds))
    # buffers that are not in the state would be those of another run
    if not ours or len(tensors) < len([*network.parameters(), *network.buffers()]):
        return None
    layout = [(name, one.dtype, one.shape, one.stride(), one.requires_grad) for name, one in tensors.items()]
    settings = task.settings, getattr(owner, "_settings", None)
    return kinds, settings, getattr(step, "__code__", step), str(network), layout


def add_given(batch: Tensors, given: Tensors) -> Tensors:
    """Return a batch with the tensors of ``TrainingJob.given`` added; ValueError if both have a tensor of one name."""
    if both := batch.keys() & given.keys():
        raise ValueError(f"given returned '{min(both)}', which the task's batch has; take another name")
    return {**batch, **given}


def mix_into(network: nn.Module, others: Sequence[Tensors]) -> None:
    """Mix each model in turn into the network, in place (``mix_on_board``); ignore tensors that the network lacks."""
    for other in others:
        trained = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        there = to_device({name: other[name] for name in network.state_dict() if name in other}, device_of(network))
        network.load_state_dict(mix_on_board(network.state_dict(), there, trained), strict=False)


def device_of(network: nn.Module) -> torch.device:
    """Return the device of a network's first parameter."""
    return next(network.parameters()).device


def call_with_state(network: nn.Module, state: Tensors, *inputs: Tensor, **options: Any) -> Any:
    """Return the network's output with the parameters and buffers of ``state``; network and ``state`` are unchanged."""
    buffers = dict(network.named_buffers())
    # normalisation in training mode changes its statistics: change those of a copy
    tensors = {name: tensor.clone() if name in buffers else tensor for name, tensor in state.items()}
    return functional_call(network, tensors, inputs, options)


def copy_state(state: Tensors) -> dict[str, Tensor]:
    """Return a detached copy of a model's state, each tensor contiguous, on its device."""
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}


def add_prefix(prefix: str, state: Tensors) -> dict[str, Tensor]:
    """Return the tensors with ``prefix`` before their names."""
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


def remove_prefix(prefix: str, state: Tensors) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, under their names without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
