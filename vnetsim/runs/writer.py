"""What a run writes besides its results: folder, lock, manifest, samples, weights, wall times."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np

from vnetsim.errors import InputError, RunError, VnetsimError
from vnetsim.errors.bounds import require
from vnetsim.errors.paths import path_name, resolved
from vnetsim.experiment import Experiment
from vnetsim.learner_facts import AGGREGATOR, CLOUD
from vnetsim.learning import Learner
from vnetsim.learning.model_record import MODEL_ENTRY, MODEL_FILE, model_files, model_record
from vnetsim.process import refuse_forked
from vnetsim.storage.folder import LOCK, Folder
from vnetsim.storage.run_directory import RunDirectory

SUMO = "sumo"
"""Folder of what SUMO writes."""
SAMPLES = 8  # example images a row of the report shows
QUARTILES = (0.25, 0.5, 0.75)
BEGUN = ("manifest.json", "comparison.json")
"""What tells that a folder is a run directory or a comparison."""


def choose_folder(experiment: Experiment, what: str) -> Path:
    """Return a new folder below ``runs/`` named after scenario, ``what`` and seed."""
    stem = resolved(experiment.scenario).name.split(".")[0] or "run"
    base = Path("runs") / path_name(stem, what, f"seed{experiment.seed}")
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


@contextmanager
def locked(run: RunDirectory, *, fresh: bool) -> Iterator[None]:
    """Make the directory and hold it against a second process that would write to it.

    Where a run starts (``fresh``), the directory must be empty, also when another process has filled it since it was
    chosen, but for what a run that was killed at its very start may have left. What ends it before its manifest is
    there, and wrong input that shows before a round was finished, leaves nothing behind, nor the folders that were made
    to hold it.

    Raises:
        InputError: it cannot be made, another process holds it, or it is not empty.
    """
    refuse_forked()
    resolved(run.path)
    try:
        run.make()
        file, new_lock = _opened_lock(run.path / LOCK)
    except OSError as error:
        run.unmake()
        why = _NO_LOCK.get(error.errno or 0, error.strerror)
        raise InputError(f"{run.path}: cannot be made or written: {why}. Choose another --out.") from error
    with file:
        begins = False
        try:
            filled = f"{run.path}: the output directory is not empty; name a new one with --out."
            require(not fresh or run.has_not_begun(), filled)
            if fresh or any((run.path / name).is_file() for name in BEGUN):  # else it may be anybody's folder
                run.remove_leftovers()
            begins = fresh
            if begins:
                run.clear()
                run.claim()
            yield
        except BaseException as error:
            begun = any((run.path / name).is_file() for name in BEGUN)
            with suppress(VnetsimError, OSError):
                if begins and (not begun or (isinstance(error, InputError) and not run.has("rounds"))):
                    run.clear()
                if new_lock and (not begun or isinstance(error, InputError)):
                    run.remove(LOCK)
                run.unmake()
            raise


_NO_LOCK = {errno.ELOOP: f"{LOCK} is a symbolic link", errno.ENXIO: f"{LOCK} is a pipe"}


def _opened_lock(path: Path) -> tuple[IO[str], bool]:
    """Return the lock, held, and whether it was made here.

    Raises:
        InputError: another process holds it.
        OSError: it cannot be made, or is a symbolic link.
    """
    new = not os.path.lexists(path)
    # never through a link, without cutting what is there, and without waiting for who reads a pipe
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644), "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InputError(f"{path.parent}: another vnetsim process is writing there.") from None
    return file, new


def write_samples(
    run: RunDirectory, experiment: Experiment, learner: Learner, entry_speeds_mps: Sequence[float]
) -> None:
    """Write example images: sharp, then blurred as at the quartiles of the vehicles' speeds at entry (m/s)."""
    if not entry_speeds_mps:
        return
    speeds = [0.0, *np.quantile(entry_speeds_mps, QUARTILES).tolist()]
    side = learner.describe().image_shape[1]
    kernels = [experiment.camera.kernel_px(speed, side) for speed in speeds]
    run.write_arrays(
        "samples.npz",
        images=learner.sample_images(kernels, SAMPLES),
        kernels_px=np.array(kernels),
        speeds_mps=np.array(speeds),
    )


def write_models(run: RunDirectory, learner: Learner, rounds: Mapping[str, int]) -> None:
    """Write the one model, or the cloud's, as ``model.safetensors``, else each RSU's, and in its metadata what it is.

    ``rounds`` are those that were aggregated, by aggregator; the cloud's last.

    Raises:
        RunError: the learner keeps no tensors under ``model.``.
    """
    from safetensors.torch import save  # noqa: PLC0415 - brings torch

    last = [*rounds][-1]
    files = {last: MODEL_FILE} if last in (AGGREGATOR, CLOUD) else model_files([*rounds])
    state = learner.state_dict()
    for aggregator, file in files.items():
        prefix = "model." if aggregator == AGGREGATOR else f"{aggregator}/model."
        model = {
            name.removeprefix(prefix): tensor.detach().cpu().contiguous()
            for name, tensor in state.items()
            if name.startswith(prefix)
        }
        if not model:
            raise RunError(f"learner '{learner.name}' keeps no tensors under '{prefix}'; nothing to save as its model.")
        record = model_record(learner.describe(), rounds[aggregator])
        run.put({file: save(model, metadata={MODEL_ENTRY: json.dumps(dataclasses.asdict(record))})})


PAGES = ("report.html", "beside.html", "figures")
"""What is made of a run's files, and stands in no record."""


def folder_to_make(folder: Path | None, *, overwrite: bool) -> Path | None:
    """Return the folder that was asked for; with ``overwrite``, clear the run directory that is there.

    Raises:
        InputError: it is none, it holds something that vnetsim did not write, or another process writes to it.
    """
    if not overwrite or folder is None or not folder.is_dir() or Folder(folder).has_not_begun():
        return folder
    run = RunDirectory(folder)
    run.manifest_record()
    for name in run.others(PAGES):
        raise InputError(f"{folder}: holds {name}, of which no record says that vnetsim wrote it; take it away first.")
    with locked(run, fresh=False):
        for name in PAGES:
            run.remove(name)
        run.clear()
    return folder
