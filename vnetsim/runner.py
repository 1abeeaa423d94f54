"""Runs from the settings to the run directory: start, resume, or record the traffic alone."""

from __future__ import annotations

import dataclasses
import fcntl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from vnetsim import __version__
from vnetsim.checkpoint import Checkpoint
from vnetsim.coverage import Left, Traffic, Window
from vnetsim.errors import InputError, RunError, VnetsimError
from vnetsim.experiment import Experiment
from vnetsim.learning import Learner, LearnerContext
from vnetsim.manifest import changed_inputs, environment, input_hashes, rsu_records, traffic_record
from vnetsim.mobility import open_traffic
from vnetsim.random_streams import Streams
from vnetsim.records import map_rows, silo_rows, windows_frame
from vnetsim.run_directory import RunDirectory, write_atomically
from vnetsim.settings_file import load_experiment, structure, to_plain, to_toml
from vnetsim.terminal import ProgressDisplay

SAMPLES = 8  # example images a row of the report shows
QUARTILES = (0.25, 0.5, 0.75)


def start_run(experiment: Experiment, out: Path | None, *, command: Sequence[str], progress: ProgressDisplay) -> Path:
    """Simulate and train; return the run directory.

    Args:
        experiment: the settings.
        out: folder to make; None takes a new one below ``runs/``.
        command: the command line, for the record.
        progress: where to say how far the run is.

    Raises:
        InputError: the input is at fault; nothing was written.
        RunError: the run failed; what was finished is in the directory.
        KeyboardInterrupt: with the way to resume as its message.
    """
    folder = _choose_folder(experiment, out, experiment.learner)
    experiment = _located(experiment)
    _learn(experiment, RunDirectory(folder), command=command, progress=progress)
    return folder


def resume_run(folder: Path, *, command: Sequence[str], progress: ProgressDisplay) -> bool:
    """Continue an interrupted or killed run; return whether it had finished already.

    Raises:
        InputError: no run directory, a mobility recording, changed input files, an unreadable checkpoint.
        RunError: the run failed.
    """
    run = RunDirectory(folder)
    manifest = run.manifest()
    if manifest.get("kind") != "run":
        raise InputError(f"{folder}: a recording of traffic, not a run; there is nothing to resume.")
    if manifest.get("status") == "finished":
        return True
    if manifest.get("vnetsim") != __version__:
        raise InputError(f"{folder}: made by vnetsim {manifest.get('vnetsim')}; resume it with that version.")
    changed = changed_inputs(manifest.get("inputs", {}))
    if changed:
        raise InputError(f"{changed[0]}: changed or gone since the run started; a resumed run would differ.")
    experiment = load_experiment(str(folder / "experiment.toml"))
    _learn(experiment, run, command=command, progress=progress, earlier=manifest)
    return False


def record_mobility(
    experiment: Experiment, out: Path | None, *, command: Sequence[str], progress: ProgressDisplay
) -> Path:
    """Write the coverage windows of one pass of the traffic; return the directory. Imports no torch.

    Raises:
        InputError: the input is at fault; nothing was written.
        RunError: the simulator failed.
    """
    folder = _choose_folder(experiment, out, "mobility")
    experiment = _located(dataclasses.replace(experiment, traffic=dataclasses.replace(experiment.traffic, repeat=False)))
    run = RunDirectory(folder)
    clock = _Clock()
    progress.stage("traffic")
    with _opened(experiment, progress) as traffic, _locked(run):
        record = _begin(run, experiment, traffic, command, kind="mobility")
        info = traffic.info
        windows: list[Window] = []
        try:
            for event in traffic.events():
                if isinstance(event, Left):
                    windows.append(event.window)
                    if len(windows) % 64 == 0:
                        total = info.end_s - info.begin_s if info.end_s is not None else None
                        progress.advance(time_s=traffic.time_s, done=traffic.time_s - info.begin_s, total=total)
        except BaseException as error:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            with suppress(VnetsimError):
                run.write("windows", windows_frame(windows, experiment.camera))
                _end(run, record, status=status, time_s=traffic.time_s, wall_s=clock.stages)
            raise
        clock.mark("traffic")
        run.write("windows", windows_frame(windows, experiment.camera))
        clock.mark("tables")
        _end(run, record, status="finished", ended_by="traffic", time_s=traffic.time_s, wall_s=clock.stages)
    return folder


