"""Comparisons: run the cells of a study on the same recorded traffic.

A comparison is a folder::

    comparison.json      what is compared: traffics, cells, and the errors of those that failed
    traffic/HASH/        one pass of a scenario's traffic, which cells replay
    learners/HASH/       the files of learners that are not installed
    cells/NAME/          an ordinary run directory for each cell, named by the hash of its experiment
    comparison.*         the page and the tables made by the analysis

The cells know traffic and learners by their place in this folder, which may therefore be moved or sent as a whole.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from errno import ENOSPC
from functools import partial
from pathlib import Path

from vnetsim.errors import InputError, RunError, VnetsimError, one_line
from vnetsim.errors.bounds import TRAINS
from vnetsim.learner_facts import NOT_READ
from vnetsim.learning import Learner
from vnetsim.plugins import code_file, short_name
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import assemble
from vnetsim.runs.effect import facts_of, find_idle, idle_everywhere, refuse_idle
from vnetsim.runs.manifest import sha256_of
from vnetsim.runs.writer import lock_directory
from vnetsim.storage.folder import is_own
from vnetsim.storage.records import COMPARISON, RecordedEntry
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.study.cells import CellJob, CellResult, is_disk_full, is_finished
from vnetsim.study.plan import Cell, Plan
from vnetsim.study.ray_cluster import cluster_of
from vnetsim.study.traffic import NotesOnce, recorded, with_one_rsu
from vnetsim.study.workers import StudyProgress, run_here, run_in_processes
from vnetsim.study.workers_ray import run_on_ray

Engine = Callable[[Sequence[CellJob], StudyProgress], Generator[CellResult, None, None]]
"""Runs cells, wherever; closing the iterator stops them."""


def compare(
    plan: Plan,
    folder: Path,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    workers: int = 1,
    engine: str = "local",
    address: str | None = None,
    check: Callable[[Path, Sequence[RecordedEntry]], None] | None = None,
) -> Mapping[str, str]:
    """Run every cell that the folder does not hold finished yet; return why cells failed, by their folders' names.

    The folder is new, empty, or that of an earlier call with the same traffic. ``check`` is told it, and its recorded
    traffic, before any cell runs, and may refuse it. All else is as of ``vnetsim.compare``.

    Raises:
        InputError: the folder is something else, is in use, or holds other traffic or altered files; there is no such
            engine here; or learners that are to have one schedule exchange in different manners.
        RunError: the simulator failed while the traffic was recorded, or the disk is full.
        KeyboardInterrupt: with the way to go on as its message.
    """
    cluster = cluster_of(workers, engine, address)
    here: Engine = run_here if workers == 1 else partial(run_in_processes, workers=workers)
    chosen = here if cluster is None else partial(run_on_ray, cluster=cluster)
    _refuse_unlike_exchanges(plan)
    run = RunDirectory(folder)
    existed = folder.exists()
    with lock_directory(run, fresh=False):
        begun = run.holds(COMPARISON)
        if not begun and not all(is_own(path.name) for path in folder.iterdir()):
            raise InputError(f"{folder}: neither empty nor a comparison; name another folder with --out.")
        run.remove_leftovers()
        try:
            # of one that goes on cells may be finished, and need no data; Ray's nodes have data of their own
            if not begun and cluster is None:
                _refuse_common_fault(plan)
            once = NotesOnce(progress)
            placed = with_one_rsu(plan.traffics, run, once)
            traffics = [recorded(one, run, command=command, progress=once) for one in placed]
            _refuse_idle(plan, folder, traffics)
            if check is not None:
                check(folder, traffics)
            return _Study(run=run, plan=plan, traffics=traffics, command=command, progress=progress).play(chosen)
        except InputError:
            if not existed and not (folder / "cells").exists():
                run.clear()
            raise
        except RunError as error:
            if not is_disk_full(error):
                raise
            what = f"{folder}: no space is left on the disk, so the comparison was stopped."
            raise RunError(_go_on(what, command)) from error
        except KeyboardInterrupt as interrupt:
            place = str(interrupt) or "while the traffic was recorded"
            raise KeyboardInterrupt(_go_on(f"interrupted {place}.", command)) from None


def _refuse_unlike_exchanges(plan: Plan) -> None:
    """Check that every arm can have the schedule it is given, before anything runs; without one, nothing is done.

    Whether vehicles exchange, and in what manner, is known of a learner that was made: each is made once, for its
    settings and the exchange's.
    """
    seen: list[object] = []
    for cell in plan.cells:
        experiment = cell.experiment
        key = cell.arm, experiment.learning, experiment.exchange
        if not experiment.schedule.learner or key in seen:
            continue
        seen.append(key)
        with suppress(RunError):  # a learner at fault fails its own cells alone
            _make(cell)


def _refuse_common_fault(plan: Plan) -> None:
    """Refuse what every cell would fail by, such as data that are not there, before any traffic is recorded.

    Learners are made until one can be; which faults the others have is found when their cells run.

    Raises:
        InputError: that of the first cell, where no cell can be made.
    """
    first: InputError | None = None
    for cell in {(cell.arm, cell.condition): cell for cell in plan.cells}.values():
        if cell.experiment.data.partition == "district":  # depends on the RSUs, which the traffic knows
            return
        try:
            learner = _make(cell)
            if not plan.timing_only and NOT_READ in learner.describe().facts:
                _make(cell, pictures=True)  # says what is missing
        except InputError as error:
            first = first or error
        except RunError:
            return
        else:
            return
    if first is not None:
        raise first


def _make(cell: Cell, *, pictures: bool = False) -> Learner:
    """Return the learner of a cell, made as there but for the pictures, which take seconds."""
    assembly = assemble(cell.experiment)
    return assembly.make_learner(assembly.context("cpu", pictures=pictures))[0]


def _refuse_idle(plan: Plan, folder: Path, traffics: Sequence[RecordedEntry]) -> None:
    """Refuse settings that have no effect in any cell that has them; of the traffic its RSUs are known by now."""
    first = {(cell.arm, cell.condition): cell for cell in reversed(plan.cells)}.values()
    made = [(cell, assemble(cell.experiment)) for cell in first]
    exchanges = None
    if any(key.startswith("exchange.") for cell in first for key in cell.given):
        with suppress(RunError):  # a learner at fault fails its own cells alone
            learners = (one.make_learner(one.context("cpu", pictures=False))[0] for _, one in made)
            exchanges = any(learner.cost(0).exchange is not None for learner in learners)
    cases = []
    for cell, one in made:
        rsus = len(RunDirectory(folder / traffics[cell.traffic].folder).manifest_record().rsus)
        facts = facts_of(cell.experiment, timing_only=plan.timing_only, rsus=rsus, exchanges=exchanges)
        del facts[TRAINS.key]  # a study's settings serve timing alone as well
        cases.append((cell.given, find_idle(one, cell.given, facts)))
    refuse_idle(idle_everywhere(cases))


def _go_on(what: str, command: Sequence[str]) -> str:
    return f"{what} What is finished is kept. Go on with the same command: {shlex.join(command)}"


@dataclass(kw_only=True)
class _Study:
    """The cells of one comparison."""

    run: RunDirectory
    plan: Plan
    traffics: Sequence[RecordedEntry]
    command: Sequence[str]
    progress: ProgressDisplay
    failed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        timed = self.plan.timing_only
        sha256 = [traffic.sha256 for traffic in self.traffics]
        self.cells = {cell.folder(sha256[cell.traffic], timing_only=timed): cell for cell in self.plan.cells}
        self.known = self.run.comparison()

    def play(self, engine: Engine) -> Mapping[str, str]:
        """Run what is missing; return why cells failed, by their names. An interruption says where it came."""
        for name in self.cells:
            self.run.path_of(f"cells/{name}/manifest.json")  # a link stops all, before any cell runs
        self._write()
        jobs = [self._job(number, name, cell) for number, (name, cell) in enumerate(self.cells.items(), start=1)]
        missing = {job.name: job for job in jobs if self._is_missing(job)}
        display = StudyProgress(self.progress, total=len(jobs), done=len(jobs) - len(missing))
        try:
            with closing(engine(list(missing.values()), display)) as outcomes:
                for outcome in outcomes:
                    if outcome.disk_full:
                        raise RunError(outcome.error) from OSError(ENOSPC, "")  # so that it is known for what it is
                    if outcome.error:
                        self._fail(missing[outcome.name], outcome.error)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(display.place) from None
        self.run.settle()
        return self.failed

    def _fail(self, job: CellJob, reason: str) -> None:
        self.failed[job.name] = reason
        self.progress.note(f"{job.where} failed: {reason}")
        self._write()

    def _is_missing(self, job: CellJob) -> bool:
        """Return whether a cell is to be run; one that was altered counts as failed."""
        try:
            return not is_finished(job.folder)
        except VnetsimError as error:
            if is_disk_full(error):
                raise
            self._fail(job, one_line(error))
            return False

    def _job(self, number: int, name: str, cell: Cell) -> CellJob:
        names = {key: self._kept(name) for key, name in cell.experiment.plugins().items() if name}
        experiment = cell.experiment.placed(names)
        return CellJob(
            name=name,
            where=f"cell {number} of {len(self.cells)} ({cell.words})",
            words=cell.words,
            root=self.run.path.resolve(),
            experiment=dataclasses.replace(experiment, scenario=self.traffics[cell.traffic].folder),
            command=tuple(self.command),
            timing_only=self.plan.timing_only,
        )

    def _kept(self, plugin: str) -> str:
        """Return a plug-in with its file, if it has one, copied into the folder, and the path as seen from there."""
        file = code_file(plugin)
        if file is None:
            return plugin
        digest = sha256_of(file)
        name = f"learners/{digest[:12]}/{file.name}"
        copy = self.run.path / name
        if not copy.is_file() or sha256_of(copy) != digest:
            self.run.put({name: file.read_bytes()})
        return f"{name}:{short_name(plugin)}"

    def _before(self) -> list[int]:
        """Return other numbers of evaluations that earlier calls declared: a later choice may have seen the results."""
        declared = list(self.known.get("last_evaluations_before", ()))
        if "cells" in self.known:
            declared.append(self.known.get("last_evaluations", 1))
        return [number for number in dict.fromkeys(declared) if number != self.plan.last_evaluations]

    def _write(self) -> None:
        """Say what is compared, and what failed so far."""
        cells = [
            {
                "folder": name,
                "arm": cell.arm,
                "condition": cell.condition,
                "learner": short_name(cell.experiment.learner),
                "seed": cell.experiment.seed,
                "traffic": self.traffics[cell.traffic].folder,
            }
            for name, cell in self.cells.items()
        ]
        entries = {
            **dataclasses.asdict(dataclasses.replace(self.plan, traffics=(), cells=())),
            "command": list(self.command),
            "cells": cells,
            "last_evaluations_before": self._before(),
            "failed": self.failed,
        }
        del entries["traffics"]
        self.run.write_json(COMPARISON, {**self.known, **entries})
