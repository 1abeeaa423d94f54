"""An engine that has the vehicles of a round trained by the workers of a Ray cluster, on this machine and on others.

The process is connected to the cluster before (``vnetsim.runs.ray_cluster``). Every worker, an actor, has a device for
itself: a GPU, or else a CPU of the cluster. Ray starts a worker that died anew, on another machine where it must, and
gives it again what it was at.

On CPUs the result is that of one machine, bit for bit: each vehicle is trained as the engine of the settings does it,
with as many threads as this process has. Where vehicles of large steps are to stay on one core each, OMP_NUM_THREADS=1
says so for all.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from learners.engines.batched import SideBySideEngine, create_engine
from learners.engines.programs import Program, SequentialEngine, Tensors, Trained, TrainingJob
from vnetsim import __version__
from vnetsim.errors import InputError, RunError, one_line
from vnetsim.experiment.arithmetic import Arithmetic
from vnetsim.plugins import FILE_MODULE
from vnetsim.process import RETRIES, prepare_process

PARTS, LARGEST_PART = 4, 32
"""Parts of a round for each worker, so that the last one to finish keeps the others waiting less, and most vehicles of
a part."""
BEGIN_S = 300.0
"""How long to wait for the workers; each loads torch, and the cluster may be busy."""


class RayEngine:
    """Trains on the Ray cluster that this process is connected to.

    Attributes:
        at_once: jobs that keep all workers busy.

    Raises:
        InputError: the device is one of several, or the cluster has none of its kind.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        import ray  # noqa: PLC0415 - an extra

        if ":" in str(device):
            raise InputError(f"--device {device}: with --engine ray every worker has a device for itself; say cuda.")
        kind = "GPU" if device.type == "cuda" else "CPU"
        count = int(ray.cluster_resources().get(kind, 0))
        if not count:
            raise InputError(f"--engine ray: the cluster has no {kind}, and the learner is to be trained on one.")
        self.at_once = 2 * count
        self._programs: dict[Program, Any] = {}
        actor = ray.remote(Worker).options(
            num_cpus=1, num_gpus=int(kind == "GPU"), max_restarts=RETRIES, max_task_retries=RETRIES
        )
        settings = name, device.type, torch.get_num_threads(), Arithmetic.present()
        self._beginning = [actor.remote(*settings) for _ in range(count)]
        self._workers: list[Any] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel, within a learner whose program is sent, as an engine that needs nothing."""
        return SequentialEngine, ()

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs; see ``Engine``.

        Raises:
            RunError: no worker begins, workers have other versions, or Ray gave up.
        """
        from ray.exceptions import RayError, RayTaskError  # noqa: PLC0415 - an extra
        from ray.util import ActorPool  # noqa: PLC0415

        try:
            self._begin()
            sent = self._sent(jobs)
            size = max(1, min(LARGEST_PART, len(sent) // (PARTS * len(self._workers))))
            parts = [sent[i : i + size] for i in range(0, len(sent), size)]
            answers = ActorPool(self._workers).map(lambda worker, part: worker.train.remote(part), parts)
            return [trained for answer in answers for trained in answer]
        except RayTaskError as error:  # raised by the learner, as it would be here
            raise (error.cause or error) from error
        except RayError as error:
            raise RunError(f"--engine ray: the Ray cluster lost its workers ({one_line(error)[:200]}).") from error

    def _begin(self) -> None:
        """Wait for the workers, once; go on with those that have begun."""
        import ray  # noqa: PLC0415

        if self._workers:
            return
        begun = {worker.versions.remote(): worker for worker in self._beginning}
        ready, late = ray.wait(list(begun), num_returns=len(begun), timeout=BEGIN_S)
        if not ready:
            raise RunError(f"--engine ray: no worker of the Ray cluster has begun within {BEGIN_S:.0f} s; is it busy?")
        theirs = set(ray.get(ready)) - {versions()}
        if theirs:
            raise RunError(
                f"--engine ray: a worker has {theirs.pop()}, this process {versions()}; install the same everywhere."
            )
        for reference in late:
            ray.kill(begun[reference])
        self._workers = [begun[reference] for reference in ready]

    def _sent(self, jobs: Sequence[TrainingJob]) -> list[Any]:
        """Return the jobs with references to programs and base models, which many have in common, in their place."""
        import ray  # noqa: PLC0415

        models: dict[tuple[int, ...], Any] = {}

        def put(model: Tensors) -> Any:
            key = tuple(map(id, model.values()))
            if key not in models:
                models[key] = ray.put(model)
            return models[key]

        for job in jobs:
            if job.program not in self._programs:
                self._programs[job.program] = ray.put(_pickled(job.program))
        return [replace(job, program=self._programs[job.program], base=put(job.base)) for job in jobs]


def versions() -> str:
    """Return what must be the same in all processes, for the same bits."""
    return f"vnetsim {__version__} with torch {torch.__version__}"


def _pickled(program: Program) -> bytes:
    """Return a program as it travels; a reader of bytes gets arrays that it may write into.

    Raises:
        RunError: something that it refers to cannot be pickled.
    """
    from ray import cloudpickle  # noqa: PLC0415 - an extra

    for name, module in list(sys.modules.items()):
        if name.startswith(FILE_MODULE):  # no other process can import it
            cloudpickle.register_pickle_by_value(module)
    try:
        pickled: bytes = cloudpickle.dumps(program)
    except (TypeError, pickle.PicklingError, AttributeError) as error:
        raise RunError(
            f"--engine ray: the learner's local training cannot be sent to other processes: {one_line(error)}"
        ) from error
    return pickled


class Worker:
    """Trains what it is sent, one device for itself; the class of an actor."""

    def __init__(self, engine: str, device: str, threads: int, arithmetic: Arithmetic) -> None:
        prepare_process()
        torch.set_num_threads(threads)
        arithmetic.set()
        made = create_engine(engine, torch.device(device))
        # the other vehicles of the machine are other workers'
        self._engine = SideBySideEngine(workers=1) if isinstance(made, SideBySideEngine) else made
        self._programs: dict[Any, Program] = {}

    def versions(self) -> str:
        """Return what this process trains with; the answer says that it has begun."""
        return versions()

    def train(self, sent: Sequence[Any]) -> list[Trained]:
        """Return the results of jobs whose programs and base models are references; it keeps the programs."""
        import ray  # noqa: PLC0415 - an extra

        for job in sent:
            if job.program not in self._programs:
                self._programs[job.program] = pickle.loads(ray.get(job.program))  # noqa: S301 - this cluster's own
        models = {job.base: ray.get(job.base) for job in sent}
        return self._engine.train(
            [replace(job, program=self._programs[job.program], base=models[job.base]) for job in sent]
        )
