"""Cells in processes of this machine: as many at once as wanted, GPUs dealt out in turn.

Every worker is a fresh interpreter (``spawn``: CUDA does not survive a fork) that runs one cell after the other. It
never sees Ctrl-C, which a terminal sends to all, nor SIGTERM and SIGHUP: its parent kills it, and it ends itself when
its parent is gone. A cell that is killed at any instant leaves a run directory that can be resumed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from vnetsim.learning.device import CORES
from vnetsim.process import prepare_process
from vnetsim.study.cells import CellJob, CellResult, play
from vnetsim.study.progress import CellProgress, StudyProgress

REPORT_EVERY_S = 0.2

Message = tuple[str, dict[str, Any]]
"""A method of ``StudyProgress`` and its arguments besides the cell's name."""

_context = multiprocessing.get_context("spawn")


def run_here(jobs: Sequence[CellJob], display: StudyProgress) -> Generator[CellResult, None, None]:
    """Run cells one after the other in this process; yield how each ended."""
    for job in jobs:
        display.begin(job)
        outcome = play(job, CellProgress(display, job.name))
        display.end(job)
        yield outcome


def run_in_processes(
    jobs: Sequence[CellJob], display: StudyProgress, *, workers: int
) -> Generator[CellResult, None, None]:
    """Run cells in ``workers`` processes; yield how each ended, in the order in which they do.

    A process that dies fails its cell alone. However this generator ends, no process of it is left.
    """
    waiting = deque(jobs)
    pool = [_Worker(environment) for environment in _environments(jobs, min(workers, len(jobs)))]
    try:
        while waiting or any(worker.job for worker in pool):
            for worker in pool:
                if waiting and worker.job is None:
                    display.begin(waiting[0])
                    worker.give(waiting.popleft())
            for job, outcome in _heard(pool, display):
                display.end(job)
                yield outcome
    finally:
        _stop(pool)


def _heard(pool: Sequence[_Worker], display: StudyProgress) -> Iterator[tuple[CellJob, CellResult]]:
    """Wait for news of the workers, show them, and yield the cells that ended."""
    news = wait([worker.connection for worker in pool if worker.connection is not None and worker.job is not None])
    for worker in pool:
        if worker.connection not in news or worker.job is None:
            continue
        job, message = worker.job, worker.hear()
        if isinstance(message, CellResult):
            yield job, message
        else:
            method, values = message
            getattr(display, method)(job.name, **values)


class _Worker:
    """A process that runs cells, seen from its parent; started when it is given the first.

    Args:
        environment: variables that differ from the parent's.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.process: BaseProcess | None = None
        self.connection: Connection[Any, Any] | None = None
        self.job: CellJob | None = None

    def give(self, job: CellJob) -> None:
        """Let it run a cell."""
        if self.connection is None:
            self.connection, theirs = _context.Pipe()
            process = _context.Process(target=_work, args=(theirs,))
            with _no_interrupt(), _changed_environment(self._environment):
                process.start()
                self.process = process
            theirs.close()
        self.job = job
        with suppress(OSError):  # it is dead: reading from it will fail
            self.connection.send(job)

    def hear(self) -> CellResult | Message:
        """Return what it says: a method of the display and its arguments, or how its cell ended, also with it."""
        assert self.connection is not None
        assert self.job is not None
        try:
            message: CellResult | Message = self.connection.recv()
        except (EOFError, OSError):
            message = CellResult(name=self.job.name, error=self._exit_reason())
        if isinstance(message, CellResult):
            self.job = None
        return message

    def _exit_reason(self) -> str:
        """Return how the dead process ended; the next cell gets another one."""
        assert self.connection is not None
        assert self.process is not None
        self.connection.close()
        self.connection = None
        self.process.join()
        code = self.process.exitcode or 0
        if code >= 0:
            return f"its process ended by itself, with status {code}. Its finished rounds are kept."
        cause = " (kill -9, or no memory was left)" if code == -signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{cause}. Its finished rounds are kept."


def _stop(pool: Sequence[_Worker]) -> None:
    """End all processes at once."""
    processes = [worker.process for worker in pool if worker.process is not None]
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def _environments(jobs: Sequence[CellJob], workers: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker that differ from this process's: its share of cores, its GPU."""
    import torch  # noqa: PLC0415 - loaded already, by the learners

    share = {CORES: str(max(1, torch.get_num_threads() // max(1, workers)))}
    gpus = _gpus() if all(job.experiment.device in {"auto", "cuda"} for job in jobs) else []
    return [share | ({"CUDA_VISIBLE_DEVICES": gpus[index % len(gpus)]} if gpus else {}) for index in range(workers)]


def _gpus() -> list[str]:
    """Return the GPUs of this machine, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch  # noqa: PLC0415 - loaded already, by the learners

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [str(index) for index in range(count)] if visible is None else visible.split(",")[:count]


@contextmanager
def _changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Change variables for a process that is started meanwhile, before anything in it can read them."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Start a process that neither Ctrl-C nor the end of a terminal or a session reaches, for its parent ends it.

    A signal that comes meanwhile reaches this process afterwards.
    """
    resource_tracker.ensure_running()  # if ``start`` had to do this, it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ProgressSender:
    """The display of a cell, in its worker: sends what is to be shown.

    Args:
        send: sends the name of a method of ``StudyProgress`` and its arguments besides the cell's name.
    """

    def __init__(self, send: Callable[[Message], object]) -> None:
        self._send = send
        self._due_s = 0.0

    def stage(self, text: str) -> None:
        """Send what the cell does."""
        self._send(("stage", {"text": text}))

    def note(self, text: str) -> None:
        """Keep silent; see ``CellProgress``."""

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Send the simulated time (s) and the rounds, unless that was done a moment ago."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + REPORT_EVERY_S
            self._send(("advance", {"time_s": time_s, "done": done, "total": total}))


def _work(connection: Connection[Any, Any]) -> None:
    """Run the cells that come through ``connection``; the main function of a worker."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare_process()
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            connection.send(play(connection.recv(), ProgressSender(connection.send)))


def _end_with_parent() -> None:
    """End this process when its parent is gone, even by ``kill -9``."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
