"""Run cells in this process or in several on this machine, each with one of its GPUs in turn; show their progress.

Every worker is a new interpreter (CUDA does not survive a fork) that runs one cell after the other. It ignores SIGINT,
SIGTERM and SIGHUP, which terminals and batch systems send to all processes: its parent kills it, and it exits when its
parent is gone. A cell that is killed at any time leaves a run directory that can be resumed.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from vnetsim.errors import InputError
from vnetsim.learning.device import CORES, cores, resolve_device
from vnetsim.process import prepare_process
from vnetsim.progress import ProgressDisplay
from vnetsim.study.cells import CellJob, CellResult, play

MOST_SHOWN = 8
"""Largest number of running cells that are shown, one line each."""
REPORT_EVERY_S = 0.2
MOST_SHARING, SHARE_BYTES = 8, 8 * 2**30
"""Most cells that choose_workers lets share a GPU, as many as were measured, and the free memory it wants for each:
a round of FLSimCo at its paper's size takes 5.4 GiB."""


@dataclass(frozen=True, kw_only=True)
class News:
    """Progress of a cell: its stage, the share of its rounds that are done, and simulated time (s)."""

    stage: str = "starting"
    share: float = 0.0
    time_s: float = 0.0


class StudyProgress:
    """One display of all cells (``done`` of ``total`` have finished), in whichever process they run.

    The bar counts cells, and a running cell by the share of its rounds, so that the time left is the comparison's.
    """

    def __init__(self, progress: ProgressDisplay, *, total: int, done: int) -> None:
        self._progress = progress
        self._total = total
        self._done = done
        self._running: dict[str, tuple[CellJob, News]] = {}
        self._simulated_s = 0.0  # of cells that ended

    @property
    def place(self) -> str:
        """How far the comparison is, for a message: the running cell if it is the only one, else how many are done."""
        jobs = [job for job, _ in self._running.values()]
        return f"in {jobs[0].where}" if len(jobs) == 1 else f"after {self._done} of {self._total} cells"

    def show(self, job: CellJob, news: News = News()) -> None:
        """Show progress of a running cell; the first call for a cell adds it."""
        self._running[job.name] = job, news
        self._refresh()

    def end(self, job: CellJob) -> None:
        """Count a cell that finished or failed as done; its simulated time stays in the sum that is shown."""
        _, news = self._running.pop(job.name, (job, News()))
        self._simulated_s += news.time_s
        self._done += 1
        self._refresh()

    def _refresh(self) -> None:
        """Show the number of finished cells, and the stages of the first ``MOST_SHOWN`` running ones."""
        running = list(self._running.values())
        lines = [f"{self._done} of {self._total} cells"]
        lines += [f"  {job.words}: {news.stage}" for job, news in running[:MOST_SHOWN]]
        if len(running) > MOST_SHOWN:
            lines.append(f"  and {len(running) - MOST_SHOWN} more")
        self._progress.stage("\n".join(lines))
        time_s = self._simulated_s + sum(news.time_s for _, news in running)
        done = self._done + sum(news.share for _, news in running)
        self._progress.advance(time_s=time_s, done=done, total=self._total)


class CellProgress:
    """The display of one cell; it passes news to ``send``, which may lead to another process."""

    def __init__(self, send: Callable[[News], object]) -> None:
        self._send = send
        self._news = News()
        self._due_s = 0.0

    def stage(self, text: str) -> None:
        """Send the cell's stage."""
        self._news = replace(self._news, stage=text)
        self._send(self._news)

    def note(self, text: str) -> None:
        """Ignore notes: those of the traffic were shown once, and the comparison reports how each cell ended."""

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Send simulated time (s) and rounds, at most every ``REPORT_EVERY_S`` seconds; no rounds without ``total``."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + REPORT_EVERY_S
        self._news = replace(self._news, time_s=time_s)
        if total:
            self._news = replace(self._news, stage=f"round {done:.0f} of {total:.0f}", share=min(done / total, 1.0))
        self._send(self._news)


