"""Starts and resumes runs."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vnetsim import __version__
from vnetsim.coverage.windows import CoverageEvent, TrafficStream
from vnetsim.errors import InputError, UnfinishedError, VnetsimError
from vnetsim.errors.paths import is_partition_file, resolve_path
from vnetsim.experiment import Experiment
from vnetsim.learner_facts import CLOUD, privacy_facts
from vnetsim.learning import Cost, Description, Learner
from vnetsim.learning.faults import cost_of
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import code_file, short_name
from vnetsim.plugins.results import require_type
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import Assembly, assemble, plugin_files, with_relative_paths
from vnetsim.runs.checkpoint import Checkpoint
from vnetsim.runs.clock import Clock
from vnetsim.runs.effect import facts_of, find_idle, refuse_idle
from vnetsim.runs.manifest import Manifest, changed_inputs, input_hashes, learner_record, radio_record, settings_file
from vnetsim.runs.tables import RunTables, backhaul_rows, images_of, silo_rows
from vnetsim.runs.timing import SCHEDULE, Untrained, refuse_losses, schedule
from vnetsim.runs.traffic_recording import SAFE_EVERY_S, open_run_traffic, record_mobility, saved_on_failure, show
from vnetsim.runs.writer import lock_directory, write_models, write_samples
from vnetsim.scenario.settings_file import load_experiment
from vnetsim.scenario.trust import check_resumed
from vnetsim.simulation.backhaul import refuse_slow_wires
from vnetsim.simulation.topology import aggregators
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import to_parquet

if TYPE_CHECKING:
    from vnetsim.runs.round_handler import Training
    from vnetsim.simulation.log import SimulationLog
    from vnetsim.simulation.loop import SimulationResult


PARTITION = "partition.csv"
"""File with the silo of each image."""
OnRound = Callable[[int, Mapping[str, float]], object]
"""Called after every round; see ``vnetsim.run``."""


def start_run(
    assembly: Assembly,
    folder: Path,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    portable: bool = False,
    began: Mapping[str, Any] | None = None,
    fetch: bool = True,
    on_round: OnRound | None = None,
    timing_only: bool = False,
    deadline_s: float = math.inf,
) -> None:
    """Simulate and train, from the beginning or, with ``began``, from the last checkpoint.

    Args:
        assembly: plug-ins and settings.
        folder: must be empty or missing, unless the run is resumed.
        command: the command line, for the manifest.
        progress: shows progress.
        portable: whether to record paths of replayed traffic and plug-ins relative to ``folder``, to move all together.
        began: when resuming, the entries of the old manifest to keep.
        fetch: whether downloads are allowed.
        on_round: see ``vnetsim.run``.
        timing_only: see ``vnetsim.run``.
        deadline_s: ``time.monotonic()`` from which on the run stops at the end of a round, but not before it has
            finished a new one; ignored with ``timing_only``.

    Raises:
        InputError: the input is wrong; nothing was written, unless a round had already finished.
        RunError: the run failed; finished rounds are saved, and the message says how to resume.
        UnfinishedError: the deadline was reached; the message says how to resume.
        KeyboardInterrupt: the message says how to resume.
    """
    from vnetsim.learning.device import resolve_device  # noqa: PLC0415 - brings torch, which the traffic command does without

    clock, run = Clock(), RunDirectory(folder)
    progress.stage("loading")
    experiment = assembly.experiment  # with all defaults
    if timing_only:
        refuse_losses(assembly)
    _refuse_idle(assembly, timing_only=timing_only)
    device = resolve_device("cpu" if timing_only else experiment.device)
    clock.mark("imports")
    progress.stage("opening the traffic")
    with (
        experiment.arithmetic.applied(),
        assembly.plugin_errors(),
        lock_directory(run, fresh=began is None),
        open_run_traffic(experiment, progress, run, assembly.source) as traffic,
    ):
        clock.mark("traffic set-up")
        progress.stage("preparing the data")
        names = aggregators(experiment.topology, traffic.rsus)
        context = assembly.context(
            device,
            fetch=fetch,
            aggregators=names,
            districts=len(traffic.rsus),
            pictures=not timing_only,
        )
        learner, costs = assembly.make_learner(context)
        files = [code_file(name) for name in experiment.plugins().values()]
        data_files = [
            file for table, file in plugin_files(experiment).items() if table != "source"
        ]  # listed in traffic.info.inputs
        data_files += [experiment.data.partition] * is_partition_file(experiment.data.partition)
        named = [*traffic.info.inputs, *(str(file) for file in files if file is not None), *data_files]
        recorded = with_relative_paths(run.path, experiment) if portable else experiment
        info = traffic.info
        lasts_s = math.inf if info.end_s is None else info.end_s - info.begin_s
        refuse_slow_wires(experiment, lasts_s, (costs or {0: cost_of(learner, 0)})[0].download_bytes)
        inputs = input_hashes(named, seen_from=run.path if portable else None)
        description = require_type(learner.describe(), Description, LEARNERS, learner, "describe")
        record = learner_record(learner, experiment.learning, device, several=len(names) > 1)
        record["device"] |= dataclasses.asdict(experiment.arithmetic)
        _refuse_idle(assembly, timing_only=timing_only, rsus=len(traffic.rsus), learner=learner)
        simulation = assembly.simulation
        simulation.check_learner(learner.name, learner.cost(0), experiment.handover)
        if costs:
            charged = short_name(experiment.schedule.learner or experiment.learner)
            simulation.check_learner(charged, costs[0], experiment.handover)
            # the participations of this run have the schedule's payload and work
            record["learner"]["cost"] = dataclasses.asdict(costs[0])
        clock.mark("data")
        more = {**record, **assembly.record, "inputs": inputs, **(began or {})}
        silos = {"silos.parquet": to_parquet("silos", silo_rows(description))}
        if description.partition is not None and not portable:  # the cells of a comparison share partitions
            silos[PARTITION] = description.partition()
        manifest = Manifest(
            run, recorded, traffic, command, kind="timing" if timing_only else "run", more=more, others=silos
        )
        handler = Untrained(learner, costs) if timing_only else None
        session = _Session(
            assembly,
            run,
            traffic,
            learner,
            costs,
            manifest,
            clock,
            progress,
            on_round,
            handler,
            names,
            device,
            deadline_s,
        )
        with saved_on_failure(run, experiment, session.close, session.how_far), assembly.plugin_errors():
            session.play(images_of(description))


def start_or_resume(
    assembly: Assembly,
    folder: Path,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    on_round: OnRound | None,
    deadline_s: float,
) -> None:
    """Start a run; if ``folder`` contains one with the same settings, resume it, or do nothing if it has finished.

    Arguments and errors are those of ``start_run`` and ``resume_run``.

    Raises:
        InputError: also if the run in ``folder`` has other settings.
    """
    run = RunDirectory(folder)
    more: dict[str, Any] = {"on_round": on_round, "deadline_s": deadline_s}
    if not run.holds("manifest.json"):
        start_run(assembly, folder, command=command, progress=progress, **more)
        return
    if run.read_bytes("experiment.toml") != settings_file(assembly.experiment):
        raise InputError(f"{folder}: contains a run with other settings; name another folder with --out.")
    if run.manifest()["status"] == "finished":
        progress.note(f"{folder}: the run had already finished.")
    resume_run(folder, command=command, progress=progress, trust=True, experiment=assembly.experiment, **more)


def _refuse_idle(
    assembly: Assembly, *, timing_only: bool, rsus: int | None = None, learner: Learner | None = None
) -> None:
    """Refuse settings of the call without effect; ``rsus`` and ``learner`` are None while unknown."""
    exchanges = None if learner is None else learner.cost(0).exchange is not None
    facts = facts_of(assembly.experiment, timing_only=timing_only, rsus=rsus, exchanges=exchanges)
    refuse_idle(find_idle(assembly, assembly.given, facts))


def resume_run(
    folder: Path,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    learner: str | None = None,
    trust: bool = False,
    accept_changed_plugin: bool = False,
    experiment: Experiment | None = None,
    on_round: OnRound | None = None,
    deadline_s: float = math.inf,
) -> None:
    """Continue a stopped run or recording of traffic; of a finished one only remove leftover temporary files.

    Args:
        folder: the run directory.
        command: the command line, for the manifest.
        progress: shows progress.
        learner: the learner that the user names; see ``vnetsim.scenario.trust``.
        trust: whether the folder may name code and SUMO scenarios, and downloads are allowed.
        accept_changed_plugin: whether files of plug-ins may have changed; the manifest then lists them.
        experiment: the settings, if not those of the folder.
        on_round: see ``vnetsim.run``.
        deadline_s: see ``start_run``.

    Raises:
        InputError: not a run directory, changed input files, a missing or unreadable checkpoint, or code that only the
            folder names; or a deadline for what has no checkpoint.
        RunError: the run failed.
        UnfinishedError: see ``start_run``.
    """
    run = RunDirectory(folder)
    manifest = run.manifest()
    if manifest["status"] == "finished":
        if run.leftovers():  # of a kill after the end; the folder may be read-only
            with suppress(VnetsimError, OSError), lock_directory(run, fresh=False):
                pass
        return
    if manifest["vnetsim"] != __version__:
        raise InputError(f"{folder}: made by vnetsim {manifest['vnetsim']}; resume it with that version.")
    inputs = manifest["inputs"]
    file = run.checked("experiment.toml")
    experiment = experiment or load_experiment(str(file))
    accepted = _changed_plugins(experiment, inputs, folder, accept_changed_plugin=accept_changed_plugin)
    timing_only = manifest["kind"] == "timing"
    if deadline_s < math.inf and manifest["kind"] != "run":
        raise InputError(f"--time-limit: {folder} has no training, so no round is saved; leave it out.")
    if run.has("rounds") and not timing_only and not Checkpoint(run).exists:
        raise InputError(f"{folder / 'checkpoint'}: the checkpoint is missing; start the run again with `vnetsim run`.")
    began: dict[str, Any] = {key: manifest[key] for key in ("created", "command", "changed_plugins") if key in manifest}
    if accepted:
        began["changed_plugins"] = {**accepted, **manifest.get("changed_plugins", {})}
    if not trust:
        check_resumed(experiment, file, scenario=run.settings()["scenario"], learner=learner)
    if manifest["kind"] == "mobility":
        record_mobility(experiment, folder, command=command, progress=progress, began=began)
        return
    portable = any(not Path(name).is_absolute() for name in inputs)
    more: dict[str, Any] = {"began": began, "fetch": trust, "timing_only": timing_only}
    more |= {"on_round": on_round, "deadline_s": deadline_s}
    start_run(assemble(experiment), folder, command=command, progress=progress, portable=portable, **more)


def _changed_plugins(
    experiment: Experiment, inputs: dict[str, str], folder: Path, *, accept_changed_plugin: bool
) -> dict[str, str]:
    """Return accepted changed files of plug-ins with their old SHA-256; refuse any other changed or missing input."""
    code = {resolve_path(file) for name in experiment.plugins().values() if (file := code_file(name)) is not None}
    accepted = {}
    for path, digest in changed_inputs(inputs, folder).items():
        if resolve_path(path) not in code or not path.is_file():
            raise InputError(f"{path}: changed or gone since the run started; a resumed run would differ.")
        if not accept_changed_plugin:
            raise InputError(
                f"{path}: changed since the run started; if you mended it, add --accept-changed-plugin: rounds that "
                "were finished stay as they are."
            )
        accepted[str(path)] = digest
    return accepted


@dataclass
class _Session:
    """The simulation of one run, from the untrained model to the last file."""

    assembly: Assembly
    run: RunDirectory
    traffic: TrafficStream
    learner: Learner
    costs: Mapping[int, Cost]
    manifest: Manifest
    clock: Clock
    progress: ProgressDisplay
    on_round: OnRound | None
    training: Training | Untrained | None
    aggregators: tuple[str, ...]
    device: str
    deadline_s: float
    log: SimulationLog | None = None

    def __post_init__(self) -> None:
        self.tables = RunTables(self.run, self.assembly.experiment)

    @property
    def rounds(self) -> int | None:
        """Number of rounds of the run, summed over all aggregators except the cloud; None if only time ends it."""
        rounds = self.assembly.experiment.rounds
        return None if rounds is None else rounds * sum(name != CLOUD for name in self.aggregators)

    def how_far(self) -> str:
        """Return in words how many rounds have finished."""
        if isinstance(self.training, Untrained):
            finished = 0 if self.log is None else len(self.log.rounds)
        else:
            finished = 0 if self.training is None else self.training.finished
        if self.rounds is None or isinstance(self.training, Untrained):
            return f"after {finished} round{'s' * (finished != 1)}"
        return f"after {finished} of {self.rounds} rounds"

    def close(self, status: str) -> None:
        """Save what there is of checkpoint and tables, and write ``status`` to the manifest; for a stopped run."""
        if self.log is not None and self.training is not None:
            self._save(self.log, self.training)
        self.manifest.close(status, time_s=self.traffic.time_s, wall_s=self.clock.stages)

    def _save(self, log: SimulationLog, training: Training | Untrained) -> None:
        """Write the checkpoint, then new rows of tables (not while replaying); no row may be newer than it."""
        training.save()
        with self.clock.part("tables"):
            self.tables.append(log, training.metric_rows)
            if not training.replaying:  # otherwise the stopped run wrote them
                self.tables.save()

    def play(self, images: Mapping[int, int]) -> None:
        """Simulate and train to the end, and write all files; ``images`` is the number of images by silo."""
        from vnetsim.runs.round_handler import Training  # noqa: PLC0415
        from vnetsim.simulation.loop import simulate  # noqa: PLC0415 - loaded when needed, like Training

        experiment, progress = self.assembly.experiment, self.progress
        if self.training is None:
            progress.stage("evaluating the untrained model")
            self.training = Training(
                self.learner,
                Checkpoint(self.run),
                evaluate_every=experiment.evaluate_every,
                begin_s=self.traffic.info.begin_s,
                clock=self.clock,
                costs=self.costs,
                aggregators=self.aggregators,
                streams=self.assembly.streams.child("global generators"),
                device=self.device,
            )
            self.clock.mark("first evaluation")
        training = self.training
        resumed = 0 if isinstance(training, Untrained) else training.finished
        seen, safe_s = len(training.metric_rows), time.monotonic()
        progress.stage("running")

        def on_round(log: SimulationLog) -> bool:
            """Save every ``SAFE_EVERY_S``, and call the user's ``on_round``; False ends the run."""
            nonlocal seen, safe_s
            self.log = log
            now_s = time.monotonic()
            # at least one new round in each call, or a short limit would never end the run; none after the last
            new = not isinstance(training, Untrained) and training.finished > resumed
            stops = new and now_s >= self.deadline_s and len(log.rounds) != self.rounds
            if stops or now_s - safe_s >= SAFE_EVERY_S:
                self._save(log, training)
                safe_s = time.monotonic()
            if self.on_round is not None:
                measured = {name: value for _, _, name, value, _ in training.metric_rows[seen:]}
                seen = len(training.metric_rows)
                if self.on_round(len(log.rounds), measured) is False:
                    return False
            if stops:
                raise UnfinishedError("the time limit was reached")
            return True

        result = simulate(
            experiment,
            cast("TrafficStream", _TimedTraffic(self.traffic, self.clock)),
            training,
            self.assembly.streams,
            progress=self._show_progress,
            on_round=on_round,
            plugins=self.assembly.simulation,
            images=images,
        )
        self.log = result.log
        self.clock.mark("simulation")
        progress.stage("writing")
        self._finish(result, training, images)
        if result.ended_by == "caller":
            progress.note(f"on_round ended the run {self.how_far()}.")
        if result.ended_by == "traffic" and not isinstance(training, Untrained):
            progress.note(f"the traffic ended {self.how_far()}.")

    def _show_progress(self, *, time_s: float, rounds: int, windows: int) -> None:  # noqa: ARG002 - simulate's names
        """Show the part that is done: of the rounds, of the time if only time ends the run, of traffic if untrained."""
        if isinstance(self.training, Untrained):
            show(self.progress, self.traffic)
        elif self.rounds is None:
            passed_s, lasts_s = time_s - self.traffic.info.begin_s, self.assembly.experiment.lasts_s
            self.progress.advance(time_s=time_s, done=passed_s, total=lasts_s)
        else:
            self.progress.advance(time_s=time_s, done=rounds, total=self.rounds)

    def _finish(self, result: SimulationResult, training: Training | Untrained, images: Mapping[int, int]) -> None:
        """Evaluate last models; write tables, models and samples (untrained: the schedule), and close the manifest."""
        training.save()
        if not isinstance(training, Untrained):
            training.measure_last()
        self.tables.append(result.log, training.metric_rows, last=True)
        self.tables.join()
        self.run.put({"backhaul.parquet": to_parquet("backhaul", backhaul_rows(result.wires))})
        if hostile := self.assembly.hostile(self.run.read("participations")["vehicle_id"]):
            self.run.put({"hostile.parquet": to_parquet("hostile", hostile)})
        if isinstance(training, Untrained):
            rows = schedule(self.run.read("participations"), self.run.read("rounds"), images)
            self.run.put({SCHEDULE: rows.write_csv().encode()})
        else:
            write_samples(self.run, self.assembly.experiment, self.learner, self.tables.entry_speeds_mps)
            write_models(self.run, self.learner, training.closed)
        self.clock.mark("writing")
        radio = radio_record(result.link_rates, result.sidelink_rates)
        stages = self.clock.stages
        facts = dict(self.learner.describe().facts)
        if not isinstance(training, Untrained):
            uploads = self.run.read("participations").select("vehicle_id", "silo", "weight").iter_rows()
            averaged = [(vehicle, silo) for vehicle, silo, weight in uploads if weight]
            facts |= privacy_facts(self.assembly.experiment.learning, averaged)
        self.manifest.close(
            "finished", time_s=result.time_s, wall_s=stages, ended_by=result.ended_by, radio=radio, facts=facts
        )


class _TimedTraffic:
    """A wrapper of traffic that measures the time of reading events."""

    def __init__(self, traffic: TrafficStream, clock: Clock) -> None:
        self._traffic = traffic
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traffic, name)

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the events of the traffic; the time of reading them counts as the stage "traffic"."""
        events = self._traffic.events()
        while True:
            with self._clock.part("traffic"):
                event = next(events, None)
            if event is None:
                return
            yield event
