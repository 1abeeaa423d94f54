"""What the page of a comparison is made from: its finished cells, by the conditions under which arms are compared."""

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
from vnetsim.storage.records import CellEntry, ComparisonRecord, Interval


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A series that all arms report and measure in the same way; the keys of ``vnetsim.learning.Series``.

    Args:
        name: of the series.
        label: in words.
        unit: as recorded; ``%`` stands for a fraction.
        caption: a sentence.
        last: what is compared is the mean of so many of its last values; 1 also for one that is measured but once.
        known: what ``better`` is where the unit does not tell it; only of what is one figure a run.
    """

    name: str
    label: str
    unit: str
    caption: str
    last: int = 1
    known: int | None = None

    def same(self, other: Metric) -> bool:
        """Whether it is the other one, as another condition may have it."""
        return (self.name, self.unit) == (other.name, other.unit)

    @property
    def factor(self) -> float:
        """From values as recorded to values as shown: fractions become per cent, bytes become megabytes."""
        return {"%": 100.0, "B": 1e-6}.get(self.unit, 1.0)

    @property
    def better(self) -> int:
        """1 where higher is better (shares), -1 where lower is (errors), 0 where the unit does not tell."""
        return self.known if self.known is not None else {"%": 1, "RMSE": -1, "MAE": -1}.get(self.unit, 0)

    @property
    def titled(self) -> str:
        """Label and unit, as an axis has them."""
        return f"{self.subject} ({self.dimension})" if self.dimension else self.subject

    @property
    def subject(self) -> str:
        """What is measured, without its dimension."""
        return subject(self.label, self.unit)

    @property
    def dimension(self) -> str:
        """The unit that stands behind a number."""
        return "MB" if self.unit == "B" else dimension(self.unit)

    @property
    def compared(self) -> str:
        """Which of a run's values is compared, in words."""
        if self.known is not None:
            return "value"
        return "last value" if self.last == 1 else f"mean of the last {self.last} evaluations"

    @property
    def words_compared(self) -> str:
        """What a title calls it where it is not the last value that is compared."""
        return self.words if self.last == 1 else f"{self.words}, {self.compared}"

    @property
    def words(self) -> str:
        """What a title calls it: the label, with its unit where the label does not tell."""
        return self.label if self.unit == "%" and "accuracy" in self.label.lower() else self.titled


