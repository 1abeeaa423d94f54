"""Engines that train many vehicles of a round at a time, to the result of ``programs.SequentialEngine``.

On a CPU vehicles are trained side by side, each on one core: small convolutions gain little from a second core, whereas
a second vehicle keeps it busy. A vehicle's arithmetic then does not depend on the number of cores. On a CUDA device
vehicles are stacked: their weights get a dimension more, and every operation serves all of them.

Neither lets a vehicle's result depend on who else is trained, nor on how many fit into memory.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from learners.engines.programs import Engine, Program, Result, SequentialEngine, Trained, TrainingJob, train_one
from learners.engines.stacked import stackable, train_stacked
from vnetsim.errors import RunError
from vnetsim.learning.device import cores

LOGGER = logging.getLogger(__name__)

LARGE_STEP_BYTES = 2**28
"""From here on a step keeps two cores as busy as two steps would, or busier: ResNet-18 from about 16 images on."""
MEMORY_SHARE = 0.5
"""Part of the free memory that training may take; results, and what estimates leave out, need the rest."""


def create_engine(name: str, device: torch.device) -> Engine:
    """Return the engine of a setting ``learning.engine``.

    ``auto`` is ``batched`` on a CPU, where it was measured to be faster, and ``sequential`` on CUDA, where nobody has
    measured yet.
    """
    if name == "auto":
        name = "batched" if device.type == "cpu" else "sequential"
    if name == "sequential":
        return SequentialEngine()
    return SideBySideEngine() if device.type == "cpu" else StackedEngine()


class SideBySideEngine:
    """Trains as many vehicles at a time as there are cores and memory, each on one core.

    A vehicle whose single step takes much memory has all cores to itself instead.

    Args:
        workers: most vehicles at a time; ``cores()`` by default.
        large_step_bytes: memory of a step from which on a vehicle has all cores to itself; ``LARGE_STEP_BYTES`` by
            default where torch computes with several threads, and never where it has one.
    """

    def __init__(self, *, workers: int | None = None, large_step_bytes: int | None = None) -> None:
        self._workers = workers or cores()
        self._large_step_bytes = large_step_bytes
        self._alone = SequentialEngine()
        self._networks: dict[Program, list[nn.Module]] = {}
        self._step_bytes: dict[tuple[Program, int], int] = {}

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs; see ``Engine``."""
        results: dict[int, Trained] = {}
        large = self._large_step_bytes
        if large is None:
            large = LARGE_STEP_BYTES if torch.get_num_threads() > 1 else sys.maxsize
        small = [i for i, job in enumerate(jobs) if self._bytes_of(job) < large]
        most = max((self._bytes_of(jobs[i]) for i in small), default=1)
        workers = max(1, min(self._workers, len(small), int(available_bytes() * MEMORY_SHARE) // most))
        while small:
            calls = {i: (jobs[i].program, partial(train_one, jobs[i])) for i in small}
            done, small = self._side_by_side(calls, workers)
            results |= done
            if small and workers == 1:
                raise not_enough(jobs[small[0]])
            if small:
                self._workers = workers = (workers + 1) // 2
                LOGGER.warning("vnetsim: out of memory: at most %d vehicles are trained at a time.", workers)
        for i in range(len(jobs)):
            if i not in results:
                with memory_needed(jobs[i]):
                    results[i] = self._alone.train([jobs[i]])[0]
        return [results[i] for i in range(len(jobs))]

    def map(self, program: Program, calls: Sequence[Callable[[nn.Module], Result]]) -> list[Result]:
        """Return what the calls return, in order; see ``Engine``."""
        numbered = {i: (program, call) for i, call in enumerate(calls)}
        done, left = self._side_by_side(numbered, max(1, min(self._workers, len(calls))))
        again, still = self._side_by_side({i: numbered[i] for i in left}, 1)
        if still:
            raise RunError("out of memory while models were compared; lower learning.batch.")
        return [(done | again)[i] for i in range(len(calls))]

    def _side_by_side(
        self, calls: Mapping[int, tuple[Program, Callable[[nn.Module], Result]]], workers: int
    ) -> tuple[dict[int, Result], list[int]]:
        """Make the calls, each with a network of its program; return results, and those that memory did not allow."""
        pending, left, results = deque(calls), [], {}

        def work(worker: int) -> None:
            torch.set_num_threads(1)  # of this thread
            while pending:
                try:
                    i = pending.popleft()
                except IndexError:  # another one took the last
                    return
                program, call = calls[i]
                try:
                    results[i] = call(self._network(program, worker))
                except (RuntimeError, MemoryError) as error:
                    if not out_of_memory(error):
                        raise
                    left.append(i)

        for program in {program for program, _ in calls.values()}:
            self._network(program, workers - 1)  # made here: making them is not safe in threads
        threads = torch.get_num_threads()
        try:
            with ThreadPoolExecutor(workers) as executor:
                try:
                    for _ in executor.map(work, range(workers)):
                        pass
                finally:
                    pending.clear()  # after an error or Ctrl-C the others finish what they are at
        finally:
            torch.set_num_threads(threads)  # a thread's setting reaches libraries that have one for all
        return results, sorted(left)

    def _network(self, program: Program, worker: int) -> nn.Module:
        networks = self._networks.setdefault(program, [])
        while len(networks) <= worker:
            networks.append(copy.deepcopy(program.network))
        return networks[worker]

    def _bytes_of(self, job: TrainingJob) -> int:
        key = job.program, job.program.count(job.training.silo)  # a small silo's step says nothing of a large one's
        if key not in self._step_bytes:
            self._step_bytes[key] = step_bytes(job, self._network(job.program, 0))
        return self._step_bytes[key]


class StackedEngine:
    """Trains vehicles in stacks; see ``learners.engines.stacked``.

    Args:
        largest: most vehicles in a stack.
    """

    def __init__(self, *, largest: int = 1024) -> None:
        self._largest = largest
        self._alone = SequentialEngine()

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        """Return the results in the order of the jobs; see ``Engine``."""
        results: dict[int, Trained] = {}
        for alike in stackable(jobs):
            waiting = list(alike)
            while waiting:
                stack = waiting[: self._largest]
                try:
                    trained = train_stacked([jobs[i] for i in stack])
                except (RuntimeError, MemoryError) as error:
                    if not out_of_memory(error):
                        raise
                    if len(stack) == 1:
                        raise not_enough(jobs[stack[0]]) from error
                    self._largest = (len(stack) + 1) // 2
                    LOGGER.warning("vnetsim: out of memory: at most %d vehicles are stacked.", self._largest)
                    continue
                results.update(zip(stack, trained, strict=True))
                waiting = waiting[len(stack) :]
        return [results[i] for i in range(len(jobs))]

    def map(self, program: Program, calls: Sequence[Callable[[nn.Module], Result]]) -> list[Result]:
        """Return what the calls return, in order, made one after the other; see ``Engine``."""
        return self._alone.map(program, calls)


def step_bytes(job: TrainingJob, network: nn.Module) -> int:
    """Return about how many bytes a step of a local training keeps for its backward pass, from trials with few images.

    Args:
        job: the local training.
        network: a workspace; its state is overwritten.
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
    """Return how many bytes a step on its first few images keeps for its backward pass, parameters left out."""
    program = job.program
    known = {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *network.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    drawn = program.draw(job.training, torch.Generator().manual_seed(0))
    first = {name: tensor[:images] for name, tensor in drawn.items()}
    unchanged: Callable[[Tensor], Tensor] = lambda tensor: tensor  # noqa: E731
    with saved_tensors_hooks(keep, unchanged):
        loss, _ = program.loss(network, program.prepare(first), job.given)
    del loss
    return sum(kept.values())


def available_bytes() -> int:
    """Return how much memory is free, of this machine or of the container's limit, whichever is less."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current")]
    try:
        limit, used = (int(path.read_text()) for path in limits)
    except (OSError, ValueError):  # no such limit, or "max"
        return free
    return min(free, max(0, limit - used))


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory did not suffice, on whichever device."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


@contextmanager
def memory_needed(job: TrainingJob) -> Iterator[None]:
    """Turn a lack of memory for a single vehicle into the error that the user sees."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if out_of_memory(error):
            raise not_enough(job) from error
        raise


def not_enough(job: TrainingJob) -> RunError:
    """Return the error for a vehicle that does not fit even alone."""
    return RunError(
        f"out of memory: the training of a single vehicle (silo {job.training.silo}) does not fit; lower "
        "learning.batch or take a smaller learning.encoder."
    )
