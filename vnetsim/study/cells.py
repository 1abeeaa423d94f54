"""One cell of a comparison: what it takes to run it in any process, how it ended, and whether it is still what it was.

A cell is a run directory, whose files have checksums: altered ones are named instead of silently compared.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vnetsim import __version__
from vnetsim.errors import InputError, VnetsimError, one_line
from vnetsim.experiment import Experiment
from vnetsim.learning.device import CORES
from vnetsim.plugins import at_folder
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import assemble
from vnetsim.runs.runner import resume_run, start_run
from vnetsim.storage.folder import Folder
from vnetsim.storage.records import COMPARED
from vnetsim.storage.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class CellJob:
    """A cell to run; can be sent to another process or machine.

    Args:
        name: of its folder.
        where: its place among the others, and its ``words``.
        words: arm, condition and seed.
        root: folder of the comparison, absolute.
        experiment: its settings; traffic and learners' files by their paths in ``root``.
    """

    name: str
    where: str
    words: str
    root: Path
    experiment: Experiment
    command: Sequence[str]
    timing_only: bool

    @property
    def folder(self) -> Path:
        """Its run directory."""
        return self.root / "cells" / self.name

    @property
    def may_use_gpu(self) -> bool:
        """Whether its settings leave open which GPU it has, or whether any."""
        return self.experiment.device in {"auto", "cuda"}

    def located(self) -> Experiment:
        """Return its settings with the paths as they are on this machine."""
        given = self.experiment
        plugins = {key: at_folder(name, self.root) for key, name in given.plugins().items() if name}
        return given.placed({"scenario": str(self.root / given.scenario), **plugins})


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """How the cell of a folder ended: ``error`` says why it failed, in one line; empty when it finished.

    ``disk_full`` is whether it failed because there was no space left, as all others would.
    """

    name: str
    error: str = ""
    disk_full: bool = False


def play(job: CellJob, progress: ProgressDisplay) -> CellResult:
    """Run or resume a cell.

    torch computes it with one thread, wherever it runs: sums depend on how many there are in their last bits, and
    several cells at once use a machine better than several threads.

    Raises:
        KeyboardInterrupt: it was interrupted, and can be resumed.
    """
    try:
        with _one_thread():
            _play(job, progress)
    except (VnetsimError, OSError) as error:
        return CellResult(name=job.name, error=one_line(error), disk_full=is_disk_full(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other cells go on
        line = f"internal error: {type(error).__name__}: {one_line(error)}"
        return CellResult(name=job.name, error=line, disk_full=is_disk_full(error))
    return CellResult(name=job.name)


def _play(job: CellJob, progress: ProgressDisplay) -> None:
    whole = Folder(job.root)
    folder = whole.path_of(f"cells/{job.name}/manifest.json").parent
    if (folder / "manifest.json").is_file():
        # whatever the folder names, the settings are the comparison's
        resume_run(folder, command=job.command, progress=progress, trust=True, experiment=job.located())
    else:
        if folder.exists():  # killed before it had begun
            whole.remove(f"cells/{job.name}")
        assembly = assemble(job.located())
        start_run(assembly, folder, command=job.command, progress=progress, portable=True, timing_only=job.timing_only)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute with one thread: the bits of a cell must not depend on how many cells run at once.

    Vehicles are still trained side by side on all cores that the cell has; that changes no bit.
    """
    import torch  # noqa: PLC0415 - seconds, which the readers of seals do without

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
    """Return whether a cell has finished.

    Raises:
        InputError: it is of another version, damaged, or altered since it finished.
    """
    run = RunDirectory(folder)
    try:
        if not run.holds("manifest.json"):
            return False
        manifest = run.manifest()
        if manifest["vnetsim"] == __version__ and manifest["status"] == "finished":
            run.verify(*COMPARED)
    except InputError as error:
        cure = f"delete {folder} and call the same `vnetsim compare` again to run the cell anew."
        raise InputError(f"{error} Or {cure}") from None
    if manifest["vnetsim"] != __version__:
        raise InputError(f"{folder}: made by vnetsim {manifest['vnetsim']}; delete it to run it again.")
    return bool(manifest["status"] == "finished")


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error comes from a disk or quota without space."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return True
        error = error.__cause__
    return False
