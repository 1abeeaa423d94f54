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

MOST_SHOWN = 8  # running cells, one line each
REPORT_EVERY_S = 0.2
MOST_SHARING, SHARE_BYTES = 8, 8 * 2**30
"""Most cells that choose_workers lets share a GPU, as many as were measured, and the free memory it wants for each:
a round of FLSimCo at its paper's size takes 5.4 GiB."""


@dataclass(frozen=True, kw_only=True)
class CellState:
    """Progress of a cell: its stage, the share of its rounds that are done, in [0, 1], and simulated time (s)."""

    stage: str = "starting"
    share: float = 0.0
    time_s: float = 0.0


class StudyProgress:
    """One display of all cells, ``done`` of ``total`` finished; a running cell counts by the share of its rounds."""

    def __init__(self, progress: ProgressDisplay, *, total: int, done: int) -> None:
        """Show nothing yet; ``done`` of ``total`` cells had finished before."""
        self._progress = progress
        self._total = total
        self._done = done
        self._running: dict[str, tuple[CellJob, CellState]] = {}
        self._simulated_s = 0.0  # of cells that ended

    @property
    def place(self) -> str:
        """How far the comparison is, in words: the running cell if it is the only one, else how many are done."""
        jobs = [job for job, _ in self._running.values()]
        return f"in {jobs[0].where}" if len(jobs) == 1 else f"after {self._done} of {self._total} cells"

    def show(self, job: CellJob, state: CellState = CellState()) -> None:
        """Show progress of a running cell; the first call for a cell adds it to the running ones."""
        self._running[job.name] = job, state
        self._refresh()

    def end(self, job: CellJob) -> None:
        """Count a cell as done, finished or not; its simulated time stays in the sum that is shown."""
        _, state = self._running.pop(job.name, (job, CellState()))
        self._simulated_s += state.time_s
        self._done += 1
        self._refresh()

    def _refresh(self) -> None:
        """Show how many cells are done, the stages of the first ``MOST_SHOWN`` running ones, and the simulated time."""
        running = list(self._running.values())
        lines = [f"{self._done} of {self._total} cells"]
        lines += [f"  {job.words}: {state.stage}" for job, state in running[:MOST_SHOWN]]
        if len(running) > MOST_SHOWN:
            lines.append(f"  and {len(running) - MOST_SHOWN} more")
        self._progress.stage("\n".join(lines))
        time_s = self._simulated_s + sum(state.time_s for _, state in running)
        done = self._done + sum(state.share for _, state in running)
        self._progress.advance(time_s=time_s, done=done, total=self._total)


class CellProgress:
    """The display of one cell; it gives each state to ``send``, which may pass it to another process."""

    def __init__(self, send: Callable[[CellState], object]) -> None:
        self._send = send
        self._state = CellState()
        self._due_s = 0.0

    def stage(self, text: str) -> None:
        """Send the cell's stage at once."""
        self._state = replace(self._state, stage=text)
        self._send(self._state)

    def note(self, text: str) -> None:
        """Do nothing: notes of the traffic were shown once, and the comparison reports how each cell ended."""

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Send simulated time (s) and rounds, if 0.2 s have passed since it last did; no rounds without ``total``."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + REPORT_EVERY_S
        self._state = replace(self._state, time_s=time_s)
        if total:
            self._state = replace(self._state, stage=f"round {done:.0f} of {total:.0f}", share=min(done / total, 1.0))
        self._send(self._state)


def choose_workers(jobs: Sequence[CellJob]) -> int:
    """Return how many cells to run at once: as GPU memory and cores allow; 1 unless all cells train on working GPUs."""
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
    """Run cells one after the other in this process; show their progress, and yield each result as its cell ends."""
    for job in jobs:
        display.show(job)
        outcome = play(job, CellProgress(partial(display.show, job)))
        display.end(job)
        yield outcome


def run_in_processes(
    jobs: Sequence[CellJob], display: StudyProgress, *, workers: int
) -> Generator[CellResult, None, None]:
    """Run cells in ``workers`` processes; yield results as cells end. If a process dies, only its cell fails.

    When this generator ends or is closed, all its processes are gone.
    """
    waiting = deque(jobs)
    pool: list[_Worker] = []
    try:
        pool.extend(_Worker(environment) for environment in _make_environments(jobs, min(workers, len(jobs))))
        while True:
            for worker in pool:
                if waiting and worker.job is None:
                    display.show(waiting[0])
                    worker.send(waiting.popleft())
            busy = {worker.connection: worker for worker in pool if worker.job is not None}
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]  # wait returns elements of its argument
                job, message = worker.receive()
                if isinstance(message, CellState):
                    display.show(job, message)
                else:
                    display.end(job)
                    yield message
    finally:
        for worker in pool:
            worker.end()


class _Worker:
    """A process that runs cells, as its parent uses it; ``job`` is the running cell, None if it is idle."""

    def __init__(self, environment: Mapping[str, str]) -> None:  # the variables that differ from the parent's
        """Start a process with this one's environment variables, changed by ``environment``."""
        self._environment = environment
        self.job: CellJob | None = None
        self._start()

    def _start(self) -> None:
        """Start a process, and set ``connection`` to it."""
        self.connection, theirs = multiprocessing.Pipe()
        number = theirs.fileno()
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-P", "-c", f"from vnetsim.study.workers import work; work({number})"],
            env={**os.environ, **self._environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            pass_fds=[number],
            start_new_session=True,  # out of reach of the terminal's signals
        )
        theirs.close()

    def send(self, job: CellJob) -> None:
        """Send a cell to the idle process; if the process is dead, ``receive`` returns the failure."""
        self.job = job
        with suppress(OSError):
            self.connection.send(job)

    def receive(self) -> tuple[CellJob, CellResult | CellState]:
        """Wait for a message; return the running cell and the message. A dead process is a failure, and is replaced."""
        job = self.job
        assert job is not None
        try:
            message: CellResult | CellState = self.connection.recv()
        except (EOFError, OSError):
            message = CellResult(name=job.name, error=f"{self._wait_for_exit()} What it had saved is kept.")
            self._start()
        if isinstance(message, CellResult):
            self.job = None
        return job, message

    def _wait_for_exit(self) -> str:
        """Close the connection, wait until the process has ended, and return a sentence on why it ended."""
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


def _make_environments(jobs: Sequence[CellJob], workers: int) -> list[dict[str, str]]:
    """Return the variables to set for each worker: its cores and, if all cells may use any GPU, one GPU in turn."""
    import torch  # noqa: PLC0415 - loaded already, by the learners

    share = {CORES: str(max(1, torch.get_num_threads() // max(1, workers)))}
    visible, count = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()
    gpus = [str(index) for index in range(count)] if visible is None else visible.split(",")[:count]
    if not gpus or not all(job.may_use_gpu for job in jobs):
        return [share] * workers
    return [share | {"CUDA_VISIBLE_DEVICES": gpus[index % len(gpus)]} for index in range(workers)]


def work(number: int) -> None:
    """Run cells from the connection at file descriptor ``number`` until the parent is gone: a worker's main."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # terminals and batch systems send them to all
        signal.signal(ending, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(number,), daemon=True).start()
    prepare_process()
    connection: Connection[Any, Any] = Connection(number)
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            connection.send(play(connection.recv(), CellProgress(connection.send)))


def _end_with_parent(number: int) -> None:
    """Wait until the other end of descriptor ``number`` is closed, as by the parent's death; then end this process."""
    parent = select.poll()
    parent.register(number, 0)  # only the end of the connection wakes poll
    parent.poll()
    os._exit(1)
