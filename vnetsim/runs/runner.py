"""Starts and resumes runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vnetsim import __version__
from vnetsim.errors import InputError, VnetsimError
from vnetsim.errors.paths import is_partition_file, resolve_path
from vnetsim.experiment import Experiment
from vnetsim.learning import Description, Learner
from vnetsim.learning.device import resolve_device
from vnetsim.learning.faults import cost_of
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import code_file, short_name
from vnetsim.plugins.results import require_type
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import Assembly, assemble, plugin_files, with_relative_paths
from vnetsim.runs.checkpoint import Checkpoint
from vnetsim.runs.drives import record_drives
from vnetsim.runs.effect import facts_of, find_idle, refuse_idle
from vnetsim.runs.manifest import Clock, Manifest, changed_inputs, input_hashes, learner_record, settings_file
from vnetsim.runs.round_handler import Untrained
from vnetsim.runs.session import OnRound, Session
from vnetsim.runs.tables import images_of, silo_rows
from vnetsim.runs.traffic_recording import open_run_traffic, record_mobility, saved_on_failure
from vnetsim.runs.writer import lock_directory
from vnetsim.scenario.settings_file import load_experiment
from vnetsim.scenario.trust import check_resumed
from vnetsim.simulation.backhaul import refuse_slow_wires
from vnetsim.simulation.topology import aggregators
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import to_parquet

PARTITION = "partition.csv"
"""File with the silo of each image."""


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
    """Simulate and train, from the beginning or from the last checkpoint, and write all files of the run.

    ``folder`` must be empty or missing, unless the run is resumed: ``began`` are then the old manifest's entries to
    keep. ``portable`` records replayed traffic and plug-ins by paths relative to ``folder``, so that all can move
    together. ``fetch`` allows downloads; ``timing_only`` simulates without training. ``deadline_s`` is the
    ``time.monotonic()`` at which the run stops after a new round; ``timing_only`` ignores it.

    InputError if the input is wrong: nothing was written, unless a round had already finished. After RunError,
    UnfinishedError and KeyboardInterrupt finished rounds are saved; the message says how to resume.
    """
    clock, run = Clock(), RunDirectory(folder)
    progress.stage("loading")
    experiment = assembly.experiment  # with all defaults
    assembly.refuse_losses(trains=not timing_only)
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
        driven = record_drives(assembly, progress)
        progress.stage("preparing the data")
        names = aggregators(experiment.topology, traffic.rsus)
        context = assembly.context(
            device, fetch=fetch, aggregators=names, districts=len(traffic.rsus), pictures=not timing_only, driven=driven
        )
        learner, costs = assembly.make_learner(context)
        info = traffic.info
        files = [*info.inputs, *(str(file) for name in experiment.plugins().values() if (file := code_file(name)))]
        files += [file for table, file in plugin_files(experiment).items() if table != "source"]  # it is in info.inputs
        files += [experiment.data.partition] * is_partition_file(experiment.data.partition)
        if driven is not None:
            files.append(str(driven.net))
        recorded = with_relative_paths(run.path, experiment) if portable else experiment
        lasts_s = math.inf if info.end_s is None else info.end_s - info.begin_s
        refuse_slow_wires(experiment, lasts_s, (costs or {0: cost_of(learner, 0)})[0].download_bytes)
        inputs = input_hashes(files, seen_from=run.path if portable else None)
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
        session = Session(
            assembly=assembly,
            run=run,
            traffic=traffic,
            learner=learner,
            costs=costs,
            manifest=manifest,
            clock=clock,
            progress=progress,
            on_round=on_round,
            training=Untrained(learner, costs) if timing_only else None,
            aggregators=names,
            device=device,
            deadline_s=math.inf if timing_only else deadline_s,
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
    """Start a run; if ``folder`` contains one, resume it (InputError for other settings); if finished, only say so.

    Arguments and errors are those of ``start_run``.
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
    """Raise InputError for settings of the call without effect; None: number of ``rsus``, or learner, not known yet."""
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
    """Continue a stopped run or recording of traffic; if it has finished, only remove leftover temporary files.

    ``learner`` is the one that the user names, if any. Its code may run; other code that the folder names, a SUMO
    scenario inside it, and downloads need ``trust``. ``accept_changed_plugin`` allows changed files of plug-ins, which
    the manifest then lists; ``experiment``, unless None, replaces the settings in the folder. The other arguments and
    errors are those of ``start_run``; InputError also if trust is missing, there is no run or recording, vnetsim has
    another version, inputs changed, the checkpoint is unreadable, or there is a deadline but no training.
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
    file = run.checked_path("experiment.toml")
    experiment = experiment or load_experiment(str(file))
    accepted = _check_inputs(experiment, inputs, folder, accept_changed_plugin=accept_changed_plugin)
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


def _check_inputs(
    experiment: Experiment, inputs: dict[str, str], folder: Path, *, accept_changed_plugin: bool
) -> dict[str, str]:
    """Return changed plug-in files with recorded SHA-256; InputError if not accepted, or others changed or are gone."""
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
