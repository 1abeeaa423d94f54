"""The columns of all tables: a class for each, whose fields declare type, unit (may be empty) and meaning.

Rows that the event loop makes are named tuples; other tables are made as data frames. ``class_`` is the column "class".
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, get_args

from vnetsim.learner_facts import AGGREGATOR

Stage = Literal["download", "waiting", "exchange", "training", "outside", "upload", "backhaul", "over"]
Outcome = Literal[
    "committed", "left_download", "left_training", "left_upload", "left_exchange", "deadline", "stale", "unfinished",
    "not_selected", "rejected",
]  # fmt: skip
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
ClosedBy = Literal["quorum", "everyone", "deadline", "traffic_end"]

Aggregator = Annotated[str, "", "aggregator of the round: single for one for all RSUs, else the RSU's id"]
_WITHOUT_POWER = "; null if the computer's power is unknown"


class ParticipationRecord(NamedTuple):
    """A row of the table ``participations``."""

    participation: Annotated[int, "", "index, in order of end"]
    round: Annotated[int, "", "round that was open at the end"]
    base_round: Annotated[int, "", "round of base_aggregator whose model was sent; equals round unless stale"]
    vehicle_id: Annotated[str, "", "vehicle"]
    rsu_id: Annotated[str, "", "RSU"]
    silo: Annotated[int, "", "silo that the vehicle carries"]
    approach: Annotated[int, "", "approach direction, index of the sector of entry"]
    enter_s: Annotated[float, "s", "start of its coverage window; vehicle_id, rsu_id and enter_s identify the window"]
    outcome: Annotated[Outcome, "", "how it ended, one of vnetsim.storage.rows.OUTCOMES"]
    start_s: Annotated[float, "s", "time of invitation; time of entry if never invited"]
    end_s: Annotated[float, "s", "end"]
    download_s: Annotated[float, "s", "time spent receiving, with the time until the RSU itself had the model"]
    train_s: Annotated[float, "s", "time spent training on board"]
    upload_s: Annotated[float, "s", "time spent sending"]
    wait_s: Annotated[
        float,
        "s",
        "time spent waiting for the round's exchange between vehicles to begin; with handover.policy = multi, also the "
        "time in which the vehicle downloaded or trained in another RSU's row with the same vehicle_id and start_s",
    ]
    exchange_s: Annotated[float, "s", "time spent exchanging with other vehicles"]
    download_bytes: Annotated[float, "B", "bytes received, also of a transfer cut short"]
    upload_bytes: Annotated[float, "B", "bytes sent, also of a transfer cut short"]
    exchange_bytes: Annotated[
        float, "B", "bytes of its own exchanges (see the table exchanges), also of those cut short"
    ]
    speed_mps: Annotated[float, "m/s", "speed at entry, as reported to the RSU"]
    level_px: Annotated[float, "px", "blur level at that speed, on the sensor"]
    weight: Annotated[float | None, "", "weight in the aggregate; null if not aggregated"]
    loss: Annotated[float | None, "", "mean training loss of the vehicle; null if not trained"]
    work_share: Annotated[
        float | None,
        "",
        "share of its local steps that the vehicle was to do, 1 unless the pace ends training early; null if training "
        "never began",
    ]
    outside_s: Annotated[
        float, "s", "time spent outside coverage with nothing to compute, until covered again (handover.longest_gap_s)"
    ]
    upload_rsu_id: Annotated[str | None, "", "RSU that received the upload; null if no upload began"]
    remaining_straight_s: Annotated[
        float | None,
        "s",
        "remaining time in coverage predicted at invitation from straight motion at its speed; infinite for a "
        "stationary vehicle; null if never invited",
    ]
    remaining_history_s: Annotated[
        float | None,
        "s",
        "remaining time in coverage predicted at invitation from the mean of earlier windows of the same approach; "
        "null if there was none, or if never invited",
    ]
    download_j: Annotated[float | None, "J", "energy on board for receiving" + _WITHOUT_POWER] = None
    train_j: Annotated[float | None, "J", "energy on board for training" + _WITHOUT_POWER] = None
    upload_j: Annotated[float | None, "J", "energy on board for sending" + _WITHOUT_POWER] = None
    wait_j: Annotated[
        float | None,
        "J",
        "energy on board for listening while waiting in coverage, or outside after training" + _WITHOUT_POWER,
    ] = None
    exchange_j: Annotated[
        float | None,
        "J",
        "energy on board for exchanges with other vehicles, computing for them included" + _WITHOUT_POWER,
    ] = None
    aggregator: Aggregator = AGGREGATOR
    base_aggregator: Annotated[str, "", "aggregator whose model was sent"] = AGGREGATOR
    backhaul_s: Annotated[float, "s", "time that its update took from the RSU to the aggregator"] = 0.0


class ExchangeRecord(NamedTuple):
    """A row of the table ``exchanges``."""

    exchange: Annotated[int, "", "index, in order of end"]
    round: Annotated[int, "", "round"]
    sender_id: Annotated[str, "", "vehicle whose model is sent"]
    receiver_id: Annotated[str, "", "vehicle that receives the model; with some learners it processes it and replies"]
    sender_silo: Annotated[int, "", "silo of the sender"]
    receiver_silo: Annotated[int, "", "silo of the receiver"]
    via: Annotated[
        Literal["sidelink", "relay", ""],
        "",
        "sidelink, relay (through the RSU), or empty if they were never in contact",
    ]
    outcome: Annotated[Literal["completed", "cut"], "", "completed or cut"]
    start_s: Annotated[float, "s", "when the round's exchange began"]
    end_s: Annotated[float, "s", "when this exchange was complete or cut"]
    contact_s: Annotated[float, "s", "time in contact between these two"]
    bytes: Annotated[float, "B", "bytes over the air, both ways and both hops of a relay, also if cut"]
    sender_x_m: Annotated[float, "m", "position at start_s, net coordinates"]
    sender_y_m: Annotated[float, "m", "position at start_s, net coordinates"]
    receiver_x_m: Annotated[float, "m", "position at start_s, net coordinates"]
    receiver_y_m: Annotated[float, "m", "position at start_s, net coordinates"]
    value: Annotated[float | None, "", "the learner's value of the exchange, see the manifest; null if it gives none"]
    aggregator: Aggregator = AGGREGATOR


class HandoverRecord(NamedTuple):
    """A row of the table ``handovers``: another RSU takes over a participant; without handovers there is no table."""

    handover: Annotated[int, "", "index, in order of the participations' ends"]
    participation: Annotated[int, "", "the participation: index in participations"]
    round: Annotated[int, "", "round that was open at the participation's end"]
    vehicle_id: Annotated[str, "", "vehicle"]
    time_s: Annotated[float, "s", "when the former RSU stopped serving it"]
    from_rsu_id: Annotated[str, "", "the former RSU"]
    to_rsu_id: Annotated[str, "", "the RSU that served it next"]
    stage: Annotated[Stage, "", "stage at the handover: download, training, upload, or outside (trained and waiting)"]
    moved_bytes: Annotated[float, "B", "bytes of the interrupted transfer that the former RSU had moved"]
    link_bytes: Annotated[float, "B", "bytes of all its transfers that the former RSU had moved while it served it"]
    gap_s: Annotated[float, "s", "time without coverage in between"]
    backhaul_s: Annotated[float, "s", "time that its update then took to the aggregator; 0 except at the last handover"]
    policy: Annotated[
        str,
        "",
        "what was done, a value of handover.policy; forward also if both RSUs have the same aggregator, or if the new "
        "RSU's aggregator had closed its last round or has an update of this vehicle in the open round",
    ]
    fate: Annotated[Outcome, "", "outcome of the participation"]
    aggregator: Aggregator


class RoundRecord(NamedTuple):
    """A row of the table ``rounds``."""

    round: Annotated[int, "", "index"]
    open_s: Annotated[float, "s", "opening"]
    close_s: Annotated[float, "s", "closing and aggregation"]
    closed_by: Annotated[ClosedBy, "", "quorum, everyone (pace.name = coverage), deadline or traffic_end"]
    invited: Annotated[
        int, "", "participations invited while it was open; with handover.policy = multi, only by the serving RSU"
    ]
    committed: Annotated[int, "", "updates aggregated"]
    rejected: Annotated[int, "", "updates with non-finite values"]
    loss: Annotated[float | None, "", "mean training loss of the aggregated updates; null if there are none"]
    aggregator: Aggregator = AGGREGATOR


class MergeRecord(NamedTuple):
    """A row of the table ``merges``."""

    time_s: Annotated[float, "s", "time of the merge"]
    aggregator: Annotated[str, "", "owner of the new model: cloud, or an RSU's id"]
    version: Annotated[int, "", "version of the new model; for an RSU, of its newest model, which it replaces"]
    source: Annotated[str, "", "owner of one of the averaged models"]
    source_version: Annotated[int, "", "version of that model"]
    weight: Annotated[float, "", "weight of that model; the weights of one average sum to 1"]
    closed_by: Annotated[
        str,
        "",
        "end of the cloud's round (everyone, deadline or traffic_end), arrival of the cloud's model at an RSU "
        "(arrival), or end of the round of an RSU that averages with its neighbours (round)",
    ]


class WindowRecord:
    """A row of the table ``windows``."""

    window: Annotated[int, "", "index, in order of exit"]
    vehicle_id: Annotated[str, "", "vehicle"]
    vehicle_type: Annotated[str, "", "vehicle type, empty where unknown"]
    rsu_id: Annotated[str, "", "RSU"]
    enter_s: Annotated[float, "s", "first instant inside the disc"]
    exit_s: Annotated[float, "s", "first instant outside the disc again"]
    entry_cause: Annotated[str, "", "crossing, departure, teleport, begin or gap"]
    exit_cause: Annotated[str, "", "crossing, arrival, teleport, end or gap"]
    entry_edge: Annotated[str, "", "edge at entry, empty where unknown"]
    exit_edge: Annotated[str, "", "edge at exit, empty where unknown"]
    entry_speed_mps: Annotated[float, "m/s", "speed at entry"]
    mean_speed_mps: Annotated[float, "m/s", "path length over dwell time"]
    max_speed_mps: Annotated[float, "m/s", "highest sampled speed"]
    path_length_m: Annotated[float, "m", "length of the path inside"]
    level_px: Annotated[float, "px", "blur level at entry speed, on the sensor"]
    path_time_s: Annotated[list[float], "s", "times of the path's points, entry first, exit last"]
    path_x_m: Annotated[list[float], "m", "x of the path's points, net coordinates"]
    path_y_m: Annotated[list[float], "m", "y of the path's points, net coordinates"]
    path_speed_mps: Annotated[list[float], "m/s", "speeds at the path's points"]


class BackhaulRecord:
    """A row of the table ``backhaul``."""

    rsu_id: Annotated[str, "", "RSU"]
    down_bytes: Annotated[float, "B", "sent to it over its wire"]
    up_bytes: Annotated[float, "B", "sent from it"]
    down_messages: Annotated[int, "", "models and updates sent to it"]
    up_messages: Annotated[int, "", "models and updates sent from it"]
    down_busy_s: Annotated[float, "s", "time during which its wire carried something to it; 0 at an infinite rate"]
    up_busy_s: Annotated[float, "s", "time during which its wire carried something from it; 0 at an infinite rate"]


class HostileRecord:
    """A row of the table ``hostile``, which is there if vehicles were hostile."""

    vehicle_id: Annotated[str, "", "a hostile vehicle that was in coverage"]
    conduct: Annotated[str, "", "what it did: name of the conduct"]


class MetricRecord:
    """A row of the table ``metrics``."""

    round: Annotated[int, "", "rounds aggregated before it, 0 for the untrained model; the cloud counts its own"]
    time_s: Annotated[float, "s", "simulated time of the measurement"]
    name: Annotated[str, "", "series, described in the manifest"]
    value: Annotated[float, "", "value, in the series' unit; a fraction if that is %"]
    aggregator: Annotated[str, "", "whose model: single, an RSU's id, or cloud; empty for a value of all models"]


class SiloRecord:
    """A row of the table ``silos``."""

    silo: Annotated[int, "", "the silo"]
    class_: Annotated[int, "", "label"]
    class_name: Annotated[str, "", "label in words"]
    images: Annotated[int, "", "number of images"]


class LaneRecord:
    """A row of the table ``map``."""

    lane: Annotated[int, "", "index of the polyline"]
    x_m: Annotated[list[float], "m", "x of its points, net coordinates"]
    y_m: Annotated[list[float], "m", "y of its points, net coordinates"]


Cell = Annotated[str, "", "folder of the cell"]


class _CellRecord:
    """First columns of a comparison's tables of cells."""

    arm: Annotated[str, "", "what is compared: a learner with its settings"]
    condition: Annotated[str, "", "condition of the comparison; empty if there is only one"]
    learner: Annotated[str, "", "learner"]
    seed: Annotated[int, "", "seed of the cell"]