def _learn(
    experiment: Experiment,
    run: RunDirectory,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    earlier: Mapping[str, Any] | None = None,
) -> None:
    from vnetsim.device import resolve_device  # noqa: PLC0415 - the traffic command needs neither
    from vnetsim.registry import find_learner  # noqa: PLC0415
    from vnetsim.simulation import SimulationLog, simulate  # noqa: PLC0415
    from vnetsim.training import Training  # noqa: PLC0415

    clock = _Clock()
    progress.stage("loading")
    kind = find_learner(experiment.learner)
    settings = structure(experiment.learning, kind.Settings, "", ("learning",))
    device = resolve_device(experiment.device)
    clock.mark("imports")
    progress.stage("opening the traffic")
    with _opened(experiment, progress) as traffic:
        clock.mark("traffic set-up")
        progress.stage("preparing the data")
        streams = Streams(seed=experiment.seed)
        learner = kind.create(_context(experiment, streams, device), settings)
        clock.mark("data")
        with _locked(run):
            record = _begin(run, experiment, traffic, command, kind="run")
            if earlier is not None:
                record.update({key: earlier[key] for key in ("created", "command") if key in earlier})
            record.update(_learner_record(learner, kind, settings, device))
            run.write_json("manifest.json", record)
            run.write("silos", silo_rows(learner.describe()))
            progress.stage("evaluating the untrained model")
            training = Training(
                learner,
                Checkpoint(run.path / "checkpoint"),
                evaluate_every=experiment.evaluate_every,
                begin_s=traffic.info.begin_s,
            )
            clock.mark("first evaluation")
            progress.stage("running")
            tables = _Tables(run, experiment, training)
            latest: SimulationLog | None = None

            def on_round(log: SimulationLog) -> None:
                nonlocal latest
                latest = log
                tables.write(log)

            def on_progress(*, time_s: float, rounds: int, windows: int) -> None:  # noqa: ARG001
                progress.advance(time_s=time_s, done=rounds, total=experiment.rounds)

            try:
                result = simulate(experiment, traffic, training, streams, progress=on_progress, on_round=on_round)
                clock.mark("simulation and training")
                progress.stage("writing")
                tables.write(result.log, last=True)
                _write_samples(run, experiment, learner, result.log.windows)
                _write_model(run, learner)
            except BaseException as error:
                status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
                with suppress(VnetsimError):
                    if latest is not None:
                        tables.write(latest, last=True)
                    _end(run, record, status=status, time_s=traffic.time_s, wall_s=clock.stages)
                if isinstance(error, KeyboardInterrupt):
                    raise KeyboardInterrupt(
                        f"interrupted after {training.finished} of {experiment.rounds} rounds. "
                        f"Go on with: vnetsim resume {run.path}"
                    ) from error
                raise
            clock.mark("writing")
            _end(
                run,
                record,
                status="finished",
                ended_by=result.ended_by,
                time_s=result.time_s,
                wall_s=clock.stages,
            )


