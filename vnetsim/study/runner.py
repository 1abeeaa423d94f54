"""Run the cells of a study on the same recorded traffic.

A comparison is a folder::

    comparison.json      the record: traffic, cells, and errors of failed cells
    traffic/HASH/        recorded traffic of a scenario, which cells replay
    learners/HASH/       files of plug-ins that are not installed
    cells/NAME/          an ordinary run directory for each cell; the name ends with a hash of its experiment
    comparison.*         page and tables, which the analysis writes

The cells refer to traffic and plug-ins by paths in this folder, so the whole folder may be moved or sent.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from errno import ENOSPC
from functools import cache, partial
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError, RunError, UnfinishedError, VnetsimError, one_line
from vnetsim.errors.bounds import TRAINS, require
from vnetsim.learner_facts import NOT_READ
from vnetsim.learning import Learner
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import code_file, short_name
from vnetsim.plugins.results import errors_of_plugins
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import assemble
from vnetsim.runs.drives import is_driven
from vnetsim.runs.effect import facts_of, find_idle, idle_everywhere, refuse_idle
from vnetsim.runs.manifest import sha256_of
from vnetsim.runs.writer import lock_directory
from vnetsim.storage.folder import PARTS_LOCK, is_own
from vnetsim.storage.records import COMPARISON, RecordedEntry
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.study.cells import CellJob, CellResult, is_disk_full, is_finished
from vnetsim.study.parts import OpenToChange, Part, change_in_turn, in_part, share_directory
from vnetsim.study.plan import Cell, Plan
from vnetsim.study.traffic import NotesOnce, give_one_rsu, record_all
from vnetsim.study.workers import MOST_SHOWN, StudyProgress, choose_workers, run_here, run_in_processes
from vnetsim.study.workers_ray import Cluster, cluster_of, run_on_ray

Engine = Callable[[Sequence[CellJob], StudyProgress], Generator[CellResult, None, None]]
"""Runs cells and yields their results; closing the generator stops them."""


def compare(
    plan: Plan,
    folder: Path,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    workers: int | None = 1,
    engine: str = "local",
    address: str | None = None,
    deadline_s: float = math.inf,
    part: Part | None = None,
    check: Callable[[Path, Sequence[RecordedEntry]], None] | None = None,
) -> Mapping[str, str]:
    """Run each cell of a comparison that has not finished; return the errors of cells that failed now, by folder name.

    For ``workers``, ``engine`` and ``address`` see ``vnetsim.compare``. From ``deadline_s`` of ``time.monotonic()`` on
    no cell begins, and running ones stop at the end of a round. ``part``: run only these cells, while other processes
    run others; None to run all, alone. ``check`` is called with folder and recorded traffic before any cell runs.
    InputError: the folder is in use, has other contents or altered files, or a setting cannot be met. RunError: traffic
    could not be recorded, or the disk is full. UnfinishedError: the deadline, or another process is running a cell.
    """
    require(engine == "local" or deadline_s == math.inf, "--time-limit: not with --engine ray.")
    require(engine == "local" or part is None, "--part: not with --engine ray, which shares out the cells itself.")
    cluster = cluster_of(workers, engine, address)
    _refuse_unlike_exchanges(plan)
    run = RunDirectory(folder)
    existed = folder.exists()
    alone = part is None
    open_to_change: OpenToChange = (lambda: nullcontext(run)) if alone else partial(change_in_turn, folder)
    with lock_directory(run, fresh=False) if alone else share_directory(run):
        begun = _has_begun(open_to_change)
        if alone:
            run.remove_leftovers()
        try:
            # not when continuing: finished cells need no data; not with Ray: its machines have their own data
            if not begun and cluster is None:
                _refuse_common_fault(plan)
            once = NotesOnce(progress)
            with open_to_change() as now:
                experiments = give_one_rsu(plan.traffics, now, once)
            more: dict[str, Any] = {"command": command, "deadline_s": deadline_s}
            traffics = record_all(experiments, open_to_change, alone=alone, progress=once, **more)
            _refuse_idle(plan, folder, traffics)
            if check is not None:
                check(folder, traffics)
            more |= {"open_to_change": open_to_change, "progress": progress, "part": part}
            return _Study(run=run, plan=plan, traffics=traffics, **more).play(workers, cluster)
        except InputError:
            if alone and not existed and not (folder / "cells").exists():
                run.clear()
            raise
        except RunError as error:
            if not is_disk_full(error):
                raise
            what = f"{folder}: no space is left on the disk, so the comparison was stopped."
            raise RunError(_add_command(what, command)) from error
        except UnfinishedError as error:
            raise UnfinishedError(_add_command(str(error), command)) from error
        except KeyboardInterrupt as interrupt:
            place = str(interrupt) or "while the traffic was recorded"
            raise KeyboardInterrupt(_add_command(f"interrupted {place}.", command)) from None


def _has_begun(open_to_change: OpenToChange) -> bool:
    """Return whether the folder has a comparison, of an earlier call or another part; InputError: other contents."""
    with open_to_change() as run:
        begun = run.holds(COMPARISON)
        require(
            begun or all(is_own(path.name) for path in run.path.iterdir()),
            f"{run.path}: neither empty nor a comparison; name another folder with --out.",
        )
    return begun


def _refuse_unlike_exchanges(plan: Plan) -> None:
    """Raise InputError if a learner cannot follow the schedule of its ``schedule.learner``, if any; makes each once."""
    # only a learner that was made knows whether and how its vehicles exchange
    first: dict[str, Cell] = {}
    for cell in (cell for cell in plan.cells if cell.experiment.schedule.learner):
        first.setdefault(repr((cell.arm, cell.experiment.learning, cell.experiment.exchange)), cell)
    for cell in first.values():
        with suppress(RunError):  # a learner at fault fails its own cells alone
            _make_learner(cell)


def _refuse_common_fault(plan: Plan) -> None:
    """Raise the first cell's InputError if no learner can be made; not if one has a RunError or needs the traffic."""
    # stops at the first learner that can be made: faults of others appear when their cells run
    first: InputError | None = None
    for cell in {(cell.arm, cell.condition): cell for cell in plan.cells}.values():
        # these depend on RSUs or paths, known only from recorded traffic
        if cell.experiment.data.partition == "district" or is_driven(cell.experiment):
            return
        try:
            learner = _make_learner(cell)
            with errors_of_plugins((LEARNERS, learner)):
                facts = learner.describe().facts
            if not plan.timing_only and NOT_READ in facts:
                _make_learner(cell, pictures=True)  # raises the error that names the missing data
        except InputError as error:
            first = first or error
        except RunError:
            return
        else:
            return
    if first is not None:
        raise first


