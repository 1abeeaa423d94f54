"""An engine that has the vehicles of a round trained by the workers of a Ray cluster, on this machine and on others.

The process is connected to the cluster before (``vnetsim.runs.ray_cluster``). Every worker has a device for itself: a
GPU, or else a CPU of the cluster. It keeps silos and programs, and is sent, round by round, the models that they
start from. A worker that dies has what it was at trained by the others, and is replaced where the cluster has room.

On CPUs the result is that of one machine, bit for bit: each vehicle is trained as the engine of the settings does it,
with as many threads as this process has. Where vehicles of large steps are to stay on one core each, OMP_NUM_THREADS=1
says so for all.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from learners.engines.programs import Engine, Program, Result, SequentialEngine, Tensors, Trained, TrainingJob
from learners.engines.ray_worker import Parcel, Part, Worker, WorkerSettings, versions
from learners.engines.shipping import Hold, packed, unpacked_result
from vnetsim.errors import InputError, RunError, one_line
from vnetsim.experiment.arithmetic import Arithmetic
from vnetsim.process import RETRIES

LOGGER = logging.getLogger(__name__)

AHEAD = 2
"""Parcels that a worker has at a time: one to train, and one for when that is done."""
PARCELS = 4
"""Parcels for each worker of a round of many vehicles: the last one to finish keeps the others waiting less."""
LARGEST_PARCEL, PARCEL_BYTES = 32, 2**26
"""Most vehicles of a parcel, and most that their models take."""
BEGIN_S = 300.0
"""How long to wait for a first worker; each loads torch, and the cluster may be busy."""
LOOK_S = 5.0


class RayEngine:
    """Trains on the Ray cluster that this process is connected to.

    Args:
        name: setting ``learning.engine``: how a worker trains what it is sent.
        device: that of the learner; the workers' are of its kind.
        local: for what is no training, which is not sent.

    Attributes:
        at_once: jobs that keep all workers busy.

    Raises:
        InputError: the device is one of several, or the cluster has none of its kind.
    """

    def __init__(self, name: str, device: torch.device, local: Engine) -> None:
        import ray  # noqa: PLC0415 - an extra

        if ":" in str(device):
            raise InputError(f"--device {device}: with --engine ray every worker has a device for itself; say cuda.")
        kind = "GPU" if device.type == "cuda" else "CPU"
        count = int(ray.cluster_resources().get(kind, 0))
        if not count:
            raise InputError(f"--engine ray: the cluster has no {kind}, and the learner is to be trained on one.")
        self._device = device
        self._local = local
        self._failure = "is it busy with other work?"
        self._settings = WorkerSettings(
            engine=name, device=device.type, threads=torch.get_num_threads(), arithmetic=Arithmetic.present()
        )
        self._hold = Hold(ray.put)
        self.at_once = count * AHEAD
        self._programs: dict[Program, tuple[int, Any]] = {}
        self._workers: list[_Remote] = []
        self._beginning: list[_Remote] = [self._new() for _ in range(count)]

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel, within a learner whose program is sent, as an engine that needs nothing."""
        return SequentialEngine, ()

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs; see ``Engine``."""
        import ray  # noqa: PLC0415

        if not jobs:
            return []
        shared = _Shared(jobs, ray.put)
        for worker in self._workers:
            worker.parcels.clear()  # of a round that was broken off
        self._first()
        waiting = deque(_parcels(jobs, len(self._workers)))
        results: dict[int, Trained] = {}
        deaths: dict[int, int] = {}  # by first place of a parcel
        while len(results) < len(jobs):
            self._first()
            for worker in sorted(self._workers, key=lambda one: len(one.parcels)):
                while waiting and len(worker.parcels) < AHEAD:
                    places = waiting.popleft()
                    worker.parcels[self._send(worker, jobs, places, shared)] = places
            for worker, reference in self._answered():
                places = worker.parcels[reference]
                try:
                    answer = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise (error.cause or error) from error
                except ray.exceptions.RayError as error:
                    waiting.extendleft(reversed(self._bury(worker, jobs, deaths, error)))
                else:
                    del worker.parcels[reference]
                    results.update(zip(places, map(unpacked_result, answer), strict=True))
        return [results[i] for i in range(len(jobs))]

    def map(self, program: Program, calls: Sequence[Callable[[nn.Module], Result]]) -> list[Result]:
        """Return what the calls return, in order, made in this process; see ``Engine``."""
        return self._local.map(program, calls)

    def _answered(self) -> list[tuple[_Remote, Any]]:
        """Wait for an answer; return who gave it, and the reference. Workers that have begun meanwhile are taken."""
        import ray  # noqa: PLC0415

        owners = {reference: worker for worker in self._workers for reference in worker.parcels}
        news = [*owners, *(worker.begun for worker in self._beginning)]
        ready, _ = ray.wait(news, num_returns=1, timeout=LOOK_S)
        if any(reference not in owners for reference in ready):
            self._join()
        return [(owners[reference], reference) for reference in ready if reference in owners]

    def _send(self, worker: _Remote, jobs: Sequence[TrainingJob], places: Sequence[int], shared: _Shared) -> Any:
        """Give a worker some jobs; return a reference to their results."""
        some = [jobs[i] for i in places]
        numbers = [self._program(job.program)[0] for job in some]
        parts = [(shared.part(job.base), shared.part(job.given), shared.part(job.optimizer)) for job in some]
        used = {part for of_job in parts for part in of_job if isinstance(part, int)}
        parcel = Parcel(programs=numbers, trainings=[job.training for job in some], parts=parts)
        programs = dict(self._program(job.program) for job in some)
        return worker.actor.train.remote(parcel, programs, {place: shared.references[place] for place in used})

    def _program(self, program: Program) -> tuple[int, Any]:
        """Return number and reference of a program, which is sent once."""
        import ray  # noqa: PLC0415

        if program not in self._programs:
            self._programs[program] = len(self._programs), ray.put(self._hold.shipped(program))
        return self._programs[program]

    def _new(self) -> _Remote:
        import ray  # noqa: PLC0415

        gpus = 1 if self._device.type == "cuda" else 0
        return _Remote(ray.remote(Worker).options(num_cpus=1, num_gpus=gpus, max_restarts=0).remote(self._settings))

    def _first(self) -> None:
        """Wait until a worker has begun, and take all that have.

        Raises:
            RunError: none begins in time, or on a machine with other versions.
        """
        import ray  # noqa: PLC0415

        end_s = time.monotonic() + BEGIN_S
        while True:
            self._join()
            if self._workers:
                return
            if not self._beginning or time.monotonic() > end_s:
                raise RunError(f"--engine ray: no worker of the Ray cluster has begun: {self._failure}")
            ray.wait([one.begun for one in self._beginning], num_returns=1, timeout=LOOK_S)

    def _join(self) -> None:
        """Take the workers that have begun since the last look.

        Raises:
            RunError: one is on a machine with other versions.
        """
        import ray  # noqa: PLC0415

        if not self._beginning:
            return
        begun = [one.begun for one in self._beginning]
        ready, _ = ray.wait(begun, num_returns=len(begun), timeout=0)
        still = [one for one in self._beginning if one.begun not in ready]
        for worker in self._beginning:
            if worker.begun not in ready:
                continue
            try:
                theirs = ray.get(worker.begun)
            except ray.exceptions.RayError as error:  # it died before it began
                self._failure = one_line(error)[:300]
                continue
            if theirs != versions():
                raise RunError(
                    f"--engine ray: a worker has {theirs}, this process {versions()}; install the same on all machines."
                )
            self._workers.append(worker)
        self._beginning = still

    def _bury(
        self, worker: _Remote, jobs: Sequence[TrainingJob], deaths: dict[int, int], error: Exception
    ) -> list[Sequence[int]]:
        """Let a dead worker be replaced; return what it had been given, for others.

        Raises:
            RunError: what it was at has cost too many workers.
        """
        lost = list(worker.parcels.values())
        worker.parcels.clear()
        self._workers.remove(worker)
        self._beginning.append(self._new())
        first = lost[0][0]  # what it was at; the others were waiting
        deaths[first] = deaths.get(first, 0) + 1
        silos = ", ".join(str(jobs[i].training.silo) for i in lost[0][:5])
        if deaths[first] > RETRIES:
            raise RunError(
                f"--engine ray: {deaths[first]} workers died while they trained the same vehicles (silos {silos}): "
                f"{one_line(error)[:200]}"
            ) from error
        LOGGER.warning("vnetsim: a worker of the Ray cluster died; what it trained is trained again by another.")
        return lost


class _Remote:
    """A worker as this process sees it: the actor, word that it has begun, and its parcels in order, by reference."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.begun = actor.versions.remote()
        self.parcels: dict[Any, Sequence[int]] = {}


