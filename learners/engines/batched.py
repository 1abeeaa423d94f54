"""Engines that train many vehicles of a round at a time, with the result of ``programs.SequentialEngine``.

On a CPU vehicles are trained side by side, each on one core: small convolutions gain little from a second core. A
vehicle's arithmetic then does not depend on the number of cores. On a CUDA device vehicles are stacked: their weights
get another dimension, and every operation serves all of them. Whether that is faster than one after the other depends
on network, batch and device; a run measures it in its first steps.

A vehicle's result does not depend on who else is trained, nor on how many fit into memory. Threads and stacks share the
global generators, so vehicles whose network draws from them are trained one after the other, each from its seed.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from learners.data.moving import to_device
from learners.engines.programs import (
    Engine,
    Program,
    Result,
    SequentialEngine,
    Trained,
    TrainingJob,
    device_of,
    run_if_memory_suffices,
    summarise,
    train_alone,
    train_one,
)
from learners.engines.stacked import stackable, train_stacked
from vnetsim.learning.device import cores, out_of_memory
from vnetsim.learning.global_generators import GlobalGenerators, seeded

LOGGER = logging.getLogger(__name__)

ONE_BY_ONE = (
    "vnetsim: the network draws random numbers in its forward pass: vehicles are trained one after the other, each "
    "from its own seed."
)

LARGE_STEP_BYTES = 2**28
"""A larger step uses two cores at least as well as two steps do: ResNet-18 from about 16 images on."""
MEMORY_SHARE = 0.5
"""Share of the free memory that training may take; results, and what the estimate leaves out, need the rest."""
TRIAL_STEPS = 3
"""Steps of the measurement that chooses an engine."""
TRIAL_VEHICLES = 3
"""Vehicles measured one after the other; all that can be stacked are measured together."""


def create_engine(name: str, device: torch.device, *, measures: bool = False) -> Engine:
    """Return the engine that the setting ``learning.engine`` names.

    On a CPU ``auto`` is ``batched``. On CUDA it is ``sequential`` or, if ``measures`` and unless deterministic
    algorithms are on, the engine that the first steps show to be faster.
    """
    if device.type == "cpu":
        return SideBySideEngine(workers=1 if name == "sequential" else None)
    if name == "auto" and measures and not torch.are_deterministic_algorithms_enabled():
        return MeasuredEngine()
    return StackedEngine() if name == "batched" else SequentialEngine()


def side_by_side(calls: Sequence[Callable[[], Result]], workers: int) -> list[Result]:
    """Return the results of calls, in order, from ``workers`` threads of one core each.

    If a call raises, calls that have not begun are cancelled, and its error is raised once the others have ended.
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as executor:
            return list(executor.map(lambda call: call(), calls))
    finally:
        torch.set_num_threads(threads)  # a thread's setting reaches libraries that have one for all


def run_each(calls: Sequence[Callable[[], Result]], device: torch.device) -> list[Result]:
    """Return the results of calls, in order; on a CPU they run side by side, one per core."""
    if device.type == "cpu" and calls:
        return side_by_side(calls, min(cores(), len(calls)))
    return [call() for call in calls]


