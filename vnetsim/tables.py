"""The tables of a run directory: columns, types, units. Units and meanings travel in the Parquet field metadata."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from arro3.core import Schema, Table


@dataclass(frozen=True)
class Column:
    """One column: Parquet type, unit (``""`` for none) and meaning."""

    name: str
    dtype: pl.DataType
    unit: str
    meaning: str


TEXT, INTEGER, REAL = pl.String(), pl.Int64(), pl.Float64()
REALS = pl.List(pl.Float64())

WINDOWS = (
    Column("window", INTEGER, "", "index, in order of exit"),
    Column("vehicle_id", TEXT, "", "vehicle"),
    Column("vehicle_type", TEXT, "", "vehicle type, empty where unknown"),
    Column("rsu_id", TEXT, "", "RSU"),
    Column("enter_s", REAL, "s", "first instant inside the disc"),
    Column("exit_s", REAL, "s", "first instant outside the disc again"),
    Column("entry_cause", TEXT, "", "crossing, departure, teleport or begin"),
    Column("exit_cause", TEXT, "", "crossing, arrival, teleport or end"),
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

PARTICIPATIONS = (
    Column("participation", INTEGER, "", "index, in order of end"),
    Column("round", INTEGER, "", "round that was open at the end"),
    Column("base_round", INTEGER, "", "round whose global model was sent; equals round unless stale or never invited"),
    Column("vehicle_id", TEXT, "", "vehicle"),
    Column("rsu_id", TEXT, "", "RSU"),
    Column("silo", INTEGER, "", "data shard the vehicle carries"),
    Column("approach", INTEGER, "", "approach direction, index of the sector of entry"),
    Column("enter_s", REAL, "s", "start of the coverage window it belongs to; with vehicle_id and rsu_id its key"),
    Column("outcome", TEXT, "", "how it ended, one of vnetsim.simulation.OUTCOMES"),
    Column("start_s", REAL, "s", "invitation, or entry when never invited"),
    Column("end_s", REAL, "s", "end"),
    Column("download_s", REAL, "s", "time spent receiving"),
    Column("train_s", REAL, "s", "time spent training on board"),
    Column("upload_s", REAL, "s", "time spent sending"),
    Column("wait_s", REAL, "s", "time spent waiting for the round's exchange between vehicles to begin"),
    Column("exchange_s", REAL, "s", "time spent exchanging with other vehicles"),
    Column("download_bytes", REAL, "B", "bytes received, also of a transfer cut short"),
    Column("upload_bytes", REAL, "B", "bytes sent, also of a transfer cut short"),
    Column("exchange_bytes", REAL, "B", "bytes of its own exchanges, see the table exchanges; also of those cut short"),
    Column("speed_mps", REAL, "m/s", "speed at entry, as reported to the RSU"),
    Column("level_px", REAL, "px", "blur level at that speed, on the sensor"),
    Column("weight", REAL, "", "weight in the aggregate; null when not aggregated"),
    Column("loss", REAL, "", "mean training loss of the visit; null when not trained"),
)

EXCHANGES = (
    Column("exchange", INTEGER, "", "index, in order of end"),
    Column("round", INTEGER, "", "round"),
    Column("sender_id", TEXT, "", "vehicle whose model is sent"),
    Column(
        "receiver_id",
        TEXT,
        "",
        "vehicle that receives it; some learners have it work on it and send it back",
    ),
    Column("sender_silo", INTEGER, "", "data shard of the sender"),
    Column("receiver_silo", INTEGER, "", "data shard of the receiver"),
    Column("via", TEXT, "", "sidelink, relay (through the RSU), or empty when they were never in contact"),
    Column("outcome", TEXT, "", "completed or cut"),
    Column("start_s", REAL, "s", "when the round's exchange began"),
    Column("end_s", REAL, "s", "when this exchange was complete or cut"),
    Column("contact_s", REAL, "s", "time in contact between these two"),
    Column("bytes", REAL, "B", "bytes moved over the air, both ways and both hops of a relay, also when cut"),
    Column("sender_x_m", REAL, "m", "position at start_s, net coordinates"),
    Column("sender_y_m", REAL, "m", "position at start_s, net coordinates"),
    Column("receiver_x_m", REAL, "m", "position at start_s, net coordinates"),
    Column("receiver_y_m", REAL, "m", "position at start_s, net coordinates"),
    Column("value", REAL, "", "the learner's figure for it, described in the manifest; null without one"),
)

ROUNDS = (
    Column("round", INTEGER, "", "index"),
    Column("open_s", REAL, "s", "opening"),
    Column("close_s", REAL, "s", "closing and aggregation"),
    Column("closed_by", TEXT, "", "quorum, deadline or traffic_end"),
    Column("invited", INTEGER, "", "participations invited while it was open"),
    Column("committed", INTEGER, "", "updates aggregated"),
    Column("rejected", INTEGER, "", "updates with non-finite values"),
    Column("loss", REAL, "", "mean training loss of the aggregated updates; null without any"),
)

METRICS = (
    Column("round", INTEGER, "", "rounds aggregated before the measurement; 0 is the untrained model"),
    Column("time_s", REAL, "s", "simulated time of the measurement"),
    Column("name", TEXT, "", "series, described in the manifest"),
    Column("value", REAL, "", "value, in the series' unit"),
)

SILOS = (
    Column("silo", INTEGER, "", "data shard"),
    Column("class", INTEGER, "", "label"),
    Column("class_name", TEXT, "", "label in words"),
    Column("images", INTEGER, "", "number of images"),
)

MAP = (
    Column("lane", INTEGER, "", "index of the polyline"),
    Column("x_m", REALS, "m", "x of its points, net coordinates"),
    Column("y_m", REALS, "m", "y of its points, net coordinates"),
)

COMPARISON = (
    Column("arm", TEXT, "", "what is compared: a learner with its settings"),
    Column("condition", TEXT, "", "under what it is compared; empty where there is one condition only"),
    Column("learner", TEXT, "", "learner"),
    Column("seed", INTEGER, "", "seed of the cell"),
    Column("metric", TEXT, "", "series, described in the manifest of the cell"),
    Column("unit", TEXT, "", "unit of the value; % stands for a fraction"),
    Column("value", REAL, "", "last value measured in the cell"),
    Column("rounds", INTEGER, "", "rounds the cell aggregated"),
    Column("time_s", REAL, "s", "simulated time at the end of the cell"),
    Column("bytes", REAL, "B", "bytes over the radio links and between vehicles, also of transfers cut short"),
    Column("cell", TEXT, "", "folder of the cell"),
)
"""Table of a comparison: one row for each cell and metric."""

COMPARISON_TARGETS = (
    Column("arm", TEXT, "", "what is compared: a learner with its settings"),
    Column("condition", TEXT, "", "under what it is compared; empty where there is one condition only"),
    Column("learner", TEXT, "", "learner"),
    Column("seed", INTEGER, "", "seed of the cell"),
    Column("metric", TEXT, "", "series whose target it is, described in the manifest of the cell"),
    Column("unit", TEXT, "", "unit of the target; % stands for a fraction"),
    Column("target", REAL, "", "the worst arm's mean final value under this condition"),
    Column("round", INTEGER, "", "rounds aggregated when the target was first reached; null when never, like the next"),
    Column("time_s", REAL, "s", "simulated time since the beginning"),
    Column("bytes", REAL, "B", "bytes over the radio links and between vehicles until then"),
    Column("device_s", REAL, "s", "training time on board until then, summed over vehicles"),
    Column("cell", TEXT, "", "folder of the cell"),
)
"""Second table of a comparison, when each cell reached a common target: one row for each cell."""

TABLES = {
    "windows": WINDOWS,
    "participations": PARTICIPATIONS,
    "exchanges": EXCHANGES,
    "rounds": ROUNDS,
    "metrics": METRICS,
    "silos": SILOS,
    "map": MAP,
}


def to_parquet(name: str, rows: pl.DataFrame | list[tuple[object, ...]]) -> bytes:
    """Return the table called ``name`` as a Parquet file with units and meanings in its field metadata.

    Args:
        name: key of ``TABLES``.
        rows: a frame with the table's columns, or tuples in their order.
    """
    return parquet(TABLES[name], rows)


def parquet(columns: Sequence[Column], rows: pl.DataFrame | list[tuple[object, ...]]) -> bytes:
    """Return a Parquet file of these columns; see ``to_parquet``."""
    frame = (
        rows.select([pl.col(c.name).cast(c.dtype) for c in columns])
        if isinstance(rows, pl.DataFrame)
        else pl.DataFrame(rows, schema={c.name: c.dtype for c in columns}, orient="row")
    )
    fields = Table.from_arrow(frame.clear()).schema
    schema = Schema(
        [f.with_metadata({"unit": c.unit, "description": c.meaning}) for f, c in zip(fields, columns, strict=True)]
    )
    buffer = io.BytesIO()
    frame.write_parquet(buffer, arrow_schema=schema)
    return buffer.getvalue()
