"""Training of several vehicles at a time on a CPU, each on one core: small convolutions gain little from a second core.

A vehicle's result depends neither on the number of cores nor on the other vehicles. Threads share the global
generators, so vehicles whose network draws from them are trained one after the other, each from its seed.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from learners.data.moving import to_device
from learners.engines.lanes import Lane
from learners.engines.programs import (
    Engine,
    Program,
    Result,
    SequentialEngine,
    Trained,
    TrainingJob,
    add_given,
    device_of,
    draw_first,
    run_if_memory_suffices,
    summarise,
    train_alone,
    train_one,
)
from learners.engines.recorded import RecordedEngine
from learners.engines.store import get_store
from vnetsim.learning.device import cores
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


def create_engine(name: str, device: torch.device) -> Engine:
    """Return an engine: side by side on a CPU, recorded on CUDA; one by one elsewhere or if ``name`` is sequential."""
    if device.type == "cpu":
        return SideBySideEngine(workers=1 if name == "sequential" else None)
    if device.type != "cuda" or name == "sequential":
        return SequentialEngine()
    return RecordedEngine(partial(Lane, device), store=get_store(device))


def run_in_threads(calls: Sequence[Callable[[], Result]], workers: int) -> list[Result]:
    """Return the results of calls, in order, by threads of one core each; if one raises, cancel the rest and raise."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as executor:
            return list(executor.map(lambda call: call(), calls))
    finally:
        torch.set_num_threads(threads)  # a thread's setting reaches libraries that have one for all


def run_each(calls: Sequence[Callable[[], Result]], device: torch.device) -> list[Result]:
    """Return the results of calls, in order; on a CPU they run at the same time, one per core, else one by one."""
    if device.type == "cpu" and calls:
        return run_in_threads(calls, min(cores(), len(calls)))
    return [call() for call in calls]


class Copies:
    """Copies of a network for several threads; a copy is made only if none is idle, since copying is slow."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._idle: SimpleQueue[nn.Module] = SimpleQueue()

    @contextmanager
    def borrow(self) -> Iterator[nn.Module]:
        """Yield a copy that no other thread uses in the ``with`` block; its weights are any, so load your own."""
        try:
            network = self._idle.get_nowait()
        except Empty:
            network = copy.deepcopy(self._network)
        try:
            yield network
        finally:
            self._idle.put(network)


class SideBySideEngine:
    """Trains as many vehicles at a time as cores and memory allow, each on one core.

    ``workers`` is the most vehicles at a time, by default ``cores()``. A vehicle whose step takes ``large_step_bytes``
    or more has all cores to itself; by default ``LARGE_STEP_BYTES``, or no limit if torch computes with one thread.
    """

    def __init__(self, *, workers: int | None = None, large_step_bytes: int | None = None) -> None:
        self._workers = workers or cores()
        self._large_step_bytes = large_step_bytes
        self._alone = SequentialEngine()
        self._copies: dict[Program, Copies] = {}
        self._step_bytes: dict[tuple[Program, int], int] = {}

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs; RunError if there is not enough memory for one job.

        If memory does not suffice for several, or if networks draw from the global generators, fewer vehicles are
        trained at a time from then on, with a warning.
        """
        results: dict[int, Trained] = {}
        large = self._large_step_bytes
        if large is None:
            large = LARGE_STEP_BYTES if torch.get_num_threads() > 1 else sys.maxsize
        decides = self._workers > 1 or large < sys.maxsize  # otherwise nothing depends on the memory of a step
        needed = [self._measure_bytes(job) if decides else 0 for job in jobs]
        small = [i for i, step in enumerate(needed) if step < large]
        most = max([1, *(needed[i] for i in small)])
        workers = max(1, min(self._workers, len(small), int(available_bytes() * MEMORY_SHARE) // most))
        while small:
            train, before = train_alone if workers == 1 else train_one, GlobalGenerators()
            for program in {jobs[i].program for i in small} - self._copies.keys():
                self._copies[program] = Copies(program.network)
            calls = [partial(self._train_fitting, train, jobs[i]) for i in small]
            done = {i: one for i, one in zip(small, run_in_threads(calls, workers), strict=True) if one is not None}
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

    def _train_fitting(self, train: Callable[[TrainingJob, nn.Module], Trained], job: TrainingJob) -> Trained | None:
        """Return what ``train`` returns for a job and a copy of its network; None if memory does not suffice."""
        with self._copies[job.program].borrow() as network:
            return run_if_memory_suffices(train, job, network)

    def _measure_bytes(self, job: TrainingJob) -> int:
        """Return ``step_bytes`` of a job (bytes), measured once for each program and batch size."""
        key = job.program, job.program.count(job.training.silo)  # the batch of a small silo is smaller
        if key not in self._step_bytes:
            with seeded(0):  # restores the global generators
                self._step_bytes[key] = step_bytes(job, copy.deepcopy(job.program.network))
        return self._step_bytes[key]


def step_bytes(job: TrainingJob, network: nn.Module) -> int:
    """Return about how many bytes a step takes: four times the parameters, and what it keeps for its backward pass.

    What it keeps is measured with up to four images and extrapolated. The state of ``network`` is overwritten.
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
        """Record the storage of a tensor that the backward pass keeps, and return the tensor."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    drawn = draw_first(program, job.training, torch.Generator().manual_seed(0))
    first = {name: tensor[:images] for name, tensor in drawn.items()}
    unchanged: Callable[[Tensor], Tensor] = lambda tensor: tensor  # noqa: E731
    with saved_tensors_hooks(keep, unchanged):
        batch = add_given(program.prepare(first), job.given)
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
