"""The finished cells of a comparison in memory, and what they have in common."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import clean
from vnetsim.errors import InputError
from vnetsim.run_directory import RunDirectory

RECORD = "comparison.json"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A series that all learners report and measure in the same way; the keys of ``vnetsim.learning.Series``."""

    name: str
    label: str
    unit: str
    caption: str

    @property
    def factor(self) -> float:
        """From values as recorded to values as shown: a fraction becomes per cent."""
        return 100.0 if self.unit == "%" else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class CellData:
    """One finished cell.

    Args:
        name: its folder.
        learner: its learner.
        seed: its seed.
        ended_by: ``rounds`` or ``traffic``.
        rounds: rounds it aggregated.
        wanted_rounds: rounds it was to aggregate.
        time_s: simulated time at its end (s).
        moved_bytes: over radio links and between vehicles (B).
        metrics: the table ``metrics``, finite values only.
        outcomes: participations by outcome.
        series: declared series by name.
        settings: its experiment, by dotted key, without what belongs to the learner or the cell.
    """

    name: str
    learner: str
    seed: int
    ended_by: str
    rounds: int
    wanted_rounds: int
    time_s: float
    moved_bytes: float
    metrics: pl.DataFrame
    outcomes: Mapping[str, int]
    series: Mapping[str, Metric]
    settings: Mapping[str, Any]

    def final(self, metric: str) -> float | None:
        """Return the last value of a metric, None when it was never measured."""
        values = self.metrics.filter(pl.col("name") == metric)["value"]
        return float(values[-1]) if len(values) else None


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparisonData:
    """What the page of a comparison is made from.

    Args:
        record: ``comparison.json``.
        traffic: manifest of the recorded traffic.
        learners: in the order given.
        seeds: likewise.
        cells: the finished ones.
        unfinished: folders of cells that neither finished nor failed.
        metrics: what can be compared.
        other_meanings: labels of series that learners call the same but measure differently.
        alike: labels of series that are the same for all learners at every seed.
    """

    record: Mapping[str, Any]
    traffic: Mapping[str, Any]
    learners: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[CellData, ...]
    unfinished: tuple[str, ...]
    metrics: tuple[Metric, ...]
    other_meanings: tuple[str, ...]
    alike: tuple[str, ...]

    def of(self, learner: str) -> list[CellData]:
        """Return the cells of a learner."""
        return [cell for cell in self.cells if cell.learner == learner]

    def finals(self, metric: Metric) -> NDArray[np.float64]:
        """Return the final values, shape (seeds, learners); NaN where there is none."""
        found = {(cell.seed, cell.learner): cell.final(metric.name) for cell in self.cells}
        table = [[found.get((seed, learner)) for learner in self.learners] for seed in self.seeds]
        return np.array(table, dtype=np.float64).reshape(len(self.seeds), len(self.learners))


def is_comparison(folder: Path) -> bool:
    """Return whether the folder is one of ``vnetsim compare``."""
    return (folder / RECORD).is_file()


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in values.items():
        result |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return result


def _series(manifest: Mapping[str, Any]) -> dict[str, Metric]:
    return {
        str(series["name"]): Metric(
            name=str(series["name"]),
            label=clean(series.get("label") or series["name"], 40),
            unit=clean(series.get("unit", ""), 12),
            caption=clean(series.get("caption", ""), 400),
        )
        for series in manifest.get("series") or ()
    }


def _cell(folder: Path, entry: Mapping[str, Any], traffic_sha256: str) -> CellData | None:
    """Return a cell, None when it has not finished.

    Raises:
        InputError: it replayed other traffic, or its files are damaged.
    """
    run = RunDirectory(folder)
    if not (folder / "manifest.json").is_file():
        return None
    manifest = run.manifest()
    if manifest.get("status") != "finished":
        return None
    replayed = {digest for path, digest in manifest["inputs"].items() if path.endswith("windows.parquet")}
    if replayed != {traffic_sha256}:
        raise InputError(f"{folder}: replayed other traffic than the comparison's; delete it to run it again.")
    try:
        experiment = tomllib.loads((folder / "experiment.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{folder / 'experiment.toml'}: unreadable: {error}.") from None
    parts = run.read("participations")
    links = float(parts.select(pl.col("download_bytes", "upload_bytes").sum()).sum_horizontal().item())
    between = float(run.read("exchanges")["bytes"].sum()) if run.has("exchanges") else 0.0
    own = {"scenario", "learner", "seed", "learning", "traffic", "gaussian"}
    return CellData(
        name=folder.name,
        learner=str(entry["learner"]),
        seed=int(entry["seed"]),
        ended_by=str(manifest["ended_by"]),
        rounds=run.read("rounds").height,
        wanted_rounds=int(experiment["rounds"]),
        time_s=float(manifest["time_s"]),
        moved_bytes=links + between,
        metrics=run.read("metrics").filter(pl.col("value").is_finite()).sort("round", maintain_order=True),
        outcomes=Counter(parts["outcome"].to_list()),
        series=_series(manifest),
        settings=_flat({key: value for key, value in experiment.items() if key not in own}),
    )


def load_comparison(folder: Path) -> ComparisonData:
    """Read the finished cells of a comparison.

    Raises:
        InputError: no comparison, none of its cells has finished, or its files are damaged.
    """
    record = RunDirectory(folder).read_json(RECORD)
    where = folder / RECORD
    try:
        entries = record["cells"]
        digests = {str(traffic["folder"]): str(traffic["sha256"]) for traffic in record["traffic"]}
        found = {}
        for entry in entries:
            name = Path(entry["folder"]).name  # never outside the folder, whatever the record says
            found[name] = _cell(folder / "cells" / name, entry, digests[entry["traffic"]])
        failed = set(record["failed"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{where}: not whole; call `vnetsim compare` again. ({type(error).__name__}: {error})"
        ) from None
    cells = tuple(cell for name, cell in found.items() if cell is not None and name not in failed)
    if not cells:
        raise InputError(f"{folder}: no cell of this comparison has finished.")
    learners = tuple(dict.fromkeys(str(entry["learner"]) for entry in entries))
    data = ComparisonData(
        record=record,
        traffic=RunDirectory(folder / "traffic" / Path(next(iter(digests))).name).manifest(),
        learners=learners,
        seeds=tuple(dict.fromkeys(int(entry["seed"]) for entry in entries)),
        cells=cells,
        unfinished=tuple(name for name, cell in found.items() if cell is None and name not in failed),
        metrics=(),
        other_meanings=(),
        alike=(),
    )
    return _with_metrics(data)


def _with_metrics(data: ComparisonData) -> ComparisonData:
    """Return the comparison with the series that can be compared.

    A name, label, unit or caption that differs means that something else is measured, as with losses.
    """
    first = data.cells[0].series
    common = [series for name, series in first.items() if all(name in cell.series for cell in data.cells)]
    same = [series for series in common if all(cell.series[series.name] == series for cell in data.cells)]
    metrics: list[Metric] = []
    alike: list[Metric] = []
    for series in same:
        finals = data.finals(series)
        measured = np.isfinite(finals)
        if not measured.any(axis=0).all():
            continue
        spread = np.ptp(finals[measured.all(axis=1)], axis=1)
        (alike if len(data.learners) > 1 and len(spread) and not spread.any() else metrics).append(series)
    return ComparisonData(
        **{
            **vars(data),
            "metrics": tuple(metrics),
            "alike": tuple(series.label for series in alike),
            "other_meanings": tuple(series.label for series in common if series not in same),
        }
    )
