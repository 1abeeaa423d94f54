"""One cell of a comparison: what it takes to run it in any process, how it ended, and whether it is still what it was.

A finished cell is sealed: ``results.sha256`` holds the SHA-256 of each file that a comparison reads, in the format of
the command ``sha256sum``. Altered files are thereby named instead of silently compared.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vnetsim import __version__
from vnetsim.device import CORES
from vnetsim.errors import InputError, VnetsimError
from vnetsim.experiment import Experiment
from vnetsim.manifest import sha256_of
from vnetsim.registry import at_folder
from vnetsim.run_directory import RunDirectory, write_atomically
from vnetsim.runner import resume_run, start_run
from vnetsim.settings_file import load_experiment, to_plain
from vnetsim.terminal import ProgressDisplay

SEAL = "results.sha256"
SEALED = ("experiment.toml", "manifest.json", "*.parquet")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A cell to run; can be sent to another process or machine.

    Args:
        name: of its folder.
        where: its place among the others and what it is, in words.
        words: what it is.
        root: folder of the comparison, absolute.
        experiment: its settings; traffic and learners' files by their paths in ``root``.
        command: the command line, for the record.
    """

    name: str
    where: str
    words: str
    root: Path
    experiment: Experiment
    command: Sequence[str]

    @property
    def folder(self) -> Path:
        """Its run directory."""
        return self.root / "cells" / self.name

    def located(self) -> Experiment:
        """Return its settings with the paths as they are on this machine."""
        given = self.experiment
        learner, schedule = (at_folder(name, self.root) for name in (given.learner, given.schedule.learner))
        return dataclasses.replace(
            given,
            scenario=str(self.root / given.scenario),
            learner=learner,
            schedule=dataclasses.replace(given.schedule, learner=schedule),
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a cell ended.

    Args:
        name: of its folder.
        error: one line that says why it failed; empty when it finished.
        disk_full: whether it failed because there was no space left, as all others would.
    """

    name: str
    error: str = ""
    disk_full: bool = False


def play(job: Job, progress: ProgressDisplay) -> Outcome:
    """Run or resume a cell, and seal it.

    torch computes it with one thread, wherever it runs: sums depend on how many there are in their last bits, and
    several cells at once use a machine better than several threads.

    Raises:
        KeyboardInterrupt: it was interrupted, and can be resumed.
    """
    try:
        with _one_thread():
            _play(job, progress)
    except (VnetsimError, OSError) as error:
        return Outcome(name=job.name, error=one_line(error), disk_full=is_disk_full(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other cells go on
        line = f"internal error: {type(error).__name__}: {one_line(error)}"
        return Outcome(name=job.name, error=line, disk_full=is_disk_full(error))
    return Outcome(name=job.name)


def _play(job: Job, progress: ProgressDisplay) -> None:
    folder, experiment = job.folder, job.located()
    if (folder / "manifest.json").is_file():
        _refuse_other_settings(folder, experiment)
        resume_run(folder, command=job.command, progress=progress)
    else:
        if folder.exists():  # killed before it had begun
            shutil.rmtree(folder)
        start_run(experiment, folder, command=job.command, progress=progress, portable=True)
    seal(folder)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute with one thread: the bits of a cell must not depend on how many cells run at once.

    Vehicles are still trained side by side on all cores that the cell has; that changes no bit.
    """
    import torch  # noqa: PLC0415 - seconds, which the readers of seals do without

    before, told = torch.get_num_threads(), os.environ.get(CORES)
    os.environ.setdefault(CORES, str(before))
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if told is None:
            del os.environ[CORES]


def is_finished(folder: Path) -> bool:
    """Return whether a cell has finished; seal it if a kill came before that.

    Raises:
        InputError: it is of another version, damaged, or altered since it finished.
    """
    if not (folder / "manifest.json").is_file() and not (folder / SEAL).is_file():
        return False
    refuse_altered(folder)
    try:
        manifest = RunDirectory(folder).manifest()
    except InputError as error:
        raise InputError(f"{error} Repair it, or {_cure(folder)}") from None
    if manifest.get("vnetsim") != __version__:
        raise InputError(f"{folder}: made by vnetsim {manifest.get('vnetsim')}; delete it to run it again.")
    if manifest.get("status") != "finished":
        return False
    if not (folder / SEAL).is_file():
        seal(folder)
    return True


def seal(folder: Path) -> None:
    """Write ``results.sha256``."""
    files = sorted(path for pattern in SEALED for path in folder.glob(pattern))
    lines = [f"{sha256_of(path)}  {path.name}\n" for path in files]
    write_atomically(folder / SEAL, "".join(lines).encode())


def refuse_altered(folder: Path) -> None:
    """Check a cell's files against its seal, if it has one.

    Raises:
        InputError: names the first file that was altered or is gone.
    """
    path = folder / SEAL
    if not path.is_file():
        return
    try:
        lines = [line.split("  ", 1) for line in path.read_text(encoding="utf-8").splitlines()]
        recorded = {name: digest for digest, name in lines}
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: unreadable; {_cure(folder)} ({error})") from None
    for name, digest in recorded.items():
        file = folder / Path(name).name
        if not file.is_file() or sha256_of(file) != digest:
            raise InputError(f"{file}: altered or gone since the cell finished; put it back, or {_cure(folder)}")


def _cure(folder: Path) -> str:
    return f"delete {folder} and call the same `vnetsim compare` again to run the cell anew."


def _refuse_other_settings(folder: Path, experiment: Experiment) -> None:
    """Refuse to resume a cell whose ``experiment.toml`` is no longer what the comparison wants; its name says it is."""
    recorded = _flat(to_plain(load_experiment(str(folder / "experiment.toml"))))
    for key, value in _flat(to_plain(experiment)).items():
        found = recorded.get(key)
        # the record also spells out defaults; paths are checked by the bytes of their files
        if found != value and key not in {"scenario", "learner", "schedule.learner"}:
            raise InputError(
                f"{folder / 'experiment.toml'}: {key} was altered since the cell began (from {value!r} to {found!r}); "
                f"put it back, or {_cure(folder)}"
            )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in values.items():
        result |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return result


def one_line(error: BaseException) -> str:
    """Return what an error says, as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error comes from a disk or quota without space."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return True
        error = error.__cause__
    return False