def _make_learner(cell: Cell, *, pictures: bool = False) -> Learner:
    """Return a new learner for a cell, on the CPU; without ``pictures`` no images are loaded, which saves seconds."""
    assembly = assemble(cell.experiment)
    return assembly.make_learner(assembly.context("cpu", pictures=pictures))[0]


def _refuse_idle(plan: Plan, folder: Path, traffics: Sequence[RecordedEntry]) -> None:
    """Raise InputError for a setting without effect in all cells that set it; ``traffics`` tell the number of RSUs."""
    first = {(cell.arm, cell.condition): cell for cell in reversed(plan.cells)}.values()
    made = [(cell, assemble(cell.experiment)) for cell in first]
    exchanges = None
    if any(key.startswith("exchange.") for cell in first for key in cell.given):
        # a learner at fault fails its own cells alone
        with suppress(RunError), errors_of_plugins(*((LEARNERS, one.learner.found) for _, one in made)):
            learners = (one.make_learner(one.context("cpu", pictures=False))[0] for _, one in made)
            exchanges = any(learner.cost(0).exchange is not None for learner in learners)
    cases = []
    for cell, one in made:
        rsus = len(RunDirectory(folder / traffics[cell.traffic].folder).manifest_record().rsus)
        facts = facts_of(cell.experiment, timing_only=plan.timing_only, rsus=rsus, exchanges=exchanges)
        del facts[TRAINS.key]  # with timing_only a study may keep its settings of training
        cases.append((cell.given, find_idle(one, cell.given, facts)))
    refuse_idle(idle_everywhere(cases))


