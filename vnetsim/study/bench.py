"""Benchmark tracks: a frozen study to which anybody can add an arm.

A track is a file in ``scenarios/bench``: scenario, traffic, physics, pace and tasks, with the hashes of all files and
of the traffic at ten seeds. An arm is run with the baseline of its task; the two are a study. Its result is a row, a
small file. A received row is data: it is checked against its track, and its code is never run.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import polars as pl

from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import PLUGIN_KEYS
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import at_folder, code_file, short_name
from vnetsim.runs.manifest import sha256_of
from vnetsim.scenario.settings_file import leaves
from vnetsim.scenario.shipped import shipped_scenarios
from vnetsim.storage.records import RecordedEntry
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.structure import read_toml, structure
from vnetsim.storage.tables import REALS, TEXT, WINDOWS
from vnetsim.study.expansion import Expansion
from vnetsim.study.levels import LEARNING, Override, error_context
from vnetsim.study.plan import Plan
from vnetsim.study.request import merged

BASELINE = "baseline"
"""Name of the arm that others are compared with."""


@dataclass(frozen=True, kw_only=True)
class BenchTask:
    """Baseline and metric for the learners of one task.

    Args:
        baseline: the learner that others are compared with.
        metric: name of the series that is compared, at its last evaluation.
        label: name of the metric on pages.
        unit: unit of the metric; ``%`` means a fraction in [0, 1].
        target: value of the metric for the time to target; None for no target.
        tolerance: largest difference of the metric between machines, in its unit.
        settings: fixed for all arms.
        learning: defaults of all arms for settings of the learner.
    """

    baseline: str
    metric: str
    label: str
    unit: str
    target: float | None = None
    tolerance: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    learning: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BenchControl:
    """An arm with a known effect, which shows how small a difference a track can detect.

    ``metric`` replaces the task's series if it is not empty.
    """

    name: str
    task: str
    says: str
    learner: str = ""
    metric: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    learning: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrackTables:
    """The keys of a track's file.

    Args:
        version: version of the track; it changes with every other key.
        title: title of the track.
        notes: shown with its table.
        scenario: scenario that is recorded.
        sumo: version of SUMO that recorded it.
        windows: digest of the windows at each seed, from seed 0; see ``windows_digest``.
        files: SHA-256 of every file that the track reads, by path from the track's folder.
        open: patterns of the settings that an arm may choose.
        settings: fixed for all tasks.
        tasks: tasks by name.
        controls: arms with a known effect.
        sizes: by name, tables that are merged into the above.
    """

    version: str
    title: str
    notes: tuple[str, ...] = ()
    scenario: str
    sumo: str
    windows: tuple[str, ...]
    files: Mapping[str, str]
    open: tuple[str, ...]
    settings: Mapping[str, Any]
    tasks: Mapping[str, BenchTask]
    controls: tuple[BenchControl, ...] = ()
    sizes: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Track:
    """A track at one of its sizes.

    Args:
        name: name of its file without the suffix.
        size: size of networks and training.
        path: its file.
        sha256: digest of the file's values, which contain the hashes of all files and traffic.
        tables: the values at this size.
    """

    name: str
    size: str
    path: Path
    sha256: str
    tables: TrackTables

    @property
    def seeds(self) -> range:
        """The seeds of a row; each has its own traffic."""
        return range(len(self.tables.windows))

    def task_of(self, learner: str) -> str:
        """Return a learner's task.

        Raises:
            InputError: the learner does not exist, or the track does not have its task.
        """
        task: str = LEARNERS.find(learner).task
        if task not in self.tables.tasks:
            known = ", ".join(self.tables.tasks)
            raise InputError(f"{short_name(learner)}: its task is '{task}'; the tasks of {self.name} are {known}.")
        return task

    def refuse_closed(self, task: str, keys: Iterable[str]) -> None:
        """Refuse settings that the track fixes.

        Raises:
            InputError: names the first one, and what an arm may choose.
        """
        fixed = {".".join(path) for path in leaves(self.tables.tasks[task].settings)}
        for key in keys:
            if key in fixed or not any(fnmatch.fnmatchcase(key, pattern) for pattern in self.tables.open):
                raise InputError(
                    f"{key:.60}: fixed by track {self.name} {self.tables.version}, so that rows compare; an arm "
                    f"chooses {', '.join(self.tables.open)}, without what its task fixes."
                )

    def refuse_other_files(self) -> None:
        """Refuse files that have changed since the track was frozen.

        Raises:
            InputError: names the first one.
        """
        for name, digest in self.tables.files.items():
            if sha256_of(self.path.parent / name) != digest:
                raise InputError(
                    f"{self.path.parent / name}: not the file that track {self.name} {self.tables.version} was frozen "
                    "with; put the shipped one back, or install vnetsim again."
                )

    def refuse_other_traffic(self, seeds: Sequence[int], folder: Path, recorded: Sequence[RecordedEntry]) -> None:
        """Refuse recorded traffic (one entry per seed) that differs from the track's.

        Raises:
            InputError: names the seed and both versions of SUMO.
        """
        for seed, entry in zip(seeds, recorded, strict=True):
            run = RunDirectory(folder / entry.folder)
            if windows_digest(run.read("windows")) != self.tables.windows[seed]:
                here = run.manifest_record().traffic.version or "another source"
                do = f"Install that version of eclipse-sumo, delete {folder} and call again."
                if here == self.tables.sumo:
                    do = "Another kind of processor rounds otherwise, and SUMO's traffic follows: use one of x86_64."
                raise InputError(
                    f"{run.path}: the traffic of seed {seed} is not that of track {self.name} {self.tables.version}: "
                    f"recorded here by {here}, the track's by {self.tables.sumo}. {do}"
                )


def track_names() -> list[str]:
    """Return the names of the shipped tracks."""
    return sorted(path.stem for path in (shipped_scenarios() / "bench").glob("*.toml"))


def load_track(name: str, size: str = "small") -> Track:
    """Return a shipped track.

    Raises:
        InputError: the track or size does not exist, or the file is malformed.
    """
    if name not in track_names():
        raise unknown_name("track", name, track_names())
    path = shipped_scenarios() / "bench" / f"{name}.toml"
    values = read_toml(path)
    with error_context(str(path)):
        whole = structure(values, TrackTables, "")
        if size not in whole.sizes:
            raise unknown_name("size", size, whole.sizes)
        common = {key: value for key, value in values.items() if key != "sizes"}
        tables = structure({**merged(common, whole.sizes[size]), "sizes": {}}, TrackTables, "")
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return Track(name=path.stem, size=size, path=path, sha256=digest, tables=tables)


def windows_digest(windows: pl.DataFrame) -> str:
    """Return the SHA-256 of a window table's values; it does not depend on the file's encoding."""
    digest = hashlib.sha256()
    for column in WINDOWS:
        values = windows[column.name]
        if column.dtype == REALS:
            digest.update(values.list.len().to_numpy().astype("<i8").tobytes())
            values = values.explode()
        if column.dtype == TEXT:
            digest.update("\0".join(values.fill_null("\1")).encode())
        else:
            digest.update(values.to_numpy().astype("<i8" if values.dtype.is_integer() else "<f8").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class BenchArm:
    """An arm to run on a track.

    Args:
        track: the track.
        task: the learner's task.
        label: its name in tables.
        learner: a name, or ``/path/to/file.py:CLASS``.
        settings: settings, including the learner's, that differ from the baseline's, by dotted key.
        control: the track's control that the arm is; None for any other arm.
    """

    track: Track
    task: str
    label: str
    learner: str
    settings: Mapping[str, Any]
    control: BenchControl | None = None

    @property
    def is_baseline(self) -> bool:
        """Whether the arm equals the baseline."""
        return not self.settings and self.learner == self.track.tables.tasks[self.task].baseline

    @property
    def code(self) -> dict[str, str]:
        """SHA-256 of the plug-in files that the arm names, by setting; empty for a control."""
        named = {key: self.settings.get(key, "") for key in PLUGIN_KEYS} | {"learner": self.learner}
        files = {key: code_file(name) for key, name in named.items() if isinstance(name, str) and not self.control}
        return {key: sha256_of(file) for key, file in files.items() if file is not None}

    @property
    def metric(self) -> str:
        """The series that is compared."""
        return (self.control.metric if self.control else "") or self.track.tables.tasks[self.task].metric

    def plan(self, seeds: Sequence[int], options: Sequence[Override] = ()) -> Plan:
        """Return the cells of the baseline and the arm at these seeds.

        Raises:
            InputError: a learner or setting is unknown, or a file of the track has changed.
        """
        track, tables, task = self.track, self.track.tables, self.track.tables.tasks[self.task]
        track.refuse_other_files()
        asked = self._arm(self.label, self.learner, self.settings)
        first = self._arm(BASELINE, task.baseline, {})
        values = {
            "title": f"{track.name} {tables.version}, {track.size}: {self.label}",
            "scenario": tables.scenario,
            "seeds": list(seeds),
            "traffic_seeds": list(track.seeds),
            "against": BASELINE,
            "settings": merged(tables.settings, task.settings),
            "arms": [first] if self.is_baseline else [first, asked],
        }
        where = f"{track.path} (size {track.size})"
        found = Expansion(values, options, where=where, folder=track.path.parent, trust=False, least=1)
        return found.plan(None)

    def _arm(self, name: str, learner: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {key: value for key, value in settings.items() if not key.startswith("learning.")}
        chosen = {key.removeprefix("learning."): value for key, value in settings.items() if key not in own}
        found = LEARNERS.find(at_folder(learner, self.track.path.parent))
        known = {one.name for one in fields(found.Settings)}
        given = {key: value for key, value in self.track.tables.tasks[self.task].learning.items() if key in known}
        return {"name": name, "learner": learner, "settings": own, "learning": {**given, **chosen}}


def asked_arm(track: Track, given: Mapping[str, Any], learner: str | None, control: str | None) -> BenchArm:
    """Return the arm that the arguments describe.

    Args:
        track: the track.
        given: settings by dotted key.
        learner: None for the baseline of the track's first task, or of the control's task.
        control: name of a control of the track, or None.

    Raises:
        InputError: the learner or control does not exist, a control was combined with settings or a learner, or the
            track fixes a setting.
    """
    tables = track.tables
    if control is not None:
        known = {one.name: one for one in tables.controls}
        if control not in known:
            raise unknown_name("control", control, known, where=f"track {track.name}")
        if given or learner is not None:
            raise InputError(f"--control {control}: an arm of the track, which says everything; give nothing else.")
        one = known[control]
        own = {".".join(path): value for path, value in (leaves(one.settings) | leaves(one.learning, LEARNING)).items()}
        name = one.learner or tables.tasks[one.task].baseline
        return BenchArm(track=track, task=one.task, label=one.name, learner=name, settings=own, control=one)
    first = next(iter(tables.tasks))
    name = tables.tasks[first].baseline if learner is None else at_folder(learner, Path.cwd())
    task = track.task_of(name)
    track.refuse_closed(task, given)
    already = {".".join(path): value for path, value in leaves(tables.settings).items()}
    settings = {
        key: at_folder(value, Path.cwd()) if key in PLUGIN_KEYS and isinstance(value, str) else value
        for key, value in given.items()
        if already.get(key) != value  # equal to the baseline's, so it does not belong in the label
    }
    return BenchArm(track=track, task=task, label=_label(name, settings), learner=name, settings=settings)


def _label(learner: str, settings: Mapping[str, Any]) -> str:
    """Return the learner's name and each setting as KEY=VALUE; for plug-ins and handover.policy the value alone."""
    words = [short_name(learner)]
    for key, value in settings.items():
        text = short_name(value) if isinstance(value, str) else json.dumps(value, default=str)
        words.append(text if key in {*PLUGIN_KEYS, "handover.policy"} else f"{key.split('.', 1)[-1]}={text}")
    return ", ".join(words)