class _Shared:
    """Tensors that several jobs of a round have in common, such as the global model: put into the object store once."""

    def __init__(self, jobs: Sequence[TrainingJob], put: Callable[[Any], Any]) -> None:
        self.references: list[Any] = []
        self._places: dict[tuple[tuple[str, int], ...], int] = {}
        counts: dict[tuple[tuple[str, int], ...], int] = {}
        for job in jobs:
            for tensors in (job.base, job.given, job.optimizer):
                key = _identity(tensors)
                counts[key] = counts.get(key, 0) + 1
                if counts[key] == 2 and tensors:
                    self._places[key] = len(self.references)
                    self.references.append(put(packed(tensors)))

    def part(self, tensors: Tensors) -> Part:
        """Return the place of what is shared, else the tensors as bytes."""
        place = self._places.get(_identity(tensors))
        return packed(tensors) if place is None else place


def _identity(tensors: Tensors) -> tuple[tuple[str, int], ...]:
    return tuple((name, id(tensor)) for name, tensor in tensors.items())


def _parcels(jobs: Sequence[TrainingJob], workers: int) -> list[Sequence[int]]:
    """Return the places of the jobs in parcels, in order."""
    largest = max(sum(tensor.nbytes for tensor in job.base.values()) for job in jobs[:1]) or 1
    size = max(1, min(math.ceil(len(jobs) / (workers * PARCELS)), LARGEST_PARCEL, PARCEL_BYTES // largest))
    return [range(i, min(i + size, len(jobs))) for i in range(0, len(jobs), size)]
