"""What the records of run directories and comparisons hold: a key that is there has the type that is read from it.

Keys that are missing are a matter of the reader, who says with ``need`` which it reads; unknown keys are no fault, so
that folders of other versions can be told as such.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from vnetsim.errors import InputError
from vnetsim.storage.comparison import Interval
from vnetsim.storage.toml_text import DEEPEST

LARGEST = 2**63 - 1
"""Whole numbers beyond it are none that vnetsim writes: seeds have up to 63 bits."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """Stands for a number that need not be finite, such as the loss of a training that failed."""


@dataclass(frozen=True, kw_only=True)
class RsuEntry:
    """An RSU of ``manifest.json``."""

    id: str
    x_m: float
    y_m: float
    range_m: float


@dataclass(frozen=True, kw_only=True)
class TrafficEntry:
    """The traffic of ``manifest.json``."""

    kind: str
    begin_s: float
    end_s: float | None
    step_s: float | None
    seed: int | None
    command: list[str]
    version: str
    inputs: list[str]
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class SeriesEntry:
    """A series of ``manifest.json``."""

    name: str
    label: str
    unit: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class ExchangeEntry:
    """The exchange of a learner's cost in ``manifest.json``."""

    before_training: bool
    mutual: bool
    send_bytes: float
    work_flop: float
    return_bytes: float


@dataclass(frozen=True, kw_only=True)
class CostEntry:
    """A learner's cost in ``manifest.json``."""

    download_bytes: float
    upload_bytes: float
    work_flop: float
    exchange: ExchangeEntry | None


@dataclass(frozen=True, kw_only=True)
class LearnerEntry:
    """The learner of ``manifest.json``."""

    name: str
    task: str
    paper: str
    encoder: str
    parameters: int
    image_shape: list[int]
    facts: dict[str, str]
    settings: dict[str, Any]
    cost: CostEntry


@dataclass(frozen=True, kw_only=True)
class ManifestSchema:
    """``manifest.json``."""

    vnetsim: str
    kind: Literal["run", "mobility"]
    command: list[str]
    created: str | None
    finished: str | None
    status: Literal["running", "finished", "interrupted", "failed"]
    ended_by: str | None
    checksums: str
    seed: int
    traffic: TrafficEntry
    rsus: list[RsuEntry]
    inputs: dict[str, str]
    host: dict[str, str | int | None]
    packages: dict[str, str]
    device: dict[str, Any]
    learner: LearnerEntry
    learner_defaults: dict[str, Any]
    series: list[SeriesEntry]
    exchange: SeriesEntry | None
    time_s: float | None
    wall_s: dict[str, float]
    peak_memory_bytes: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class RoundEntry:
    """A finished round of ``progress.json``."""

    participants: str
    rejected: list[int]
    weights: list[Number | None]
    losses: list[Number]
    metrics: dict[str, Number]
    exchanges: list[list[str | Number]]


@dataclass(frozen=True, kw_only=True)
class ProgressSchema:
    """``checkpoint/progress.json``."""

    initial: dict[str, Number]
    rounds: list[RoundEntry]
    blocks: list[str]
    state: str
    silos: dict[str, str | list[str]]


@dataclass(frozen=True, kw_only=True)
class RoundsSchema:
    """``checkpoint/rounds-000000.json`` and so on."""

    rounds: list[RoundEntry]


@dataclass(frozen=True, kw_only=True)
class CellEntry:
    """A cell of ``comparison.json``."""

    folder: str
    arm: str
    condition: str
    learner: str
    seed: int
    traffic: str


@dataclass(frozen=True, kw_only=True)
class RecordedEntry:
    """A traffic of ``comparison.json``."""

    folder: str
    settings: dict[str, Any]
    sha256: str


@dataclass(frozen=True, kw_only=True)
class SkippedEntry:
    """What ``comparison.json`` says was left out."""

    arm: str
    condition: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ChosenRsuEntry:
    """The RSU that ``comparison.json`` says was chosen for all traffic whose scenario, a path, has none."""

    id: str
    x_m: float
    y_m: float
    note: str
    scenarios: list[str]


@dataclass(frozen=True, kw_only=True)
class ComparisonSchema:
    """``comparison.json``."""

    vnetsim: str
    checksums: str
    title: str
    notes: list[str]
    command: list[str]
    traffic: list[RecordedEntry]
    chosen_rsu: ChosenRsuEntry
    cells: list[CellEntry]
    interval: Interval
    against: str
    arm_settings: list[str]
    last_evaluations: int
    last_evaluations_before: list[int]
    skipped: list[SkippedEntry]
    failed: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class GaussianEntry:
    """The table ``gaussian`` of ``experiment.toml``."""

    v_min_kmh: float
    v_max_kmh: float


@dataclass(frozen=True, kw_only=True)
class SilosEntry:
    """The table ``silos`` of ``experiment.toml``."""

    count: int


