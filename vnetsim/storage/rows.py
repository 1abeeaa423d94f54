"""Rows of the tables that the event loop fills: of each column its type, its unit, empty for none, and its meaning."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, get_args

from vnetsim.learner_facts import AGGREGATOR

Stage = Literal["download", "waiting", "exchange", "training", "outside", "upload", "backhaul", "over"]
Outcome = Literal[
    "committed",
    "left_download",
    "left_training",
    "left_upload",
    "left_exchange",
    "deadline",
    "stale",
    "unfinished",
    "not_selected",
    "rejected",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
ClosedBy = Literal["quorum", "everyone", "deadline", "traffic_end"]

Aggregator = Annotated[str, "", "whose round: single for one over all RSUs, else the RSU's id"]
_WITHOUT_POWER = "; null where the computer's power is not known"


class ParticipationRecord(NamedTuple):
    """A row of the table ``participations``."""

    participation: Annotated[int, "", "index, in order of end"]
    round: Annotated[int, "", "round that was open at the end"]
    base_round: Annotated[int, "", "round whose model was sent, of base_aggregator; equals round unless stale"]
    vehicle_id: Annotated[str, "", "vehicle"]
    rsu_id: Annotated[str, "", "RSU"]
    silo: Annotated[int, "", "silo that the vehicle carries"]
    approach: Annotated[int, "", "approach direction, index of the sector of entry"]
    enter_s: Annotated[float, "s", "start of the coverage window it belongs to; with vehicle_id and rsu_id its key"]
    outcome: Annotated[Outcome, "", "how it ended, one of vnetsim.storage.rows.OUTCOMES"]
    start_s: Annotated[float, "s", "invitation, or entry when never invited"]
    end_s: Annotated[float, "s", "end"]
    download_s: Annotated[float, "s", "time spent receiving, and before until the RSU had the model"]
    train_s: Annotated[float, "s", "time spent training on board"]
    upload_s: Annotated[float, "s", "time spent sending"]
    wait_s: Annotated[
        float,
        "s",
        "time spent waiting for the round's exchange between vehicles to begin; with handover.policy = multi, while "
        "the vehicle downloaded or trained in the row of another RSU with the same vehicle_id and start_s",
    ]
    exchange_s: Annotated[float, "s", "time spent exchanging with other vehicles"]
    download_bytes: Annotated[float, "B", "bytes received, also of a transfer cut short"]
    upload_bytes: Annotated[float, "B", "bytes sent, also of a transfer cut short"]
    exchange_bytes: Annotated[
        float,
        "B",
        "bytes of its own exchanges, see the table exchanges; also of those cut short",
    ]
    speed_mps: Annotated[float, "m/s", "speed at entry, as reported to the RSU"]
    level_px: Annotated[float, "px", "blur level at that speed, on the sensor"]
    weight: Annotated[float | None, "", "weight in the aggregate; null when not aggregated"]
    loss: Annotated[float | None, "", "mean training loss of the vehicle; null when not trained"]
    work_share: Annotated[
        float | None,
        "",
        "share of its local steps that the vehicle was to do, 1 unless the pace ends its training early; null when it "
        "never began",
    ]
    outside_s: Annotated[
        float,
        "s",
        "time spent outside coverage with nothing to compute, until it was covered again (handover.longest_gap_s)",
    ]
    upload_rsu_id: Annotated[str | None, "", "RSU that the upload went to; null when none began"]
    remaining_straight_s: Annotated[
        float | None,
        "s",
        "rest of the window as predicted when invited: straight on at its speed, infinite for a vehicle that stands; "
        "null when never invited",
    ]
    remaining_history_s: Annotated[
        float | None,
        "s",
        "rest of the window as predicted when invited: the mean of earlier windows from the same approach; null before"
        " the first and when never invited",
    ]
    download_j: Annotated[float | None, "J", "energy on board for receiving" + _WITHOUT_POWER] = None
    train_j: Annotated[float | None, "J", "energy on board for training" + _WITHOUT_POWER] = None
    upload_j: Annotated[float | None, "J", "energy on board for sending" + _WITHOUT_POWER] = None
    wait_j: Annotated[
        float | None,
        "J",
        "energy on board for listening while it waited, in coverage or, trained, outside" + _WITHOUT_POWER,
    ] = None
    exchange_j: Annotated[
        float | None,
        "J",
        "energy on board for exchanging with other vehicles, and for computing for them" + _WITHOUT_POWER,
    ] = None
    aggregator: Aggregator = AGGREGATOR
    base_aggregator: Annotated[str, "", "aggregator whose model was sent"] = AGGREGATOR
    backhaul_s: Annotated[float, "s", "time that its update took from the RSU to the aggregator"] = 0.0


class ExchangeRecord(NamedTuple):
    """A row of the table ``exchanges``."""

    exchange: Annotated[int, "", "index, in order of end"]
    round: Annotated[int, "", "round"]
    sender_id: Annotated[str, "", "vehicle whose model is sent"]
    receiver_id: Annotated[str, "", "vehicle that receives it; some learners have it work on it and send it back"]
    sender_silo: Annotated[int, "", "silo of the sender"]
    receiver_silo: Annotated[int, "", "silo of the receiver"]
    via: Annotated[
        Literal["sidelink", "relay", ""],
        "",
        "sidelink, relay (through the RSU), or empty when they were never in contact",
    ]
    outcome: Annotated[Literal["completed", "cut"], "", "completed or cut"]
    start_s: Annotated[float, "s", "when the round's exchange began"]
    end_s: Annotated[float, "s", "when this exchange was complete or cut"]
    contact_s: Annotated[float, "s", "time in contact between these two"]
    bytes: Annotated[float, "B", "bytes moved over the air, both ways and both hops of a relay, also when cut"]
    sender_x_m: Annotated[float, "m", "position at start_s, net coordinates"]
    sender_y_m: Annotated[float, "m", "position at start_s, net coordinates"]
    receiver_x_m: Annotated[float, "m", "position at start_s, net coordinates"]
    receiver_y_m: Annotated[float, "m", "position at start_s, net coordinates"]
    value: Annotated[float | None, "", "the learner's figure for it, described in the manifest; null without one"]
    aggregator: Aggregator = AGGREGATOR


class HandoverRecord(NamedTuple):
    """A row of the table ``handovers``: another RSU serves a vehicle that takes part; no table without any."""

    handover: Annotated[int, "", "index, in order of the participations' ends"]
    participation: Annotated[int, "", "whose it is: index in participations"]
    round: Annotated[int, "", "round that was open at the participation's end"]
    vehicle_id: Annotated[str, "", "vehicle"]
    time_s: Annotated[float, "s", "when the former RSU served it no more"]
    from_rsu_id: Annotated[str, "", "that RSU"]
    to_rsu_id: Annotated[str, "", "the one that served it next"]
    stage: Annotated[Stage, "", "what it was doing: download, training, upload, or outside: it waited, trained"]
    moved_bytes: Annotated[float, "B", "what had arrived of a transfer over the former RSU since that one served it"]
    link_bytes: Annotated[float, "B", "what all its transfers moved over the former RSU since that one served it"]
    gap_s: Annotated[float, "s", "for how long no RSU covered it in between"]
    backhaul_s: Annotated[float, "s", "time that its update then took to the aggregator; 0 but for the last handover"]
    policy: Annotated[
        str,
        "",
        "what was done, as handover.policy has it; forward also where both RSUs have one aggregator, or where that of "
        "the new one had closed its last round or has an update of this vehicle in the open one",
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
        int, "", "participations invited while it was open; with handover.policy = multi only by the RSU that serves"
    ]
    committed: Annotated[int, "", "updates aggregated"]
    rejected: Annotated[int, "", "updates with non-finite values"]
    loss: Annotated[float | None, "", "mean training loss of the aggregated updates; null without any"]
    aggregator: Aggregator = AGGREGATOR


class MergeRecord(NamedTuple):
    """A row of the table ``merges``."""

    time_s: Annotated[float, "s", "when"]
    aggregator: Annotated[str, "", "whose model was made: cloud, or an RSU's id"]
    version: Annotated[int, "", "its version; of an RSU its newest, whose place it takes"]
    source: Annotated[str, "", "one of those whose model went into it"]
    source_version: Annotated[int, "", "version of that model"]
    weight: Annotated[float, "", "its weight; those of one average sum to 1"]
    closed_by: Annotated[
        str,
        "",
        "everyone, deadline or traffic_end (a round of the cloud), arrival (of the cloud's model at an RSU), or round "
        "(of an RSU that averages with its neighbours)",
    ]
