"""Comparisons: every learner at every seed on the same recorded traffic.

A comparison is a folder::

    comparison.json      what is compared: traffic, cells, and the errors of those that failed
    traffic/             one pass of the scenario's traffic, which every cell replays
    cells/NAME/          an ordinary run directory for each learner and seed, named by the hash of its experiment
    comparison.*         the page and the tables made by the analysis

The random streams of a run depend on its seed alone. At one seed, silos, radio and initial weights are therefore common
to all learners.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from vnetsim import __version__
from vnetsim.errors import InputError, VnetsimError, unknown_name
from vnetsim.experiment import Experiment
from vnetsim.learning import Learner
from vnetsim.manifest import changed_inputs, sha256_of
from vnetsim.registry import at_folder, find_learner, learner_file, short_name
from vnetsim.run_directory import RunDirectory
from vnetsim.run_writer import LOCK, locked
from vnetsim.runner import record_mobility, resume_run, start_run
from vnetsim.settings_file import load_experiment, structure, to_plain
from vnetsim.terminal import ProgressDisplay

MOST_CELLS = 500
"""More cells are run only when the user says so."""
RECORD = "comparison.json"

Override = tuple[tuple[str, ...], Any]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One learner at one seed.

    Args:
        learner: its name as given, ``path/to/file.py:CLASS`` included.
        experiment: resolved, but for its traffic: ``scenario`` is still that of the whole comparison.
    """

    learner: str
    experiment: Experiment

    @property
    def words(self) -> str:
        """The cell as messages name it."""
        return f"{short_name(self.learner)}, seed {self.experiment.seed}"

    def folder(self, traffic_sha256: str) -> str:
        """Return the name of its folder: learner, seed, and a hash of all that decides its result.

        Traffic and a learner's own file go in by their bytes, not by their paths.
        """
        plain = {**to_plain(self.experiment), "scenario": traffic_sha256, "learner": short_name(self.learner)}
        file = learner_file(self.learner)
        if file is not None:
            plain["learner_file"] = sha256_of(file)
        digest = hashlib.sha256(tomli_w.dumps(plain).encode()).hexdigest()
        return f"{short_name(self.learner)}-seed{self.experiment.seed}-{digest[:12]}"


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


def parse_names(text: str) -> list[str]:
    """Return the learners of ``a,b,c``.

    Raises:
        InputError: fewer than two, or one twice.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) < 2:
        raise InputError(f"--learners {text}: name at least two, for example --learners flsimco,fedavg.")
    short = [short_name(name) for name in names]
    twice = [name for name in short if short.count(name) > 1]
    if twice:
        raise InputError(f"--learners {text}: '{twice[0]}' is there twice; learners are told apart by their names.")
    return names


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of ``FIRST:END`` (without END) or ``a,b,c``.

    Raises:
        InputError: malformed, empty, or a seed twice.
    """
    first, colon, end = text.partition(":")
    parts = [part.strip() for part in ((first, end) if colon else text.split(","))]
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise InputError(
            f"--seeds {text}: write FIRST:END, such as 0:10 for the seeds 0 to 9, or a list such as 0,3,7."
        )
    numbers = [int(part) for part in parts]
    if not colon:
        if len(set(numbers)) < len(numbers):
            raise InputError(f"--seeds {text}: a seed is there twice.")
        return numbers
    if numbers[0] >= numbers[1]:
        raise InputError(f"--seeds {text}: no seed; FIRST must be below END, which is not among them.")
    if numbers[1] - numbers[0] > 10**6:
        raise InputError(f"--seeds {text}: {numbers[1] - numbers[0]} seeds are too many.")
    return list(range(*numbers))


def plan(
    scenario: str, learners: Sequence[str], seeds: Sequence[int], overrides: Sequence[Override]
) -> tuple[Experiment, list[Cell]]:
    """Return the experiment whose traffic is recorded, and the cells: all learners at the first seed, then the next.

    A setting of the table ``learning`` goes to the learners that know it.

    Raises:
        InputError: an unknown learner or setting, a wrong value, or learners of different tasks.
    """
    for key, _ in overrides:
        if key in {("learner",), ("seed",)}:
            raise InputError(f"--set {key[0]}: a comparison takes --{key[0]}s.")
    kinds = {name: find_learner(name) for name in learners}
    tasks: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        tasks.setdefault(kind.task, []).append(short_name(name))
    if len(tasks) > 1:
        found = "; ".join(f"{', '.join(names)}: {task}" for task, names in tasks.items())
        raise InputError(f"--learners: learners of different tasks cannot be compared ({found}).")
    resolved = {
        name: load_experiment(scenario, [*overrides, (("learner",), name)], find_learner=find_learner)
        for name in learners
    }
    _refuse_unknown(resolved, kinds)
    cells = [
        Cell(learner=name, experiment=dataclasses.replace(_fitted(resolved[name], kinds[name]), seed=seed))
        for seed in seeds
        for name in learners
    ]
    return load_experiment(scenario, overrides), cells