@dataclass(frozen=True, kw_only=True)
class ExperimentSchema:
    """``experiment.toml``, as far as a report reads it; the program itself reads it as settings, which are checked."""

    scenario: str
    learner: str
    rounds: int
    camera: dict[str, float]
    gaussian: GaussianEntry
    silos: SilosEntry
    traffic: dict[str, Any]
    round: dict[str, Any]
    link: dict[str, Any]
    exchange: dict[str, Any]
    blur: dict[str, Any]
    learning: dict[str, Any]


SCHEMAS: Mapping[str, type] = {
    "experiment.toml": ExperimentSchema,
    "manifest.json": ManifestSchema,
    "progress.json": ProgressSchema,
    "comparison.json": ComparisonSchema,
}


def check(path: Path, value: Any, schema: type | None = None) -> dict[str, Any]:
    """Return the content of a JSON file of this name, when all of it has the types that are read.

    Args:
        path: the file.
        value: its content.
        schema: what it must be; None for that of the file's name.

    Raises:
        InputError: names file and key.
    """
    try:
        _check_anything(value, "", 0)
        _check(value, schema or SCHEMAS[path.name], "")
    except _FaultError as fault:
        raise InputError(f"{path}: damaged: {fault}") from None
    result: dict[str, Any] = value
    return result


def need(path: Path, value: Mapping[str, Any], *keys: str) -> None:
    """Refuse a file of the right types that lacks what its reader needs.

    Args:
        path: the file.
        value: its content, as ``check`` returned it.
        keys: dotted; ``*`` stands for every entry of a list. Nothing is asked of the entries of a list that is missing.

    Raises:
        InputError: names file and key.
    """
    for key in keys:
        if (place := _missing(value, tuple(key.split(".")), ())) is not None:
            raise InputError(f"{path}: damaged: '{'.'.join(place)}' is missing.")


def _missing(value: Any, key: tuple[str, ...], place: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the place of the first value that is missing or null, None where there is none."""
    if not key:
        return place if value is None else None
    if key[0] != "*":
        return _missing((value or {}).get(key[0]), key[1:], (*place, key[0]))
    found = (_missing(item, key[1:], (*place, str(index))) for index, item in enumerate(value or ()))
    return next((at for at in found if at is not None), None)


class _FaultError(Exception):
    """What is wrong, and at which key."""


def _check_anything(value: Any, key: str, depth: int) -> None:
    """Check what holds of every value, also of those that no schema tells of."""
    if depth > DEEPEST:
        raise _FaultError(f"'{key.lstrip('.')[:60]}' is nested too deeply.")
    if isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            _check_anything(item, f"{key}.{name}" if depth < 3 else key, depth + 1)
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise _FaultError(f"'{key.lstrip('.')}' is a whole number of more than 64 bits.")


def _check(value: Any, kind: Any, key: str) -> None:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        _check_any(value, arguments, key)
    elif origin is list:
        _expect(isinstance(value, list), key, "a list", value)
        for index, item in enumerate(value):
            _check(item, arguments[0], f"{key}.{index}")
    elif origin is dict:
        _expect(isinstance(value, dict), key, "an object", value)
        for name, item in value.items():
            _check(name, str, f"{key}.{name}")
            _check(item, arguments[1], f"{key}.{name}")
    elif kind is not Number and dataclasses.is_dataclass(kind):
        _expect(isinstance(value, dict), key, "an object", value)
        for name, hint in get_type_hints(kind).items():
            if name in value:
                _check(value[name], hint, f"{key}.{name}" if key else name)
    elif kind is not Any:
        _check_plain(value, kind, key)


def _check_plain(value: Any, kind: Any, key: str) -> None:
    if get_origin(kind) is Literal:
        _expect(value in get_args(kind), key, f"one of {', '.join(get_args(kind))}", value)
    else:
        words, holds = _PLAIN[kind]
        _expect(holds(value), key, words, value)


def _check_any(value: Any, kinds: tuple[Any, ...], key: str) -> None:
    """Check against several types; the fault told is that of the first."""
    first: _FaultError | None = None
    for kind in kinds:
        try:
            _check(value, kind, key)
        except _FaultError as fault:
            first = first or fault
        else:
            return
    assert first is not None
    raise first


def _expect(holds: bool, key: str, words: str, value: Any) -> None:
    if not holds:
        shown = repr(value)[:60]
        where = f"'{key}' is missing or of the wrong type: " if key else ""
        raise _FaultError(f"{where}expected {words}{'' if key else ' at the top'}, got {shown}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not abs(value) > 1e300


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


_PLAIN: Mapping[Any, tuple[str, Any]] = {
    str: ("a string", _is_text),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: (
        "a whole number",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST,
    ),
    float: ("a finite number", lambda value: _is_number(value) and math.isfinite(value)),
    Number: ("a number", lambda value: _is_number(value) or (isinstance(value, float))),
    NoneType: ("null", lambda value: value is None),
}