class ValueRecord(_CellRecord):
    """A row of the table ``comparison``, which has one for each cell and metric."""

    metric: Annotated[str, "", "series, described in the manifest of the cell"]
    unit: Annotated[str, "", "unit of the value; % means that the value is a fraction"]
    value: Annotated[float, "", "mean of the last values measured in the cell"]
    evaluations: Annotated[int, "", "number of these values; 1 for the last value alone"]
    rounds: Annotated[int, "", "rounds that the cell aggregated"]
    simulated_s: Annotated[float, "s", "simulated time from the start of the cell to its end"]
    bytes: Annotated[float, "B", "bytes over the radio links and between vehicles, also of transfers cut short"]
    cell: Cell


class TargetRecord(_CellRecord):
    """A row of the table ``comparison_targets``, which has one for each cell."""

    metric: Annotated[str, "", "series that the target belongs to, described in the manifest of the cell"]
    unit: Annotated[str, "", "unit of the target; % means that the target is a fraction"]
    target: Annotated[float, "", "mean of the compared values of the worst arm under this condition"]
    round: Annotated[int, "", "rounds aggregated when the target was first reached; null if it never was"]
    simulated_s: Annotated[float, "s", "simulated time from the start of the cell until then; null if never"]
    bytes: Annotated[float, "B", "bytes over the radio links and between vehicles until then; null if never"]
    device_s: Annotated[float, "s", "training time on board until then, summed over vehicles; null if never"]
    cell: Cell


