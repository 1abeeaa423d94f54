"""Load a run directory: tables, manifest, experiment, and the declared curves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import clean, dimension, percent, quantity
from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.learner_facts import AGGREGATOR, CLOUD, Exchange, Series
from vnetsim.storage.records import ManifestRecord
from vnetsim.storage.run_directory import RunDirectory, Scan
from vnetsim.storage.structure import structure
from vnetsim.storage.tables import TABLES, frame

WINDOW_KEY = ("vehicle_id", "rsu_id", "enter_s")
"""Columns that identify a window, in every table with windows."""
_WINDOW_COLUMNS = (*WINDOW_KEY, "exit_s", "entry_speed_mps", "level_px")
_WINDOW_WORDS = ("vehicle_type", "entry_cause", "exit_cause")
MOST_WINDOWS = 1_000_000
"""Of a recording with more windows, only those of one in k vehicles are loaded, chosen by a hash of the id."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Example images, each blurred at several levels."""

    images: NDArray[np.uint8]  # shape (levels, count, H, W, C)
    kernels_px: NDArray[np.float64]  # shape (levels,)
    speeds_mps: NDArray[np.float64]  # shape (levels,)
    # arrays of ``vnetsim.learning.PathFrames`` and ``Sights`` by name; empty if vehicles did not take the images
    paths: Mapping[str, NDArray[Any]]
    places: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class RunData:
    """The data of a run. Fields without a comment are tables of that name, empty if not written (yet)."""

    manifest: ManifestRecord  # ``manifest.json``
    experiment: Experiment  # settings of ``experiment.toml``
    experiment_text: str  # text of ``experiment.toml``
    # the columns of the table ``windows`` that pages use, and ``row``, the place in the table; words are categories,
    # to save memory
    windows: pl.DataFrame
    every: int  # k if ``windows`` has those of one in k vehicles, see ``MOST_WINDOWS``; 1 for all
    recorded: int  # number of windows in the table
    participations: pl.DataFrame
    exchanges: pl.DataFrame
    handovers: pl.DataFrame
    rounds: pl.DataFrame
    merges: pl.DataFrame
    backhaul: pl.DataFrame
    hostile: pl.DataFrame
    measured: pl.DataFrame  # the table ``metrics``, with a row for each aggregator
    silos: pl.DataFrame
    lanes: pl.DataFrame  # the table ``map``
    samples: Samples | None  # example images; None if there are none
    paths: Scan | None  # the table ``windows`` as written, to be read in parts; None if there is none

    @property
    def learning(self) -> bool:
        """Whether the run trains; False for runs without training and recordings of traffic."""
        return self.manifest.kind == "run"

    @property
    def takes_part(self) -> bool:
        """Whether the run has rounds, with or without training; False for recordings of traffic."""
        return self.manifest.kind != "mobility"

    @property
    def scenario(self) -> str:
        """File name of the scenario, without folder and control characters."""
        return clean(Path(self.experiment.scenario.replace("\\", "/")).name)

    @property
    def simulated_s(self) -> float:
        """Simulated time to the end of the run (s); 0 if no end is recorded."""
        begin_s = self.manifest.traffic.begin_s
        return (self.manifest.time_s or begin_s) - begin_s

    @property
    def aggregators(self) -> int:
        """Number of aggregators that closed a round, each with its own model; 1 if there is none."""
        return max(self.rounds["aggregator"].n_unique(), 1)

    @cached_property
    def equipped(self) -> pl.DataFrame:
        """The rows of ``windows`` of equipped vehicles, see ``traffic.equipped``."""
        given, ids = self.experiment.traffic, self.windows["vehicle_id"].unique()
        if given.equipped >= 1:
            return self.windows
        equipped = [name for name in ids if given.equips(name, self.manifest.traffic.seed)]
        return self.windows.filter(pl.col("vehicle_id").is_in(equipped))

    @cached_property
    def rsus(self) -> tuple[Rsu, ...]:
        """The RSUs; at least one."""
        return tuple(Rsu(**dataclasses.asdict(rsu)) for rsu in self.manifest.rsus)

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """The rows of ``measured`` for the page, see ``select_for_page``."""
        return select_for_page(self.measured)

    @cached_property
    def spent(self) -> pl.DataFrame:
        """A row for each participation, then each exchange: ``end_s``, ``bytes`` over the air, ``train_s`` on board."""
        moved = pl.col("download_bytes") + pl.col("upload_bytes")
        exchanges = self.exchanges.select("end_s", pl.col("bytes").cast(pl.Float64), train_s=pl.lit(0.0))
        return pl.concat([self.participations.select("end_s", moved.alias("bytes"), "train_s"), exchanges])

    @property
    def invited(self) -> pl.DataFrame:
        """The participations without those that were not invited (outcome ``not_selected``)."""
        return self.participations.filter(pl.col("outcome") != "not_selected")

    @property
    def exchange_plan(self) -> Exchange | None:
        """The learner's exchange between vehicles; None without such an exchange or a learner."""
        return self.manifest.learner.cost.exchange if self.manifest.learner else None

    @property
    def has_angles(self) -> bool:
        """Whether the learner predicts steering angles; classes in ``silos`` are then ranges of them."""
        return self.manifest.learner is not None and self.manifest.learner.task.startswith("steering")

    @property
    def image_px(self) -> int:
        """Side of a training image (px); 32 if the run had no learner or no images."""
        learner = self.manifest.learner
        return learner.image_shape[-1] if learner and learner.image_shape else 32


