"""What the page of a comparison is made from: its finished cells, by the conditions under which arms are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import clean, dimension, subject
from analysis.statistics.run_measures import RunMeasures
from vnetsim.storage.comparison import Interval
from vnetsim.storage.records import ComparisonRecord


def shortened(text: str, limit: int = 60) -> str:
    """Return a name fit for a page; of a long one the middle is left out, for names often differ at their ends."""
    whole = clean(text, 1000)
    head = (limit - 1) // 2
    return whole if len(whole) <= limit else f"{whole[:head]}\u2026{whole[len(whole) - (limit - 1 - head) :]}"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A series that all arms report and measure in the same way; the keys of ``vnetsim.learning.Series``.

    Args:
        name: of the series.
        label: in words.
        unit: as recorded; ``%`` stands for a fraction.
        caption: a sentence.
        last: what is compared is the mean of so many of its last values; 1 also for one that is measured but once.
        known: what ``better`` is where the unit does not tell it.
    """

    name: str
    label: str
    unit: str
    caption: str
    last: int = 1
    known: int | None = None

    @property
    def factor(self) -> float:
        """From values as recorded to values as shown: a fraction becomes per cent, bytes become megabytes."""
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
        """What is measured, see ``analysis.formatting.subject``."""
        return subject(self.label, self.unit)

    @property
    def dimension(self) -> str:
        """The unit that stands behind a number, see ``analysis.formatting.dimension``."""
        return "MB" if self.unit == "B" else dimension(self.unit)

    @property
    def compared(self) -> str:
        """Which of a run's values is compared, in words."""
        return "last value" if self.last == 1 else f"mean of the last {self.last} evaluations"

    @property
    def words_compared(self) -> str:
        """What a title calls it where it is not the last value that is compared."""
        return self.words if self.last == 1 else f"{self.words}, {self.compared}"

    @property
    def words(self) -> str:
        """What a title calls it: the label, with its unit where the label does not tell."""
        return self.label if self.unit == "%" and "accuracy" in self.label.lower() else self.titled


