"""Cells in processes of this machine, as many at once as wanted, GPUs dealt out in turn; and what is shown of them.

Every worker is a fresh interpreter (CUDA does not survive a fork) that runs one cell after the other. It never sees
Ctrl-C, which a terminal sends to all, nor SIGTERM and SIGHUP: its parent kills it, and it ends itself when its parent
is gone. A cell that is killed at any instant leaves a run directory that can be resumed.
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

from vnetsim.learning.device import CORES
from vnetsim.process import prepare_process
from vnetsim.progress import ProgressDisplay
from vnetsim.study.cells import CellJob, CellResult, play

MOST_SHOWN = 8
"""Running cells that get a line each."""
REPORT_EVERY_S = 0.2


@dataclass(frozen=True, kw_only=True)
class News:
    """How far a cell is: what it does, the share of its rounds that are done, and simulated time (s)."""

    stage: str = "starting"
    share: float = 0.0
    time_s: float = 0.0


class StudyProgress:
    """One display for all cells, whichever process they run in.

    The bar counts cells, a running one by the share of its rounds, so that the time left is that of the whole. Of
    ``total`` cells some are ``done`` and need not run.
    """

    def __init__(self, progress: ProgressDisplay, *, total: int, done: int) -> None:
        self._progress = progress
        self._total = total
        self._done = done
        self._running: dict[str, tuple[CellJob, News]] = {}
        self._simulated_s = 0.0  # of cells that ended

    @property
    def place(self) -> str:
        """Where the comparison is, for the message of an interruption."""
        jobs = [job for job, _ in self._running.values()]
        return f"in {jobs[0].where}" if len(jobs) == 1 else f"after {self._done} of {self._total} cells"

    def show(self, job: CellJob, news: News = News()) -> None:
        """Show a cell, which may have begun with it."""
        self._running[job.name] = job, news
        self._refresh()

    def end(self, job: CellJob) -> None:
        """Count a cell as done, whether it finished or failed."""
        _, news = self._running.pop(job.name, (job, News()))
        self._simulated_s += news.time_s
        self._done += 1
        self._refresh()

    def _refresh(self) -> None:
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
    """The display that a cell writes to, in whichever process; ``send`` brings news to where that of all cells is."""

    def __init__(self, send: Callable[[News], object]) -> None:
        self._send = send
        self._news = News()
        self._due_s = 0.0

    def stage(self, text: str) -> None:
        """Say what the cell does."""
        self._news = replace(self._news, stage=text)
        self._send(self._news)

    def note(self, text: str) -> None:
        """Keep silent: notes of the traffic were shown once, and the comparison says how each cell ended."""

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Say the simulated time (s) and the rounds, unless that was done a moment ago."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + REPORT_EVERY_S
        self._news = replace(self._news, time_s=time_s)
        if total:
            self._news = replace(self._news, stage=f"round {done:.0f} of {total:.0f}", share=min(done / total, 1.0))
        self._send(self._news)


def run_here(jobs: Sequence[CellJob], display: StudyProgress) -> Generator[CellResult, None, None]:
    """Run cells one after the other in this process; yield how each ended."""
    for job in jobs:
        display.show(job)
        outcome = play(job, CellProgress(partial(display.show, job)))
        display.end(job)
        yield outcome


def run_in_processes(
    jobs: Sequence[CellJob], display: StudyProgress, *, workers: int
) -> Generator[CellResult, None, None]:
    """Run cells in ``workers`` processes; yield how each ended, in the order in which they do.

    A process that dies fails its cell alone. However this generator ends, no process of it is left.
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
                worker = busy[connection]  # type: ignore[index]  # wait gives back what it was given
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
    """A process that runs cells, seen from its parent; one that dies has another in its place.

    ``environment`` holds the variables that differ from the parent's.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.job: CellJob | None = None
        self._start()

    def _start(self) -> None:
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
        """Let it run a cell."""
        self.job = job
        with suppress(OSError):  # it is dead: reading from it will fail
            self.connection.send(job)

    def hear(self) -> tuple[CellJob, CellResult | News]:
        """Return its cell, and what it says: how far that is, or how it ended, also with the process."""
        job = self.job
        assert job is not None
        try:
            message: CellResult | News = self.connection.recv()
        except (EOFError, OSError):
            message = CellResult(name=job.name, error=f"{self._exit_reason()} What it had saved is kept.")
            self._start()
        if isinstance(message, CellResult):
            self.job = None
        return job, message

    def _exit_reason(self) -> str:
        self.connection.close()
        code = self._process.wait()
        if code >= 0:
            return f"its process ended by itself, with status {code}."
        cause = " (kill -9, or no memory was left)" if code == -signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{cause}."

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self._process.kill()
        self._process.wait()


def _environments(jobs: Sequence[CellJob], workers: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker that differ from this process's: its share of cores, its GPU."""
    import torch  # noqa: PLC0415 - loaded already, by the learners

    share = {CORES: str(max(1, torch.get_num_threads() // max(1, workers)))}
    visible, count = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()
    gpus = [str(index) for index in range(count)] if visible is None else visible.split(",")[:count]
    if not gpus or not all(job.may_use_gpu for job in jobs):
        return [share] * workers
    return [share | {"CUDA_VISIBLE_DEVICES": gpus[index % len(gpus)]} for index in range(workers)]


def work(number: int) -> None:
    """Run the cells that come through the connection of this file number; the main function of a worker."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # which batch systems send to all processes
        signal.signal(ending, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(number,), daemon=True).start()
    prepare_process()
    connection: Connection[Any, Any] = Connection(number)
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            connection.send(play(connection.recv(), CellProgress(connection.send)))


def _end_with_parent(number: int) -> None:
    """End this process when its parent is gone, even by ``kill -9``."""
    parent = select.poll()
    parent.register(number, 0)  # to hear of the end alone
    parent.poll()
    os._exit(1)
