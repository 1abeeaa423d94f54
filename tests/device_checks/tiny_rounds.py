"""Every learner on tiny data, on any device, and the jobs that it hands to its engine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from device_checks import learner_class
from device_checks.tiny_data import SILOS, tiny_images, tiny_roads
from device_checks.training_work import context, vehicles
from learners.data.sets import SteeringSet
from learners.engines.programs import Engine, Program, SequentialEngine, Tensors, Trained, TrainingJob
from vnetsim.learning import Participant

SETTINGS: dict[str, dict[str, Any]] = {
    "contrastive": {"batch": 4, "steps": 2, "bank": 40},
    "steering": {"batch": 4, "steps": 2, "dropout": 0.3},
    "classification": {"batch": 4, "steps": 2, "local_test": 12},
}
"""Of the learners of a task: a local training takes milliseconds."""


@contextmanager
def tiny_data() -> Iterator[None]:
    """Let learners load the tiny sets, silo i with the i-th part of the roads."""
    pictures, roads = tiny_images(), tiny_roads()

    def parts(frames: SteeringSet, *, silos: int, **_: object) -> list[Any]:
        return [rows.numpy() for rows in torch.arange(len(frames.train)).tensor_split(silos)]

    with (
        mock.patch("learners.tasks.task.load_images", return_value=pictures),
        mock.patch("learners.tasks.steering.load_steering", return_value=roads),
        mock.patch("learners.tasks.steering.partition_steering", parts),
    ):
        yield


def tiny_learner(name: str, device: str, **settings: Any) -> Any:
    """Return one of this repository's learners on tiny data."""
    kind = learner_class(name)
    with tiny_data():
        return kind.create(context(device, SILOS, rounds=4), kind.Settings(**(SETTINGS[kind.task] | settings)))


def joined(round_: int, count: int = 3) -> list[Participant]:
    """Return participants of a round, each of whom has exchanged with all others."""
    return vehicles(count, round_=round_, peers=count - 1, speed_mps=lambda i: 15.0 + 8 * i)


def play(learner: Any, rounds: int, count: int = 3) -> Iterator[dict[str, float]]:
    """Play rounds with evaluation; yield the figures of each, mean training loss included."""
    for round_ in range(rounds):
        updates = learner.train(joined(round_, count))
        figures = {"mean loss": sum(update.loss for update in updates) / len(updates)}
        figures |= learner.aggregate(updates).metrics
        yield figures | learner.evaluate(final=round_ == rounds - 1)


class Kept:
    """An engine that keeps every call's jobs, trained one after the other."""

    def __init__(self) -> None:
        self.calls: list[list[TrainingJob]] = []
        self._engine = SequentialEngine()

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        self.calls.append(list(jobs))
        return self._engine.train(jobs)


def jobs_of(learner: Any, rounds: int = 2) -> list[list[TrainingJob]]:
    """Return the jobs of a learner's first rounds, call by call."""
    kept: Any = Kept()
    learner._task.engine = kept
    for round_ in range(rounds):
        learner.aggregate(learner.train(joined(round_)))
    return kept.calls


def in_double(tensors: Tensors, device: str) -> dict[str, Tensor]:
    """Return tensors on a device, those of floating point in double precision."""
    moved = {name: tensor.to(device) for name, tensor in tensors.items()}
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in moved.items()}


class Doubled:
    """Makes jobs in double precision of the jobs of two learners, the same but for their device.

    What a job starts from and its prepared batches are those of the first, on the CPU: only the network, the loss and
    the optimizer then compute on the device of the second.

    Args:
        device: where the jobs are to be computed.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._programs: dict[Program, Program] = {}

    def __call__(self, first: TrainingJob, second: TrainingJob | None = None) -> TrainingJob:
        given = (second or first).program
        if given not in self._programs:
            prepare = first.program.prepare
            self._programs[given] = replace(
                given,
                network=copy.deepcopy(given.network).double(),
                prepare=lambda drawn: in_double(prepare(drawn), self._device),
            )
        return replace(
            first,
            program=self._programs[given],
            base=in_double(first.base, self._device),
            given=in_double(first.given, self._device),
            optimizer=in_double(first.optimizer, self._device),
        )


class Disturbed:
    """Makes jobs whose initial weights are off in their last place, up or down by chance.

    Args:
        seed: of the draws.
    """

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, job: TrainingJob) -> TrainingJob:
        return replace(job, base={name: self._off(tensor) for name, tensor in job.base.items()})

    def _off(self, tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        up = torch.rand(tensor.shape, generator=self._generator) < 0.5
        return tensor * torch.where(up, 1.0, -1.0).to(tensor.dtype).mul(torch.finfo(tensor.dtype).eps).add(1)


Altered = Callable[[TrainingJob], TrainingJob]


class AlteredEngine(SequentialEngine):
    """Alters jobs before they are trained; the results have the precision of the jobs as they were given.

    Args:
        altered: makes the job that is trained.
    """

    def __init__(self, altered: Altered) -> None:
        super().__init__()
        self._altered = altered

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs."""
        return [
            replace(trained, **{part: in_single(getattr(trained, part)) for part in ("state", "optimizer", "figures")})
            for trained in super().train([self._altered(job) for job in jobs])
        ]


def in_single(tensors: Tensors) -> dict[str, Tensor]:
    """Return tensors, those in double precision in single precision."""
    return {name: tensor.float() if tensor.dtype == torch.float64 else tensor for name, tensor in tensors.items()}


def flat(trained: Trained) -> Tensor:
    """Return all values of a result in one row, on the CPU, named in an order of their own."""
    parts = (trained.state, trained.optimizer, trained.figures)
    return torch.cat([part[name].detach().cpu().reshape(-1).double() for part in parts for name in sorted(part)])


def results(engine: Engine, calls: Sequence[Sequence[TrainingJob]]) -> list[Tensor]:
    """Return what an engine makes of each job."""
    return [flat(trained) for jobs in calls for trained in engine.train(jobs)]