def _add_command(message: str, command: Sequence[str]) -> str:
    """Return a message with the command that continues the comparison."""
    return f"{message} What is finished is kept. Go on with the same command: {shlex.join(command)}"


@dataclass(kw_only=True)
class _Study:
    """The cells of one comparison; ``cells`` has all by folder name, ``mine`` the names of those in ``part``."""

    run: RunDirectory
    open_to_change: OpenToChange
    plan: Plan
    traffics: Sequence[RecordedEntry]
    command: Sequence[str]
    progress: ProgressDisplay
    deadline_s: float
    part: Part | None
    failed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set ``cells`` and ``mine`` from plan and part (None: all cells)."""
        self._hash = cache(sha256_of)
        timed = self.plan.timing_only
        sha256 = [traffic.sha256 for traffic in self.traffics]
        self.cells = {cell.folder(sha256[cell.traffic], timing_only=timed): cell for cell in self.plan.cells}
        mine = in_part(self.plan.cells, self.part or (1, 1))
        self.mine = {name for name, is_mine in zip(self.cells, mine, strict=True) if is_mine}

    def play(self, workers: int | None, cluster: Cluster | None) -> Mapping[str, str]:
        """Run the missing cells of this part; return errors of failed ones by cell name. Raises like ``compare``."""
        for name in self.cells:
            self.run.path_of(f"cells/{name}/manifest.json")  # refuses links before any cell runs
        self._write_record()
        cells = enumerate(self.cells.items(), start=1)
        jobs = [self._make_job(number, name, cell) for number, (name, cell) in cells if name in self.mine]
        missing = {job.name: job for job in jobs if self._is_missing(job)}
        for first in list(missing)[:1]:
            missing[first] = dataclasses.replace(missing[first], always=True)
        if missing and self.part is None and (self.run.path / PARTS_LOCK).exists():
            words = ", ".join(f"({job.words})" for job in list(missing.values())[:MOST_SHOWN])
            more = ", ..." if len(missing) > MOST_SHOWN else ""
            self.progress.note(f"{len(missing)} of {len(jobs)} cells are missing and run now: {words}{more}.")
        engine = self._choose_engine(list(missing.values()), workers, cluster)
        unfinished: list[str] = []
        display = StudyProgress(self.progress, total=len(jobs), done=len(jobs) - len(missing))
        try:
            with closing(engine(list(missing.values()), display)) as outcomes:
                for outcome in outcomes:
                    if outcome.disk_full:
                        raise RunError(outcome.error) from OSError(ENOSPC, "")  # is_disk_full looks for this cause
                    if outcome.unfinished:
                        unfinished.append(outcome.unfinished)
                    if outcome.error:
                        self._fail(missing[outcome.name], outcome.error)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(display.place) from None
        with self.open_to_change() as run:
            run.settle()
        if unfinished:
            done = len(jobs) - len(unfinished) - len(self.failed)
            raise UnfinishedError(f"{unfinished[0]} after {done} of {len(jobs)} cells.")
        return self.failed

    def _choose_engine(self, jobs: Sequence[CellJob], workers: int | None, cluster: Cluster | None) -> Engine:
        """Return what runs the jobs; for ``workers=None`` choose their number, and if several, show and record it."""
        if cluster is not None:
            return partial(run_on_ray, cluster=cluster)
        if workers is None and not self.plan.timing_only and (workers := choose_workers(jobs)) > 1:
            self.progress.note(f"{workers} cells run at a time on the GPU; --workers N runs N.")
            with self.open_to_change() as run:
                run.write_json(COMPARISON, {**run.comparison(), "chosen_workers": workers})
        return run_here if workers in {None, 1} else partial(run_in_processes, workers=workers)

    def _fail(self, job: CellJob, reason: str) -> None:
        """Record a cell as failed in ``failed`` and ``comparison.json``, and show the reason."""
        self.failed[job.name] = reason
        self.progress.note(f"{job.where} failed: {reason}")
        self._write_record()

    def _is_missing(self, job: CellJob) -> bool:
        """Return whether a cell must be run; False also if its files or data changed: it is then recorded as failed."""
        try:
            finished = is_finished(job.folder)
            if finished:
                self._refuse_changed_data(job)
        except VnetsimError as error:
            if is_disk_full(error):
                raise
            self._fail(job, one_line(error))
            return False
        return not finished

    def _refuse_changed_data(self, job: CellJob) -> None:
        """Raise InputError if a data file of a finished cell, such as ``radio.file``, exists and has changed."""
        # files in the comparison's own folder are checked elsewhere
        for name, digest in RunDirectory(job.folder).manifest()["inputs"].items():
            path = Path(os.path.normpath(job.folder / name))
            if not path.is_relative_to(job.root) and path.is_file() and self._hash(path) != digest:
                raise InputError(f"{path}: changed since the cell ran; delete {job.folder} to run it again.")

    def _make_job(self, number: int, name: str, cell: Cell) -> CellJob:
        """Copy a cell's plug-in files into the folder, and return its job; ``number``, from 1, is shown in messages."""
        names = {key: self._copy_plugin(name) for key, name in cell.experiment.plugins().items() if name}
        experiment = cell.experiment.with_values(names)
        return CellJob(
            name=name,
            where=f"cell {number} of {len(self.cells)} ({cell.words})",
            words=cell.words,
            root=self.run.path.resolve(),
            experiment=dataclasses.replace(experiment, scenario=self.traffics[cell.traffic].folder),
            command=tuple(self.command),
            timing_only=self.plan.timing_only,
            deadline_s=self.deadline_s,
        )

    def _copy_plugin(self, plugin: str) -> str:
        """Copy a plug-in's file, if it has one, into the folder; return the plug-in's name with the copy's path."""
        file = code_file(plugin)
        if file is None:
            return plugin
        digest = sha256_of(file)
        name = f"learners/{digest[:12]}/{file.name}"
        copy = self.run.path / name
        with self.open_to_change() as run:
            if not copy.is_file() or sha256_of(copy) != digest:
                run.put({name: file.read_bytes()})
        return f"{name}:{short_name(plugin)}"

    def _other_evaluations(self, record: Mapping[str, Any]) -> list[int]:
        """Return the values of ``last_evaluations`` that earlier calls wrote to the record, without this call's."""
        written = list(record.get("last_evaluations_before", ()))
        if "cells" in record:
            written.append(record.get("last_evaluations", 1))
        return [number for number in dict.fromkeys(written) if number != self.plan.last_evaluations]

    def _write_record(self) -> None:
        """Write ``comparison.json``, with the failures of this part so far and those that other parts wrote."""
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
        plan = dataclasses.asdict(dataclasses.replace(self.plan, traffics=(), cells=()))
        del plan["traffics"]
        entries = {**plan, "command": list(self.command), "cells": cells}
        with self.open_to_change() as run:
            known = run.comparison()
            entries["last_evaluations_before"] = self._other_evaluations(known)
            failed = {name: why for name, why in known.get("failed", {}).items() if name not in self.mine} | self.failed
            entries["failed"] = {name: why for name, why in failed.items() if name in self.cells}
            run.write_json(COMPARISON, {**known, **entries})