def ends_of(windows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return ``WINDOW_KEY``, ``exit_s`` and ``columns`` of windows, the first row for each key, to join with tables."""
    return windows.select(*WINDOW_KEY, "exit_s", *columns).unique(subset=WINDOW_KEY, keep="first", maintain_order=True)


def select_for_page(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return one row per metric and round for a page: of the only model or the cloud, otherwise a mean over RSUs.

    A mean has the aggregator "mean" and the range over the RSUs in the added columns ``low`` and ``high``, which are
    null in other rows. If an RSU has no value after a number of rounds, its last earlier value counts. The time of a
    mean is that of its latest value. Values of RSUs that are not finite are ignored.
    """
    nothing = pl.lit(None, pl.Float64)
    # the spread of the RSUs' models is measured whenever one of them closes a round: keep the last value per round
    of_one = metrics.filter(pl.col("aggregator").is_in([AGGREGATOR, CLOUD, ""])).unique(
        ["round", "name"], keep="last", maintain_order=True
    )
    alone = of_one.with_columns(low=nothing, high=nothing)
    rest = metrics.join(alone.select("name"), on="name", how="anti").with_columns(pl.col("value").fill_nan(None))
    keys = ["round", "name"]
    grid = rest.select(keys).unique().join(rest.select("name", "aggregator").unique(), on="name")
    known = grid.join(rest, on=[*keys, "aggregator"], how="left").sort("round", "name", "aggregator")
    value = pl.col("value")
    means = (
        known.with_columns(pl.col("time_s", "value").forward_fill().over("name", "aggregator"))
        .filter(value.is_finite())
        .group_by(keys, maintain_order=True)
        .agg(pl.col("time_s").max(), value.mean(), aggregator=pl.lit("mean"), low=value.min(), high=value.max())
    )
    return pl.concat([alone, means.select(alone.columns)])


def load(run: Path) -> RunData:
    """Read a run directory, finished or not, except paths of vehicles; InputError if it is none or damaged."""
    directory = RunDirectory(run)
    manifest = directory.manifest_record()
    if not manifest.rsus:
        raise InputError(f"{run / 'manifest.json'}: damaged: it records no RSU.")
    text = directory.read_bytes("experiment.toml").decode("utf-8", "replace")
    experiment = structure(directory.settings(), Experiment, str(run / "experiment.toml"))
    tables = {
        name: directory.read(name) if name != "windows" and directory.has(name) else frame(columns)
        for name, columns in TABLES.items()
    }
    paths, every, recorded = None, 1, 0
    if manifest.status == "finished" or directory.has("windows"):
        # paths are most of a run's data, so they are read only when drawn
        paths = directory.scan("windows")
        recorded = paths.collect(lambda rows: rows.select(pl.len())).item()
        if manifest.kind == "mobility":  # other tables refer to the windows of all vehicles
            every = max(1, -(-recorded // MOST_WINDOWS))
        tables["windows"] = paths.collect(lambda rows: _select_windows(rows, every))
        if recorded and tables["windows"].is_empty():  # there are only few vehicles
            every, tables["windows"] = 1, paths.collect(lambda rows: _select_windows(rows, 1))
    tables["lanes"] = tables.pop("map")
    tables["measured"] = tables.pop("metrics")
    return RunData(
        manifest=manifest,
        experiment=experiment,
        experiment_text=text,
        samples=_to_samples(directory.read_arrays("samples.npz")) if directory.holds("samples.npz") else None,
        paths=paths,
        every=every,
        recorded=recorded,
        **tables,
    )


def _to_samples(arrays: Mapping[str, NDArray[Any]]) -> Samples:
    """Return the arrays of ``samples.npz`` as ``Samples``; names lose the prefixes ``path_`` and ``place_``."""
    parts: dict[str, dict[str, NDArray[Any]]] = {"path_": {}, "place_": {}, "": {}}
    for name, array in arrays.items():
        prefix = next(one for one in parts if name.startswith(one))
        parts[prefix][name.removeprefix(prefix)] = array
    return Samples(**parts[""], paths=parts["path_"], places=parts["place_"])


def _select_windows(rows: pl.LazyFrame, every: int) -> pl.LazyFrame:
    """Return ``RunData.windows`` from the whole table: some columns, of the windows of one in ``every`` vehicles."""
    found = rows.select(*_WINDOW_COLUMNS, *_WINDOW_WORDS).with_row_index("row")
    if every > 1:
        found = found.filter(pl.col("vehicle_id").hash(0) % every == 0)
        # a new text: a selected one keeps the memory of all others
        found = found.with_columns(pl.concat_str("vehicle_id", pl.lit("")))
    return found.with_columns(pl.col(_WINDOW_WORDS).cast(pl.Categorical))


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """One declared metric over rounds."""

    label: str
    unit: str
    caption: str
    group: str  # title of the figure that it shares with others, or empty
    result: bool  # whether it is a headline number
    round: NDArray[np.int64]  # number of rounds before each value
    time_s: NDArray[np.float64]  # simulated time of each value (s), not finite if unknown
    value: NDArray[np.float64]  # in ``unit``; a fraction if that is ``%``
    low: NDArray[np.float64]  # the range over the RSUs' models; NaN for a single model
    high: NDArray[np.float64]

    def words(self, value: float) -> str:
        """Return a value of the curve with its unit; a fraction in per cent if the unit is ``%``."""
        return percent(value) if self.unit == "%" else quantity(value, clean(self.unit, 12))

    def quantity(self, value: float) -> str:
        """Return a value as ``words`` does, but without a unit that names a measure, such as RMSE: the title has it."""
        return percent(value) if self.unit == "%" else quantity(value, clean(dimension(self.unit), 12))


def moved_bytes(spent: pl.DataFrame, time_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bytes over the air of all rows of ``RunData.spent`` that had ended by each time (s)."""
    rows = spent.sort("end_s")
    sums = np.concatenate([[0.0], rows["bytes"].cum_sum().to_numpy()])
    return np.asarray(sums[np.searchsorted(rows["end_s"].to_numpy(), time_s, side="right")], np.float64)


def curves(run: RunData) -> list[Curve]:
    """Return a curve for each declared metric with a finite value, in order, then for the loss if not declared."""
    result, finite = [], run.metrics.filter(pl.col("value").is_finite())
    for series in run.manifest.series:
        rows = finite.filter(pl.col("name") == series.name).sort("round", maintain_order=True)
        if not rows.is_empty():
            result.append(_to_curve(series, rows))
    loss = pl.col("loss")
    losses = run.rounds.filter(loss.is_finite()).group_by(pl.col("round") + 1)
    ends = losses.agg(time_s=pl.col("close_s").max(), value=loss.mean(), low=loss.min(), high=loss.max()).sort("round")
    declared = any(series.name in ("loss", "train_loss", "training_loss") for series in run.manifest.series)
    if not declared and not ends.is_empty():
        caption = "Mean training loss of the aggregated updates."
        result.append(_to_curve(Series(name="loss", label="training loss", caption=caption, result=True), ends))
    return result


def _to_curve(series: Series, rows: pl.DataFrame) -> Curve:
    """Return a metric as a curve; ``rows`` has the columns round, time_s, value, low, high. Cleans its texts."""
    points = ("round", "time_s", "value", "low", "high")
    return Curve(
        label=clean(series.label or series.name, 40),
        unit=series.unit,
        caption=clean(series.caption, 400),
        group=clean(series.group, 60),
        result=series.result,
        **{name: rows[name].cast(pl.Int64 if name == "round" else pl.Float64).to_numpy() for name in points},
    )
