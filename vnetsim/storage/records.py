"""What the records of run directories and comparisons hold, and how any record becomes a dataclass, or one line.

A record may have been received, so its values are held to their types exactly as they stand: nothing is converted, and
what is missing or of another type is named with its key. Keys that are not told of here are passed over: that a folder
is of another version is said by its number, ``FORMAT``, alone.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import cattrs
from cattrs.cols import list_structure_factory
from cattrs.errors import (
    AttributeValidationNote,
    BaseValidationError,
    ForbiddenExtraKeysError,
    IterableValidationNote,
)
from cattrs.strategies import configure_union_passthrough

from vnetsim.errors import InputError, unknown_name
from vnetsim.storage.comparison import Interval

T = TypeVar("T")

FORMAT = 1
"""Stands in every manifest and comparison; raised with every change after which the older ones cannot be read."""

DEEPEST = 50
"""Tables or lists within each other; settings have three, records six."""

LARGEST = 2**63 - 1
"""Whole numbers beyond it are none that vnetsim writes: seeds have up to 63 bits."""

AnyFloat = Annotated[float, "need not be finite"]
"""A number that need not be finite, such as the loss of a training that failed."""


@dataclass(frozen=True, kw_only=True)
class RsuEntry:
    """An RSU of ``manifest.json``."""

    id: str
    x_m: float
    y_m: float
    range_m: float
    environment: Literal["", "urban", "highway"] = ""


@dataclass(frozen=True, kw_only=True)
class TrafficEntry:
    """The traffic of ``manifest.json``."""

    kind: str
    begin_s: float
    end_s: float | None = None
    step_s: float | None = None
    seed: int | None = None
    command: list[str] = field(default_factory=list)
    version: str = ""
    inputs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    vehicles: str = ""


@dataclass(frozen=True, kw_only=True)
class SeriesEntry:
    """A series of ``manifest.json``."""

    name: str
    label: str
    unit: str
    caption: str
    group: str = ""
    result: bool = True


@dataclass(frozen=True, kw_only=True)
class RatesEntry:
    """How often ``manifest.json`` says that rates were looked up, and how many of them were the cap."""

    looked_up: int
    capped: int


@dataclass(frozen=True, kw_only=True)
class RadioEntry:
    """The radio of ``manifest.json``; empty where it has no cap."""

    cap_bps: float | None = None
    links: RatesEntry | None = None
    sidelinks: RatesEntry | None = None


@dataclass(frozen=True, kw_only=True)
class PluginEntry:
    """A plug-in of ``manifest.json``."""

    name: str


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
    exchange: ExchangeEntry | None = None


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
class ManifestRecord:
    """``manifest.json``; what only a run that learns, or one that came to an end, has is empty or null elsewhere."""

    vnetsim: str
    kind: Literal["run", "mobility"]
    status: Literal["running", "finished", "interrupted", "failed"]
    seed: int
    traffic: TrafficEntry
    rsus: list[RsuEntry]
    inputs: dict[str, str]
    changed_plugins: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    created: str | None = None
    finished: str | None = None
    ended_by: str | None = None
    host: dict[str, str | int | None] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    learner: LearnerEntry | None = None
    learner_defaults: dict[str, Any] = field(default_factory=dict)
    series: list[SeriesEntry] = field(default_factory=list)
    exchange: SeriesEntry | None = None
    time_s: float | None = None
    wall_s: dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: dict[str, float] = field(default_factory=dict)
    radio: RadioEntry = RadioEntry()
    plugins: dict[str, PluginEntry] = field(default_factory=dict)


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
class ComparisonRecord:
    """``comparison.json``; while its traffic is recorded, it tells of that alone."""

    vnetsim: str
    traffic: list[RecordedEntry]
    chosen_rsu: ChosenRsuEntry | None = None
    title: str = ""
    notes: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    cells: list[CellEntry] = field(default_factory=list)
    interval: Interval = "sign-flip"
    against: str = ""
    arm_settings: list[str] = field(default_factory=list)
    last_evaluations: int = 1
    last_evaluations_before: list[int] = field(default_factory=list)
    skipped: list[SkippedEntry] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GaussianEntry:
    """The table ``gaussian`` of ``experiment.toml``."""

    v_min_kmh: float = 0.0
    v_max_kmh: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SilosEntry:
    """The table ``silos`` of ``experiment.toml``."""

    count: int = 0


@dataclass(frozen=True, kw_only=True)
class WarmupEntry:
    """The table ``traffic`` of ``experiment.toml``."""

    warmup_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RoundEntry:
    """The table ``round`` of ``experiment.toml``."""

    max_staleness: int = 0
    invited: int = 8


@dataclass(frozen=True, kw_only=True)
class BlurEntry:
    """The table ``blur`` of ``experiment.toml``."""

    threshold_kmh: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ExperimentRecord:
    """``experiment.toml``, as far as a page reads it; the program itself reads it as settings, which are checked."""

    scenario: str = ""
    learner: str = ""
    rounds: int = 0
    camera: dict[str, float] = field(default_factory=dict)
    gaussian: GaussianEntry | None = None
    silos: SilosEntry | None = None
    traffic: WarmupEntry = WarmupEntry()
    round: RoundEntry = RoundEntry()
    link: dict[str, Any] = field(default_factory=dict)
    exchange: dict[str, Any] = field(default_factory=dict)
    blur: BlurEntry = BlurEntry()
    learning: dict[str, Any] = field(default_factory=dict)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML document.

    Raises:
        ValueError: no TOML, or nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def structured(path: Path, value: Any, kind: type[T]) -> T:
    """Return the record that stands in a file.

    Args:
        path: the file.
        value: what JSON or TOML says that it holds.
        kind: dataclass of what it must hold.

    Raises:
        InputError: names file and key.
    """
    try:
        _refuse_extremes(value, (), 0)
        return _records().structure(value, kind)
    except InputError as fault:
        raise InputError(f"{path}: damaged: {fault}") from None
    except Exception as error:  # noqa: BLE001 - of whatever kind, it is what a hook or a constructor said of the value
        raise InputError(f"{path}: damaged: {first_fault(error, (), value)}") from None


def _refuse_extremes(value: Any, place: tuple[str, ...], depth: int) -> None:
    """Refuse what no page could hold, also in what no dataclass tells of."""
    if depth > DEEPEST:
        raise InputError(f"{'.'.join(place)[:60]}: nested too deeply.")
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_extremes(item, (*place, str(key)) if depth < 3 else place, depth + 1)
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise InputError(f"{'.'.join(place)}: a whole number of more than 64 bits.")


def strict_converter(*, forbid_extra_keys: bool) -> cattrs.Converter:
    """Return what makes dataclasses of TOML and JSON values and converts none but whole numbers where reals stand."""
    converter = cattrs.Converter(forbid_extra_keys=forbid_extra_keys)
    converter.register_structure_hook(float, _scalar(float, "a number", int, float))
    converter.register_structure_hook(int, _scalar(int, "a whole number", int))
    converter.register_structure_hook(bool, _scalar(bool, "true or false", bool))
    converter.register_structure_hook(str, _scalar(str, "a string", str))
    return converter


def _scalar(kind: type, words: str, *accepted: type) -> Callable[[Any, Any], Any]:
    def convert(value: Any, _: Any) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"expected {words}")
        try:
            return kind(value)
        except OverflowError:
            raise TypeError(f"expected {words} of less than 309 digits") from None

    return convert


def _is_many(kind: Any) -> bool:
    made: Any = get_origin(kind)
    return made is list or (made is tuple and get_args(kind)[-1] is ...)


@functools.cache
def _records() -> cattrs.Converter:
    converter = strict_converter(forbid_extra_keys=False)
    any_float = _scalar(float, "a number", int, float)

    def finite(value: Any, kind: Any) -> float:
        number: float = any_float(value, kind)
        if not abs(number) <= 1e300:
            raise TypeError("expected a finite number")
        return number

    def text(value: Any, _: Any) -> str:
        if not isinstance(value, str) or "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise TypeError("expected a string")
        return value

    def many(kind: Any) -> Callable[[Any, Any], Any]:
        made: Any = get_origin(kind)
        inner = list_structure_factory(kind, converter)

        def convert(value: Any, _: Any) -> Any:
            if not isinstance(value, list):
                raise TypeError("expected a list")
            return made(inner(value, kind))

        return convert

    converter.register_structure_hook(float, finite)
    converter.register_structure_hook_func(lambda kind: kind == AnyFloat, any_float)
    converter.register_structure_hook(str, text)
    converter.register_structure_hook_factory(_is_many, many)
    configure_union_passthrough(str | int | None, converter)
    return converter


def first_fault(error: Exception, path: tuple[str, ...], values: Any) -> InputError:
    """Return the first thing wrong with ``values``, which stand at ``path``, as one line that names the key."""
    if isinstance(error, ForbiddenExtraKeysError):
        names = [field.name for field in dataclasses.fields(error.cl)]
        return unknown_name("key", min(error.extra_fields), names, where=".".join(path))
    if isinstance(error, BaseValidationError):
        inner = error.exceptions[0]
        notes = [note for note in getattr(inner, "__notes__", ()) if isinstance(note, _NOTES)]
        if not notes:
            return first_fault(inner, path, values)
        key: Any = notes[0].name if isinstance(notes[0], AttributeValidationNote) else notes[0].index
        if isinstance(values, Mapping) and key not in values:
            return InputError(f"{'.'.join((*path, str(key)))}: it has no default and must be given.")
        if isinstance(values, Mapping | Sequence) and isinstance(key, int) == isinstance(values, Sequence):
            return first_fault(inner, (*path, str(key)), values[key])
        error = inner
    return error if isinstance(error, InputError) else InputError(f"{'.'.join(path)}{_fault_of(error, values)}")


def _fault_of(error: Exception, value: Any) -> str:
    said = str(error)
    if "literal" in said.lower():
        return f": must be one of {said.rpartition('Literal')[2].strip('[]. ')}, got {value!r:.60}."
    reason = said if isinstance(error, TypeError) and said.startswith("expected") else "expected a table"
    return f": {reason}, got {value!r:.60}."


_NOTES = (AttributeValidationNote, IterableValidationNote)
