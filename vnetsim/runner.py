"""Runs from the settings to the run directory: start, resume, or record the traffic alone."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vnetsim import __version__
from vnetsim.checkpoint import Checkpoint
from vnetsim.clock import Clock
from vnetsim.coverage import CoverageEvent, Left, Traffic, TrafficInfo, Window
from vnetsim.equal_schedule import costs_of, schedule_of
from vnetsim.errors import InputError, RunError, VnetsimError
from vnetsim.experiment import Experiment
from vnetsim.learner_faults import blaming
from vnetsim.learning import Cost, Learner, LearnerContext
from vnetsim.manifest import changed_inputs, input_hashes, relative
from vnetsim.mobility import open_traffic
from vnetsim.random_streams import Streams
from vnetsim.records import silo_rows, windows_frame
from vnetsim.registry import at_folder, find_learner, learner_file, short_name
from vnetsim.rsu import Rsu
from vnetsim.run_directory import RunDirectory
from vnetsim.run_writer import (
    Manifest,
    choose_folder,
    learner_record,
    locked,
    write_model,
    write_samples,
)
from vnetsim.settings_file import learner_defaults, load_experiment, structure, to_plain
from vnetsim.terminal import ProgressDisplay

if TYPE_CHECKING:
    from vnetsim.simulation import SimulationLog
    from vnetsim.training import MetricRow, Training

REPORT_EVERY = 64  # windows between two updates of the progress line


def start_run(
    experiment: Experiment,
    out: Path | None,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    portable: bool = False,
) -> Path:
    """Simulate and train; return the run directory.

    Args:
        experiment: the settings.
        out: folder to make; None takes a new one below ``runs/``.
        command: the command line, for the record.
        progress: where to say how far the run is.
        portable: whether run directory, replayed traffic and learner's file are moved together only: the two are then
            recorded as seen from the run directory.

    Raises:
        InputError: the input is at fault; nothing was written, unless it showed after a round had finished.
        RunError: the run failed; what was finished is in the directory, the way to resume in the message.
        KeyboardInterrupt: with the way to resume as its message.
    """
    run = RunDirectory(choose_folder(experiment, out, short_name(experiment.learner)))
    _learn(located(experiment), run, command=command, progress=progress, portable=portable)
    return run.path


def resume_run(folder: Path, *, command: Sequence[str], progress: ProgressDisplay) -> bool:
    """Continue an interrupted or killed run; return whether it had finished already.

    Raises:
        InputError: no run directory, a mobility recording, changed input files, a missing or unreadable checkpoint.
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
    inputs = manifest.get("inputs", {})
    changed = changed_inputs(inputs, folder)
    if changed:
        raise InputError(f"{changed[0]}: changed or gone since the run started; a resumed run would differ.")
    if run.has("rounds") and not Checkpoint(folder / "checkpoint").exists:
        raise InputError(f"{folder / 'checkpoint'}: the checkpoint is missing; start the run again with `vnetsim run`.")
    began: dict[str, Any] = {key: manifest[key] for key in ("created", "command") if key in manifest}
    experiment = load_experiment(str(folder / "experiment.toml"))
    portable = any(not Path(name).is_absolute() for name in inputs)
    _learn(experiment, run, command=command, progress=progress, portable=portable, began=began)
    return False


def record_mobility(
    experiment: Experiment, out: Path | None, *, command: Sequence[str], progress: ProgressDisplay
) -> Path:
    """Write the coverage windows of one pass of the traffic; return the directory. Imports no torch.

    Raises:
        InputError: the input is at fault; nothing was written.
        RunError: the simulator failed.
    """
    run = RunDirectory(choose_folder(experiment, out, "mobility"))
    # SUMO as a process of its own leaves this one's processor to the reading.
    backend: Any = "traci" if experiment.traffic.backend == "auto" else experiment.traffic.backend
    once = dataclasses.replace(experiment.traffic, repeat=False, backend=backend)
    experiment = located(dataclasses.replace(experiment, traffic=once))
    clock = Clock()
    progress.stage("traffic")
    with _opened(experiment, progress) as traffic, locked(run, fresh=True):
        manifest = Manifest(run, experiment, traffic, command, kind="mobility")
        windows: list[Window] = []
        try:
            for event in traffic.events():
                if isinstance(event, Left):
                    windows.append(event.window)
                    if len(windows) % REPORT_EVERY == 0:
                        _show(progress, traffic)
        except BaseException as error:
            with suppress(VnetsimError):
                run.write("windows", windows_frame(windows, experiment.camera))
                manifest.close(_status(error), time_s=traffic.time_s, wall_s=clock.stages)
            raise
        clock.mark("traffic")
        run.write("windows", windows_frame(windows, experiment.camera))
        clock.mark("tables")
        manifest.close("finished", time_s=traffic.time_s, wall_s=clock.stages, ended_by="traffic")
    return run.path


