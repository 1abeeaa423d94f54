"""Run cells on a Ray cluster, as tasks that Ray starts again when their process or machine dies.

Every machine must see the folder of the comparison, in which a cell runs as on a single machine; a second attempt
resumes the first. Every machine also needs the data sets, vnetsim and the installed learners. An unreachable cluster is
refused before anything runs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any

from vnetsim import __version__
from vnetsim.errors import InputError, one_line
from vnetsim.process import RETRIES, prepare_process
from vnetsim.storage.records import COMPARISON
from vnetsim.study.cells import CellJob, CellResult, play
from vnetsim.study.workers import CellProgress, StudyProgress

Cluster = Mapping[str, Any]  # arguments of ``ray.init``
PATIENCE_S, JOIN_S, SHOW_EVERY_S = 5.0, 60.0, 1.0
"""Time limits (s) for a machine to answer and for joining a cluster; how often progress is shown (s)."""


def cluster_of(workers: int | None, engine: str, address: str | None) -> Cluster | None:
    """Return the cluster that the options describe, None unless ``engine`` is ``ray``; InputError for wrong options.

    ``address`` is HOST:PORT of a cluster's head or ``auto``, and ``workers`` then 1 or None; InputError if none
    answers. Without an address, a new cluster has ``workers`` CPUs, by default 1.
    """
    if engine == "ray":
        _import_ray()
    elif address is not None:
        raise InputError(f"--address {address}: is that of a Ray cluster; add --engine ray.")
    workers = 1 if workers is None else workers
    if workers < 1:
        raise InputError(f"--workers {workers}: must be at least 1.")
    if engine != "ray":
        return None
    if address is None:
        return {"num_cpus": workers, "include_dashboard": False}
    if workers != 1:
        raise InputError(f"--workers {workers}: the cluster of --address decides how many cells run at once.")
    if address != "auto":
        _refuse_unreachable(address)
    return {"address": address}


def _import_ray() -> Any:
    """Return the module ``ray``, after setting variables that it reads; InputError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning on tasks without GPUs
    # by default Ray gives workers such a low priority that other work on the machine starves them
    os.environ.setdefault("RAY_worker_niceness", "0")
    # silences a page of text for a lost raylet and a line for every restarted worker
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError:
        raise InputError("--engine ray: Ray is not installed; do that with: pip install 'vnetsim[ray]'.") from None
    return ray


def _refuse_unreachable(address: str) -> None:
    """Raise InputError for a malformed address, or one without a Ray cluster; Ray itself would try forever."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in address:
        raise InputError(f"--address {address}: write HOST:PORT of the cluster's head (ray start --head), or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"--address {address}: no Ray cluster answers there: {one_line(error)}.") from None
    joining = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)"
    try:
        subprocess.run(  # noqa: S603 - this interpreter
            [sys.executable, "-c", joining, address], check=True, timeout=JOIN_S, capture_output=True
        )
    except (subprocess.SubprocessError, OSError):
        raise InputError(
            f"--address {address}: something listens there, but no Ray cluster of this Ray {version('ray')} and Python "
            f"could be joined within {JOIN_S:.0f} s."
        ) from None


@contextmanager
def connect(cluster: Cluster) -> Iterator[None]:
    """Connect to a cluster, or start one, for the block; shut down what was started. InputError if none answers."""
    ray = _import_ray()
    try:
        with _silence_stderr():
            ray.init(**cluster, logging_level="error", log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"--address {cluster.get('address')}"
        raise InputError(f"{where}: no Ray cluster answers: {one_line(error)[:300]}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Discard what this process, also in C libraries, writes to standard error during the block."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def run_on_ray(
    jobs: Sequence[CellJob], display: StudyProgress, *, cluster: Cluster
) -> Generator[CellResult, None, None]:
    """Run cells on a cluster; yield results as cells end. A cell fails if Ray loses its task over ``RETRIES`` times."""
    import ray  # noqa: PLC0415
    from ray.util.queue import Queue  # noqa: PLC0415

    if not jobs:
        return
    with connect(cluster):
        gpus = 1 if ray.cluster_resources().get("GPU") and all(job.may_use_gpu for job in jobs) else 0
        task = ray.remote(_run_cell).options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False)
        news = Queue(actor_options={"num_cpus": 0})  # with a CPU it would wait until a cell ends
        running = {task.remote(job, __version__, news): job for job in jobs}
        try:
            while running:
                ready, _ = ray.wait(list(running), num_returns=1, timeout=SHOW_EVERY_S)
                _show(news, {job.name: job for job in running.values()}, display)
                for reference in ready:
                    job = running.pop(reference)
                    result = _result_of(job, reference)
                    display.end(job)
                    yield result
        finally:
            for reference in running:
                ray.cancel(reference)
            if running:
                ray.wait(list(running), num_returns=len(running), timeout=PATIENCE_S)


def _show(news: Any, running: Mapping[str, CellJob], display: StudyProgress) -> None:
    """Take all messages from the queue ``news``, and show the newest of each cell in ``running`` (by name)."""
    import ray  # noqa: PLC0415

    with suppress(ray.exceptions.RayError):  # its machine may be gone; the cells go on
        for name, latest in dict(news.get_nowait_batch(news.qsize())).items():
            if name in running:
                display.show(running[name], latest)


def _result_of(job: CellJob, reference: Any) -> CellResult:
    """Return the result of a task that has ended; a failure if Ray lost the task."""
    import ray  # noqa: PLC0415

    try:
        return ray.get(reference)  # type: ignore[no-any-return]
    except ray.exceptions.RayError as error:
        return CellResult(name=job.name, error=f"its task on the Ray cluster was lost: {one_line(error)[:300]}")


def _run_cell(job: CellJob, made_by: str, news: Any) -> CellResult:
    """Run a cell on a machine of the cluster; a failure if its vnetsim is not ``made_by`` or it lacks the folder."""
    if made_by != __version__:
        where = f"{socket.gethostname()} has vnetsim {__version__}, the comparison is made by {made_by}"
        return CellResult(name=job.name, error=f"{where}; install the same version on all machines.")
    if not (job.root / COMPARISON).is_file():
        where = f"{socket.gethostname()} does not see the folder {job.root}"
        return CellResult(name=job.name, error=f"{where}; choose an --out that all machines share, at the same path.")
    prepare_process()
    # do not wait for the queue: its machine may be gone
    return play(job, CellProgress(lambda latest: news.actor.put_nowait.remote((job.name, latest))))
