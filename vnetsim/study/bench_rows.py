"""Read rows of a benchmark from others, check them against their track, and run them again; rows contain no code."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.paths import path_name
from vnetsim.experiment import PLUGIN_KEYS
from vnetsim.plugins import code_file
from vnetsim.storage.bench_track import Track
from vnetsim.storage.records import BenchRecord, BenchValues
from vnetsim.storage.structure import build_record
from vnetsim.study.bench import BenchArm, asked_arm, bench_folder, load_track, refuse_closed
from vnetsim.study.levels import error_context

SAME = 1e-9
"""Largest relative difference of times, bytes and energy between machines, by rounding."""

METRIC = ("untrained", "half", "final")
"""Fields of a row that contain the metric."""

COUNTED = ("commits", "bytes", "energy_j")
"""Fields of a row that depend on which vehicles were invited."""

_LARGEST_ROW_BYTES = 200_000
_MOST = 1e18  # no count or measurement is larger


def row_file(row: BenchRecord) -> str:
    """Return the path of a row's file, relative to the folder of rows."""
    return f"{row.track}/{path_name(row.size, row.task, *row.arm.split(', '))}.json"


def read_row(path: Path) -> tuple[BenchRecord, Track]:
    """Return a row and its track, checked against each other, without running what it names; InputError for a fault."""
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
        return row, _track_of(row)


def _track_of(row: BenchRecord) -> Track:
    """Load a row's track and return it; raise InputError if the row does not match it."""
    track = load_track(row.track, row.size)
    if (row.version, row.track_sha256) != (track.version, track.sha256):
        raise InputError(
            f"made on another track than {track.words} as it is here (its hash is {row.track_sha256[:12]}, not "
            f"{track.sha256[:12]}); run it again with vnetsim bench."
        )
    if row.task not in track.tasks:
        raise unknown_name("task", row.task[:60], track.tasks)
    if [(one.seed, one.traffic) for one in row.seeds] != list(enumerate(track.windows)):
        raise InputError(f"seeds: expected 0 to {len(track.windows) - 1}, each once, with the traffic of the track.")
    controls = {one.name for one in track.controls if one.task == row.task}
    if row.control and row.control not in controls:
        raise unknown_name("control", row.control[:60], controls)
    if not row.control:
        refuse_closed(track, row.task, row.settings)
    _refuse_impossible(row, track.tasks[row.task].unit)
    _refuse_other_baseline(row, track)
    return track


def _refuse_impossible(row: BenchRecord, unit: str) -> None:
    """Refuse a row with a value that no run can have; ``unit`` is the metric's, ``%`` means a fraction in [0, 1]."""
    metric = {"%": (0.0, 1.0), "RMSE": (0.0, _MOST)}.get(unit, (-_MOST, _MOST))
    bounds = dict.fromkeys(METRIC, metric) | dict.fromkeys(COUNTED, (0.0, _MOST)) | {"span_s": (math.ulp(0.0), _MOST)}
    for one in row.seeds:
        for who, values in (("arm", one.row), ("baseline", one.baseline)):
            for name, (low, high) in {**bounds, "time_to_target_s": (0.0, values.span_s)}.items():
                value = getattr(values, name)
                if value is not None and not low <= value <= high:
                    raise InputError(f"seeds: seed {one.seed} of the {who}: {name} is {value!s:.40}, as in no run.")


def differences(mine: BenchValues, other: BenchValues) -> Iterator[tuple[str, Any, Any, bool]]:
    """Yield name, both values, and whether it is a fault (time or counts, beyond rounding), of unequal fields."""
    for name, value in asdict(mine).items():
        there = getattr(other, name)
        if value != there:
            close = None not in (value, there) and math.isclose(value, there, rel_tol=SAME)
            yield name, value, there, not close and name in ("span_s", *COUNTED)


def differing_means(mine: Sequence[BenchValues], other: Sequence[BenchValues]) -> Iterator[tuple[str, float, float]]:
    """Yield the name, and both means over the seeds, of each field in ``METRIC`` whose means differ."""
    for name in METRIC:
        mean, other_mean = (fmean(getattr(one, name) for one in values) for values in (mine, other))
        if mean != other_mean:
            yield name, mean, other_mean


def _refuse_other_baseline(row: BenchRecord, track: Track) -> None:
    """Refuse a row whose baseline is not the shipped rows': in counts, times, or means by more than the tolerance."""
    shipped = _shipped_baseline(bench_folder() / "rows" / track.name, track.size, row.task, track.sha256)
    if shipped is None:
        return
    where = f"seeds: the baseline is not that of track {track.words}"
    mine = [one.baseline for one in row.seeds]
    for seed, (one, there) in enumerate(zip(mine, shipped, strict=True)):
        for name, value, expected, more in differences(one, there):
            if more:
                raise InputError(f"{where}: {name} of seed {seed} is {value}, not {expected}; run the row again.")
    tolerance = track.tasks[row.task].tolerance
    for name, mean, shipped_mean in differing_means(mine, shipped):
        if abs(mean - shipped_mean) > tolerance:
            raise InputError(
                f"{where}: {name} is {mean:.4g} in the mean, more than {tolerance:g} from {shipped_mean:.4g}; run the "
                "row again."
            )


@cache
def _shipped_baseline(folder: Path, size: str, task: str, track_sha256: str) -> Sequence[BenchValues] | None:
    """Return the baseline's values at each seed from the first shipped row of the task; None if there is no row."""
    for path in sorted(folder.glob(f"{path_name(size, task)}-*.json")):
        row = build_record(path, json.loads(path.read_bytes()), BenchRecord)
        if (row.track_sha256, row.size, row.task) == (track_sha256, size, task):
            return [one.baseline for one in row.seeds]
    return None


def arm_of_row(row: BenchRecord, track: Track, given: Mapping[str, str]) -> BenchArm:
    """Return the arm of a row from ``read_row``, to run it again; InputError if a plug-in is missing or not the row's.

    A row contains no code: ``given`` has ``FILE.py:CLASS`` of each plug-in that is not part of vnetsim, by setting.
    """
    if row.control:
        return asked_arm(track, {}, None, row.control)
    for key in row.code:
        if key not in given:
            option = "--learner FILE.py:CLASS" if key == "learner" else f"--set {key}=FILE.py:CLASS"
            raise InputError(f"made with code of its own for {key:.40}, which a row does not bring; give it: {option}.")
    settings = {**row.settings, "learner": row.learner, **{key: given[key] for key in row.code}}
    for key, value in settings.items():
        if key in PLUGIN_KEYS and key not in row.code and (not isinstance(value, str) or code_file(value) is not None):
            raise InputError(f"{key:.40}: names code, which a row may not.")
    learner = settings.pop("learner")
    arm = asked_arm(track, settings, learner, None)
    for key, digest in row.code.items():
        if arm.code.get(key) != digest:
            raise InputError(f"{given[key]}: not the code that the row was made with.")
    return replace(arm, label=row.arm)
