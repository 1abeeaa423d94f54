"""Cells on a Ray cluster: tasks that Ray starts again when their process or machine dies.

Where a machine sees the folder of the comparison, a cell is run in it in place, and a second attempt resumes the first.
To any other machine traffic and learners' files are sent, and the files of the finished run directory come back. Data
sets, vnetsim and learners that are installed must be there on every machine.
"""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import socket
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vnetsim import __version__
from vnetsim.errors import one_line
from vnetsim.process import RETRIES, prepare_process
from vnetsim.runs.ray_cluster import PATIENCE_S, Cluster, connected
from vnetsim.storage.checksums import RECORD
from vnetsim.storage.folder import LOCK, Folder
from vnetsim.study.cells import CellJob, CellResult, play
from vnetsim.study.workers import CellProgress, StudyProgress

SHOW_EVERY_S = 1.0

Files = Mapping[str, bytes]
"""Contents by path in the folder of a comparison."""


def run_on_ray(
    jobs: Sequence[CellJob], display: StudyProgress, *, cluster: Cluster
) -> Generator[CellResult, None, None]:
    """Run cells on a cluster; yield how each ended, in the order in which they do."""
    import ray  # noqa: PLC0415
    from ray.util.queue import Queue  # noqa: PLC0415

    if not jobs:
        return
    with connected(cluster), _shared_folder_mark(jobs[0].root) as mark:
        gpus = 1 if ray.cluster_resources().get("GPU") and all(job.may_use_gpu for job in jobs) else 0
        task = ray.remote(_cell).options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False)
        news = Queue(actor_options={"num_cpus": 0})  # not to wait for a cell that ends
        traffics = {job.experiment.scenario: job.root for job in jobs}
        files = {traffic: ray.put(_files(root, traffic, "learners")) for traffic, root in traffics.items()}
        running = {
            # what stands in a list is fetched only where it is asked for
            task.remote(job, mark, __version__, news, [files[job.experiment.scenario]]): job
            for job in jobs
        }
        try:
            while running:
                ready, _ = ray.wait(list(running), num_returns=1, timeout=SHOW_EVERY_S)
                _show(news, {job.name: job for job in running.values()}, display)
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


def _show(news: Any, running: Mapping[str, CellJob], display: StudyProgress) -> None:
    import ray  # noqa: PLC0415

    with suppress(ray.exceptions.RayError):  # its machine may be gone; the cells go on
        for name, latest in dict(news.get_nowait_batch(news.qsize())).items():
            if name in running:
                display.show(running[name], latest)


def _received(job: CellJob, reference: Any) -> CellResult:
    """Return how a task ended; write the files that it brought."""
    import ray  # noqa: PLC0415

    outcome: CellResult
    try:
        outcome, files = ray.get(reference)
    except ray.exceptions.RayError as error:
        return CellResult(name=job.name, error=f"its task on the Ray cluster was lost: {one_line(error)[:300]}")
    if files:
        whole = Folder(job.root)
        if job.folder.exists():  # begun by an earlier call
            whole.remove(f"cells/{job.name}")
        _write(whole, f"cells/{job.name}", files)
    return outcome


@contextmanager
def _shared_folder_mark(root: Path) -> Iterator[str]:
    """Put a file with a name that nobody can guess into the folder: a machine that sees it sees the folder itself."""
    name = f".seen-{secrets.token_hex(16)}"
    Folder(root).write_output(name, b"")
    try:
        yield name
    finally:
        Folder(root).remove(name)


def _files(root: Path, *folders: str) -> dict[str, bytes]:
    """Return the files in some folders of ``root``; locks are none."""
    found = [path for name in folders for path in (root / name).rglob("*") if path.is_file() and path.name != LOCK]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def _write(whole: Folder, name: str, files: Files) -> None:
    """Write the files of a run directory, or what else lies in folder ``name``; the manifest last."""
    inside = {Path(path).relative_to(name).as_posix(): content for path, content in files.items()}
    own = sorted(inside.keys() - {RECORD}, key=lambda path: (path == "manifest.json", path))
    Folder(whole.path_of(f"{name}/x").parent).put({path: inside[path] for path in own})


def _cell(job: CellJob, mark: str, version: str, news: Any, sent: Sequence[Any]) -> tuple[CellResult, Files]:
    """Run a cell; the function of a task. Return how it ended, and its files if the folder is not seen from here."""
    if version != __version__:
        where = f"{socket.gethostname()} has vnetsim {__version__}, the comparison is made by {version}"
        return CellResult(name=job.name, error=f"{where}; install the same version on all machines."), {}
    prepare_process()
    # nothing waits for the queue, which may be gone with its machine
    progress = CellProgress(lambda latest: news.actor.put_nowait.remote((job.name, latest)))
    if (job.root / mark).is_file():
        return play(job, progress), {}
    import ray  # noqa: PLC0415

    # the same place at every attempt, so that one on the same machine resumes the last
    here = dataclasses.replace(job, root=Path(tempfile.gettempdir()) / f"vnetsim{mark}" / job.name)
    for path, content in ray.get(sent[0]).items():
        Folder(here.root).write_output(path, content)
    outcome = play(here, progress)
    files = {} if outcome.error else _files(here.root, f"cells/{job.name}")
    shutil.rmtree(here.root, ignore_errors=True)
    return outcome, files