def choose_workers(jobs: Sequence[CellJob]) -> int:
    """Return how many cells to run at once: 1 unless all train on GPUs, then as free memory and CPU cores allow."""
    import torch  # noqa: PLC0415 - loaded already, by the learners

    try:
        devices = {resolve_device(job.experiment.device) for job in jobs}
        if not all(device.startswith("cuda") for device in devices):
            return 1
        anywhere = devices == {"cuda"}
        gpus = range(torch.cuda.device_count()) if anywhere else sorted(devices)
        free_bytes = min((torch.cuda.mem_get_info(gpu)[0] for gpu in gpus), default=0)
    except (InputError, RuntimeError):  # of a GPU that is not there or fails; each cell says so
        return 1
    # processes get GPUs in turn, however full, if cells may use any; cells of cuda:N may all run at once there
    fitting = min(MOST_SHARING, free_bytes // SHARE_BYTES) * (len(gpus) if anywhere else 1)
    return max(1, min(len(jobs), cores(), fitting))


def run_here(jobs: Sequence[CellJob], display: StudyProgress) -> Generator[CellResult, None, None]:
    """Run cells one after the other in this process, shown on ``display``; yield each result as its cell ends."""
    for job in jobs:
        display.show(job)
        outcome = play(job, CellProgress(partial(display.show, job)))
        display.end(job)
        yield outcome


def run_in_processes(
    jobs: Sequence[CellJob], display: StudyProgress, *, workers: int
) -> Generator[CellResult, None, None]:
    """Run cells in ``workers`` processes; yield their results as they end. If a process dies, only its cell fails.

    When this generator ends, for any reason, all its processes are gone.
    """
    waiting = deque(jobs)
    pool: list[_Worker] = []
    try:
        pool.extend(_Worker(environment) for environment in _environments(jobs, min(workers, len(jobs))))
        while True:
            for worker in pool:
                if waiting and worker.job is None:
                    display.show(waiting[0])
                    worker.give(waiting.popleft())
            busy = {worker.connection: worker for worker in pool if worker.job is not None}
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]  # wait returns elements of its argument
                job, message = worker.hear()
                if isinstance(message, News):
                    display.show(job, message)
                else:
                    display.end(job)
                    yield message
    finally:
        for worker in pool:
            worker.end()


class _Worker:
    """The parent's view of a process that runs cells; a process that dies is replaced by a new one."""

    def __init__(self, environment: Mapping[str, str]) -> None:  # the variables that differ from the parent's
        self._environment = environment
        self.job: CellJob | None = None
        self._start()

    def _start(self) -> None:
        """Start a process, and make the connection to it."""
        self.connection, theirs = multiprocessing.Pipe()
        number = theirs.fileno()
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-P", "-c", f"from vnetsim.study.workers import work; work({number})"],
            env={**os.environ, **self._environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            pass_fds=[number],
            start_new_session=True,  # out of reach of the terminal's signals
        )
        theirs.close()

    def give(self, job: CellJob) -> None:
        """Send a cell to the idle process; if the process is dead, ``hear`` returns the failure."""
        self.job = job
        with suppress(OSError):  # the process is dead; hear will notice
            self.connection.send(job)

    def hear(self) -> tuple[CellJob, CellResult | News]:
        """Wait for a message of the running cell; return both. If the process died: start another, return a failure."""
        job = self.job
        assert job is not None
        try:
            message: CellResult | News = self.connection.recv()
        except (EOFError, OSError):
            message = CellResult(name=job.name, error=f"{self._wait_for_exit()} What it had saved is kept.")
            self._start()
        if isinstance(message, CellResult):
            self.job = None
        return job, message

    def _wait_for_exit(self) -> str:
        """Close the connection, wait until the process has ended, and return why it ended, as a sentence."""
        self.connection.close()
        code = self._process.wait()
        if code >= 0:
            return f"its process ended by itself, with status {code}."
        cause = " (kill -9, or no memory was left)" if code == -signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{cause}."

    def end(self) -> None:
        """Kill the process and wait until it is gone."""
        self._process.kill()
        self._process.wait()


def _environments(jobs: Sequence[CellJob], workers: int) -> list[dict[str, str]]:
    """Return for each worker the variables to set: its cores, and, if all cells may use any GPU, one GPU in turn."""
    import torch  # noqa: PLC0415 - loaded already, by the learners

    share = {CORES: str(max(1, torch.get_num_threads() // max(1, workers)))}
    visible, count = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()
    gpus = [str(index) for index in range(count)] if visible is None else visible.split(",")[:count]
    if not gpus or not all(job.may_use_gpu for job in jobs):
        return [share] * workers
    return [share | {"CUDA_VISIBLE_DEVICES": gpus[index % len(gpus)]} for index in range(workers)]


def work(number: int) -> None:
    """Run cells from the connection with this file descriptor until the parent is gone; main function of a worker."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # terminals and batch systems send them to all
        signal.signal(ending, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(number,), daemon=True).start()
    prepare_process()
    connection: Connection[Any, Any] = Connection(number)
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            connection.send(play(connection.recv(), CellProgress(connection.send)))


def _end_with_parent(number: int) -> None:
    """Wait until the parent is gone, even by ``kill -9``; then end this process at once."""
    parent = select.poll()
    parent.register(number, 0)  # only the end of the connection wakes poll
    parent.poll()
    os._exit(1)
