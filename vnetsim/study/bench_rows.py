"""Rows of a benchmark that were received: read, held to their track, run again. A row is data, and brings no code."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.paths import path_name
from vnetsim.experiment import PLUGIN_KEYS
from vnetsim.plugins import code_file
from vnetsim.storage.records import BenchRecord
from vnetsim.storage.structure import structured
from vnetsim.study.bench import BenchArm, Track, asked_arm, load_track, track_names
from vnetsim.study.levels import placed

_LARGEST_ROW_BYTES = 200_000


def row_file(row: BenchRecord) -> str:
    """Return the name of a row's file, from the folder of the rows."""
    return f"{row.track}/{path_name(row.size, row.task, *row.arm.split(', '))}.json"


def read_row(path: Path) -> tuple[BenchRecord, Track]:
    """Return a row, held to its track, and the track. Nothing that it names is run or opened.

    Raises:
        InputError: it is no row, or not of the track as it is here; seeds are missing; in one line.
    """
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
    row = structured(path, value, BenchRecord)
    with placed(str(path)):
        return row, _track_of(row)


def _track_of(row: BenchRecord) -> Track:
    """Return the track of a row that fits it.

    Raises:
        InputError: it does not.
    """
    if row.track not in track_names():
        raise unknown_name("track", row.track[:60], track_names())
    track = load_track(row.track, row.size)
    if (row.version, row.track_sha256) != (track.tables.version, track.sha256):
        raise InputError(
            f"made on another track than {track.name} {track.tables.version} as it is here (its hash is "
            f"{row.track_sha256[:12]:.12}, not {track.sha256[:12]}); run it again with vnetsim bench."
        )
    if row.task not in track.tables.tasks:
        raise unknown_name("task", row.task[:60], track.tables.tasks)
    found = [(one.seed, one.traffic) for one in row.seeds]
    if found != list(enumerate(track.tables.windows)):
        raise InputError(f"seeds: expected 0 to {len(track.seeds) - 1}, each once, with the traffic of the track.")
    controls = {one.name for one in track.tables.controls if one.task == row.task}
    if row.control and row.control not in controls:
        raise unknown_name("control", row.control[:60], controls)
    if not row.control:
        track.refuse_closed(row.task, row.settings)
    for one in row.seeds:
        for values in (one.row, one.baseline):
            numbers = [value for value in asdict(values).values() if value is not None]
            whole = all(map(math.isfinite, numbers)) and values.span_s > 0
            if not whole or not 0 <= (values.time_to_target_s or 0) <= values.span_s:
                raise InputError(f"seeds: seed {one.seed} has values that no run has.")
    return track


def arm_of_row(row: BenchRecord, track: Track, given: Mapping[str, str]) -> BenchArm:
    """Return the arm of a row, to be run again.

    Args:
        row: read by ``read_row``.
        track: its track.
        given: by setting, the file and class of each code of the row that is not vnetsim's; a row brings none.

    Raises:
        InputError: such code is missing, or is not what the row was made with.
    """
    if row.control:
        return asked_arm(track, {}, None, row.control)
    for key in row.code:
        if key not in given:
            option = "--learner FILE.py:CLASS" if key == "learner" else f"--set {key}=FILE.py:CLASS"
            raise InputError(f"made with code of its own for {key:.40}, which a row does not bring; give it: {option}.")
    named = {key: str(name) for key, name in given.items() if key in row.code}
    settings = {key: value for key, value in row.settings.items() if key not in row.code}
    chosen = {key: name for key, name in named.items() if key != "learner"}
    for key, value in settings.items():
        if key in PLUGIN_KEYS and (not isinstance(value, str) or code_file(value) is not None):
            raise InputError(f"{key:.40}: names code, which a row may not.")
    if "learner" not in row.code and code_file(row.learner) is not None:
        raise InputError("learner: names code, which a row may not.")
    arm = asked_arm(track, {**settings, **chosen}, named.get("learner", row.learner), None)
    for key, digest in row.code.items():
        if arm.code.get(key) != digest:
            raise InputError(f"{named[key]}: not the code that the row was made with.")
    return replace(arm, label=row.arm)
