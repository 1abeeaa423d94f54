"""The file format of a benchmark track."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BenchTask:
    """Baseline and metric for the learners of one task.

    Args:
        baseline: the learner that others are compared with.
        metric: name of the series that is compared, at its last evaluation.
        label: name of the metric on pages.
        unit: unit of the metric; ``%`` means a fraction in [0, 1].
        target: value of the metric for the time to target; None for no target.
        tolerance: largest difference of the metric between machines, in its unit.
        settings: fixed for all arms.
        learning: defaults of all arms for settings of the learner.
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
    """A track at one of its sizes: the keys of its file, and ``name``, ``size`` and ``sha256``.

    Args:
        version: version of the track; it changes with every other key.
        notes: shown with its table.
        scenario: scenario that is recorded.
        sumo: version of SUMO that recorded it.
        windows: digest of the windows at each seed, from seed 0; see ``vnetsim.study.bench.windows_digest``.
        files: SHA-256 of every file that the track reads, by path from the track's folder.
        open: patterns of the settings that an arm may choose.
        settings: fixed for all tasks.
        sizes: by name, tables that are merged into the above.
        name: name of its file without the suffix.
        sha256: digest of the file's values, which contain the hashes of all files and traffic.
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
    name: str = ""
    size: str = ""
    sha256: str = ""

    @property
    def words(self) -> str:
        """Name and version, separated by a space."""
        return f"{self.name} {self.version}"
