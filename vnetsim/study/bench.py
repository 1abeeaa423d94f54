"""Benchmark tracks, to which anybody can add an arm, and rows, the results of an arm as a small file without code.

A track is a file in ``scenarios/bench``. An arm and the baseline of its task are a study, which
``vnetsim.study.runner.compare`` runs.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.paths import path_name
from vnetsim.experiment import PLUGIN_KEYS
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import at_folder, code_file, short_name
from vnetsim.runs.manifest import sha256_of
from vnetsim.scenario.settings_file import Override, leaves
from vnetsim.scenario.shipped import shipped_scenarios
from vnetsim.storage.bench_track import BenchControl, BenchTask, Track
from vnetsim.storage.records import BenchRecord, BenchSeed, RecordedEntry
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.structure import build_record, read_toml, structure
from vnetsim.storage.tables import REALS, TEXT, WINDOWS
from vnetsim.study.expansion import Expansion
from vnetsim.study.levels import LEARNING, error_context, keys_of
from vnetsim.study.plan import Plan
from vnetsim.study.request import merge

BASELINE = "baseline"  # name of the arm that others are compared with
COUNTED = ("commits", "bytes", "energy_j")
"""Fields of a row that depend on which vehicles were invited."""
_METRIC = ("untrained", "half", "final")  # fields of a row that contain the metric
_SAME = 1e-9  # largest relative difference of times, bytes and energy between machines, by rounding
_LARGEST_ROW_BYTES = 200_000
_MOST = 1e18  # no count or measurement is larger


def bench_folder() -> Path:
    """Return the folder of the shipped tracks; its subfolder ``rows`` has the shipped rows."""
    return shipped_scenarios() / "bench"


def track_names() -> list[str]:
    """Return the names of the shipped tracks, sorted."""
    return sorted(path.stem for path in bench_folder().glob("*.toml"))


def load_track(name: str, size: str = "small") -> Track:
    """Return a shipped track at a size; InputError if track or size does not exist, or its file is malformed."""
    if name not in track_names():
        raise unknown_name("track", name[:60], track_names())
    path = bench_folder() / f"{name}.toml"
    values = read_toml(path)
    with error_context(str(path)):
        sizes = structure(values, Track, "").sizes
        if size not in sizes:
            raise unknown_name("size", size, sizes)
        track = structure(merge({**values, "sizes": {}}, sizes[size]), Track, "")
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return replace(track, name=name, size=size, sha256=digest)


def _refuse_fixed(track: Track, task: str, keys: Iterable[str]) -> None:
    """Raise InputError for the first of the dotted ``keys`` that the task sets or the track does not leave open."""
    fixed = {".".join(path) for path in leaves(track.tasks[task].settings)}
    for key in keys:
        if key in fixed or not any(fnmatch.fnmatchcase(key, pattern) for pattern in track.open):
            raise InputError(
                f"{key:.60}: fixed by track {track.words}, so that rows compare; an arm chooses "
                f"{', '.join(track.open)}, without what its task fixes."
            )


def refuse_other_traffic(track: Track, seeds: Sequence[int], folder: Path, recorded: Sequence[RecordedEntry]) -> None:
    """Raise InputError if one of ``recorded``, an entry per seed, differs from the track's traffic of that seed."""
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
    row: BenchRecord  # its row, without results
    files: Mapping[str, str]  # its plug-ins from files, which the row does not name, as ``FILE.py:CLASS`` by setting

    @property
    def task(self) -> BenchTask:
        """The track's task that this arm is for: baseline, settings, metric."""
        return self.track.tasks[self.row.task]

    @property
    def control(self) -> BenchControl | None:
        """The control of the track that this arm is; None for an arm of the user's."""
        return next((one for one in self.track.controls if one.name == self.row.control), None)

    def plan(self, seeds: Sequence[int], options: Sequence[Override] = (), *, timing_only: bool = False) -> Plan:
        """Return a plan: at each seed a cell of ``BASELINE`` and one of the arm, or only the former if both are equal.

        ``options`` are settings of all cells; with ``timing_only`` none is trained. InputError: a learner or setting is
        wrong, or a file of the track changed.
        """
        track = self.track
        for name, digest in track.files.items():
            if sha256_of(bench_folder() / name) != digest:
                raise InputError(
                    f"{bench_folder() / name}: not the file that track {track.words} was frozen with; put the shipped "
                    "one back, or install vnetsim again."
                )
        own = {"learner": self.row.learner, **self.row.settings, **self.files}
        if (one := self.control) is not None:
            flat = leaves(one.settings) | leaves(one.learning, LEARNING)
            learner = one.learner or self.task.baseline  # not the row's, which may be anybody's
            own = {"learner": learner, **{".".join(path): value for path, value in flat.items()}}
        base = {"learner": self.task.baseline}
        arms = [self._make_table(BASELINE, base)] + ([self._make_table(self.row.arm, own)] if own != base else [])
        values = {
            "title": f"{track.words}, {track.size}: {self.row.arm}",
            "scenario": track.scenario,
            "seeds": list(seeds),
            "traffic_seeds": list(range(len(track.windows))),
            "against": BASELINE,
            "settings": merge(track.settings, self.task.settings),
            "arms": arms,
        }
        where = f"{bench_folder() / track.name}.toml (size {track.size})"
        return Expansion(
            values, options, where=where, folder=bench_folder(), trust=False, least=1, timing_only=timing_only
        ).plan(None)

    def _make_table(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return an arm's ``settings`` by dotted key as a table of ``[[arms]]``, with the task's for its learner."""
        known = keys_of(at_folder(settings["learner"], bench_folder()))
        learning = {key: value for key, value in self.task.learning.items() if key in known}
        table: dict[str, Any] = {"name": name, "learner": settings["learner"], "settings": {}, "learning": learning}
        for key, value in settings.items():
            if key.startswith("learning."):
                learning[key.removeprefix("learning.")] = value
            elif key != "learner":
                table["settings"][key] = value
        return table


def asked_arm(track: Track, given: Mapping[str, Any], control: str | None = None) -> BenchArm:
    """Return the arm for a user's settings by dotted key (``given``), or for a control of the track.

    The learner decides the task; without one it is the baseline of the track's first task. InputError: learner or
    control do not exist, a control comes with settings, the track lacks the learner's task, or it fixes a setting.
    """
    plugins = {key: name for key, name in given.items() if key in PLUGIN_KEYS and isinstance(name, str)}
    located = {key: at_folder(name, Path.cwd()) for key, name in plugins.items()}
    settings = {**given, **located}
    if control is not None:
        known = {one.name: one for one in track.controls}
        if control not in known:
            raise unknown_name("control", control, known, where=f"track {track.name}")
        if given:
            raise InputError(f"--control {control}: an arm of the track, which says everything; give nothing else.")
        task, label = known[control].task, control
        learner = known[control].learner or track.tasks[task].baseline
    else:
        learner = settings.pop("learner", next(iter(track.tasks.values())).baseline)
        task = LEARNERS.find(learner).task
        if task not in track.tasks:
            tasks = ", ".join(track.tasks)
            raise InputError(f"{short_name(learner)}: its task is '{task}'; the tasks of {track.name} are {tasks}.")
        _refuse_fixed(track, task, settings)
        already = {".".join(path): value for path, value in leaves(track.settings).items()}
        settings = {key: value for key, value in settings.items() if already.get(key) != value}
        label = _make_label(learner, settings)
    files = {key: name for key, name in located.items() if code_file(name)}
    row = BenchRecord(
        track=track.name,
        version=track.version,
        track_sha256=track.sha256,
        size=track.size,
        task=task,
        arm=label,
        learner="" if "learner" in files else learner,
        seeds=[],
        settings={key: value for key, value in settings.items() if key not in files},
        code=_hash_files(files),
        control=control or "",
    )
    return BenchArm(track=track, row=row, files=files)


def _hash_files(plugins: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of the file of each plug-in, by setting; "" for a plug-in without a file."""
    return {key: sha256_of(file) if (file := code_file(name)) else "" for key, name in plugins.items()}


def _make_label(learner: str, settings: Mapping[str, Any]) -> str:
    """Return the learner's name and each setting as KEY=VALUE; of plug-ins and handover.policy only the value."""
    words = [short_name(learner)]
    for key, value in settings.items():
        text = short_name(value) if isinstance(value, str) else json.dumps(value, default=str)
        words.append(text if key in {*PLUGIN_KEYS, "handover.policy"} else f"{key.split('.', 1)[-1]}={text}")
    return ", ".join(words)


def row_file(row: BenchRecord) -> str:
    """Return the path of a row's file, relative to the folder of rows."""
    return f"{row.track}/{path_name(row.size, row.task, *row.arm.split(', '))}.json"


def read_row(path: Path) -> tuple[BenchRecord, Track]:
    """Return a row and its track; code that it names is not run. InputError: no row, or not of the installed track."""
    if not path.is_file():
        raise InputError(f"{path}: no such file.")
    try:
        content = path.read_bytes()
        value = json.loads(content) if len(content) <= _LARGEST_ROW_BYTES else None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a row of a benchmark, which is a JSON file of some kilobytes.")
    row = build_record(path, value, BenchRecord)
    with error_context(str(path)):
        track = load_track(row.track, row.size)
        if (row.version, row.track_sha256) != (track.version, track.sha256):
            raise InputError(
                f"made on another track than {track.words} as it is here (its hash is {row.track_sha256[:12]}, not "
                f"{track.sha256[:12]}); run it again with vnetsim bench."
            )
        if row.task not in track.tasks:
            raise unknown_name("task", row.task[:60], track.tasks)
        if [(one.seed, one.traffic) for one in row.seeds] != list(enumerate(track.windows)):
            raise InputError(f"seeds: expected 0 to {len(track.windows) - 1}, each once, with the track's traffic.")
        controls = {one.name for one in track.controls if one.task == row.task}
        if row.control and row.control not in controls:
            raise unknown_name("control", row.control[:60], controls)
        if not row.control:
            _refuse_fixed(track, row.task, [*row.settings, *(row.code.keys() - {"learner"})])
        _refuse_impossible(row, track.tasks[row.task].unit)
    return row, track


def _refuse_impossible(row: BenchRecord, unit: str) -> None:
    """Raise InputError for a value that no run can have, as NaN, or a share above 1 with ``unit`` %; None passes."""
    metric = {"%": (0.0, 1.0), "RMSE": (0.0, _MOST)}.get(unit, (-_MOST, _MOST))
    bounds = dict.fromkeys(_METRIC, metric) | dict.fromkeys(COUNTED, (0.0, _MOST)) | {"span_s": (math.ulp(0.0), _MOST)}
    for one in row.seeds:
        for who, values in (("arm", one.row), ("baseline", one.baseline)):
            for name, (low, high) in {**bounds, "time_to_target_s": (0.0, values.span_s)}.items():
                value = getattr(values, name)
                if value is not None and not low <= value <= high:
                    raise InputError(f"seeds: seed {one.seed} of the {who}: {name} is {value!s:.40}, as in no run.")


def arm_of_row(row: BenchRecord, track: Track, given: Mapping[str, str]) -> BenchArm:
    """Return the arm of a row, to run it again; ``given`` has ``FILE.py:CLASS`` of each plug-in of a file, by setting.

    InputError: one of these is missing, is not the row's, or is another file, or the row itself names code.
    """
    for key, value in {"learner": row.learner, **row.settings}.items():
        if not row.control and key in PLUGIN_KEYS and (not isinstance(value, str) or code_file(value) is not None):
            raise InputError(f"{key:.40}: names code, which a row may not.")
    files = {key: at_folder(name, Path.cwd()) for key, name in given.items()}
    found = _hash_files(files)
    if found != row.code:
        if other := [key for key in found if found.keys() == row.code.keys() and found[key] != row.code[key]]:
            raise InputError(f"{given[other[0]]}: not the code that the row was made with.")
        asked = ", ".join(f"{'--' if key == 'learner' else '--set '}{key:.40}=FILE.py:CLASS" for key in row.code)
        raise InputError(f"a row brings no code; give the files that this one was made with: {asked or 'none'}.")
    return BenchArm(track=track, row=row, files=files)


def differences(
    ours: Sequence[BenchSeed], theirs: Sequence[BenchSeed], who: str, tolerance: float, follows: Collection[str] = ()
) -> Iterator[tuple[int | None, str, bool]]:
    """Yield (seed, words, fault) for each value of ``who``, ``row`` (the arm) or ``baseline``, that differs.

    ``ours`` and ``theirs`` have the same seeds in the same order. A fault is a span or count, none in ``follows``, that
    differs by more than rounding, or a mean of the metric (its seed is None) that differs by over ``tolerance``.
    """
    of = "of the arm" if who == "row" else "of the baseline"
    both = ([asdict(getattr(one, who)) for one in seeds] for seeds in (ours, theirs))
    pairs = list(zip(*both, strict=True))
    for one, (mine, other) in zip(ours, pairs, strict=True):
        for name in (name for name in mine if mine[name] != other[name]):
            close = None not in (mine[name], other[name]) and math.isclose(mine[name], other[name], rel_tol=_SAME)
            fault = not close and name in {"span_s", *COUNTED}.difference(follows)
            yield one.seed, f"{name} {of} is {mine[name]}, not {other[name]}", fault
    for name in _METRIC:
        mean, expected = (fmean(one[name] for one in values) for values in zip(*pairs, strict=True))
        if mean != expected:
            fault = abs(mean - expected) > tolerance
            how = f"{'more than' if fault else 'at most'} {tolerance:g} apart"
            yield None, f"{name} {of} is {mean:.4g} in the mean, not {expected:.4g}, {how}", fault


def shipped_seeds(track: Track, task: str) -> Sequence[BenchSeed]:
    """Return the seeds of the first shipped row of a task, as all have the same baseline; empty if there is no row."""
    files = sorted((bench_folder() / "rows" / track.name).glob(f"{path_name(track.size, task)}-*.json"))
    return next((read_row(path)[0].seeds for path in files), [])
