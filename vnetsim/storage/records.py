"""What the records of run directories and comparisons hold, as ``vnetsim.storage.structure`` reads them.

Keys that are not named here are passed over: that a folder is of another version is said by its number, ``FORMAT``,
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from vnetsim.learner_facts import Cost, Series

FORMAT = 2
"""Stands in every manifest and comparison; raised with every change after which the older ones cannot be read."""


COMPARISON = "comparison.json"
"""The record of a comparison, in its folder."""

PLACES = ("cells", "traffic")
"""Where the run directories of a comparison lie in its folder."""

COMPARED = ("experiment.toml", "manifest.json", "[!/]*.parquet")
"""What a comparison reads of a cell."""

Interval = Literal["sign-flip", "t"]
"""How differences between arms get their p-values and intervals: the sign-flip test and all shifts that it does not
reject, or Student's t, which takes normal differences."""


@dataclass(frozen=True, kw_only=True)
class RsuEntry:
    """An RSU of ``manifest.json``."""

    id: str
    x_m: float
    y_m: float
    range_m: float
    environment: Literal["", "urban", "highway"] = ""


@dataclass(frozen=True, kw_only=True)
class ComputerEntry:
    """Computers of one preset in ``manifest.json``: their share of the vehicles, speed and power, null if not known.

    ``by_hand`` says that the speed is not the preset's; ``vehicle_type`` that they are that type's, all of them.
    """

    preset: str
    share: float
    median_flops: float
    by_hand: bool = False
    vehicle_type: str = ""
    watts: float | None = None


@dataclass(frozen=True, kw_only=True)
class PluginEntry:
    """A plug-in of ``manifest.json``."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)


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
    heights_m: dict[str, float] = field(default_factory=dict)
    plugin: PluginEntry | None = None
    left_out: int = 0
    silences: int = 0
    glimpsed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RatesEntry:
    """How often ``manifest.json`` says that rates were looked up, how many were the cap, and how many of each state."""

    looked_up: int
    capped: int
    states: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RadioEntry:
    """The radio of ``manifest.json``; empty where it has no cap."""

    cap_bps: float | None = None
    notes: list[str] = field(default_factory=list)
    links: RatesEntry | None = None
    sidelinks: RatesEntry | None = None


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
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class ManifestRecord:
    """``manifest.json``; what only a run that learns, or one that came to an end, has is empty or null elsewhere."""

    vnetsim: str
    kind: Literal["run", "timing", "mobility"]
    status: Literal["running", "finished", "interrupted", "failed"]
    seed: int
    traffic: TrafficEntry
    rsus: list[RsuEntry]
    inputs: dict[str, str]
    changed_plugins: dict[str, str] = field(default_factory=dict)
    plugin_files: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    created: str | None = None
    finished: str | None = None
    ended_by: str | None = None
    host: dict[str, str | int | None] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    learner: LearnerEntry | None = None
    series: list[Series] = field(default_factory=list)
    exchange: Series | None = None
    time_s: float | None = None
    wall_s: dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: dict[str, float] = field(default_factory=dict)
    radio: RadioEntry = RadioEntry()
    computers: list[ComputerEntry] = field(default_factory=list)
    radio_unit_w: dict[str, float] = field(default_factory=dict)
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
    timing_only: bool = False
    last_evaluations_before: list[int] = field(default_factory=list)
    skipped: list[SkippedEntry] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BenchValues:
    """What a run of a benchmark came to.

    Args:
        untrained: the metric when it was first measured: before the first round, if it can be.
        half: at half of the time, by the last evaluation until then, or the first of all.
        final: by the last evaluation; rounds after it, which the traffic cut off, are not measured.
        time_to_target_s: simulated time to the first evaluation that met the target; null for never.
        span_s: simulated time of the whole run.
        commits: participations that committed.
        bytes: over the air, also of transfers cut short.
        energy_j: on board; null where the computers' power is not known.
    """

    untrained: float
    half: float
    final: float
    time_to_target_s: float | None
    span_s: float
    commits: int
    bytes: float
    energy_j: float | None


@dataclass(frozen=True, kw_only=True)
class BenchSeed:
    """A seed of a row: the digest of its traffic's windows, and what arm and baseline came to on the same machine."""

    seed: int
    traffic: str
    row: BenchValues
    baseline: BenchValues


@dataclass(frozen=True, kw_only=True)
class BenchRecord:
    """A row of a benchmark: an arm on a track, with what made it.

    Args:
        settings: that differ from the baseline's, by dotted key.
        code: SHA-256 of files of code that are not vnetsim's, by the setting that names them.
        control: the track's control that it is; empty for an arm of somebody's own.
        made: date.
    """

    track: str
    version: str
    track_sha256: str
    size: str
    task: str
    arm: str
    learner: str
    seeds: list[BenchSeed]
    settings: dict[str, Any] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    control: str = ""
    vnetsim: str = ""
    host: dict[str, str | int | None] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    made: str = ""
