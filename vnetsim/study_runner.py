"""Comparisons: run the cells of a study on the same recorded traffic.

A comparison is a folder::

    comparison.json      what is compared: traffics, cells, and the errors of those that failed
    traffic/HASH/        one pass of a scenario's traffic, which cells replay
    cells/NAME/          an ordinary run directory for each cell, named by the hash of its experiment
    comparison.*         the page and the tables made by the analysis
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vnetsim import __version__
from vnetsim.errors import InputError, VnetsimError
from vnetsim.experiment import Experiment
from vnetsim.manifest import changed_inputs, sha256_of
from vnetsim.registry import at_folder, short_name
from vnetsim.run_directory import RunDirectory
from vnetsim.run_writer import LOCK, locked
from vnetsim.runner import record_mobility, resume_run, start_run
from vnetsim.settings_file import to_plain
from vnetsim.study import Cell, Plan
from vnetsim.terminal import ProgressDisplay

RECORD = "comparison.json"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A comparison that came to its end.

    Args:
        path: its folder.
        ran: cells that were run or resumed by this call.
        failed: one line for each cell that failed, by folder name.
    """

    path: Path
    ran: int
    failed: Mapping[str, str]


def compare(
    plan: Plan,
    folder: Path,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    workers: int = 1,
    engine: str = "local",
    address: str | None = None,
) -> Comparison:
    """Run every cell that the folder does not hold finished yet.

    Args:
        plan: what to run.
        folder: of the comparison; new, empty, or that of an earlier call with the same traffic.
        command: the command line, for the record and for the way to go on.
        progress: where to say how far the comparison is.
        workers: cells to run at once, each in a process of its own; 1 runs them in this one.
        engine: ``local`` for processes of this machine, ``ray`` for a Ray cluster.
        address: of the Ray cluster; None takes one of this machine.

    Raises:
        InputError: the folder is something else, is in use, or holds other traffic or altered files.
        RunError: the simulator failed while the traffic was recorded.
        KeyboardInterrupt: with the way to go on as its message.
    """
    if workers != 1 or engine != "local" or address is not None:
        raise InputError("--workers, --engine, --address: cells run one after the other, on this machine, for now.")
    run = RunDirectory(folder)
    existed = folder.exists()
    with locked(run, fresh=False):
        if not (folder / RECORD).is_file() and any(path.name != LOCK for path in folder.iterdir()):
            raise InputError(f"{folder}: neither empty nor a comparison; name another folder with --out.")
        try:
            traffics = [_recorded(one, run, command=command, progress=progress) for one in plan.traffics]
        except InputError:
            if not existed:
                shutil.rmtree(folder)
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_go_on("interrupted while the traffic was recorded.", command)) from None
        return _Study(run, plan, traffics, command, progress).play()


def _go_on(what: str, command: Sequence[str]) -> str:
    return f"{what} What is finished is kept. Go on with the same command: {shlex.join(command)}"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A traffic that the cells replay; an entry of the record's ``traffic``."""

    folder: str
    settings: Mapping[str, Any]
    sha256: str


def _recorded(traffic: Experiment, run: RunDirectory, *, command: Sequence[str], progress: ProgressDisplay) -> Recorded:
    """Record a traffic unless it is there."""
    settings = _traffic_settings(traffic)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()
    name = f"traffic/{digest[:12]}"
    folder = run.path / name
    record: dict[str, Any] = {"vnetsim": __version__, "traffic": []}
    if (run.path / RECORD).is_file():
        record = run.read_json(RECORD)
    if record.get("vnetsim") != __version__:
        raise InputError(f"{run.path}: made by vnetsim {record.get('vnetsim')}; go on with that version, or elsewhere.")
    for known in record["traffic"]:
        if known["folder"] != name:
            continue
        windows = folder / "windows.parquet"
        if not windows.is_file() or sha256_of(windows) != known["sha256"]:
            raise InputError(f"{windows}: changed or gone since it was recorded; start in a new folder.")
        changed = changed_inputs(RunDirectory(folder).manifest().get("inputs", {}), folder)
        if changed:
            raise InputError(f"{changed[0]}: changed or gone since the traffic was recorded; start in a new folder.")
        return Recorded(**known)
    run.write_json(RECORD, record)
    if folder.exists():  # of a call that was cut short
        shutil.rmtree(folder)
    record_mobility(traffic, folder, command=command, progress=progress)
    recorded = Recorded(folder=name, settings=settings, sha256=sha256_of(folder / "windows.parquet"))
    run.write_json(RECORD, {**record, "traffic": [*record["traffic"], dataclasses.asdict(recorded)]})
    return recorded


