"""Run cells on a Ray cluster, as tasks that Ray starts again when their process or machine dies.

Every machine must see the folder of the comparison, in which a cell runs as on a single machine; a second attempt
resumes the first. Every machine also needs the data sets, vnetsim and the installed learners.
"""

from __future__ import annotations

import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from vnetsim import __version__
from vnetsim.errors import one_line
from vnetsim.process import RETRIES, prepare_process
from vnetsim.storage.records import COMPARISON
from vnetsim.study.cells import CellJob, CellResult, play
from vnetsim.study.ray_cluster import PATIENCE_S, Cluster, connect
from vnetsim.study.workers import CellProgress, StudyProgress

SHOW_EVERY_S = 1.0


def run_on_ray(
    jobs: Sequence[CellJob], display: StudyProgress, *, cluster: Cluster
) -> Generator[CellResult, None, None]:
    """Run cells on a cluster; yield results as they end. A cell fails if Ray loses its task over ``RETRIES`` times."""
    import ray  # noqa: PLC0415
    from ray.util.queue import Queue  # noqa: PLC0415

    if not jobs:
        return
    with connect(cluster):
        gpus = 1 if ray.cluster_resources().get("GPU") and all(job.may_use_gpu for job in jobs) else 0
        task = ray.remote(_cell).options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False)
        news = Queue(actor_options={"num_cpus": 0})  # with a CPU it would wait until a cell ends
        running = {task.remote(job, __version__, news): job for job in jobs}
        try:
            while running:
                ready, _ = ray.wait(list(running), num_returns=1, timeout=SHOW_EVERY_S)
                _show(news, {job.name: job for job in running.values()}, display)
                for reference in ready:
                    job = running.pop(reference)
                    outcome = _outcome(job, reference)
                    display.end(job)
                    yield outcome
        finally:
            for reference in running:
                ray.cancel(reference)
            if running:
                ray.wait(list(running), num_returns=len(running), timeout=PATIENCE_S)


def _show(news: Any, running: Mapping[str, CellJob], display: StudyProgress) -> None:
    """Take all messages from the queue ``news``, and show the newest of each running cell."""
    import ray  # noqa: PLC0415

    with suppress(ray.exceptions.RayError):  # its machine may be gone; the cells go on
        for name, latest in dict(news.get_nowait_batch(news.qsize())).items():
            if name in running:
                display.show(running[name], latest)


def _outcome(job: CellJob, reference: Any) -> CellResult:
    """Return the result of a task that has ended; a failure if Ray lost the task."""
    import ray  # noqa: PLC0415

    try:
        outcome: CellResult = ray.get(reference)
    except ray.exceptions.RayError as error:
        return CellResult(name=job.name, error=f"its task on the Ray cluster was lost: {one_line(error)[:300]}")
    return outcome


def _cell(job: CellJob, version: str, news: Any) -> CellResult:
    """Run a cell on a machine of the cluster; fail if that has another vnetsim or does not see the folder."""
    if version != __version__:
        where = f"{socket.gethostname()} has vnetsim {__version__}, the comparison is made by {version}"
        return CellResult(name=job.name, error=f"{where}; install the same version on all machines.")
    if not (job.root / COMPARISON).is_file():
        where = f"{socket.gethostname()} does not see the folder {job.root}"
        return CellResult(name=job.name, error=f"{where}; choose an --out that all machines share, at the same path.")
    prepare_process()
    # do not wait for the queue: its machine may be gone
    return play(job, CellProgress(lambda latest: news.actor.put_nowait.remote((job.name, latest))))