def _learn(
    experiment: Experiment,
    run: RunDirectory,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    portable: bool,
    began: Mapping[str, Any] | None = None,
) -> None:
    """Run or resume; ``began`` holds the manifest's entries of a resumed run that stay."""
    from vnetsim.device import resolve_device  # noqa: PLC0415 - brings torch, which the traffic command does without

    clock = Clock()
    progress.stage("loading")
    kind = find_learner(experiment.learner)
    settings: Any = structure(experiment.learning, kind.Settings, "", ("learning",))
    schedule = schedule_of(experiment.schedule, kind)
    # the record holds the defaults too
    experiment = dataclasses.replace(experiment, learning=to_plain(settings), schedule=schedule)
    device = resolve_device(experiment.device)
    clock.mark("imports")
    progress.stage("opening the traffic")
    with _opened(experiment, progress) as traffic:
        clock.mark("traffic set-up")
        progress.stage("preparing the data")
        context = context_of(experiment, device)
        with blaming(kind, "while it was made", hint=""):
            learner = kind.create(context, settings)
            description = learner.describe()
            record = learner_record(learner, settings, device)
        costs = costs_of(schedule, context, learner)
        if costs:
            record["learner"]["cost"] = dataclasses.asdict(costs[0])  # what the visits of this run moved and computed
        clock.mark("data")
        with locked(run, fresh=began is None):
            files = [learner_file(name) for name in (experiment.learner, schedule.learner)]
            named = [*traffic.info.inputs, *(str(file) for file in files if file is not None)]
            inputs = input_hashes(named, seen_from=run.path if portable else None)
            own = {"learner_defaults": learner_defaults(kind), "inputs": inputs}
            more = {**record, **own, **(began or {})}
            recorded = _seen_from(run.path, experiment) if portable else experiment
            manifest = Manifest(run, recorded, traffic, command, kind="run", more=more)
            run.write("silos", silo_rows(description))
            _Session(experiment, run, traffic, learner, costs, manifest, clock, progress).play()


class _Session:
    """The simulation of one run, from the untrained model to the last file."""

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        traffic: Traffic,
        learner: Learner,
        costs: Mapping[int, Cost],
        manifest: Manifest,
        clock: Clock,
        progress: ProgressDisplay,
    ) -> None:
        self._experiment = experiment
        self._run = run
        self._traffic = traffic
        self._learner = learner
        self._costs = costs
        self._manifest = manifest
        self._clock = clock
        self._progress = progress
        self._log: SimulationLog | None = None
        self._training: Training | None = None
        self._windows_due_s = 0.0

    def play(self) -> None:
        try:
            self._play()
        except BaseException as error:
            self._save_what_there_is(_status(error))
            resume = f"vnetsim resume {shlex.quote(str(self._run.path))}"
            if isinstance(error, KeyboardInterrupt):
                finished = 0 if self._training is None else self._training.finished
                raise KeyboardInterrupt(
                    f"interrupted after {finished} of {self._experiment.rounds} rounds. Go on with: {resume}"
                ) from error
            if isinstance(error, RunError):
                raise RunError(f"{error} Once the cause is removed, go on with: {resume}") from error
            raise

    def _play(self) -> None:
        from vnetsim.simulation import simulate  # noqa: PLC0415 - see _learn
        from vnetsim.training import Training  # noqa: PLC0415

        experiment, progress = self._experiment, self._progress
        progress.stage("evaluating the untrained model")
        self._training = training = Training(
            self._learner,
            Checkpoint(self._run.path / "checkpoint"),
            evaluate_every=experiment.evaluate_every,
            begin_s=self._traffic.info.begin_s,
            clock=self._clock,
            costs=self._costs,
        )
        self._clock.mark("first evaluation")
        progress.stage("running")

        def on_progress(*, time_s: float, rounds: int, windows: int) -> None:  # noqa: ARG001 - the protocol's names
            progress.advance(time_s=time_s, done=rounds, total=experiment.rounds)

        def on_round(log: SimulationLog) -> None:
            self._log = log
            with self._clock.part("tables"):
                self._write_tables(log, training.metric_rows, last=False)

        result = simulate(
            experiment,
            _Timed(self._traffic, self._clock),
            training,
            Streams(seed=experiment.seed),
            progress=on_progress,
            on_round=on_round,
        )
        self._log = result.log
        self._clock.mark("simulation")
        progress.stage("writing")
        self._write_tables(result.log, training.metric_rows, last=True)
        write_samples(self._run, experiment, self._learner, result.log.windows)
        write_model(self._run, self._learner)
        self._clock.mark("writing")
        self._manifest.close("finished", time_s=result.time_s, wall_s=self._clock.stages, ended_by=result.ended_by)
        if result.ended_by == "traffic":
            progress.note(f"the traffic ended after {len(result.log.rounds)} of {experiment.rounds} rounds.")

    def _write_tables(self, log: SimulationLog, metrics: Sequence[MetricRow], *, last: bool) -> None:
        """Write the tables; those of windows less often once they have grown large."""
        finished = len(log.rounds)
        known = log.participations if last else [row for row in log.participations if row.round < finished]
        self._run.write("participations", list(known))
        if log.exchanges:
            self._run.write("exchanges", [row for row in log.exchanges if last or row.round < finished])
        self._run.write("rounds", list(log.rounds))
        self._run.write("metrics", list(metrics))
        start_s = time.perf_counter()
        if last or start_s >= self._windows_due_s:
            self._run.write("windows", windows_frame(log.windows, self._experiment.camera))
            end_s = time.perf_counter()
            self._windows_due_s = end_s + 20 * (end_s - start_s)

    def _save_what_there_is(self, status: str) -> None:
        with suppress(VnetsimError):  # the disk may be what failed
            if self._log is not None and self._training is not None:
                self._write_tables(self._log, self._training.metric_rows, last=True)
            self._manifest.close(status, time_s=self._traffic.time_s, wall_s=self._clock.stages)


