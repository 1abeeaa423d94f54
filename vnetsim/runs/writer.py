"""Makes and locks a run's folder, and writes its samples and models."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

from vnetsim.errors import InputError, InUseError, RunError, VnetsimError
from vnetsim.errors.bounds import require
from vnetsim.errors.paths import path_name, resolve_path
from vnetsim.experiment import Experiment
from vnetsim.learner_facts import AGGREGATOR, CLOUD
from vnetsim.learning import Learner
from vnetsim.learning.model_record import MODEL_ENTRY, MODEL_FILE, model_files, model_record
from vnetsim.process import refuse_forked
from vnetsim.storage.folder import LOCK, Folder
from vnetsim.storage.run_directory import RunDirectory

SUMO = "sumo"
"""Subfolder of SUMO's output files."""
SAMPLES = 8  # example images a row of the report shows
FILMED = 24  # vehicles whose frames the report shows
QUARTILES = (0.25, 0.5, 0.75)
BEGUN = ("manifest.json", "comparison.json")
"""Files that mark a folder as a run directory or a comparison."""


def choose_folder(experiment: Experiment, name: str) -> Path:
    """Return a path that does not exist: ``runs/SCENARIO-NAME-seedN``, with ``-2`` or a higher number if taken."""
    stem = resolve_path(experiment.scenario).name.split(".")[0] or "run"
    base = Path("runs") / path_name(stem, name, f"seed{experiment.seed}")
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


@contextmanager
def lock_directory(run: RunDirectory, *, fresh: bool) -> Iterator[None]:
    """Make a run directory, and lock it for the block against other processes that would write to it.

    For a new run (``fresh``) the directory must be empty, or contain only what a run killed at its start leaves. If a
    new run's block fails before the manifest is written, or with an InputError before a round has finished, the
    directory and its files are removed. InputError if it is locked (InUseError), not empty, or cannot be made.
    """
    refuse_forked()
    file, new_lock = open_lock(run)
    with file:
        begins = False
        try:
            filled = f"{run.path}: the output directory is not empty; name a new one with --out."
            require(not fresh or run.has_not_begun(), filled)
            if fresh or any((run.path / name).is_file() for name in BEGUN):  # other folders may be the user's
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


_NO_LOCK = {
    errno.ELOOP: "{} is a symbolic link",
    errno.ENXIO: "{} is a pipe",
    **dict.fromkeys((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP), "its file system has no locks (flock)"),
}


def open_lock(folder: Folder, name: str = LOCK, how: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> tuple[IO[str], bool]:
    """Make a folder and lock the file ``name`` in it; return the file and whether it is new.

    ``how`` is the operation of ``fcntl.flock``; without ``LOCK_NB`` it waits. The lock ends when the file is closed or
    the process ends. InUseError if another process has locked it, InputError if folder or file cannot be made.
    """
    resolve_path(folder.path)
    path = folder.path / name
    try:
        folder.make()
        new = not os.path.lexists(path)
        # do not follow links, truncate the file, or wait for the reader of a pipe; NFS wants a shared lock's file to be
        # readable, and another's writable
        flags = (os.O_RDONLY if how & fcntl.LOCK_SH else os.O_WRONLY) | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.fdopen(os.open(path, flags, 0o644), "r" if how & fcntl.LOCK_SH else "w")
        try:
            fcntl.flock(file, how)
        except BaseException:
            file.close()
            raise
    except BlockingIOError:
        raise InUseError(f"{folder.path}: another vnetsim process is writing there.") from None
    except OSError as error:
        folder.unmake()
        why = _NO_LOCK.get(error.errno or 0, error.strerror or "").format(name)
        raise InputError(f"{folder.path}: cannot be made or written: {why}. Choose another --out.") from error
    if not os.fstat(file.fileno()).st_nlink:  # removed by a process that has just ended
        file.close()
        raise InUseError(f"{folder.path}: another vnetsim process was writing there; call again.")
    return file, new


def write_samples(
    run: RunDirectory,
    experiment: Experiment,
    learner: Learner,
    entry_speeds_mps: Sequence[float],
    end_s: float,
    *,
    note: Callable[[str], None],
) -> None:
    """Write ``samples.npz``: example images without blur, then blurred for the quartiles of the speeds at entry (m/s).

    If vehicles took the images, the fields of ``PathFrames`` (frames up to the simulated time ``end_s``) and ``Sights``
    follow, as ``path_images``, ``place_x_m`` and so on. If reading frames fails, they are left out and ``note`` is
    called with the reason. Nothing is written if ``entry_speeds_mps`` is empty.
    """
    if not entry_speeds_mps:
        return
    speeds = [0.0, *np.quantile(entry_speeds_mps, QUARTILES).tolist()]
    described = learner.describe()
    side = described.image_shape[1]
    kernels = [experiment.camera.kernel_px(speed, side) for speed in speeds]
    taken: dict[str, object] = {}
    if described.path_frames is not None:
        shown = vehicles_to_show(run.read("participations"), repeat=experiment.traffic.repeat)
        try:
            taken["path"] = described.path_frames(shown, end_s)
        except VnetsimError as error:  # a picture that no training or test image needed; the results are complete
            note(f"The page shows no frames of vehicles: {error}")
    if described.sights is not None:
        taken["place"] = described.sights()
    run.write_arrays(
        "samples.npz",
        images=learner.sample_images(kernels, SAMPLES),
        kernels_px=np.array(kernels),
        speeds_mps=np.array(speeds),
        **{f"{kind}_{name}": array for kind, one in taken.items() for name, array in vars(one).items()},
    )


def vehicles_to_show(participations: pl.DataFrame, *, repeat: bool = False) -> list[str]:
    """Return ids of up to ``FILMED`` vehicles: invited ones, evenly spread by first invitation; if too few, others.

    With ``repeat`` only vehicles of the traffic's first pass count (no ``#N`` at the end), as only they took images.
    """
    if repeat:
        participations = participations.filter(~pl.col("vehicle_id").str.contains(r"#\d+$"))
    ordered = participations.sort("start_s", maintain_order=True)
    never = pl.col("outcome") == "not_selected"
    invited = ordered.filter(~never)["vehicle_id"].unique(maintain_order=True)
    others = ordered.filter(never & ~pl.col("vehicle_id").is_in(invited.implode()))["vehicle_id"]
    shown: list[str] = []
    for names in (invited, others.unique(maintain_order=True)):
        wanted = min(FILMED - len(shown), len(names))
        shown += names.gather(np.linspace(0, len(names) - 1, wanted).round().astype(np.int64)).to_list()
    return shown


def write_models(run: RunDirectory, learner: Learner, rounds: Mapping[str, int]) -> None:
    """Write the single aggregator's or the cloud's model as ``model.safetensors``; without these, one for each RSU.

    Each has its metadata. ``rounds`` is the number of rounds by aggregator, the cloud last. RunError if the learner's
    state has no tensors of a model.
    """
    from safetensors.torch import save  # noqa: PLC0415 - loads torch

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