class SideBySideEngine:
    """Trains as many vehicles at a time as cores and memory allow, each on one core.

    ``workers`` are the most vehicles at a time, by default ``cores()``. A vehicle whose step takes ``large_step_bytes``
    or more has all cores to itself; by default these are ``LARGE_STEP_BYTES`` if torch computes with several threads,
    and otherwise no limit.
    """

    def __init__(self, *, workers: int | None = None, large_step_bytes: int | None = None) -> None:
        self._workers = workers or cores()
        self._large_step_bytes = large_step_bytes
        self._alone = SequentialEngine()
        self._networks: dict[Program, SimpleQueue[nn.Module]] = {}
        self._step_bytes: dict[tuple[Program, int], int] = {}

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs; see ``Engine``.

        If memory does not suffice, or if networks draw from the global generators, fewer vehicles are trained at a time
        from then on, with a warning.
        """
        results: dict[int, Trained] = {}
        large = self._large_step_bytes
        if large is None:
            large = LARGE_STEP_BYTES if torch.get_num_threads() > 1 else sys.maxsize
        decides = self._workers > 1 or large < sys.maxsize  # otherwise nothing depends on the memory of a step
        needed = [self._bytes_of(job) if decides else 0 for job in jobs]
        small = [i for i, step in enumerate(needed) if step < large]
        most = max([1, *(needed[i] for i in small)])
        workers = max(1, min(self._workers, len(small), int(available_bytes() * MEMORY_SHARE) // most))
        while small:
            train, before = train_alone if workers == 1 else train_one, GlobalGenerators()
            calls = [
                partial(self._train_fitting, train, jobs[i], self._workspaces(jobs[i].program, workers)) for i in small
            ]
            done = {i: one for i, one in zip(small, side_by_side(calls, workers), strict=True) if one is not None}
            if before.moved:  # several threads drew, in any order
                before.restore()
                self._workers = workers = 1
                LOGGER.warning(ONE_BY_ONE)
                continue
            results |= zip(done, summarise(list(done.values())), strict=True)
            small = [i for i in small if i not in done]
            if small and workers == 1:
                break
            if small:
                self._workers = workers = (workers + 1) // 2
                LOGGER.warning("vnetsim: out of memory: at most %d vehicles are trained at a time.", workers)
        left = [i for i in range(len(jobs)) if i not in results]
        results |= zip(left, self._alone.train([jobs[i] for i in left]), strict=True)
        return [results[i] for i in range(len(jobs))]

    def _train_fitting(
        self, train: Callable[[TrainingJob, nn.Module], Trained], job: TrainingJob, networks: SimpleQueue[nn.Module]
    ) -> Trained | None:
        """Return the result of a job on a network borrowed from the queue; None if memory does not suffice."""
        network = networks.get()
        try:
            return run_if_memory_suffices(train, job, network)
        finally:
            networks.put(network)

    def _workspaces(self, program: Program, count: int) -> SimpleQueue[nn.Module]:
        """Return a queue with at least ``count`` copies of a program's network for the threads to borrow."""
        networks = self._networks.setdefault(program, SimpleQueue())
        while networks.qsize() < count:
            networks.put(copy.deepcopy(program.network))
        return networks

    def _bytes_of(self, job: TrainingJob) -> int:
        """Return ``step_bytes`` of a job, measured once for each program and batch size."""
        key = job.program, job.program.count(job.training.silo)  # the batch of a small silo is smaller
        if key not in self._step_bytes:
            with seeded(0):  # restores the global generators
                self._step_bytes[key] = step_bytes(job, copy.deepcopy(job.program.network))
        return self._step_bytes[key]


class StackedEngine:
    """Trains vehicles in stacks of at most ``largest``; see ``learners.engines.stacked``.

    Attributes:
        draws: whether the network has drawn from the global generators; then nothing is stacked.
    """

    def __init__(self, *, largest: int = 1024) -> None:
        self._largest = largest
        self._alone = SequentialEngine()
        self.draws = False

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs; see ``Engine``.

        If memory does not suffice, stacks are smaller from then on; if networks draw random numbers, nothing is stacked
        any more. Both log a warning.
        """
        results: dict[int, Trained] = {}
        for alike in stackable(jobs):
            waiting = list(alike)
            while waiting:
                stack = waiting[: self._largest]
                trained = self._train_fitting([jobs[i] for i in stack])
                results |= zip(stack, trained, strict=False)  # empty if memory did not suffice
                waiting = waiting[len(trained) :]
        return summarise([results[i] for i in range(len(jobs))])

    def _train_fitting(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return a stack's results; [] if it must be smaller. A single job, and networks that draw, are not stacked."""
        if len(jobs) == 1 or self.draws:
            return self._alone.train(jobs)
        before = GlobalGenerators()
        try:
            trained = run_if_memory_suffices(train_stacked, jobs)
        except RuntimeError as error:
            if "randomness" not in str(error):  # vmap refuses what draws from torch's generators
                raise
            trained, self.draws = None, True
        self.draws = self.draws or before.moved  # Python's and NumPy's are drawn from only once for the whole stack
        if self.draws:
            before.restore()
            LOGGER.warning(ONE_BY_ONE)
            return self._alone.train(jobs)
        if trained is not None:
            return trained
        self._largest = (len(jobs) + 1) // 2
        LOGGER.warning("vnetsim: out of memory: at most %d vehicles are stacked.", self._largest)
        return []