@dataclass(frozen=True, kw_only=True)
class RecordedTraffic:
    """A recorded traffic.

    Args:
        rsus: where they are, in words.
        sha256: of its coverage windows.
        dwell: how long these last; None where there are none.
    """

    scenario: str
    seed: str
    rsus: str
    sha256: str
    dwell: Dwell | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class CellData:
    """One finished cell. Its times count from its beginning (s).

    Args:
        entry: what the record of the comparison says of it.
        traffic: what it replayed.
        empty_rounds: number in which nothing was committed.
        simulated_s: simulated time to its end.
        metrics: the table ``metrics``, finite values only, in order of rounds.
        figures: what is one figure a run, by name of the metric; None where there is none.
        outcomes: number of participations by outcome.
        invitations: what became of those of vehicles that were invited, and how far committed images were blurred.
        vehicles: how many were in coverage.
        spent: see ``analysis.loading.RunData.spent``.
        windows: see ``analysis.statistics.participation.windows_with_updates``.
        settings: its experiment's and learner's, by dotted key, without what belongs to the arm, the cell or its
            traffic.
    """

    entry: CellEntry
    traffic: RecordedTraffic
    ended_by: str
    rounds: int
    wanted_rounds: int
    empty_rounds: int = 0
    simulated_s: float
    metrics: pl.DataFrame
    figures: Mapping[str, float | None] = field(default_factory=dict)
    outcomes: Mapping[str, int]
    invitations: Invitations = field(default_factory=Invitations)
    vehicles: int = 0
    spent: pl.DataFrame
    windows: pl.DataFrame
    series: Mapping[str, Metric]
    settings: Mapping[str, Any]
    notices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its folder; it lies in ``cells/``, whatever the record says."""
        return Path(self.entry.folder).name

    @property
    def moved_bytes(self) -> float:
        """Bytes over radio links and between vehicles (B)."""
        return float(self.spent["bytes"].sum())

    def measured(self, metric: str) -> pl.DataFrame:
        """Return ``round``, ``time_s`` and ``value`` of a series."""
        return self.metrics.filter(pl.col("name") == metric).select("round", "time_s", "value")

    def final(self, metric: Metric) -> float | None:
        """Return a figure, or the mean of the last values of a series, None when it was not measured so often.

        Of several, the value of the untrained model is none.
        """
        if metric.known is not None:
            return self.figures.get(metric.name)
        values = self.measured(metric.name).filter((pl.col("round") > 0) | (metric.last == 1))["value"]
        return float(values.tail(metric.last).mean()) if len(values) >= metric.last else None  # type: ignore[arg-type]

    @property
    def evaluations(self) -> int:
        """How often its model was evaluated after training."""
        asked = self.metrics.filter(pl.col("round") == 0)["name"].unique()
        found = self.metrics.filter((pl.col("round") > 0) & pl.col("name").is_in(asked.implode()))
        return found["round"].n_unique()


def in_common(cells: Sequence[CellData], last: int) -> tuple[list[Metric], list[Metric]]:
    """Return the series that all cells measure in the same way, and those that they only call the same.

    A name, label, unit or caption that differs means that something else is measured, as with losses. Each is compared
    by the mean of its ``last`` last values; what no cell measured so often, such as a probe at the end, by its last.
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
    """The finished cells of one condition, under which arms are compared over seeds.

    Args:
        name: empty where there is one condition only.
        arms: planned under it, in the study's order; so are ``seeds``.
        looks: place of each arm in the whole study, which decides its colour.
        cells: the finished ones; at one seed they replayed the same traffic.
        mixed_seeds: seeds left out, because their cells did not.
        metrics: what can be compared.
        other_meanings: labels of series that arms call the same but measure differently.
        alike: series that are the same for all arms at every seed.
        fixed: labels of series that are the same at every seed, as what the settings alone decide.
        against: the arm with which alone the others are compared; empty for all pairs.
    """

    name: str
    arms: tuple[str, ...]
    looks: Mapping[str, int]
    seeds: tuple[int, ...]
    cells: tuple[CellData, ...]
    mixed_seeds: tuple[int, ...] = ()
    metrics: tuple[Metric, ...] = ()
    other_meanings: tuple[str, ...] = ()
    alike: tuple[Metric, ...] = ()
    fixed: tuple[str, ...] = ()
    method: Interval = "sign-flip"
    against: str = ""

    @cached_property
    def present(self) -> tuple[str, ...]:
        """The arms of which a cell has finished."""
        found = {cell.entry.arm for cell in self.cells}
        return tuple(arm for arm in self.arms if arm in found)

    def own(self, metric: Metric) -> Metric | None:
        """Return a metric of another condition as it is measured here: compared, or alike for all arms."""
        return next((one for one in (*self.metrics, *self.alike) if one.same(metric)), None)

    @property
    def main(self) -> Metric | None:
        """The first metric of which it is known whether higher is better."""
        return next((metric for metric in self.metrics if metric.better), None)

    def of(self, arm: str) -> list[CellData]:
        """Return the cells of an arm."""
        return [cell for cell in self.cells if cell.entry.arm == arm]

    def finals(self, metric: Metric) -> NDArray[np.float64]:
        """Return the values that are compared, shape (seeds, arms present); NaN where there is none."""
        return self.by_seed({(one.entry.seed, one.entry.arm): one.final(metric) for one in self.cells})

    def by_seed(self, found: Mapping[tuple[int, str], float | None]) -> NDArray[np.float64]:
        """Return values by seed and arm as an array of shape (seeds, arms present); NaN where there is none."""
        table = [[found.get((seed, arm)) for arm in self.present] for seed in self.seeds]
        return np.array(table, dtype=np.float64).reshape(len(self.seeds), len(self.present))

    def values(self, metric: Metric, arm: str) -> NDArray[np.float64]:
        """Return an arm's values of a metric of any condition, as they are shown, shape (seeds,); NaN for none."""
        own = self.own(metric)
        if own is None or arm not in self.present:
            return np.full(len(self.seeds), np.nan)
        return self.finals(own)[:, self.present.index(arm)] * own.factor


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparisonData:
    """A whole comparison; arms, seeds and conditions are those that were planned, in the order given.

    ``left_out`` says in sentences why cells are not here that neither failed nor were skipped.
    """

    record: ComparisonRecord
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    conditions: tuple[ConditionData, ...]
    traffics: tuple[RecordedTraffic, ...]
    left_out: tuple[str, ...] = ()

    @property
    def against(self) -> str:
        """The arm with which alone the others are compared; empty for all pairs."""
        return self.record.against if self.record.against in self.arms else ""

    @property
    def cells(self) -> tuple[CellData, ...]:
        """All finished cells that are compared."""
        return tuple(cell for condition in self.conditions for cell in condition.cells)

    @property
    def arm_word(self) -> str:
        """What an arm is called: a learner, where its name says all."""
        named = all(entry.arm == entry.learner for entry in self.record.cells)
        return "learner" if named else "arm"

    def measuring(self, metric: Metric) -> tuple[list[ConditionData], list[str]]:
        """Return the conditions and the arms that have a value of a metric."""
        conditions = [one for one in self.conditions if one.own(metric)]
        arms = [arm for arm in self.arms if any(np.isfinite(one.values(metric, arm)).any() for one in conditions)]
        return conditions, arms
