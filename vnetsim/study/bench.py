"""Benchmark tracks: a frozen study, to which anybody adds an arm.

A track is a file of ``scenarios/bench``: scenario, traffic, physics, pace and tasks, with the hashes of all files and
of the traffic of ten seeds. What is asked is an arm beside the baseline of its task; the two are a study. A row is
what came out, a small file; one that was received is data, held to its track and never run.
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
from vnetsim.study.levels import LEARNING, Override, placed
from vnetsim.study.plan import Plan
from vnetsim.study.request import merged

BASELINE = "baseline"
"""The arm that all others are compared with."""


@dataclass(frozen=True, kw_only=True)
class BenchTask:
    """What learners of one task are measured by; learners of another task have a baseline and a metric of their own.

    Args:
        baseline: the learner that others are compared with.
        metric: name of the series that counts, at its last evaluation.
        label: of the metric, in words.
        unit: of the metric; ``%`` stands for a fraction.
        target: value whose first measurement is timed; None where nobody has set one.
        tolerance: how far a row's metric may lie from what another machine finds, in the metric's unit.
        settings: fixed for all arms.
        learning: of all arms where they say nothing else.
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
    """An arm whose effect is known, so that a track shows what it can tell apart.

    ``metric`` is another series than the task's, where what is to be known is another model's.
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
        version: changes with anything else.
        title: of the track.
        notes: what its table must say of it.
        scenario: whose traffic is recorded.
        sumo: version that recorded it.
        windows: digest of the windows of each seed's traffic, from seed 0; see ``windows_digest``.
        files: SHA-256 of all that the track reads, by path from the track's folder.
        open: patterns of the settings that an arm may choose.
        settings: fixed for all tasks.
        tasks: by name.
        controls: arms whose effect is known.
        sizes: merged into the above.
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
        name: of its file.
        size: of what is trained.
        path: its file.
        sha256: digest of all that the file says, and so, by their hashes, of all files and traffic.
        tables: what it says at this size.
    """

    name: str
    size: str
    path: Path
    sha256: str
    tables: TrackTables

    @property
    def seeds(self) -> range:
        """The seeds of a row, each with its traffic."""
        return range(len(self.tables.windows))

    def task_of(self, learner: str) -> str:
        """Return a learner's task.

        Raises:
            InputError: no such learner, or the track has no such task.
        """
        task: str = LEARNERS.find(learner).task
        if task not in self.tables.tasks:
            known = ", ".join(self.tables.tasks)
            raise InputError(f"{short_name(learner)}: its task is '{task}'; the tasks of {self.name} are {known}.")
        return task

    def refuse_closed(self, task: str, keys: Iterable[str]) -> None:
        """Refuse settings that the track leaves to nobody.

        Raises:
            InputError: naming the first, and what is open.
        """
        fixed = {".".join(path) for path in leaves(self.tables.tasks[task].settings)}
        for key in keys:
            if key in fixed or not any(fnmatch.fnmatchcase(key, pattern) for pattern in self.tables.open):
                raise InputError(
                    f"{key:.60}: fixed by track {self.name} {self.tables.version}, so that rows compare; an arm "
                    f"chooses {', '.join(self.tables.open)}, without what its task fixes."
                )

    def refuse_other_files(self) -> None:
        """Refuse files that are not those that the track was frozen with.

        Raises:
            InputError: naming the first.
        """
        for name, digest in self.tables.files.items():
            if sha256_of(self.path.parent / name) != digest:
                raise InputError(
                    f"{self.path.parent / name}: not the file that track {self.name} {self.tables.version} was frozen "
                    "with; put the shipped one back, or install vnetsim again."
                )

    def refuse_other_traffic(self, seeds: Sequence[int], folder: Path, recorded: Sequence[RecordedEntry]) -> None:
        """Refuse recorded traffic, one for each of the seeds, that is not the track's.

        Raises:
            InputError: naming the seed and both versions of SUMO.
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
    """Return the names of the tracks that come with the package."""
    return sorted(path.stem for path in (shipped_scenarios() / "bench").glob("*.toml"))


def load_track(name: str, size: str = "small") -> Track:
    """Return a track that comes with the package.

    Raises:
        InputError: there is no such track or size, or the file says something else than a track does.
    """
    if name not in track_names():
        raise unknown_name("track", name, track_names())
    path = shipped_scenarios() / "bench" / f"{name}.toml"
    values = read_toml(path)
    with placed(str(path)):
        whole = structure(values, TrackTables, "")
        if size not in whole.sizes:
            raise unknown_name("size", size, whole.sizes)
        common = {key: value for key, value in values.items() if key != "sizes"}
        tables = structure({**merged(common, whole.sizes[size]), "sizes": {}}, TrackTables, "")
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return Track(name=path.stem, size=size, path=path, sha256=digest, tables=tables)


def windows_digest(windows: pl.DataFrame) -> str:
    """Return the SHA-256 of the values of a table of windows, whatever the bytes of its file."""
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
    """What is asked of a track.

    Args:
        track: which.
        task: of the learner.
        label: as tables name it.
        learner: a name, or ``/path/to/file.py:CLASS``.
        settings: that differ from the baseline's, by dotted key; those of the learner among them.
        control: of the track; empty for an arm of one's own.
    """

    track: Track
    task: str
    label: str
    learner: str
    settings: Mapping[str, Any]
    control: BenchControl | None = None

    @property
    def is_baseline(self) -> bool:
        """Whether nothing differs from the baseline."""
        return not self.settings and self.learner == self.track.tables.tasks[self.task].baseline

    @property
    def code(self) -> dict[str, str]:
        """SHA-256 of the files whose code it runs besides the track's, by the setting that names them."""
        named = {key: self.settings.get(key, "") for key in PLUGIN_KEYS} | {"learner": self.learner}
        files = {key: code_file(name) for key, name in named.items() if isinstance(name, str) and not self.control}
        return {key: sha256_of(file) for key, file in files.items() if file is not None}

    @property
    def metric(self) -> str:
        """The series that counts."""
        return (self.control.metric if self.control else "") or self.track.tables.tasks[self.task].metric

    def plan(self, seeds: Sequence[int], options: Sequence[Override] = ()) -> Plan:
        """Return the cells of baseline and arm at some seeds.

        Raises:
            InputError: an unknown learner or setting, or files that are not the track's.
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
    """Return the arm that a caller asks for.

    Args:
        track: which.
        given: settings by dotted key.
        learner: None for the baseline of the track's first task, or of the control's.
        control: name of one of the track's.

    Raises:
        InputError: no such learner or control, a control with settings of one's own, or a setting that is not open.
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
        if already.get(key) != value  # the baseline's, which says nothing
    }
    return BenchArm(track=track, task=task, label=_label(name, settings), learner=name, settings=settings)


def _label(learner: str, settings: Mapping[str, Any]) -> str:
    """Return a learner's name and what differs from the baseline; a plug-in's name stands for itself."""
    words = [short_name(learner)]
    for key, value in settings.items():
        text = short_name(value) if isinstance(value, str) else json.dumps(value, default=str)
        words.append(text if key in {*PLUGIN_KEYS, "handover.policy"} else f"{key.split('.', 1)[-1]}={text}")
    return ", ".join(words)
