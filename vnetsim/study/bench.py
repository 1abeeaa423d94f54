"""Benchmark tracks: a frozen study to which anybody can add an arm.

A track is a file in ``scenarios/bench``. An arm and the baseline of its task are a study, which
``vnetsim.study.runner.compare`` runs. Its result is a row, a small file; ``bench_rows`` checks rows of others.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import PLUGIN_KEYS
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import at_folder, code_file, short_name
from vnetsim.runs.manifest import sha256_of
from vnetsim.scenario.settings_file import Override, leaves
from vnetsim.scenario.shipped import shipped_scenarios
from vnetsim.storage.bench_track import BenchControl, Track
from vnetsim.storage.records import RecordedEntry
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.structure import read_toml, structure
from vnetsim.storage.tables import REALS, TEXT, WINDOWS
from vnetsim.study.expansion import Expansion
from vnetsim.study.levels import LEARNING, error_context, keys_of
from vnetsim.study.plan import Plan
from vnetsim.study.request import merged

BASELINE = "baseline"
"""Name of the arm that others are compared with."""


def bench_folder() -> Path:
    """Return the folder of the shipped tracks; its subfolder ``rows`` has the shipped rows."""
    return shipped_scenarios() / "bench"


def track_names() -> list[str]:
    """Return the names of the shipped tracks."""
    return sorted(path.stem for path in bench_folder().glob("*.toml"))


def load_track(name: str, size: str = "small") -> Track:
    """Return a shipped track at a size; InputError if it does not exist or is malformed."""
    if name not in track_names():
        raise unknown_name("track", name[:60], track_names())
    path = bench_folder() / f"{name}.toml"
    values = read_toml(path)
    with error_context(str(path)):
        sizes = structure(values, Track, "").sizes
        if size not in sizes:
            raise unknown_name("size", size, sizes)
        track = structure(merged({**values, "sizes": {}}, sizes[size]), Track, "")
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return replace(track, name=name, size=size, sha256=digest)


def refuse_closed(track: Track, task: str, keys: Iterable[str]) -> None:
    """Refuse settings that a track fixes: InputError names the first one, and what an arm may choose."""
    fixed = {".".join(path) for path in leaves(track.tasks[task].settings)}
    for key in keys:
        if key in fixed or not any(fnmatch.fnmatchcase(key, pattern) for pattern in track.open):
            raise InputError(
                f"{key:.60}: fixed by track {track.words}, so that rows compare; an arm chooses "
                f"{', '.join(track.open)}, without what its task fixes."
            )


def refuse_other_files(track: Track) -> None:
    """Refuse files that changed since the track was frozen: InputError names the first one."""
    for name, digest in track.files.items():
        if sha256_of(bench_folder() / name) != digest:
            raise InputError(
                f"{bench_folder() / name}: not the file that track {track.words} was frozen with; put the shipped one "
                "back, or install vnetsim again."
            )


def refuse_other_traffic(track: Track, seeds: Sequence[int], folder: Path, recorded: Sequence[RecordedEntry]) -> None:
    """Refuse traffic, one recording per seed in ``folder``, that is not the track's: InputError names the seed."""
    for seed, entry in zip(seeds, recorded, strict=True):
        run = RunDirectory(folder / entry.folder)
        if windows_digest(run.read("windows")) != track.windows[seed]:
            here = run.manifest_record().traffic.version or "another source"
            do = f"Install that version of eclipse-sumo, delete {folder} and call again."
            if here == track.sumo:
                do = "Another kind of processor rounds otherwise, and SUMO's traffic follows: use one of x86_64."
            raise InputError(
                f"{run.path}: the traffic of seed {seed} is not that of track {track.words}: recorded here by {here}, "
                f"the track's by {track.sumo}. {do}"
            )


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
    """An arm to run on a track."""

    track: Track
    task: str
    label: str  # its name in tables
    learner: str  # a name, or ``/path/to/file.py:CLASS``
    settings: Mapping[str, Any]  # settings, including the learner's, that differ from the baseline's, by dotted key
    control: BenchControl | None = None  # the track's control that this arm is; None if it is none

    @property
    def is_baseline(self) -> bool:
        """Whether the arm has the baseline's learner and no settings; it is then run only once."""
        return not self.settings and self.learner == self.track.tasks[self.task].baseline

    @property
    def code(self) -> dict[str, str]:
        """SHA-256 of the plug-in files that the arm names, by setting; empty for a control."""
        named = {key: self.settings.get(key, "") for key in PLUGIN_KEYS} | {"learner": self.learner}
        files = {key: code_file(name) for key, name in named.items() if isinstance(name, str) and not self.control}
        return {key: sha256_of(file) for key, file in files.items() if file is not None}

    def plan(self, seeds: Sequence[int], options: Sequence[Override] = (), *, timing_only: bool = False) -> Plan:
        """Return the baseline's and the arm's cells at these seeds; InputError if a learner, setting or file is wrong.

        With ``timing_only`` they are not trained: the schedule of a learner is the same, unless it depends on losses.
        """
        track, task = self.track, self.track.tasks[self.task]
        refuse_other_files(track)
        arms = [(BASELINE, task.baseline, {}), (self.label, self.learner, self.settings)]
        values = {
            "title": f"{track.words}, {track.size}: {self.label}",
            "scenario": track.scenario,
            "seeds": list(seeds),
            "traffic_seeds": list(range(len(track.windows))),
            "against": BASELINE,
            "settings": merged(track.settings, task.settings),
            "arms": [self._table(*arm) for arm in arms[: 1 if self.is_baseline else 2]],
        }
        where = f"{bench_folder() / track.name}.toml (size {track.size})"
        return Expansion(
            values, options, where=where, folder=bench_folder(), trust=False, least=1, timing_only=timing_only
        ).plan(None)

    def _table(self, name: str, learner: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return an arm as a table of ``[[arms]]``, with those of the task's learning settings that its learner has."""
        known = keys_of(at_folder(learner, bench_folder()))
        learning = {key: value for key, value in self.track.tasks[self.task].learning.items() if key in known}
        own = {key: value for key, value in settings.items() if not key.startswith("learning.")}
        learning |= {key.removeprefix("learning."): settings[key] for key in settings if key not in own}
        return {"name": name, "learner": learner, "settings": own, "learning": learning}


def asked_arm(track: Track, given: Mapping[str, Any], learner: str | None, control: str | None) -> BenchArm:
    """Return the arm for a user's arguments: settings (``given``, by dotted key) and a learner, or only a control.

    The learner decides the task; without one it is the baseline of the track's first task. InputError: learner or
    control do not exist or are combined, the track has no such task, or it fixes a setting.
    """
    if control is not None:
        known = {one.name: one for one in track.controls}
        if control not in known:
            raise unknown_name("control", control, known, where=f"track {track.name}")
        if given or learner is not None:
            raise InputError(f"--control {control}: an arm of the track, which says everything; give nothing else.")
        one = known[control]
        own = {".".join(path): value for path, value in (leaves(one.settings) | leaves(one.learning, LEARNING)).items()}
        name = one.learner or track.tasks[one.task].baseline
        return BenchArm(track=track, task=one.task, label=one.name, learner=name, settings=own, control=one)
    first = next(iter(track.tasks.values()))
    name = first.baseline if learner is None else at_folder(learner, Path.cwd())
    task = LEARNERS.find(name).task
    if task not in track.tasks:
        known_tasks = ", ".join(track.tasks)
        raise InputError(f"{short_name(name)}: its task is '{task}'; the tasks of {track.name} are {known_tasks}.")
    refuse_closed(track, task, given)
    already = {".".join(path): value for path, value in leaves(track.settings).items()}
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