class DifferenceRecord:
    """A row of the tables of differences, which have one for each pair and metric."""

    compared: Annotated[str, "", "arms (under one condition) or conditions (with one arm)"]
    within: Annotated[str, "", "that condition (empty if there is only one) or that arm"]
    first: Annotated[str, "", "first arm or condition"]
    second: Annotated[str, "", "second arm or condition; differences are first minus second, paired by seed"]
    metric: Annotated[str, "", "series, described in the manifest of the cells"]
    unit: Annotated[str, "", "unit of difference, deviation, low, high and resolves; % means that they are fractions"]
    evaluations: Annotated[int, "", "number of last evaluations of a run whose mean is compared"]
    seeds: Annotated[int, "", "number of seeds that both have"]
    difference: Annotated[float, "", "mean difference"]
    deviation: Annotated[float, "", "standard deviation of the differences"]
    method: Annotated[str, "", "method of test and interval: sign-flip or t"]
    tests: Annotated[
        int, "", "number of differences in the table for which p (Holm) and interval (Bonferroni) are corrected"
    ]
    low: Annotated[float, "", "lower end of the simultaneous 95 % interval; null if unbounded"]
    high: Annotated[float, "", "upper end of that interval; null if unbounded"]
    p: Annotated[float, "", "corrected p-value; null if there are too few seeds for a test"]
    effect: Annotated[float, "", "effect size d_z: mean over standard deviation of the differences"]
    resolves: Annotated[float, "", "smallest true difference that these seeds resolve with 80 % power; null if none"]
    seeds_needed: Annotated[int, "", "number of seeds that resolve the observed difference with 80 % power"]
    verdict: Annotated[str, "", "first or second, whichever is resolved to be higher; empty if neither is, or withheld"]