@dataclass(frozen=True, kw_only=True, eq=False)
class CellData:
    """One finished cell.

    Args:
        name: its folder.
        arm: what is compared.
        condition: under what; empty where there is one only.
        learner: its learner.
        seed: its seed.
        traffic_sha256: of the coverage windows that it replayed.
        rsus: where they are, in words.
        ended_by: ``rounds`` or ``traffic``.
        rounds: rounds it aggregated.
        wanted_rounds: rounds it was to aggregate.
        begin_s: the simulation's clock at its beginning (s).
        time_s: the simulation's clock at its end (s).
        metrics: the table ``metrics``, finite values only, in order of rounds.
        outcomes: participations by outcome.
        spent: a row for each participation and each exchange between vehicles: ``end_s``, ``bytes``, ``train_s``.
        windows: a row each, see ``analysis.statistics.participation_bias.windows_with_updates``.
        participants: vehicles whose update was aggregated, by round.
        series: declared series by name.
        settings: its experiment, by dotted key, without what belongs to the arm, the cell or its traffic.
        learning: its learner's settings.
        measures: see ``analysis.statistics.run_measures``; None where they were not taken.
        notices: what the run's own page says first; see ``analysis.report.notices``.
        vehicles: that were covered while it ran.
        empty_rounds: rounds in which nothing was committed.
    """

    name: str
    arm: str
    condition: str
    learner: str
    seed: int
    traffic_sha256: str
    rsus: str
    ended_by: str
    rounds: int
    wanted_rounds: int
    begin_s: float
    time_s: float
    metrics: pl.DataFrame
    outcomes: Mapping[str, int]
    spent: pl.DataFrame
    windows: pl.DataFrame
    participants: tuple[frozenset[str], ...]
    series: Mapping[str, Metric]
    settings: Mapping[str, Any]
    learning: Mapping[str, Any] = field(default_factory=dict)
    measures: RunMeasures | None = None
    notices: tuple[str, ...] = ()
    vehicles: int = 0
    empty_rounds: int = 0

    @property
    def simulated_s(self) -> float:
        """Simulated time from its beginning to its end (s); ``time_s`` is the simulation's clock."""
        return self.time_s - self.begin_s

    @property
    def moved_bytes(self) -> float:
        """Bytes over radio links and between vehicles (B)."""
        return float(self.spent["bytes"].sum())

    def measured(self, metric: str) -> pl.DataFrame:
        """Return ``round``, ``time_s`` and ``value`` of a metric."""
        return self.metrics.filter(pl.col("name") == metric).select("round", "time_s", "value")

    def final(self, metric: str, last: int = 1) -> float | None:
        """Return the mean of the last values of a metric, None when it was not measured so often.

        Args:
            metric: its name.
            last: how many; of several, the value of the untrained model is none.
        """
        values = self.measured(metric).filter((pl.col("round") > 0) | (last == 1))["value"]
        return float(values.tail(last).mean()) if len(values) >= last else None  # type: ignore[arg-type]

    @property
    def evaluations(self) -> int:
        """How often its model was evaluated after training."""
        asked = self.metrics.filter(pl.col("round") == 0)["name"].unique()
        found = self.metrics.filter((pl.col("round") > 0) & pl.col("name").is_in(asked.implode()))
        return found["round"].n_unique()


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionData:
    """The finished cells of one condition, under which arms are compared over seeds.

    Args:
        name: of the condition; empty where there is one only.
        arms: planned under it, in the study's order.
        looks: place of each arm in the whole study, which decides its colour.
        seeds: planned under it.
        cells: the finished ones; at one seed they replayed the same traffic.
        mixed_seeds: seeds left out, because their cells did not.
        metrics: what can be compared.
        other_meanings: labels of series that arms call the same but measure differently.
        alike: series that are the same for all arms at every seed.
        fixed: labels of series that are the same at every seed, as what the settings alone decide.
        method: how differences get their p-values and intervals.
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
        found = {cell.arm for cell in self.cells}
        return tuple(arm for arm in self.arms if arm in found)

    @property
    def main(self) -> Metric | None:
        """The first metric of which it is known whether higher is better."""
        return next((metric for metric in self.metrics if metric.better), None)

    def of(self, arm: str) -> list[CellData]:
        """Return the cells of an arm."""
        return [cell for cell in self.cells if cell.arm == arm]

    def finals(self, metric: Metric) -> NDArray[np.float64]:
        """Return the values that are compared, shape (seeds, arms present); NaN where there is none."""
        found = {(cell.seed, cell.arm): cell.final(metric.name, metric.last) for cell in self.cells}
        table = [[found.get((seed, arm)) for arm in self.present] for seed in self.seeds]
        return np.array(table, dtype=np.float64).reshape(len(self.seeds), len(self.present))


def has_values(conditions: Sequence[ConditionData], arm: str, metric: Metric) -> bool:
    """Return whether an arm measured a metric under any of some conditions."""
    finals = (cell.final(metric.name, metric.last) for condition in conditions for cell in condition.of(arm))
    return any(value is not None and np.isfinite(value) for value in finals)


@dataclass(frozen=True, kw_only=True)
class RecordedTraffic:
    """A recorded traffic.

    Args:
        scenario: its name.
        kind: of traffic.
        seed: it was made with.
        rsus: where they are, in words.
        sha256: of its coverage windows.
        lasts_s: how much was recorded (s).
        vehicles: that were covered.
        filled: whether it has a warm-up, or needs none.
    """

    scenario: str
    kind: str
    seed: str
    rsus: str
    sha256: str
    lasts_s: float
    vehicles: int
    filled: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparisonData:
    """A whole comparison.

    Args:
        record: ``comparison.json``.
        arms: all that were planned, in the order given.
        seeds: likewise.
        conditions: all that were planned, in the order given.
        traffics: what was replayed.
        last_evaluations: what is compared is the mean of so many of a metric's last values.
        method: how differences get their p-values and intervals.
        against: the arm with which alone the others are compared; empty for all pairs.
        unfinished: folders of cells that neither finished nor failed.
        other_version: folders of cells that another version of vnetsim ran; they are left out.
        short: folders of cells whose traffic ended before they had been evaluated so often; they are left out.
        altered: what was found in cells that are left out because they are no longer what they were when they finished.
    """

    record: ComparisonRecord
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    conditions: tuple[ConditionData, ...]
    traffics: tuple[RecordedTraffic, ...]
    last_evaluations: int = 1
    method: Interval = "sign-flip"
    against: str = ""
    unfinished: tuple[str, ...] = ()
    other_version: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[CellData, ...]:
        """All finished cells that are compared."""
        return tuple(cell for condition in self.conditions for cell in condition.cells)

    @property
    def arm_word(self) -> str:
        """What an arm is called: a learner, where its name says all."""
        named = all(entry.arm == entry.learner for entry in self.record.cells)
        return "learner" if named else "arm"
