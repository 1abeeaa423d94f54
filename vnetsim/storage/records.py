"""Contents of ``manifest.json`` and ``comparison.json``, as ``vnetsim.storage.structure`` reads them.

Unknown keys are ignored; only ``FORMAT`` tells whether another version wrote a folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from vnetsim.learner_facts import Cost, Series

FORMAT = 2
"""Format number in every manifest and comparison; increased by changes that make older ones unreadable."""

COMPARISON = "comparison.json"
"""Name of a comparison's record in its folder."""

PLACES = ("cells", "traffic")
"""Subfolders of a comparison that contain run directories."""

COMPARED = ("experiment.toml", "manifest.json", "[!/]*.parquet")
"""Files of a cell that a comparison reads."""

Interval = Literal["sign-flip", "t"]
"""Method for p-values and intervals of differences between arms: the sign-flip test, whose interval is all shifts that
it does not reject; or Student's t, which assumes normal differences."""


@dataclass(frozen=True, kw_only=True)
class RsuEntry:
    """An RSU in ``manifest.json``."""

    id: str
    x_m: float
    y_m: float
    range_m: float
    environment: Literal["", "urban", "highway"] = ""


@dataclass(frozen=True, kw_only=True)
class ComputerEntry:
    """Computers of one preset in ``manifest.json``: their share of the vehicles, speed and power (null if unknown).

    ``by_hand`` is true if the user set the speed; ``vehicle_type`` names the type if all its vehicles have them.
    """

    preset: str
    share: float
    median_flops: float
    by_hand: bool = False
    vehicle_type: str = ""
    watts: float | None = None


@dataclass(frozen=True, kw_only=True)
class PluginEntry:
    """A plug-in in ``manifest.json``."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrafficEntry:
    """The traffic in ``manifest.json``; see ``vnetsim.coverage.windows.TrafficInfo``; ``equipped`` is the setting."""

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
    equipped: float = 1.0
    silences: int = 0
    glimpsed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RatesEntry:
    """Counts in ``manifest.json`` of rates looked up, of those at the cap, and of those in each channel state."""

    looked_up: int
    capped: int
    states: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RadioEntry:
    """The radio in ``manifest.json``; all is null or empty if the radio model has no cap (``cap_bps``, bit/s)."""

    cap_bps: float | None = None
    notes: list[str] = field(default_factory=list)
    links: RatesEntry | None = None
    sidelinks: RatesEntry | None = None


@dataclass(frozen=True, kw_only=True)
class LearnerEntry:
    """The learner in ``manifest.json``."""

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
    """``manifest.json``; entries that only a training run or a finished run has are empty or null in others."""

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
    traffic_outcomes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CellEntry:
    """A cell in ``comparison.json``."""

    folder: str
    arm: str
    condition: str
    learner: str
    seed: int
    traffic: str


@dataclass(frozen=True, kw_only=True)
class RecordedEntry:
    """A recorded traffic in ``comparison.json``: folder, settings, and SHA-256 of its ``windows.parquet``."""

    folder: str
    settings: dict[str, Any]
    sha256: str


@dataclass(frozen=True, kw_only=True)
class SkippedEntry:
    """An arm and condition in ``comparison.json`` that were skipped."""

    arm: str
    condition: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ChosenRsuEntry:
    """The RSU in ``comparison.json`` that was chosen for the ``scenarios`` (paths) that have none."""

    id: str
    x_m: float
    y_m: float
    note: str
    scenarios: list[str]


@dataclass(frozen=True, kw_only=True)
class ComparisonRecord:
    """``comparison.json``; while the traffic is being recorded, it contains only the traffic."""

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
    chosen_workers: int = 1


@dataclass(frozen=True, kw_only=True)
class BenchValues:
    """Results of one run of a benchmark."""

    untrained: float  # the metric at the first evaluation, which is before the first round if possible
    half: float  # the metric at the last evaluation in the first half of the run; the first evaluation if there is none
    final: float  # the metric at the last evaluation; later rounds, cut off by the end of the traffic, are not measured
    time_to_target_s: float | None  # simulated time of the first evaluation that met the target; null if none did
    span_s: float  # simulated time of the whole run
    commits: int  # number of participations that committed
    bytes: float  # bytes over the air, also of transfers cut short
    energy_j: float | None  # energy on board; null if the computers' power is unknown


@dataclass(frozen=True, kw_only=True)
class BenchSeed:
    """A seed of a row: the digest of its windows, and the results of arm and baseline on the same machine."""

    seed: int
    traffic: str
    row: BenchValues
    baseline: BenchValues


@dataclass(frozen=True, kw_only=True)
class BenchRecord:
    """A row of a benchmark: an arm on a track, with the software and host that produced it."""

    track: str
    version: str
    track_sha256: str
    size: str
    task: str
    arm: str
    learner: str
    seeds: list[BenchSeed]
    settings: dict[str, Any] = field(default_factory=dict)  # settings that differ from the baseline, by dotted key
    # SHA-256 of the user's code files, by the setting that names them
    code: dict[str, str] = field(default_factory=dict)
    control: str = ""  # name of the track's control that the arm is; empty for a user's own arm
    vnetsim: str = ""
    host: dict[str, str | int | None] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    made: str = ""  # date
