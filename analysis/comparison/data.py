"""Data of a comparison: its finished cells, grouped by condition."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import dimension, subject
from analysis.report.invitations import Invitations
from analysis.statistics.windows import Dwell
from vnetsim.storage.records import CellEntry, ComparisonRecord


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number in which arms are compared: a series that all measure in the same way, or one value per run.

    For shared fields see ``vnetsim.learning.Series``.
    """

    name: str  # name of the series
    label: str  # short name for readers
    unit: str  # as recorded; ``%`` means that values are fractions
    caption: str  # a sentence
    last: int = 1  # number of last values whose mean is compared; 1 also if the series is measured only once
    # value of ``better`` for a metric with one value per run, which is in ``CellData.figures``; None for a series
    known: int | None = None

    def same(self, other: Metric) -> bool:
        """Whether name and unit are equal, as for the same metric under another condition."""
        return (self.name, self.unit) == (other.name, other.unit)

    @property
    def factor(self) -> float:
        """Factor from recorded to shown values: fractions become per cent, bytes become megabytes."""
        return {"%": 100.0, "B": 1e-6}.get(self.unit, 1.0)

    @property
    def better(self) -> int:
        """1 if higher is better, -1 if lower is, 0 if unknown: ``known`` or, by unit, 1 for %, -1 for RMSE and MAE."""
        return self.known if self.known is not None else {"%": 1, "RMSE": -1, "MAE": -1}.get(self.unit, 0)

    @property
    def titled(self) -> str:
        """``subject`` and, in brackets, ``dimension`` if there is one, for an axis."""
        return f"{self.subject} ({self.dimension})" if self.dimension else self.subject

    @property
    def subject(self) -> str:
        """The label; for a measure such as RMSE, "RMSE, label"."""
        return subject(self.label, self.unit)

    @property
    def dimension(self) -> str:
        """The unit after a shown number: MB for bytes, empty for measures such as RMSE."""
        return "MB" if self.unit == "B" else dimension(self.unit)

    @property
    def compared(self) -> str:
        """The compared value of a run in words: "value", "last value" or "mean of the last N evaluations"."""
        if self.known is not None:
            return "value"
        return "last value" if self.last == 1 else f"mean of the last {self.last} evaluations"

    @property
    def words_compared(self) -> str:
        """Name for titles: ``words`` and, if a mean of several values is compared, ``compared`` after a comma."""
        return self.words if self.last == 1 else f"{self.words}, {self.compared}"

    @property
    def words(self) -> str:
        """Name for titles: as ``titled``, but without "(%)" if the label has the word accuracy."""
        return self.label if self.unit == "%" and "accuracy" in self.label.lower() else self.titled


@dataclass(frozen=True, kw_only=True)
class RecordedTraffic:
    """A traffic recording that cells replayed."""

    scenario: str  # file name of the scenario
    seed: str  # seed of the traffic; a dash if it had none
    rsus: str  # positions of the RSUs, in words
    sha256: str  # hash of its coverage windows
    dwell: Dwell | None = None  # dwell of its windows; None if there are none
    # means of what SUMO itself wrote, by name; empty if the scenario has it write nothing that is read
    outcomes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class CellData:
    """One finished cell. Times count from the beginning of the run (s)."""

    entry: CellEntry  # entry of the cell in the record of the comparison
    traffic: RecordedTraffic  # the traffic that the cell replayed
    ended_by: str  # what ended the run: ``rounds``, ``time``, ``traffic`` or ``caller``
    rounds: int  # number of closed rounds, over all aggregators
    wanted_rounds: int  # rounds that were asked for, over all aggregators; ``rounds`` if no number was
    empty_rounds: int = 0  # number of rounds without a commit
    simulated_s: float  # simulated time to the end of the run
    metrics: pl.DataFrame  # the table ``metrics``, finite values only, in order of rounds
    # values of metrics with one value per run, by name; a metric without a value is missing
    figures: Mapping[str, float | None] = field(default_factory=dict)
    outcomes: Mapping[str, int]  # number of participations by outcome
    # outcomes of the invitations, and blur of the committed images
    invitations: Invitations = field(default_factory=Invitations)
    vehicles: int = 0  # number of vehicles in coverage
    spent: pl.DataFrame  # see ``analysis.loading.RunData.spent``
    windows: pl.DataFrame  # see ``analysis.statistics.participation.windows_with_updates``
    # declared series as metrics, by name, or without training ``TIMING_METRICS``; then those of the traffic's
    # ``outcomes``
    series: Mapping[str, Metric]
    # settings of experiment and learner by dotted key, without those of the arm, the cell and the traffic
    settings: Mapping[str, Any]
    notices: tuple[str, ...] = ()  # notices of the run's own page

    @property
    def name(self) -> str:
        """Name of the cell's folder in ``cells/``: the last part of the recorded path."""
        return Path(self.entry.folder).name

    @property
    def moved_bytes(self) -> float:
        """Bytes over radio links and between vehicles (B)."""
        return float(self.spent["bytes"].sum())

    def measured(self, metric: str) -> pl.DataFrame:
        """Return ``round``, ``time_s`` and finite ``value`` of a series, by round; no rows if it was not measured."""
        return self.metrics.filter(pl.col("name") == metric).select("round", "time_s", "value")

    def final(self, metric: Metric) -> float | None:
        """Return the value to compare, as recorded: one per run, or the mean of a series' last ``metric.last`` values.

        None if the run lacks that value, or the series has fewer values. The untrained model (round 0) counts only if
        ``metric.last`` is 1.
        """
        if metric.known is not None:
            return self.figures.get(metric.name)
        values = self.measured(metric.name).filter((pl.col("round") > 0) | (metric.last == 1))["value"]
        return float(values.tail(metric.last).mean()) if len(values) >= metric.last else None  # type: ignore[arg-type]

    @property
    def evaluations(self) -> int:
        """Number of rounds from 1 on with a value of any series; series without a value at round 0 do not count."""
        asked = self.metrics.filter(pl.col("round") == 0)["name"].unique()
        found = self.metrics.filter((pl.col("round") > 0) & pl.col("name").is_in(asked.implode()))
        return found["round"].n_unique()