def _fields(kind: type[Learner]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind.Settings)}


def _refuse_unknown(resolved: Mapping[str, Experiment], kinds: Mapping[str, type[Learner]]) -> None:
    known = {field for kind in kinds.values() for field in _fields(kind)}
    for experiment in resolved.values():
        for key in experiment.learning:
            if key not in known:
                raise unknown_name("key", key, known, where="learning")


def _fitted(experiment: Experiment, kind: type[Learner]) -> Experiment:
    """Return the experiment with those settings of ``learning`` that its learner knows, defaults included."""
    own = {key: value for key, value in experiment.learning.items() if key in _fields(kind)}
    settings: Any = structure(own, kind.Settings, "", ("learning",))
    return dataclasses.replace(experiment, learning=to_plain(settings))


def compare(
    traffic: Experiment, cells: Sequence[Cell], folder: Path, *, command: Sequence[str], progress: ProgressDisplay
) -> Comparison:
    """Run every cell that the folder does not hold finished yet.

    Args:
        traffic: the experiment whose traffic all cells replay.
        cells: from ``plan``.
        folder: of the comparison; new, empty, or that of an earlier call with the same traffic.
        command: the command line, for the record and for the way to go on.
        progress: where to say how far the comparison is.

    Raises:
        InputError: the folder is something else, is in use, or holds other traffic or altered files.
        RunError: the simulator failed while the traffic was recorded.
        KeyboardInterrupt: with the way to go on as its message.
    """
    run = RunDirectory(folder)
    existed = folder.exists()
    with locked(run, fresh=False):
        if not (folder / RECORD).is_file() and any(path.name != LOCK for path in folder.iterdir()):
            raise InputError(f"{folder}: neither empty nor a comparison; name another folder with --out.")
        try:
            digest = _recorded(traffic, run, command=command, progress=progress)
        except InputError:
            if not existed:
                shutil.rmtree(folder)
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_go_on("interrupted while the traffic was recorded.", command)) from None
        return _Study(run, cells, digest, command, progress).play()


def _go_on(what: str, command: Sequence[str]) -> str:
    return f"{what} What is finished is kept. Go on with the same command: {shlex.join(command)}"


def _recorded(traffic: Experiment, run: RunDirectory, *, command: Sequence[str], progress: ProgressDisplay) -> str:
    """Record the traffic unless it is there; return the SHA-256 of its windows."""
    folder = run.path / "traffic"
    known = run.read_json(RECORD) if (run.path / RECORD).is_file() else {}
    settings = _traffic_settings(traffic)
    if known and known.get("vnetsim") != __version__:
        raise InputError(f"{run.path}: made by vnetsim {known.get('vnetsim')}; go on with that version, or elsewhere.")
    if known.get("traffic_sha256"):
        if known.get("traffic") != settings:
            raise InputError(
                f"{run.path}: its traffic was recorded with other settings; name another folder with --out."
            )
        if (
            not (folder / "windows.parquet").is_file()
            or sha256_of(folder / "windows.parquet") != known["traffic_sha256"]
        ):
            raise InputError(
                f"{folder / 'windows.parquet'}: changed or gone since it was recorded; start in a new folder."
            )
        changed = changed_inputs(RunDirectory(folder).manifest().get("inputs", {}))
        if changed:
            raise InputError(f"{changed[0]}: changed or gone since the traffic was recorded; start in a new folder.")
        return str(known["traffic_sha256"])
    run.write_json(RECORD, {"vnetsim": __version__, "traffic": settings})
    if folder.exists():  # of a call that was cut short
        shutil.rmtree(folder)
    record_mobility(traffic, folder, command=command, progress=progress)
    digest = sha256_of(folder / "windows.parquet")
    run.write_json(RECORD, {"vnetsim": __version__, "traffic": settings, "traffic_sha256": digest})
    return digest


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
        cells: Sequence[Cell],
        traffic_sha256: str,
        command: Sequence[str],
        progress: ProgressDisplay,
    ) -> None:
        self._run = run
        self._cells = {cell.folder(traffic_sha256): cell for cell in cells}
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
        scenario = str(self._run.path / "traffic")
        experiment = dataclasses.replace(cell.experiment, scenario=scenario, learner=learner)
        start_run(experiment, folder, command=self._command, progress=progress)
        return True

    def _write(self) -> None:
        """Say what is compared, and what failed so far."""
        cells = [
            {"folder": name, "learner": short_name(cell.learner), "seed": cell.experiment.seed}
            for name, cell in self._cells.items()
        ]
        entries = {"command": list(self._command), "cells": cells, "failed": self._failed}
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
