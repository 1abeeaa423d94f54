"""One cell of a comparison: the job that any process can run, its result, and the check that it has finished.

A cell is a run directory. Its files have checksums, so that altered files are refused and not silently compared.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vnetsim import __version__
from vnetsim.errors import InputError, InUseError, UnfinishedError, VnetsimError, one_line
from vnetsim.experiment import Experiment
from vnetsim.learning.device import CORES
from vnetsim.plugins import at_folder
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import assemble
from vnetsim.runs.runner import resume_run, start_run
from vnetsim.storage.folder import Folder
from vnetsim.storage.records import COMPARED
from vnetsim.storage.run_directory import RunDirectory

TIME_LIMIT = "the time limit was reached"


@dataclass(frozen=True, kw_only=True)
class CellJob:
    """A cell to run; can be sent to another process or machine."""

    name: str  # name of its folder
    where: str  # its number, the number of cells, and its ``words``, for messages
    words: str  # arm, condition and seed
    root: Path  # folder of the comparison, absolute
    experiment: Experiment  # its settings; paths of traffic and plug-in files are relative to ``root``
    command: Sequence[str]  # the command line, to be written to ``manifest.json``
    timing_only: bool  # play the rounds without training
    deadline_s: float = math.inf  # ``time.monotonic()`` from which on it does not begin, or stops at the end of a round
    always: bool = False  # whether it begins even after the deadline, so that each call gets further

    @property
    def folder(self) -> Path:
        """Its run directory."""
        return self.root / "cells" / self.name

    @property
    def may_use_gpu(self) -> bool:
        """Whether the cell runs on any GPU that it is given; False for ``cpu`` and ``cuda:N``."""
        return self.experiment.device in {"auto", "cuda"}

    def locate_experiment(self) -> Experiment:
        """Return its settings with absolute paths of traffic and plug-in files on this machine."""
        given = self.experiment
        plugins = {key: at_folder(name, self.root) for key, name in given.plugins().items() if name}
        return given.with_values({"scenario": str(self.root / given.scenario), **plugins})


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """How a cell ended."""

    name: str  # name of its folder
    error: str = ""  # why it failed, in one line; empty if it finished
    disk_full: bool = False  # whether it failed because the disk is full, so that all others would fail too
    unfinished: str = ""  # why it was not run to its end, although it did not fail; else empty


def play(job: CellJob, progress: ProgressDisplay) -> CellResult:
    """Run or resume a cell; return how it ended, also for errors. Only a KeyboardInterrupt passes; the cell can resume.

    torch uses one thread: the last bits of sums depend on their number, and several cells use a machine better.
    """
    if time.monotonic() >= job.deadline_s and not job.always:
        return CellResult(name=job.name, unfinished=TIME_LIMIT)
    try:
        with _one_thread():
            _start_or_resume(job, progress)
    except UnfinishedError:
        return CellResult(name=job.name, unfinished=TIME_LIMIT)
    except InUseError:
        return CellResult(name=job.name, unfinished="another process is running what is missing")
    except Exception as error:  # noqa: BLE001 - whatever it is, the other cells go on
        internal = "" if isinstance(error, VnetsimError | OSError) else f"internal error: {type(error).__name__}: "
        line = f"{internal}{one_line(error)}"
        return CellResult(name=job.name, error=line, disk_full=is_disk_full(error))
    return CellResult(name=job.name)


def _start_or_resume(job: CellJob, progress: ProgressDisplay) -> None:
    """Resume a cell that has a manifest; run any other from the start."""
    folder, experiment = Folder(job.root).path_of(f"cells/{job.name}/manifest.json").parent, job.locate_experiment()
    deadline_s = math.inf if job.timing_only else job.deadline_s
    common: dict[str, Any] = {"command": job.command, "progress": progress, "deadline_s": deadline_s}
    if (folder / "manifest.json").is_file():
        # trusted: the settings come from the comparison, not from the folder
        resume_run(folder, experiment=experiment, trust=True, **common)
    else:
        start_run(assemble(experiment), folder, portable=True, timing_only=job.timing_only, **common)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread in the block; meanwhile the variable ``CORES``, if unset, is the number before."""
    # vehicles still train in parallel on ``CORES`` cores, which changes no bit
    import torch  # noqa: PLC0415 - takes seconds; is_finished does without it

    before, cores_before = torch.get_num_threads(), os.environ.get(CORES)
    os.environ.setdefault(CORES, str(before))
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if cores_before is None:
            del os.environ[CORES]


def is_finished(folder: Path) -> bool:
    """Return whether a cell has finished; InputError if another version of vnetsim made it, or its files changed."""
    run = RunDirectory(folder)
    try:
        if not run.holds("manifest.json"):
            return False
        manifest = run.manifest()
        if manifest["vnetsim"] == __version__ and manifest["status"] == "finished":
            run.verify(*COMPARED)
    except InputError as error:
        cure = f"delete {folder} and call the same `vnetsim compare`, which runs the cell again."
        raise InputError(f"{error} Or {cure}") from None
    if manifest["vnetsim"] != __version__:
        raise InputError(f"{folder}: made by vnetsim {manifest['vnetsim']}; delete it to run it again.")
    return bool(manifest["status"] == "finished")


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes says that the disk or quota is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return True
        error = error.__cause__
    return False
