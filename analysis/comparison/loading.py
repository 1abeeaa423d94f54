"""Load the folder of a comparison: its record, its traffics and its finished cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import numpy as np
import polars as pl

from analysis.comparison.data import CellData, ComparisonData, ConditionData, Metric, RecordedTraffic, common_series
from analysis.comparison.measures import TIMING_METRICS, timing_figures, traffic_metrics, with_equal_commits
from analysis.formatting import MOST_NAMED, NONE, clean, count, named
from analysis.loading import load, select_for_page
from analysis.report.invitations import invitations_of
from analysis.report.notices import notices
from analysis.statistics.participation import run_measures, windows_with_updates
from analysis.statistics.windows import dwell
from vnetsim.errors import InputError
from vnetsim.learner_facts import CLOUD
from vnetsim.storage.records import COMPARED, COMPARISON, CellEntry, ComparisonRecord, RsuEntry
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.structure import flat

OF_RSUS = ".rsus"
"""Suffix of a series' name for the RSUs' mean, if the cloud is measured too."""
_OF_RSUS = "Mean over the RSUs' newest models, each measured before it goes to the cloud."
_OF_DWELL = ("enter_s", "exit_s", "entry_cause", "exit_cause")
_NOT_GENERAL = frozenset({"scenario", "learner", "seed", "learning", "traffic", "source"})


def _load_cell(folder: Path, entry: CellEntry, traffic: RecordedTraffic, own: AbstractSet[str]) -> CellData:
    """Load a finished cell, without settings whose key is in ``own``; InputError if it did not replay ``traffic``."""
    run = load(folder)
    manifest, parts, timed = run.manifest, run.participations, run.manifest.kind == "timing"
    if timed:  # without training there are no weights: every commit counts
        parts = parts.with_columns(pl.col("weight").fill_null(1.0))
    if {digest for path, digest in manifest.inputs.items() if path.endswith("windows.parquet")} != {traffic.sha256}:
        raise InputError(f"{folder}: replayed other traffic than the comparison's; delete it to run it again.")
    experiment = RunDirectory(folder).settings()
    settings = flat({key: value for key, value in experiment.items() if key not in _NOT_GENERAL})
    begin_s = manifest.traffic.begin_s
    silos = int(settings.get("silos.count", 0))
    figures = run_measures(parts, run.equipped, run.rounds, span_s=run.simulated_s, silos=silos)
    figures |= timing_figures(run) if timed else {}
    figures |= traffic.outcomes
    cloud = pl.col("aggregator") == CLOUD
    of_cloud = run.measured.filter(cloud)["name"].unique()
    of_rsus = run.measured.filter(~cloud, pl.col("round") > 0, pl.col("name").is_in(of_cloud.implode()))
    of_rsus = select_for_page(of_rsus).with_columns(pl.col("name") + OF_RSUS).select(run.metrics.columns)
    metrics = _with_commits(pl.concat([run.metrics, of_rsus]), run.rounds).filter(pl.col("value").is_finite())
    declared = [
        Metric(
            name=one.name,
            label=clean(one.label or one.name, 40),
            unit=clean(one.unit, 12),
            caption=clean(one.caption, 400),
        )
        for one in manifest.series
    ]
    measured = set(of_rsus["name"])
    declared += [
        dataclasses.replace(one, name=name, label=f"{one.label}, RSUs' models", caption=_OF_RSUS)
        for one in declared
        if (name := one.name + OF_RSUS) in measured
    ]
    series = [*(TIMING_METRICS if timed else declared), *traffic_metrics(traffic.outcomes)]
    since_begin = pl.selectors.by_name("time_s", "end_s", require_all=False) - begin_s
    return CellData(
        entry=entry,
        traffic=traffic,
        ended_by=str(manifest.ended_by),
        rounds=run.rounds.height,
        wanted_rounds=(0 if timed else int(experiment.get("rounds", 0)) * run.aggregators) or run.rounds.height,
        empty_rounds=run.rounds.filter(pl.col("committed") == 0).height,
        simulated_s=run.simulated_s,
        metrics=metrics.sort("round", maintain_order=True).with_columns(since_begin),
        figures={name: value for name, value in figures.items() if value is not None and np.isfinite(value)},
        outcomes=dict(parts["outcome"].value_counts().iter_rows()),
        invitations=invitations_of(run),
        vehicles=run.windows["vehicle_id"].n_unique(),
        spent=run.spent.with_columns(since_begin),
        windows=windows_with_updates(run.equipped, parts),
        series={metric.name: metric for metric in series},
        settings={key: value for key, value in settings.items() if key not in own}
        | flat(experiment.get("learning") or {}, "learning."),
        notices=tuple(notices(run)),
    )


def _with_commits(metrics: pl.DataFrame, rounds: pl.DataFrame) -> pl.DataFrame:
    """Return ``metrics`` by time, with ``commits``: updates committed in all rounds closed by ``time_s``, or 0."""
    closed = rounds.group_by(time_s="close_s").agg(pl.col("committed").sum()).sort("time_s")
    counted = closed.select("time_s", commits=pl.col("committed").cum_sum())
    found = metrics.sort("time_s", maintain_order=True).join_asof(counted, on="time_s")
    return found.with_columns(pl.col("commits").fill_null(0))


def _rsu_words(rsus: Sequence[RsuEntry]) -> str:
    """Return in words ids, positions and ranges of the first three RSUs, and the number of others, if any."""
    shown = [f"{clean(one.id, 40)} ({one.x_m:g}, {one.y_m:g}), {one.range_m:g} m" for one in rsus[:3]]
    return "; ".join([*shown, *([f"{len(rsus) - 3} more"] if len(rsus) > 3 else [])])


_LEFT_OUT_LINES = {
    "unfinished": "Not finished, and missing here: {}.",
    "version": "Left out, because another version of vnetsim ran them: {}.",
    "short": "Left out, because their traffic ended before the {last} evaluations that are compared: {}.",
}


def _load_cells(
    folder: Path, record: ComparisonRecord, traffics: Mapping[str, RecordedTraffic]
) -> tuple[list[CellData], list[str]]:
    """Return the cells that can be compared, and sentences on others that did not fail; InputError if none can be."""
    own = frozenset(record.arm_settings)
    cells: list[CellData] = []
    others: dict[str, list[str]] = {why: [] for why in _LEFT_OUT_LINES}
    altered: list[str] = []
    for entry in record.cells:
        name = Path(entry.folder).name  # a path in the record must not lead outside the folder
        if name in record.failed:
            continue
        run = RunDirectory(folder / "cells" / name)
        try:
            manifest = run.manifest_record() if run.holds("manifest.json") else None
            if manifest is None or manifest.status != "finished":
                others["unfinished"].append(name)
                continue
            if manifest.vnetsim != record.vnetsim:
                others["version"].append(name)
                continue
            run.verify(*COMPARED)
        except InputError as error:
            altered.append(str(error))
            continue
        cell = _load_cell(run.path, entry, traffics[entry.traffic], own)
        too_short = record.last_evaluations > 1 and cell.evaluations < record.last_evaluations
        others["short"].append(name) if too_short else cells.append(cell)
    if not cells and others["short"]:
        raise InputError(
            f"{folder}: the traffic ended before any cell had the {record.last_evaluations} evaluations that are "
            "compared."
        )
    if not cells:
        raise InputError(f"{folder}: no cell of this comparison has finished.")
    lines = [
        _LEFT_OUT_LINES[why].format(named(names), last=record.last_evaluations)
        for why, names in others.items()
        if names
    ]
    lines += [f"Left out: {clean(line, 400)}" for line in altered[:MOST_NAMED]]
    if len(altered) > MOST_NAMED:
        lines.append(f"{count(len(altered) - MOST_NAMED)} more altered cells are left out.")
    return cells, lines


def _load_record(folder: Path) -> ComparisonRecord:
    """Load ``comparison.json``; InputError if it is missing, damaged, or lists no cells yet."""
    path, record = folder / COMPARISON, RunDirectory(folder).comparison_record()
    if not record.cells:
        raise InputError(f"{path}: lists no cells yet; call `vnetsim compare` again.")
    if record.last_evaluations < 1:
        raise InputError(f"{path}: damaged: 'last_evaluations' must be at least 1, got {record.last_evaluations}.")
    known = {traffic.folder for traffic in record.traffic}
    for index, cell in enumerate(record.cells):
        if cell.traffic not in known:
            raise InputError(f"{path}: damaged: 'cells.{index}.traffic' is none of the traffic in it.")
    return record


def _load_traffics(folder: Path, record: ComparisonRecord) -> dict[str, RecordedTraffic]:
    """Load the recorded traffics, by their folder in the record; InputError if a file is missing or damaged."""
    result = {}
    for entry in record.traffic:
        run = RunDirectory(folder / "traffic" / Path(entry.folder).name)
        manifest = run.manifest_record()
        made = manifest.traffic
        windows = run.scan("windows").collect(lambda rows: rows.select(*_OF_DWELL)) if run.has("windows") else None
        result[entry.folder] = RecordedTraffic(
            scenario=clean(Path(str(entry.settings.get("scenario", "scenario"))).name, 60),
            # the seed that was used, also if the settings left it open
            seed=NONE if made.seed is None else clean(made.seed, 20),
            rsus=_rsu_words(manifest.rsus),
            sha256=clean(entry.sha256, 64),
            dwell=None if windows is None or windows.is_empty() else dwell(windows),
            outcomes=manifest.traffic_outcomes,
        )
    return result


def load_comparison(folder: Path) -> ComparisonData:
    """Read the usable cells of a comparison; ``left_out`` of the result has sentences on others that did not fail.

    Usable cells are finished, unaltered, of the same version, and long enough. InputError: ``folder`` is no comparison,
    no cell is usable, a cell replayed other traffic, or a file is damaged.
    """
    record = _load_record(folder)
    traffics = _load_traffics(folder, record)
    cells, left_out = _load_cells(folder, record, traffics)
    arms = tuple(dict.fromkeys(entry.arm for entry in record.cells))
    return ComparisonData(
        record=record,
        arms=arms,
        seeds=tuple(dict.fromkeys(entry.seed for entry in record.cells)),
        conditions=tuple(
            _condition_data(name, arms, record, cells)
            for name in dict.fromkeys(entry.condition for entry in record.cells)
        ),
        traffics=tuple(traffics.values()),
        left_out=tuple(left_out),
    )


def _condition_data(
    name: str, arms: Sequence[str], record: ComparisonRecord, cells: Sequence[CellData]
) -> ConditionData:
    """Return a condition with its metrics; cells of seeds at which not all replayed the same traffic are left out."""
    planned = [entry for entry in record.cells if entry.condition == name]
    ours = [cell for cell in cells if cell.entry.condition == name]
    seeds = tuple(dict.fromkeys(entry.seed for entry in planned))
    digests = {seed: {cell.traffic.sha256 for cell in ours if cell.entry.seed == seed} for seed in seeds}
    mixed = tuple(seed for seed in seeds if len(digests[seed]) > 1)
    used = {entry.arm for entry in planned}
    data = ConditionData(
        name=name,
        arms=tuple(arm for arm in arms if arm in used),
        looks={arm: place for place, arm in enumerate(arms)},
        seeds=seeds,
        cells=tuple(cell for cell in ours if cell.entry.seed not in mixed),
        mixed_seeds=mixed,
        against=record.against if record.against in used else "",
    )
    return with_equal_commits(with_metrics(data, record.last_evaluations))


def with_metrics(data: ConditionData, last: int = 1) -> ConditionData:
    """Return the condition with its series sorted into ``metrics``, ``alike``, ``fixed`` and ``other_meanings``.

    Each is compared by the mean of its ``last`` last values. Series without a value for some arm are left out. A
    condition without cells is returned unchanged.
    """
    if not data.cells:
        return data
    same, others = common_series(data.cells, last)
    metrics: list[Metric] = []
    alike: list[Metric] = []
    fixed: list[Metric] = []
    for series in same:
        finals = data.finals(series)
        measured = np.isfinite(finals)
        if not measured.any(axis=0).all():
            continue
        whole = finals[measured.all(axis=1)]
        apart = np.fmax.reduce(finals, axis=1) > np.fmin.reduce(finals, axis=1)  # also where an arm has no value
        if len(data.present) > 1 and len(whole) and not apart.any():
            alike.append(series)
        elif len(whole) > 1 and not series.better and series.known is None and not np.ptp(whole, axis=0).any():
            fixed.append(series)
        else:
            metrics.append(series)
    return dataclasses.replace(
        data,
        metrics=tuple(metrics),
        alike=tuple(alike),
        fixed=tuple(series.words for series in fixed),
        other_meanings=tuple(series.words for series in others),
    )
