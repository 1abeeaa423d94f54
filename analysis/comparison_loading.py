"""Reads the folder of a comparison: its record, its traffics, and those cells that have finished."""

from __future__ import annotations

import dataclasses
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from analysis.comparison_data import CellData, ComparisonData, ConditionData, Metric, Traffic
from analysis.formatting import clean
from analysis.participation_bias import participants_by_round, passes
from vnetsim.cells import refuse_altered
from vnetsim.errors import InputError
from vnetsim.run_directory import RunDirectory

RECORD = "comparison.json"
_NOT_GENERAL = frozenset({"scenario", "learner", "seed", "learning", "traffic", "gaussian"})


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


def _spent(run: RunDirectory, participations: pl.DataFrame) -> pl.DataFrame:
    parts = participations.select("end_s", pl.col("download_bytes") + pl.col("upload_bytes"), "train_s")
    parts = parts.rename({"download_bytes": "bytes"})
    if not run.has("exchanges"):
        return parts
    return pl.concat([parts, run.read("exchanges").select("end_s", "bytes", train_s=pl.lit(0.0))])


def _cell(folder: Path, entry: Mapping[str, Any], manifest: Mapping[str, Any], traffic_sha256: str) -> CellData:
    """Return a finished cell.

    Raises:
        InputError: it replayed other traffic, or its files are damaged.
    """
    replayed = {digest for path, digest in manifest["inputs"].items() if path.endswith("windows.parquet")}
    if replayed != {traffic_sha256}:
        raise InputError(f"{folder}: replayed other traffic than the comparison's; delete it to run it again.")
    try:
        experiment = tomllib.loads((folder / "experiment.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{folder / 'experiment.toml'}: unreadable: {error}.") from None
    run = RunDirectory(folder)
    parts = run.read("participations")
    rounds = run.read("rounds").height
    return CellData(
        name=folder.name,
        arm=_arm(entry),
        condition=_condition(entry),
        learner=str(entry["learner"]),
        seed=int(entry["seed"]),
        traffic_sha256=traffic_sha256,
        ended_by=str(manifest["ended_by"]),
        rounds=rounds,
        wanted_rounds=int(experiment["rounds"]),
        begin_s=float((manifest.get("traffic") or {}).get("begin_s") or 0.0),
        time_s=float(manifest["time_s"]),
        metrics=run.read("metrics").filter(pl.col("value").is_finite()).sort("round", maintain_order=True),
        outcomes=Counter(parts["outcome"].to_list()),
        spent=_spent(run, parts),
        passes=passes(run.read("windows"), parts),
        participants=participants_by_round(parts, rounds),
        series=_series(manifest),
        settings=_flat({key: value for key, value in experiment.items() if key not in _NOT_GENERAL}),
    )


def _arm(entry: Mapping[str, Any]) -> str:
    return str(entry.get("arm", entry["learner"]))


def _condition(entry: Mapping[str, Any]) -> str:
    return str(entry.get("condition", ""))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Found:
    """Cells of the record by what became of them, failed ones left out."""

    cells: list[CellData]
    unfinished: list[str]
    other_version: list[str]
    altered: list[str]


def _cells(folder: Path, record: Mapping[str, Any]) -> _Found:
    digests = {str(traffic["folder"]): str(traffic["sha256"]) for traffic in record["traffic"]}
    failed = set(record["failed"])
    found = _Found(cells=[], unfinished=[], other_version=[], altered=[])
    for entry in record["cells"]:
        name = Path(entry["folder"]).name  # never outside the folder, whatever the record says
        digest = digests[entry["traffic"]]
        path = folder / "cells" / name
        if name in failed:
            continue
        manifest = RunDirectory(path).manifest() if (path / "manifest.json").is_file() else {}
        if manifest.get("status") != "finished":
            found.unfinished.append(name)
        elif manifest.get("vnetsim") != record.get("vnetsim", manifest.get("vnetsim")):
            found.other_version.append(name)
        elif line := _altered(path):
            found.altered.append(line)
        else:
            found.cells.append(_cell(path, entry, manifest, digest))
    return found


def _altered(cell: Path) -> str:
    """Return what was altered in a cell since it finished; empty for nothing, or where it has no seal."""
    try:
        refuse_altered(cell)
    except InputError as error:
        return str(error)
    return ""


def _traffics(folder: Path, record: Mapping[str, Any]) -> tuple[Traffic, ...]:
    result = []
    for entry in record["traffic"]:
        manifest = RunDirectory(folder / "traffic" / Path(entry["folder"]).name).manifest()
        settings = entry.get("settings") or {}
        result.append(
            Traffic(
                scenario=clean(Path(str(settings.get("scenario", "scenario"))).name, 60),
                kind=clean((manifest.get("traffic") or {}).get("kind", "")),
                seed=clean(settings.get("seed", "\u2013"), 20),
                sha256=clean(entry["sha256"], 64),
            )
        )
    return tuple(result)


def load_comparison(folder: Path) -> ComparisonData:
    """Read the finished cells of a comparison.

    Raises:
        InputError: no comparison, none of its cells has finished, or its files are damaged.
    """
    record = RunDirectory(folder).read_json(RECORD)
    try:
        found = _cells(folder, record)
        arms = tuple(dict.fromkeys(_arm(entry) for entry in record["cells"]))
        names = dict.fromkeys(_condition(entry) for entry in record["cells"])
        seeds = tuple(dict.fromkeys(int(entry["seed"]) for entry in record["cells"]))
        conditions = tuple(_under(name, arms, record["cells"], found.cells) for name in names)
        traffics = _traffics(folder, record)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder / RECORD}: not whole; call `vnetsim compare` again. ({type(error).__name__}: {error})"
        ) from None
    if not found.cells:
        raise InputError(f"{folder}: no cell of this comparison has finished.")
    return ComparisonData(
        record=record,
        arms=arms,
        seeds=seeds,
        conditions=conditions,
        traffics=traffics,
        unfinished=tuple(found.unfinished),
        other_version=tuple(found.other_version),
        altered=tuple(found.altered),
    )


def _under(
    name: str, arms: Sequence[str], entries: Sequence[Mapping[str, Any]], cells: Sequence[CellData]
) -> ConditionData:
    """Return one condition; seeds at which its cells replayed different traffic are left out."""
    planned = [entry for entry in entries if _condition(entry) == name]
    ours = [cell for cell in cells if cell.condition == name]
    seeds = tuple(dict.fromkeys(int(entry["seed"]) for entry in planned))
    mixed = tuple(seed for seed in seeds if len({cell.traffic_sha256 for cell in ours if cell.seed == seed}) > 1)
    used = {_arm(entry) for entry in planned}
    return with_metrics(
        ConditionData(
            name=name,
            arms=tuple(arm for arm in arms if arm in used),
            looks={arm: place for place, arm in enumerate(arms)},
            seeds=seeds,
            cells=tuple(cell for cell in ours if cell.seed not in mixed),
            mixed_seeds=mixed,
        )
    )


def with_metrics(data: ConditionData) -> ConditionData:
    """Return the condition with the series that can be compared.

    A name, label, unit or caption that differs means that something else is measured, as with losses.
    """
    if not data.cells:
        return data
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
        (alike if len(data.present) > 1 and len(spread) and not spread.any() else metrics).append(series)
    return dataclasses.replace(
        data,
        metrics=tuple(metrics),
        alike=tuple(series.words for series in alike),
        other_meanings=tuple(series.words for series in common if series not in same),
    )