class MeasureRecord(_CellRecord):
    """A row of the table ``comparison_measures``, which has one for each cell, measure and bin."""

    measure: Annotated[
        str,
        "",
        "commits: participations that committed; commits_per_h: the same per hour of simulated time, null for runs "
        "under ten minutes; bytes_per_commit: all bytes over the air divided by the number of commits; "
        "wasted_train_s, wasted_train_share: training time on board of participations that did not commit, and its "
        "share of all training time; wasted_bytes, wasted_bytes_share: bytes of these participations and of the "
        "exchanges they sent, and their share of all bytes; gini: Gini coefficient of the commits over all silos; "
        "contested_share: share of the invitations made while another vehicle was waiting that could have been "
        "invited instead; fluctuation: standard deviation of the training loss from round to round, its trend "
        "removed; commit_share_speed, commit_share_direction: share of the updates aggregated with a weight above 0, "
        "by speed at entry or by direction of the first entry",
    ]
    unit: Annotated[str, "", "unit of the value; % means that the value is a fraction"]
    bin: Annotated[str, "", "range of speeds, or direction, of a share; empty for other measures"]
    bin_unit: Annotated[str, "", "unit of the bin's ends"]
    value: Annotated[float, "", "value; null if its denominator is 0"]
    cell: Cell
