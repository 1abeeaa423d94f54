"""The tables of a run directory: columns, types, units. Units and meanings travel in the Parquet field metadata."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from arro3.core import Schema, Table


@dataclass(frozen=True)
class Column:
    """One column: its Parquet type, its unit, empty for none, and its meaning in words."""

    name: str
    dtype: pl.DataType
    unit: str
    meaning: str


TEXT, INTEGER, REAL = pl.String(), pl.Int64(), pl.Float64()
REALS = pl.List(pl.Float64())

_AGGREGATOR = Column("aggregator", TEXT, "", "whose round: single for one over all RSUs, else the RSU's id")

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
    Column(
        "base_round",
        INTEGER,
        "",
        "round whose model was sent, of base_aggregator; equals round unless stale",
    ),
    Column("vehicle_id", TEXT, "", "vehicle"),
    Column("rsu_id", TEXT, "", "RSU"),
    Column("silo", INTEGER, "", "silo that the vehicle carries"),
    Column("approach", INTEGER, "", "approach direction, index of the sector of entry"),
    Column("enter_s", REAL, "s", "start of the coverage window it belongs to; with vehicle_id and rsu_id its key"),
    Column("outcome", TEXT, "", "how it ended, one of vnetsim.simulation.stages.OUTCOMES"),
    Column("start_s", REAL, "s", "invitation, or entry when never invited"),
    Column("end_s", REAL, "s", "end"),
    Column("download_s", REAL, "s", "time spent receiving, and before until the RSU had the model"),
    Column("train_s", REAL, "s", "time spent training on board"),
    Column("upload_s", REAL, "s", "time spent sending"),
    Column(
        "wait_s",
        REAL,
        "s",
        "time spent waiting for the round's exchange between vehicles to begin; with handover.policy = multi, while "
        "the vehicle downloaded or trained in the row of another RSU with the same vehicle_id and start_s",
    ),
    Column("exchange_s", REAL, "s", "time spent exchanging with other vehicles"),
    Column("download_bytes", REAL, "B", "bytes received, also of a transfer cut short"),
    Column("upload_bytes", REAL, "B", "bytes sent, also of a transfer cut short"),
    Column("exchange_bytes", REAL, "B", "bytes of its own exchanges, see the table exchanges; also of those cut short"),
    Column("speed_mps", REAL, "m/s", "speed at entry, as reported to the RSU"),
    Column("level_px", REAL, "px", "blur level at that speed, on the sensor"),
    Column("weight", REAL, "", "weight in the aggregate; null when not aggregated"),
    Column("loss", REAL, "", "mean training loss of the vehicle; null when not trained"),
    Column(
        "work_share",
        REAL,
        "",
        "share of its local steps that the vehicle was to do, 1 unless the pace ends its training early; null "
        "when it never began",
    ),
    Column(
        "outside_s",
        REAL,
        "s",
        "time spent outside coverage with nothing to compute, until it was covered again (handover.longest_gap_s)",
    ),
    Column("upload_rsu_id", TEXT, "", "RSU that the upload went to; null when none began"),
    *(
        Column(f"remaining_{name}_s", REAL, "s", f"rest of the window as predicted when invited: {meaning}")
        for name, meaning in (
            (
                "straight",
                "straight on at its speed, infinite for a vehicle that stands; null when never invited",
            ),
            (
                "history",
                "the mean of earlier windows from the same approach; null before the first and when never invited",
            ),
        )
    ),
    *(
        Column(f"{name}_j", REAL, "J", f"energy on board {meaning}; null where the computer's power is not known")
        for name, meaning in (
            ("download", "for receiving"),
            ("train", "for training"),
            ("upload", "for sending"),
            ("wait", "for listening while it waited, in coverage or, trained, outside"),
            ("exchange", "for exchanging with other vehicles, and for computing for them"),
        )
    ),
    _AGGREGATOR,
    Column("base_aggregator", TEXT, "", "aggregator whose model was sent"),
    Column("backhaul_s", REAL, "s", "time that its update took from the RSU to the aggregator"),
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
    Column("sender_silo", INTEGER, "", "silo of the sender"),
    Column("receiver_silo", INTEGER, "", "silo of the receiver"),
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
    _AGGREGATOR,
)

HANDOVERS = (
    Column("handover", INTEGER, "", "index, in order of the participations' ends"),
    Column("participation", INTEGER, "", "whose it is: index in participations"),
    Column("round", INTEGER, "", "round that was open at the participation's end"),
    Column("vehicle_id", TEXT, "", "vehicle"),
    Column("time_s", REAL, "s", "when the former RSU served it no more"),
    Column("from_rsu_id", TEXT, "", "that RSU"),
    Column("to_rsu_id", TEXT, "", "the one that served it next"),
    Column("stage", TEXT, "", "what it was doing: download, training, upload, or outside: it waited, trained"),
    Column("moved_bytes", REAL, "B", "what had arrived of a transfer over the former RSU since that one served it"),
    Column("gap_s", REAL, "s", "for how long no RSU covered it in between"),
    Column(
        "backhaul_s",
        REAL,
        "s",
        "time that its update then took to the aggregator; 0 but for the last handover",
    ),
    Column(
        "policy",
        TEXT,
        "",
        "what was done, as handover.policy has it; forward also where both RSUs have one aggregator, or where that of "
        "the new one had closed its last round or has an update of this vehicle in the open one",
    ),
    Column("fate", TEXT, "", "outcome of the participation"),
    _AGGREGATOR,
)
"""Changes of the RSU that serves a vehicle while it takes part; there is no table where there were none."""

ROUNDS = (
    Column("round", INTEGER, "", "index"),
    Column("open_s", REAL, "s", "opening"),
    Column("close_s", REAL, "s", "closing and aggregation"),
    Column("closed_by", TEXT, "", "quorum, everyone (pace.name = coverage), deadline or traffic_end"),
    Column("invited", INTEGER, "", "participations invited while it was open"),
    Column("committed", INTEGER, "", "updates aggregated"),
    Column("rejected", INTEGER, "", "updates with non-finite values"),
    Column("loss", REAL, "", "mean training loss of the aggregated updates; null without any"),
    _AGGREGATOR,
)

MERGES = (
    Column("time_s", REAL, "s", "when"),
    Column("aggregator", TEXT, "", "whose model was made: cloud, or an RSU's id"),
    Column("version", INTEGER, "", "its version; of an RSU its newest, whose place it takes"),
    Column("source", TEXT, "", "one of those whose model went into it"),
    Column("source_version", INTEGER, "", "version of that model"),
    Column("weight", REAL, "", "its weight; those of one average sum to 1"),
    Column(
        "closed_by",
        TEXT,
        "",
        "everyone, deadline or traffic_end (a round of the cloud), arrival (of the cloud's model at an RSU), or round "
        "(of an RSU that averages with its neighbours)",
    ),
)

BACKHAUL = (
    Column("rsu_id", TEXT, "", "RSU"),
    Column("down_bytes", REAL, "B", "sent to it over its wire"),
    Column("up_bytes", REAL, "B", "sent from it"),
    Column("down_messages", INTEGER, "", "models and updates sent to it"),
    Column("up_messages", INTEGER, "", "models and updates sent from it"),
    Column("down_busy_s", REAL, "s", "how long something was on its way to it; 0 on a wire of infinite rate"),
    Column("up_busy_s", REAL, "s", "how long something was on its way from it; 0 on a wire of infinite rate"),
)

METRICS = (
    Column(
        "round", INTEGER, "", "rounds aggregated before the measurement; 0 is the untrained model; of the cloud its own"
    ),
    Column("time_s", REAL, "s", "simulated time of the measurement"),
    Column("name", TEXT, "", "series, described in the manifest"),
    Column("value", REAL, "", "value, in the series' unit"),
    Column("aggregator", TEXT, "", "whose model: single, an RSU's id, or cloud; empty for a figure of all of them"),
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

COMPARISON = (
    Column("arm", TEXT, "", "what is compared: a learner with its settings"),
    Column("condition", TEXT, "", "under what it is compared; empty where there is one condition only"),
    Column("learner", TEXT, "", "learner"),
    Column("seed", INTEGER, "", "seed of the cell"),
    Column("metric", TEXT, "", "series, described in the manifest of the cell"),
    Column("unit", TEXT, "", "unit of the value; % stands for a fraction"),
    Column("value", REAL, "", "what is compared: the mean of the last values measured in the cell"),
    Column("evaluations", INTEGER, "", "how many of them, 1 for the last value alone"),
    Column("rounds", INTEGER, "", "rounds the cell aggregated"),
    Column("simulated_s", REAL, "s", "simulated time from the beginning of the cell to its end"),
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
    Column("target", REAL, "", "the worst arm's mean of what is compared, under this condition"),
    Column("round", INTEGER, "", "rounds aggregated when the target was first reached; null when never, like the next"),
    Column("simulated_s", REAL, "s", "simulated time since the beginning of the cell"),
    Column("bytes", REAL, "B", "bytes over the radio links and between vehicles until then"),
    Column("device_s", REAL, "s", "training time on board until then, summed over vehicles"),
    Column("cell", TEXT, "", "folder of the cell"),
)
"""Second table of a comparison, when each cell reached a common target: one row for each cell."""

COMPARISON_DIFFERENCES = (
    Column("compared", TEXT, "", "arms, under one condition; or conditions, with one arm"),
    Column("within", TEXT, "", "that condition, empty where there is one only; or that arm"),
    Column("first", TEXT, "", "arm or condition"),
    Column("second", TEXT, "", "arm or condition; differences are first less second, paired by seed"),
    Column("metric", TEXT, "", "series, described in the manifest of the cells"),
    Column("unit", TEXT, "", "unit of difference, deviation, low, high and seen; % stands for a fraction"),
    Column("evaluations", INTEGER, "", "last evaluations of a run whose mean is compared"),
    Column("seeds", INTEGER, "", "seeds that both have"),
    Column("difference", REAL, "", "mean difference"),
    Column("deviation", REAL, "", "standard deviation of the differences"),
    Column("method", TEXT, "", "of test and interval: sign-flip or t"),
    Column("tests", INTEGER, "", "pairs of the family, over which interval and corrected p are corrected (Bonferroni)"),
    Column("low", REAL, "", "lower end of the simultaneous 95 % interval; null where it is unbounded"),
    Column("high", REAL, "", "upper end; null where it is unbounded"),
    Column("p", REAL, "", "corrected p-value; null where the seeds are too few for any test"),
    Column("effect", REAL, "", "d_z, mean over standard deviation of the differences"),
    Column("seen", REAL, "", "true difference that these seeds resolve with 80 % power; null where they resolve none"),
    Column("seeds_needed", INTEGER, "", "seeds that resolve the observed difference with 80 % power"),
    Column("verdict", TEXT, "", "first or second, whichever is resolved to be higher; empty where neither is"),
)
"""Third table of a comparison: one row for each pair and metric."""

COMPARISON_MEASURES = (
    Column("arm", TEXT, "", "what is compared: a learner with its settings"),
    Column("condition", TEXT, "", "under what it is compared; empty where there is one condition only"),
    Column("learner", TEXT, "", "learner"),
    Column("seed", INTEGER, "", "seed of the cell"),
    Column(
        "measure",
        TEXT,
        "",
        "commits_per_h: participations that committed, in an hour of simulated time; bytes_per_commit: all bytes over "
        "the air, over their number; wasted_train_s, wasted_train_share: training time on board of participations that "
        "did not commit, and its share of all; wasted_bytes, wasted_bytes_share: their bytes, and those of the "
        "exchanges they sent, and their share of all; gini: Gini coefficient of the commits over all silos; "
        "contested_share: share of the invitations that left somebody waiting who might have been invited instead; "
        "commit_share_speed, commit_share_direction: share of the updates aggregated with a weight above 0, by speed "
        "at entry or direction from which the vehicle first came",
    ),
    Column("unit", TEXT, "", "unit of the value; % stands for a fraction"),
    Column("bin", TEXT, "", "of a share: which speeds or direction; empty otherwise"),
    Column("bin_unit", TEXT, "", "unit of the bin's ends"),
    Column("value", REAL, "", "value; null where there is nothing to divide by"),
    Column("cell", TEXT, "", "folder of the cell"),
)
"""Fourth table of a comparison: what uploads cost and how they spread, one row for each cell, measure and bin."""

COMPARISON_RANKS = (
    Column("metric", TEXT, "", "series, or a measure of comparison_measures, or time_to_target"),
    Column("unit", TEXT, "", "unit of what is ranked; % stands for a fraction"),
    Column(
        "blocks",
        TEXT,
        "",
        "seeds: one ranking a seed, by its mean ranks over conditions; or conditions: one ranking a condition, by its "
        "mean ranks over seeds",
    ),
    Column("arm", TEXT, "", "what is compared: a learner with its settings"),
    Column("mean_rank", REAL, "", "mean over the blocks of the arm's rank in each, 1 the best"),
    Column("seeds", INTEGER, "", "seeds at which every arm has a value under every condition"),
    Column("conditions", INTEGER, "", "conditions under which every arm was run and measured"),
    Column("chi_square", REAL, "", "Friedman's statistic over the blocks; null with fewer than three, like the next"),
    Column("p", REAL, "", "its p-value (chi-square approximation), not corrected for the number of metrics"),
    Column("critical_difference", REAL, "", "difference of two mean ranks from which on they are told apart (Nemenyi)"),
)
"""Fifth table of a comparison, of three arms and two conditions or more: a row for each metric, kind of block, arm."""

TABLES = {
    "windows": WINDOWS,
    "participations": PARTICIPATIONS,
    "exchanges": EXCHANGES,
    "handovers": HANDOVERS,
    "rounds": ROUNDS,
    "merges": MERGES,
    "backhaul": BACKHAUL,
    "metrics": METRICS,
    "silos": SILOS,
    "map": MAP,
}


def to_parquet(name: str, rows: pl.DataFrame | list[tuple[object, ...]]) -> bytes:
    """Return the table called ``name`` in ``TABLES`` as a Parquet file; see ``parquet``."""
    return parquet(TABLES[name], rows)


def arrow_schema(columns: Sequence[Column]) -> Schema:
    """Return columns as Arrow describes them, with units and meanings."""
    fields = Table.from_arrow(pl.DataFrame(schema={c.name: c.dtype for c in columns})).schema
    return Schema(
        [f.with_metadata({"unit": c.unit, "description": c.meaning}) for f, c in zip(fields, columns, strict=True)]
    )


def parquet(columns: Sequence[Column], rows: pl.DataFrame | list[tuple[object, ...]]) -> bytes:
    """Return a Parquet file of a frame, or of tuples in the order of the columns; its metadata tell their units."""
    frame = (
        rows.select([pl.col(c.name).cast(c.dtype) for c in columns])
        if isinstance(rows, pl.DataFrame)
        else pl.DataFrame(rows, schema={c.name: c.dtype for c in columns}, orient="row")
    )
    buffer = io.BytesIO()
    frame.write_parquet(buffer, arrow_schema=arrow_schema(columns))
    return buffer.getvalue()