class MeasuredEngine:
    """Trains vehicles one after the other or stacked, whichever the first steps of a run show to be faster.

    It measures in the first round in which vehicles can be stacked; results of these steps are thrown away. If the loss
    cannot be computed for a stack, such as one that reads a value of a tensor, vehicles are trained one after the
    other. A resumed run gets the earlier measurement, since the engines round differently.

    Attributes:
        seconds: seconds per vehicle for a few steps, by engine; infinite if an engine failed, empty if not measured.
    """

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {"sequential": SequentialEngine(), "batched": StackedEngine()}
        self.seconds: dict[str, float] = {}

    @property
    def chosen(self) -> str:
        """The faster engine; ``sequential`` before the measurement."""
        return min(self._engines, key=lambda name: self.seconds.get(name, 0.0))

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs; see ``Engine``. The first jobs to stack are measured first."""
        alike = max(stackable(jobs), key=len, default=[])
        if len(alike) > 1 and not self.seconds:
            self._measure([jobs[i] for i in alike])
        return self._engines[self.chosen].train(jobs)

    def _measure(self, jobs: Sequence[TrainingJob]) -> None:
        """Set ``seconds`` of both engines, infinite for ``batched`` if it fails or draws, and log the choice."""
        found = {"sequential": self._seconds_per_vehicle("sequential", jobs[:TRIAL_VEHICLES])}
        why = ""
        try:
            found["batched"] = self._seconds_per_vehicle("batched", jobs)
        except Exception as error:  # of any kind: the loss may be the user's
            if out_of_memory(error):
                raise
            found["batched"] = math.inf
            why = f" {type(error).__name__}: {error}".partition("\n")[0]
        if getattr(self._engines["batched"], "draws", False):
            found["batched"] = math.inf
        self.seconds = found
        LOGGER.warning("vnetsim: learning.engine = auto: %s.%s", self.choice, why)

    def _seconds_per_vehicle(self, name: str, jobs: Sequence[TrainingJob]) -> float:
        """Return the seconds per vehicle that an engine takes for TRIAL_STEPS steps; the results are thrown away."""
        begin_s = 0.0
        for most in (1, TRIAL_STEPS):  # the first call takes longer
            steps = min(most, jobs[0].training.steps)
            begin_s = perf_counter()
            # reading the results waits for the device
            self._engines[name].train([replace(job, training=replace(job.training, steps=steps)) for job in jobs])
        return (perf_counter() - begin_s) / len(jobs)

    @property
    def choice(self) -> str:
        """The engine and the reason for it, for the record; empty before the measurement."""
        if math.inf in self.seconds.values():
            return "sequential (several vehicles cannot be trained at once)"
        times = ", ".join(f"{name} {seconds_ * 1e3:.3g} ms" for name, seconds_ in self.seconds.items())
        return times and f"{self.chosen} (first steps on this device, a vehicle: {times})"


def step_bytes(job: TrainingJob, network: nn.Module) -> int:
    """Return about how many bytes a step takes: four times the parameters, and what it keeps for its backward pass.

    The latter is measured with up to four images and extrapolated. ``network`` is a workspace, whose state is
    overwritten.
    """
    network.load_state_dict(job.base)
    network.train()
    count = job.program.count(job.training.silo)
    few, more = min(2, count), min(4, count)
    parameters = sum(parameter.nbytes for parameter in network.parameters())
    kept = _kept_bytes(job, network, more)
    # what does not grow with the images, such as weights in a lower precision, is counted once
    each = (kept - _kept_bytes(job, network, few)) // (more - few) if more > few else 0
    return 4 * parameters + kept + each * (count - more)


def _kept_bytes(job: TrainingJob, network: nn.Module, images: int) -> int:
    """Return the bytes that a step on its first ``images`` images keeps for its backward pass, without parameters."""
    program = job.program
    known = {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *network.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        """Count the storage of a tensor that the backward pass keeps, and return the tensor."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    drawn = program.draw(job.training, torch.Generator().manual_seed(0))
    first = {name: tensor[:images] for name, tensor in drawn.items()}
    unchanged: Callable[[Tensor], Tensor] = lambda tensor: tensor  # noqa: E731
    with saved_tensors_hooks(keep, unchanged):
        batch = {**job.given, **program.prepare(first)}
        loss, _ = program.loss(network, batch, to_device(job.base, device_of(network)))
    del loss
    return sum(kept.values())


def available_bytes() -> int:
    """Return the free memory (bytes) of this machine or within the container's limit, whichever is less."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current")]
    try:
        limit, used = (int(path.read_text()) for path in limits)
    except (OSError, ValueError):  # no such limit, or "max"
        return free
    return min(free, max(0, limit - used))