class _Clock:
    """Wall time by stage (s)."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._last = time.perf_counter()

    def mark(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages[stage] = round(now - self._last, 3)
        self._last = now


class _Tables:
    """Writes the tables after every round; the windows less often, when they have grown large."""

    def __init__(self, run: RunDirectory, experiment: Experiment, training: Any) -> None:
        self._run = run
        self._camera = experiment.camera
        self._training = training
        self._windows_due_s = 0.0

    def write(self, log: Any, *, last: bool = False) -> None:
        finished = len(log.rounds)
        known = log.participations if last else [p for p in log.participations if p.round < finished]
        self._run.write("participations", known)
        self._run.write("rounds", log.rounds)
        self._run.write("metrics", self._training.metric_rows)
        start = time.perf_counter()
        if last or start >= self._windows_due_s:
            self._run.write("windows", windows_frame(log.windows, self._camera))
            done = time.perf_counter()
            self._windows_due_s = done + 20 * (done - start)


@contextmanager
def _opened(experiment: Experiment, progress: ProgressDisplay) -> Iterator[Traffic]:
    traffic = open_traffic(experiment)
    try:
        for note in traffic.info.notes:
            progress.note(note)
        yield traffic
    finally:
        traffic.close()


@contextmanager
def _locked(run: RunDirectory) -> Iterator[None]:
    """Hold the directory against a second process that would write to it."""
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        file = (run.path / ".lock").open("w")
    except OSError as error:
        raise InputError(f"{run.path}: cannot be made or written: {error.strerror}. Choose another --out.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{run.path}: another vnetsim process is writing there.") from None
        yield


def _choose_folder(experiment: Experiment, out: Path | None, what: str) -> Path:
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise InputError(f"{out}: the output directory is not empty; name a new one with --out.")
        return out
    stem = Path(experiment.scenario).resolve().name.split(".")[0] or "run"
    base = Path("runs") / f"{stem}-{what}-seed{experiment.seed}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


def _located(experiment: Experiment) -> Experiment:
    """Return the experiment with paths that hold from any working directory."""
    changes: dict[str, Any] = {}
    if experiment.scenario != "gaussian":
        changes["scenario"] = str(Path(experiment.scenario).resolve())
    if experiment.data.root:
        changes["data"] = dataclasses.replace(experiment.data, root=str(Path(experiment.data.root).resolve()))
    if experiment.traffic.net:
        net = str(Path(experiment.traffic.net).resolve())
        changes["traffic"] = dataclasses.replace(experiment.traffic, net=net)
    return dataclasses.replace(experiment, **changes)


def _begin(
    run: RunDirectory, experiment: Experiment, traffic: Traffic, command: Sequence[str], *, kind: str
) -> dict[str, Any]:
    """Write what is known at the start; return the manifest."""
    write_atomically(run.path / "experiment.toml", to_toml(experiment).encode())
    run.write("map", map_rows(traffic.info))
    record: dict[str, Any] = {
        "vnetsim": __version__,
        "kind": kind,
        "command": list(command),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "finished": None,
        "status": "running",
        "ended_by": None,
        "seed": experiment.seed,
        "traffic": traffic_record(traffic.info),
        "rsus": rsu_records(traffic.rsus),
        "inputs": input_hashes(traffic.info.inputs),
        **environment(),
    }
    run.write_json("manifest.json", record)
    return record


def _end(run: RunDirectory, record: dict[str, Any], *, status: str, **values: Any) -> None:
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    run.write_json("manifest.json", {**record, "status": status, "finished": finished, **values})


def _context(experiment: Experiment, streams: Streams, device: str) -> LearnerContext:
    return LearnerContext(
        streams=streams.child("learner"),
        device=device,
        rounds=experiment.rounds,
        silos=experiment.silos.count,
        approaches=experiment.silos.approaches,
        max_staleness=experiment.round.max_staleness,
        data=experiment.data,
        blur=experiment.blur,
        camera=experiment.camera,
    )


def _learner_record(learner: Learner, kind: type[Learner], settings: Any, device: str) -> dict[str, Any]:
    from vnetsim.device import device_record  # noqa: PLC0415

    description = learner.describe()
    return {
        "device": device_record(device),
        "learner": {
            "name": kind.name,
            "task": kind.task,
            "paper": kind.paper,
            "encoder": description.encoder,
            "parameters": description.parameters,
            "image_shape": list(description.image_shape),
            "facts": dict(description.facts),
            "settings": to_plain(settings),
            "cost": dataclasses.asdict(learner.cost(0)),
        },
        "series": [dataclasses.asdict(series) for series in learner.series()],
    }


def _write_samples(run: RunDirectory, experiment: Experiment, learner: Learner, windows: Sequence[Window]) -> None:
    """Write example images: sharp, then blurred as at the quartiles of the vehicles' speeds."""
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


def _write_model(run: RunDirectory, learner: Learner) -> None:
    from safetensors.torch import save  # noqa: PLC0415

    prefix = "model."
    model = {
        name.removeprefix(prefix): tensor.detach().cpu().contiguous()
        for name, tensor in learner.state_dict().items()
        if name.startswith(prefix)
    }
    if not model:
        raise RunError(f"learner '{learner.name}' keeps no tensors under 'model.'; nothing to save as its model.")
    write_atomically(run.path / "model.safetensors", save(model))