def common_series(cells: Sequence[CellData], last: int) -> tuple[list[Metric], list[Metric]]:
    """Return two lists: metrics that all cells have with equal label, unit and caption, and those equal in name only.

    Series of the first list are compared by the mean of their ``last`` last values, or by the last value if no cell has
    so many. Those of the second measure different things, as losses do. Both lists are empty without cells.
    """
    series = cells[0].series.values() if cells else ()
    common = [one for one in series if all(one.name in cell.series for cell in cells)]
    same = [one for one in common if all(cell.series[one.name] == one for cell in cells)]
    several = [dataclasses.replace(one, last=last) if one.known is None else one for one in same]
    often = [any(cell.final(one) is not None for cell in cells) for one in several]
    compared = [more if enough else one for one, more, enough in zip(same, several, often, strict=True)]
    return compared, [one for one in common if one not in same]


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionData:
    """The finished cells of one condition, under which arms are compared over seeds."""

    name: str  # empty if there is only one condition
    arms: tuple[str, ...]  # arms planned under this condition, in the study's order
    looks: Mapping[str, int]  # position of each arm in the whole study, which decides its colour
    seeds: tuple[int, ...]  # seeds planned under this condition, in the study's order
    cells: tuple[CellData, ...]  # finished cells; cells with the same seed replayed the same traffic
    mixed_seeds: tuple[int, ...] = ()  # seeds left out because their cells replayed different traffic
    metrics: tuple[Metric, ...] = ()  # metrics that can be compared
    other_meanings: tuple[str, ...] = ()  # labels of series that share a name but are measured differently
    alike: tuple[Metric, ...] = ()  # series that are equal for all arms at every seed
    fixed: tuple[str, ...] = ()  # labels of series that are equal at every seed, because the settings alone decide them
    against: str = ""  # the reference arm, if all others are compared with it only; empty for all pairs

    @cached_property
    def present(self) -> tuple[str, ...]:
        """The arms with a finished cell, in the study's order."""
        found = {cell.entry.arm for cell in self.cells}
        return tuple(arm for arm in self.arms if arm in found)

    def own(self, metric: Metric) -> Metric | None:
        """Return the metric of the same name and unit in ``metrics`` or ``alike``; None if there is none."""
        return next((one for one in (*self.metrics, *self.alike) if one.same(metric)), None)

    @property
    def main(self) -> Metric | None:
        """The first of ``metrics`` for which it is known whether higher is better; None if there is none."""
        return next((metric for metric in self.metrics if metric.better), None)

    def of(self, arm: str) -> list[CellData]:
        """Return the finished cells of an arm; empty if there are none."""
        return [cell for cell in self.cells if cell.entry.arm == arm]

    def finals(self, metric: Metric) -> NDArray[np.float64]:
        """Return the compared values as recorded, shape (seeds, arms in ``present``); NaN for a missing value."""
        found = {(one.entry.seed, one.entry.arm): one.final(metric) for one in self.cells}
        table = [[found.get((seed, arm)) for arm in self.present] for seed in self.seeds]
        return np.array(table, dtype=np.float64).reshape(len(self.seeds), len(self.present))

    def values(self, metric: Metric, arm: str) -> NDArray[np.float64]:
        """Return an arm's values of this condition's ``own`` metric, in shown units, shape (seeds,); NaN if missing."""
        own = self.own(metric)
        if own is None or arm not in self.present:
            return np.full(len(self.seeds), np.nan)
        return self.finals(own)[:, self.present.index(arm)] * own.factor


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparisonData:
    """A comparison, its parts in the study's order; ``left_out`` are sentences on missing cells that did not fail."""

    record: ComparisonRecord
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    conditions: tuple[ConditionData, ...]
    traffics: tuple[RecordedTraffic, ...]
    left_out: tuple[str, ...] = ()

    @property
    def against(self) -> str:
        """The reference arm, if all others are compared with it only; empty for all pairs."""
        return self.record.against if self.record.against in self.arms else ""

    @property
    def cells(self) -> tuple[CellData, ...]:
        """The compared cells of all conditions."""
        return tuple(cell for condition in self.conditions for cell in condition.cells)

    @property
    def arm_word(self) -> str:
        """The word for an arm: ``learner`` if arms differ in the learner only, else ``arm``."""
        named = all(entry.arm == entry.learner for entry in self.record.cells)
        return "learner" if named else "arm"

    def measuring(self, metric: Metric) -> tuple[list[ConditionData], list[str]]:
        """Return the conditions with a metric of this name and unit, and the arms with a value of it in any of them."""
        conditions = [one for one in self.conditions if one.own(metric)]
        arms = [arm for arm in self.arms if any(np.isfinite(one.values(metric, arm)).any() for one in conditions)]
        return conditions, arms
