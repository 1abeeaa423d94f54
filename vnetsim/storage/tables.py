"""The tables of runs and comparisons: columns, types, units. The Parquet field metadata has units and meanings."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args, get_type_hints

import polars as pl
from arro3.core import Schema, Table

from vnetsim.storage.rows import ExchangeRecord, HandoverRecord, MergeRecord, ParticipationRecord, RoundRecord


@dataclass(frozen=True)
class Column:
    """One column: name, Parquet type, unit (may be empty) and meaning in words."""

    name: str
    dtype: pl.DataType
    unit: str
    meaning: str


Rows = pl.DataFrame | list[tuple[object, ...]]
"""A table: a data frame, or tuples in the order of the columns."""

TEXT, INTEGER, REAL = pl.String(), pl.Int64(), pl.Float64()
REALS = pl.List(pl.Float64())


def _columns(row: type) -> tuple[Column, ...]:
    """Return the columns of a table from its row class in ``vnetsim.storage.rows``."""
    found = []
    for name, hint in get_type_hints(row, include_extras=True).items():
        plain, unit, meaning = get_args(hint)
        kind, *_ = get_args(plain) or (plain,)  # float of float | None, the first word of a Literal
        found.append(Column(name, {int: INTEGER, float: REAL}.get(kind, TEXT), unit, meaning))
    return tuple(found)


CUT_ENTRY, CUT_EXIT = ("begin", "gap"), ("end", "gap")
"""Causes of entry and exit of windows that are cut off: the true dwell time is unknown."""
WINDOWS = (
    Column("window", INTEGER, "", "index, in order of exit"),
    Column("vehicle_id", TEXT, "", "vehicle"),
    Column("vehicle_type", TEXT, "", "vehicle type, empty where unknown"),
    Column("rsu_id", TEXT, "", "RSU"),
    Column("enter_s", REAL, "s", "first instant inside the disc"),
    Column("exit_s", REAL, "s", "first instant outside the disc again"),
    Column("entry_cause", TEXT, "", "crossing, departure, teleport, begin or gap"),
    Column("exit_cause", TEXT, "", "crossing, arrival, teleport, end or gap"),
    Column("entry_edge", TEXT, "", "edge at entry, empty where unknown"),
    Column("exit_edge", TEXT, "", "edge at exit, empty where unknown"),
    Column("entry_speed_mps", REAL, "m/s", "speed at entry"),
    Column("mean_speed_mps", REAL, "m/s", "path length over dwell time"),
    Column("max_speed_mps", REAL, "m/s", "highest sampled speed"),
    Column("path_length_m", REAL, "m", "length of the path inside"),
    Column("level_px", REAL, "px", "blur level at entry speed, on the sensor"),
    Column("path_time_s", REALS, "s", "times of the path's points, entry first, exit last"),
    Column("path_x_m", REALS, "m", "x of the path's points, net coordinates"),
    Column("path_y_m", REALS, "m", "y of the path's points, net coordinates"),
    Column("path_speed_mps", REALS, "m/s", "speeds at the path's points"),
)

BACKHAUL = (
    Column("rsu_id", TEXT, "", "RSU"),
    Column("down_bytes", REAL, "B", "sent to it over its wire"),
    Column("up_bytes", REAL, "B", "sent from it"),
    Column("down_messages", INTEGER, "", "models and updates sent to it"),
    Column("up_messages", INTEGER, "", "models and updates sent from it"),
    Column("down_busy_s", REAL, "s", "time during which its wire carried something to it; 0 at an infinite rate"),
    Column("up_busy_s", REAL, "s", "time during which its wire carried something from it; 0 at an infinite rate"),
)

METRICS = (
    Column("round", INTEGER, "", "rounds aggregated before it, 0 for the untrained model; the cloud counts its own"),
    Column("time_s", REAL, "s", "simulated time of the measurement"),
    Column("name", TEXT, "", "series, described in the manifest"),
    Column("value", REAL, "", "value, in the series' unit"),
    Column("aggregator", TEXT, "", "whose model: single, an RSU's id, or cloud; empty for a value of all models"),
)

SILOS = (
    Column("silo", INTEGER, "", "the silo"),
    Column("class", INTEGER, "", "label"),
    Column("class_name", TEXT, "", "label in words"),
    Column("images", INTEGER, "", "number of images"),
)

MAP = (
    Column("lane", INTEGER, "", "index of the polyline"),
    Column("x_m", REALS, "m", "x of its points, net coordinates"),
    Column("y_m", REALS, "m", "y of its points, net coordinates"),
)

_CELL = (
    Column("arm", TEXT, "", "what is compared: a learner with its settings"),
    Column("condition", TEXT, "", "condition of the comparison; empty if there is only one"),
    Column("learner", TEXT, "", "learner"),
    Column("seed", INTEGER, "", "seed of the cell"),
)
_FOLDER = Column("cell", TEXT, "", "folder of the cell")

COMPARISON = (
    *_CELL,
    Column("metric", TEXT, "", "series, described in the manifest of the cell"),
    Column("unit", TEXT, "", "unit of the value; % means that the value is a fraction"),
    Column("value", REAL, "", "mean of the last values measured in the cell"),
    Column("evaluations", INTEGER, "", "number of these values; 1 for the last value alone"),
    Column("rounds", INTEGER, "", "rounds that the cell aggregated"),
    Column("simulated_s", REAL, "s", "simulated time from the start of the cell to its end"),
    Column("bytes", REAL, "B", "bytes over the radio links and between vehicles, also of transfers cut short"),
    _FOLDER,
)
"""First table of a comparison: one row for each cell and metric."""

COMPARISON_TARGETS = (
    *_CELL,
    Column("metric", TEXT, "", "series that the target belongs to, described in the manifest of the cell"),
    Column("unit", TEXT, "", "unit of the target; % means that the target is a fraction"),
    Column("target", REAL, "", "mean of the compared values of the worst arm under this condition"),
    Column("round", INTEGER, "", "rounds aggregated when the target was first reached; null if it never was"),
    Column("simulated_s", REAL, "s", "simulated time from the start of the cell until then; null if never"),
    Column("bytes", REAL, "B", "bytes over the radio links and between vehicles until then; null if never"),
    Column("device_s", REAL, "s", "training time on board until then, summed over vehicles; null if never"),
    _FOLDER,
)
"""Second table of a comparison: when each cell first reached the common target, one row for each cell."""

COMPARISON_DIFFERENCES = (
    Column("compared", TEXT, "", "arms (under one condition) or conditions (with one arm)"),
    Column("within", TEXT, "", "that condition (empty if there is only one) or that arm"),
    Column("first", TEXT, "", "first arm or condition"),
    Column("second", TEXT, "", "second arm or condition; differences are first minus second, paired by seed"),
    Column("metric", TEXT, "", "series, described in the manifest of the cells"),
    Column("unit", TEXT, "", "unit of difference, deviation, low, high and resolves; % means that they are fractions"),
    Column("evaluations", INTEGER, "", "number of last evaluations of a run whose mean is compared"),
    Column("seeds", INTEGER, "", "number of seeds that both have"),
    Column("difference", REAL, "", "mean difference"),
    Column("deviation", REAL, "", "standard deviation of the differences"),
    Column("method", TEXT, "", "method of test and interval: sign-flip or t"),
    Column(
        "tests",
        INTEGER,
        "",
        "number of differences in the table for which p (Holm) and interval (Bonferroni) are corrected",
    ),
    Column("low", REAL, "", "lower end of the simultaneous 95 % interval; null if unbounded"),
    Column("high", REAL, "", "upper end of that interval; null if unbounded"),
    Column("p", REAL, "", "corrected p-value; null if there are too few seeds for a test"),
    Column("effect", REAL, "", "effect size d_z: mean over standard deviation of the differences"),
    Column("resolves", REAL, "", "smallest true difference that these seeds resolve with 80 % power; null if none"),
    Column("seeds_needed", INTEGER, "", "number of seeds that resolve the observed difference with 80 % power"),
    Column(
        "verdict", TEXT, "", "first or second, whichever is resolved to be higher; empty if neither is, or withheld"
    ),
)
"""Third table of a comparison: one row for each pair and metric."""

COMPARISON_MEASURES = (
    *_CELL,
    Column(
        "measure",
        TEXT,
        "",
        "commits: participations that committed; commits_per_h: the same per hour of simulated time, null for "
        "runs under ten minutes; bytes_per_commit: all bytes over the air divided by the number of commits; "
        "wasted_train_s, wasted_train_share: training time on board of "
        "participations that did not commit, and its share of all training time; wasted_bytes, wasted_bytes_share: "
        "bytes of these participations and of the exchanges they sent, and their share of all bytes; gini: Gini "
        "coefficient of the commits over all silos; contested_share: share of the invitations made while another "
        "vehicle was waiting that could have been invited instead; fluctuation: standard deviation of the training "
        "loss from round to round, its trend removed; commit_share_speed, commit_share_direction: share "
        "of the updates aggregated with a weight above 0, by speed at entry or by direction of the first entry",
    ),
    Column("unit", TEXT, "", "unit of the value; % means that the value is a fraction"),
    Column("bin", TEXT, "", "range of speeds, or direction, of a share; empty for other measures"),
    Column("bin_unit", TEXT, "", "unit of the bin's ends"),
    Column("value", REAL, "", "value; null if its denominator is 0"),
    _FOLDER,
)
"""Fourth table of a comparison: cost and distribution of uploads, one row for each cell, measure and bin."""

COMPARISON_TABLES = {
    "comparison": COMPARISON,
    "comparison_differences": COMPARISON_DIFFERENCES,
    "comparison_targets": COMPARISON_TARGETS,
    "comparison_measures": COMPARISON_MEASURES,
    "comparison_measure_differences": COMPARISON_DIFFERENCES,
}

TABLES = {
    "windows": WINDOWS,
    "participations": _columns(ParticipationRecord),
    "exchanges": _columns(ExchangeRecord),
    "handovers": _columns(HandoverRecord),
    "rounds": _columns(RoundRecord),
    "merges": _columns(MergeRecord),
    "backhaul": BACKHAUL,
    "metrics": METRICS,
    "silos": SILOS,
    "map": MAP,
}


def to_parquet(name: str, rows: Rows) -> bytes:
    """Return the table called ``name`` in ``TABLES`` as a Parquet file; see ``parquet``."""
    return parquet(TABLES[name], rows)


def arrow_schema(columns: Sequence[Column]) -> Schema:
    """Return columns as an Arrow schema with units and meanings in the fields' metadata."""
    fields = Table.from_arrow(pl.DataFrame(schema={c.name: c.dtype for c in columns})).schema
    return Schema(
        [f.with_metadata({"unit": c.unit, "description": c.meaning}) for f, c in zip(fields, columns, strict=True)]
    )


def parquet(columns: Sequence[Column], rows: Rows) -> bytes:
    """Return rows as a Parquet file with units and meanings in its metadata.

    A data frame's other columns are dropped, and values are converted to the columns' types.
    """
    frame = (
        rows.select([pl.col(c.name).cast(c.dtype) for c in columns])
        if isinstance(rows, pl.DataFrame)
        else pl.DataFrame(rows, schema={c.name: c.dtype for c in columns}, orient="row")
    )
    buffer = io.BytesIO()
    frame.write_parquet(buffer, arrow_schema=arrow_schema(columns))
    return buffer.getvalue()
