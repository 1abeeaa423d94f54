"""Cells on a Ray cluster: tasks that Ray starts again when their process or machine dies.

Where a machine sees the folder of the comparison, a cell is run in it in place, and a second attempt resumes the first.
To any other machine traffic and learners' files are sent, and the files of the finished run directory come back. Data
sets, vnetsim and learners that are installed must be there on every machine.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from vnetsim import __version__
from vnetsim.cell_workers import Told
from vnetsim.cells import SEAL, Job, Outcome, one_line, play
from vnetsim.errors import InputError
from vnetsim.run_directory import write_atomically
from vnetsim.study_progress import StudyProgress

RETRIES = 3
"""How often a cell whose process or machine died is begun again."""

PATIENCE_S = 5.0
"""How long to wait for a cluster to answer, and for cancelled cells to put their run directories in order."""

SHOW_EVERY_S = 1.0

Files = Mapping[str, bytes]
"""Contents by path in the folder of a comparison."""


def ray_engine(
    workers: int, address: str | None
) -> Callable[[Sequence[Job], StudyProgress], Generator[Outcome, None, None]]:
    """Return what runs cells on the Ray cluster at ``address``, or on a new one of this machine.

    Args:
        workers: cells at once on a cluster of this machine; a cluster with an address knows its size itself.
        address: HOST:PORT of its head, or ``auto``; None for a new one.

    Raises:
        InputError: Ray is not installed, the options do not go together, or the cluster does not answer.
    """
    try:
        import ray  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise InputError("--engine ray: Ray is not installed; do that with: pip install 'vnetsim[ray]'.") from None
    if address is None:
        return partial(_run, init={"num_cpus": workers, "include_dashboard": False})
    if workers != 1:
        raise InputError(f"--workers {workers}: the cluster of --address decides how many cells run at once.")
    if address != "auto":
        _refuse_silent(address)
    return partial(_run, init={"address": address})


def _refuse_silent(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in address:
        raise InputError(f"--address {address}: write HOST:PORT of the cluster's head (ray start --head), or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"--address {address}: no Ray cluster answers there: {one_line(error)}.") from None


def _run(jobs: Sequence[Job], display: StudyProgress, *, init: Mapping[str, Any]) -> Generator[Outcome, None, None]:
    """Run cells on a cluster; yield how each ended, in the order in which they do."""
    import ray  # noqa: PLC0415

    if not jobs:
        return
    with _cluster(init), _shared_folder_mark(jobs[0].root) as mark:
        total = ray.cluster_resources()
        gpus = 1 if total.get("GPU") and all(_wants_gpu(job) for job in jobs) else 0
        at_once = max(1, int(total.get("GPU" if gpus else "CPU", 1)))
        task = ray.remote(_cell).options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False)
        board = ray.remote(_Board).options(num_cpus=0).remote()
        files: dict[str, Any] = {}
        waiting, running = deque(jobs), dict[Any, Job]()
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    job = waiting.popleft()
                    traffic = job.experiment.scenario
                    if traffic not in files:
                        files[traffic] = ray.put(_files(job.root, traffic, "learners"))
                    # what stands in a list is fetched only where it is asked for
                    running[task.remote(job, mark, __version__, board, [files[traffic]])] = job
                    display.begin(job)
                ready, _ = ray.wait(list(running), num_returns=1, timeout=SHOW_EVERY_S)
                _show(board, running.values(), display)
                for reference in ready:
                    job = running.pop(reference)
                    outcome = _received(job, reference)
                    display.end(job)
                    yield outcome
        finally:
            for reference in running:
                ray.cancel(reference)
            if running:
                ray.wait(list(running), num_returns=len(running), timeout=PATIENCE_S)


class _Board:
    """An actor at which cells leave word of how far they are; the driver comes and looks."""

    def __init__(self) -> None:
        self._news: dict[str, tuple[str, dict[str, Any]]] = {}

    def tell(self, name: str, message: tuple[str, dict[str, Any]]) -> None:
        """Leave word of a cell; only the last is kept."""
        self._news[name] = message

    def read(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return and forget what was left."""
        news, self._news = self._news, {}
        return news


def _show(board: Any, running: Iterable[Job], display: StudyProgress) -> None:
    import ray  # noqa: PLC0415

    names = {job.name for job in running}
    with suppress(ray.exceptions.RayError):  # its machine may be gone; the cells go on
        for name, (method, values) in ray.get(board.read.remote(), timeout=PATIENCE_S).items():
            if name in names:
                getattr(display, method)(name, **values)


def _wants_gpu(job: Job) -> bool:
    return job.experiment.device in {"auto", "cuda"}


def _received(job: Job, reference: Any) -> Outcome:
    """Return how a task ended; write the files that it brought."""
    import ray  # noqa: PLC0415

    outcome: Outcome
    try:
        outcome, files = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Outcome(name=job.name, error=f"its task on the Ray cluster was lost: {one_line(error)[:300]}")
    if files:
        if job.folder.exists():  # begun by an earlier call
            shutil.rmtree(job.folder)
        _write(job.root, files)
    return outcome


@contextmanager
def _cluster(init: Mapping[str, Any]) -> Iterator[None]:
    """Connect to a cluster or start one, and leave or end it afterwards."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what is computed here
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning on tasks without GPUs
    import ray  # noqa: PLC0415

    try:
        ray.init(**init, logging_level="error", log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"--address {init.get('address')}: no Ray cluster answers: {one_line(error)[:300]}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _shared_folder_mark(root: Path) -> Iterator[str]:
    """Put a file with a name that nobody can guess into the folder: a machine that sees it sees the folder itself."""
    name = f".seen-{secrets.token_hex(16)}"
    write_atomically(root / name, b"")
    try:
        yield name
    finally:
        (root / name).unlink(missing_ok=True)


def _files(root: Path, *below: str) -> dict[str, bytes]:
    """Return the files below some folders of ``root``; locks are none."""
    found = [path for name in below for path in (root / name).rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def _write(root: Path, files: Files) -> None:
    """Write files; manifest and seal last, which say that the others are there."""
    last = ("manifest.json", SEAL)
    for name in sorted(files, key=lambda name: last.index(Path(name).name) if Path(name).name in last else -1):
        write_atomically(root / name, files[name])


def _cell(job: Job, mark: str, version: str, board: Any, sent: Sequence[Any]) -> tuple[Outcome, Files]:
    """Run a cell; the function of a task. Return how it ended, and its files if the folder is not seen from here."""
    if version != __version__:
        where = f"{socket.gethostname()} has vnetsim {__version__}, the comparison is made by {version}"
        return Outcome(name=job.name, error=f"{where}; install the same version on all machines."), {}
    told = Told(partial(board.tell.remote, job.name))
    if (job.root / mark).is_file():
        return play(job, told), {}
    import ray  # noqa: PLC0415

    # the same place at every attempt, so that one on the same machine resumes the last
    here = dataclasses.replace(job, root=Path(tempfile.gettempdir()) / f"vnetsim{mark}" / job.name)
    _write(here.root, ray.get(sent[0]))
    outcome = play(here, told)
    files = {} if outcome.error else _files(here.root, f"cells/{job.name}")
    shutil.rmtree(here.root, ignore_errors=True)
    return outcome, files