class _Timed:
    """Traffic whose reading is timed; all else is its own."""

    def __init__(self, traffic: Traffic, clock: Clock) -> None:
        self._traffic = traffic
        self._clock = clock

    @property
    def rsus(self) -> tuple[Rsu, ...]:
        return self._traffic.rsus

    @property
    def info(self) -> TrafficInfo:
        return self._traffic.info

    @property
    def time_s(self) -> float:
        return self._traffic.time_s

    def events(self) -> Iterator[CoverageEvent]:
        return self._clock.while_reading(self._traffic.events(), "traffic")

    def close(self) -> None:
        self._traffic.close()


def _status(error: BaseException) -> str:
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def _show(progress: ProgressDisplay, traffic: Traffic) -> None:
    info = traffic.info
    total_s = None if info.end_s is None else info.end_s - info.begin_s
    progress.advance(time_s=traffic.time_s, done=traffic.time_s - info.begin_s, total=total_s)


@contextmanager
def _opened(experiment: Experiment, progress: ProgressDisplay) -> Iterator[Traffic]:
    traffic = open_traffic(experiment)
    try:
        for note in traffic.info.notes:
            progress.note(note)
        yield traffic
    finally:
        traffic.close()


def located(experiment: Experiment) -> Experiment:
    """Return the experiment with paths that hold from any working directory."""
    changes: dict[str, Any] = {}
    if experiment.scenario != "gaussian":
        changes["scenario"] = str(Path(experiment.scenario).resolve())
    changes["learner"] = at_folder(experiment.learner, Path.cwd())
    schedule = at_folder(experiment.schedule.learner, Path.cwd())
    changes["schedule"] = dataclasses.replace(experiment.schedule, learner=schedule)
    if experiment.data.root:
        changes["data"] = dataclasses.replace(experiment.data, root=str(Path(experiment.data.root).resolve()))
    if experiment.traffic.net:
        net = str(Path(experiment.traffic.net).resolve())
        changes["traffic"] = dataclasses.replace(experiment.traffic, net=net)
    return dataclasses.replace(experiment, **changes)


def _seen_from(folder: Path, experiment: Experiment) -> Experiment:
    """Return an experiment that replays traffic, with the paths of that and of learners' files as ``folder`` sees."""
    learner, schedule = (
        name if file is None else f"{relative(file, folder)}:{short_name(name)}"
        for name, file in ((name, learner_file(name)) for name in (experiment.learner, experiment.schedule.learner))
    )
    return dataclasses.replace(
        experiment,
        scenario=relative(Path(experiment.scenario), folder),
        learner=learner,
        schedule=dataclasses.replace(experiment.schedule, learner=schedule),
    )


def context_of(experiment: Experiment, device: str) -> LearnerContext:
    """Return what the experiment's learner is built from, on a device that is there."""
    return LearnerContext(
        streams=Streams(seed=experiment.seed).child("learner"),
        device=device,
        rounds=experiment.rounds,
        silos=experiment.silos.count,
        approaches=experiment.silos.approaches,
        max_staleness=experiment.round.max_staleness,
        data=experiment.data,
        blur=experiment.blur,
        camera=experiment.camera,
        exchange=experiment.exchange,
    )
