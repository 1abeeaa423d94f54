"""The file format of a benchmark track."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BenchTask:
    """Baseline and metric for the learners of one task."""

    baseline: str  # the learner that others are compared with
    metric: str  # name of the series that is compared, at its last evaluation
    label: str  # name of the metric on pages
    unit: str  # unit of the metric; ``%`` means a fraction in [0, 1]
    target: float | None = None  # value of the metric for the time to target; None for no target
    tolerance: float = 0.0  # largest difference of the metric between machines, in its unit
    settings: Mapping[str, Any] = field(default_factory=dict)  # fixed for all arms
    learning: Mapping[str, Any] = field(default_factory=dict)  # defaults of all arms for settings of the learner


@dataclass(frozen=True, kw_only=True)
class BenchControl:
    """An arm with a known effect, which ``says`` describes in words.

    An empty ``learner`` is the baseline of ``task``, an empty ``metric`` its metric.
    """

    name: str
    task: str
    says: str
    learner: str = ""
    metric: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    learning: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Track:
    """A track at one of its sizes: the keys of its file, and ``name``, ``size`` and ``sha256``."""

    version: str  # version of the track; it changes with every other key
    title: str
    notes: tuple[str, ...] = ()  # shown with its table
    scenario: str  # scenario that is recorded
    sumo: str  # version of SUMO that recorded it
    # digest of the windows at each seed, from seed 0; see ``vnetsim.study.bench.windows_digest``
    windows: tuple[str, ...]
    files: Mapping[str, str]  # SHA-256 of every file that the track reads, by path from the track's folder
    open: tuple[str, ...]  # patterns of the settings that an arm may choose
    settings: Mapping[str, Any]  # fixed for all tasks
    tasks: Mapping[str, BenchTask]
    controls: tuple[BenchControl, ...] = ()
    sizes: Mapping[str, Mapping[str, Any]]  # by name, tables that are merged into the above
    name: str = ""  # name of its file without the suffix
    size: str = ""
    sha256: str = ""  # digest of the file's values, which contain the hashes of all files and traffic

    @property
    def words(self) -> str:
        """Name and version, separated by a space."""
        return f"{self.name} {self.version}"
