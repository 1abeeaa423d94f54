"""What a run writes besides its results: folder, lock, manifest, samples, weights, wall times."""

from __future__ import annotations

import dataclasses
import fcntl
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from vnetsim import __version__
from vnetsim.coverage import Traffic, Window
from vnetsim.device import peak_memory
from vnetsim.errors import InputError, RunError
from vnetsim.experiment import Experiment
from vnetsim.learning import Learner
from vnetsim.manifest import environment, input_hashes, rsu_records, traffic_record
from vnetsim.records import map_rows
from vnetsim.run_directory import RunDirectory, write_atomically
from vnetsim.settings_file import to_plain, to_toml

SAMPLES = 8  # example images a row of the report shows
QUARTILES = (0.25, 0.5, 0.75)
LOCK = ".lock"


def choose_folder(experiment: Experiment, out: Path | None, what: str) -> Path:
    """Return the run directory to make: ``out``, or a new one below ``runs/`` named after scenario, ``what`` and seed.

    Raises:
        InputError: ``out`` exists and is not empty.
    """
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise _not_empty(out)
        return out
    stem = Path(experiment.scenario).resolve().name.split(".")[0] or "run"
    base = Path("runs") / f"{stem}-{what}-seed{experiment.seed}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


@contextmanager
def locked(run: RunDirectory, *, fresh: bool) -> Iterator[None]:
    """Make the directory and hold it against a second process that would write to it.

    Args:
        run: where.
        fresh: whether the run starts here. Then the directory must be empty, also when another process has filled it
            since it was chosen, and wrong input that shows before a round was finished leaves nothing behind.

    Raises:
        InputError: it cannot be made, another process holds it, or it is not empty.
    """
    existed = run.path.exists()
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        file = (run.path / LOCK).open("w")
    except OSError as error:
        raise InputError(f"{run.path}: cannot be made or written: {error.strerror}. Choose another --out.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{run.path}: another vnetsim process is writing there.") from None
        if fresh and any(path.name != LOCK for path in run.path.iterdir()):
            raise _not_empty(run.path)
        run.remove_leftovers()
        try:
            yield
        except InputError:
            if fresh and not run.has("rounds"):
                _withdraw(run.path, folder_too=not existed)
            raise


def _not_empty(folder: Path) -> InputError:
    return InputError(f"{folder}: the output directory is not empty; name a new one with --out.")


def _withdraw(folder: Path, *, folder_too: bool) -> None:
    """Remove the files of a run that came to nothing; the directory was empty when it began."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    if folder_too:
        folder.rmdir()


class Manifest:
    """``manifest.json`` of a run under way; written at once, then at its end.

    Args:
        run: where.
        experiment: written beside it, resolved, as ``experiment.toml``.
        traffic: the opened traffic.
        command: the command line.
        kind: ``"run"`` or ``"mobility"``.
        more: further entries.
    """

    def __init__(
        self,
        run: RunDirectory,
        experiment: Experiment,
        traffic: Traffic,
        command: Sequence[str],
        *,
        kind: str,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self._run = run
        self._traffic = traffic
        self._record: dict[str, Any] = {
            "vnetsim": __version__,
            "kind": kind,
            "command": list(command),
            "created": _now(),
            "finished": None,
            "status": "running",
            "ended_by": None,
            "seed": experiment.seed,
            "traffic": traffic_record(traffic.info),
            "rsus": rsu_records(traffic.rsus),
            "inputs": input_hashes(traffic.info.inputs),
            **environment(),
            **(more or {}),
        }
        write_atomically(run.path / "experiment.toml", to_toml(experiment).encode())
        run.write("map", map_rows(traffic.info))
        run.write_json("manifest.json", self._record)

    def close(self, status: str, *, time_s: float, wall_s: Mapping[str, float], ended_by: str | None = None) -> None:
        """Record how it ended: status, simulated time (s), wall time by stage (s), the most memory it held."""
        # what the traffic tells may have grown while it was read
        ending: dict[str, Any] = {
            "status": status,
            "finished": _now(),
            "time_s": time_s,
            "wall_s": dict(wall_s),
            "ended_by": ended_by,
        }
        ending["peak_memory_bytes"] = peak_memory()
        record = {**self._record, "traffic": traffic_record(self._traffic.info), **ending}
        self._run.write_json("manifest.json", record)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def learner_record(learner: Learner, settings: Any, device: str) -> dict[str, Any]:
    """Return the manifest's entries on learner, its series and the device."""
    from vnetsim.device import device_record  # noqa: PLC0415 - the traffic command needs no torch

    description = learner.describe()
    return {
        "device": device_record(device),
        "learner": {
            "name": learner.name,
            "task": learner.task,
            "paper": learner.paper,
            "encoder": description.encoder,
            "parameters": description.parameters,
            "image_shape": list(description.image_shape),
            "facts": dict(description.facts),
            "settings": to_plain(settings),
            "cost": dataclasses.asdict(learner.cost(0)),
        },
        "series": [dataclasses.asdict(series) for series in learner.series()],
        "exchange": None if description.exchange is None else dataclasses.asdict(description.exchange),
    }


def write_samples(run: RunDirectory, experiment: Experiment, learner: Learner, windows: Sequence[Window]) -> None:
    """Write example images: sharp, then blurred as at the quartiles of the vehicles' speeds at entry."""
    if not windows:
        return
    speeds = [0.0, *np.quantile([window.entry_speed_mps for window in windows], QUARTILES).tolist()]
    side = learner.describe().image_shape[1]
    kernels = [experiment.camera.kernel_px(speed, side) for speed in speeds]
    run.write_arrays(
        "samples.npz",
        images=learner.sample_images(kernels, SAMPLES),
        kernels_px=np.array(kernels),
        speeds_mps=np.array(speeds),
    )


def write_model(run: RunDirectory, learner: Learner) -> None:
    """Write the global model as ``model.safetensors``.

    Raises:
        RunError: the learner keeps no tensors under ``model.``.
    """
    from safetensors.torch import save  # noqa: PLC0415 - brings torch

    prefix = "model."
    model = {
        name.removeprefix(prefix): tensor.detach().cpu().contiguous()
        for name, tensor in learner.state_dict().items()
        if name.startswith(prefix)
    }
    if not model:
        raise RunError(f"learner '{learner.name}' keeps no tensors under 'model.'; nothing to save as its model.")
    write_atomically(run.path / "model.safetensors", save(model))