def _traffic_settings(traffic: Experiment) -> dict[str, Any]:
    """Return everything that decides what is recorded."""
    plain = to_plain(traffic)
    located = traffic.scenario if traffic.scenario == "gaussian" else str(Path(traffic.scenario).resolve())
    chosen = {key: plain[key] for key in ("seed", "traffic", "gaussian", "camera")}
    # the two backends, with or without a window, give the same traffic
    chosen["traffic"] = {key: value for key, value in chosen["traffic"].items() if key not in {"backend", "gui"}}
    return {"scenario": located, **chosen}


class _Study:
    """The cells of one comparison, one after the other."""

    def __init__(
        self,
        run: RunDirectory,
        plan: Plan,
        traffics: Sequence[Recorded],
        command: Sequence[str],
        progress: ProgressDisplay,
    ) -> None:
        self._run = run
        self._plan = plan
        self._traffics = traffics
        self._cells = {cell.folder(traffics[cell.traffic].sha256): cell for cell in plan.cells}
        self._command = command
        self._progress = progress
        self._known = run.read_json(RECORD)
        self._failed: dict[str, str] = {}

    def play(self) -> Comparison:
        self._write()
        ran = 0
        for number, (name, cell) in enumerate(self._cells.items(), start=1):
            where = f"cell {number} of {len(self._cells)} ({cell.words})"
            try:
                ran += self._one(name, cell, CellProgress(self._progress, where))
            except KeyboardInterrupt:
                raise KeyboardInterrupt(_go_on(f"interrupted in {where}.", self._command)) from None
            except (VnetsimError, OSError) as error:
                self._failed[name] = " ".join(str(error).split())
                self._progress.note(f"{where} failed: {self._failed[name]}")
                self._write()
        return Comparison(path=self._run.path, ran=ran, failed=self._failed)

    def _one(self, name: str, cell: Cell, progress: ProgressDisplay) -> bool:
        """Run or resume a cell; return False when it had finished before."""
        folder = self._run.path / "cells" / name
        if (folder / "manifest.json").is_file():
            manifest = RunDirectory(folder).manifest()
            if manifest.get("vnetsim") != __version__:
                raise InputError(f"{folder}: made by vnetsim {manifest.get('vnetsim')}; delete it to run it again.")
            return not resume_run(folder, command=self._command, progress=progress)
        if folder.exists():  # killed before it had begun
            shutil.rmtree(folder)
        learner = at_folder(cell.learner, Path.cwd())
        scenario = str(self._run.path / self._traffics[cell.traffic].folder)
        experiment = dataclasses.replace(cell.experiment, scenario=scenario, learner=learner)
        start_run(experiment, folder, command=self._command, progress=progress, portable=True)
        return True

    def _write(self) -> None:
        """Say what is compared, and what failed so far."""
        cells = [
            {
                "folder": name,
                "arm": cell.arm,
                "condition": cell.condition,
                "learner": short_name(cell.learner),
                "seed": cell.experiment.seed,
                "traffic": self._traffics[cell.traffic].folder,
            }
            for name, cell in self._cells.items()
        ]
        entries = {
            "title": self._plan.title,
            "notes": list(self._plan.notes),
            "command": list(self._command),
            "cells": cells,
            "skipped": [dataclasses.asdict(skipped) for skipped in self._plan.skipped],
            "failed": self._failed,
        }
        self._run.write_json(RECORD, {**self._known, **entries})


class CellProgress:
    """The display of one cell: its place in the comparison, and its rounds.

    Args:
        progress: the display of the whole.
        where: which cell it is.
    """

    def __init__(self, progress: ProgressDisplay, where: str) -> None:
        self._progress = progress
        self._where = where

    def stage(self, text: str) -> None:
        """Name the cell and what it does."""
        self._progress.stage(f"{self._where}: {text}")

    def note(self, text: str) -> None:
        """Keep silent: what the traffic has to say was said once, and the comparison tells how each cell ended."""

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Show the rounds of the cell."""
        if total is not None:
            self._progress.stage(f"{self._where}: round {done:.0f} of {total:.0f}")
        self._progress.advance(time_s=time_s, done=done, total=total)
