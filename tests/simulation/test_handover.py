"""Who serves a vehicle that takes part, and what becomes of it then. Alone it takes 1 s down, 3 s of training, 2 s up.

In the middle of the file is what happens in gaps of coverage.
"""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import ComputeSettings, SiloSettings
from vnetsim.learning import ModelKey
from vnetsim.random_streams import Streams
from vnetsim.simulation.plugins import simulation_plugins
from vnetsim.traffic import open_traffic

OUTSIDE = {"policy": "forward", "longest_gap_s": 1e6, "interruption_s": 0.0}

OTHER = Rsu(id="s", x_m=2000.0, y_m=0.0, range_m=250.0)


CARRIED = ("forward", "carry", "carry-delta", "mix")
POLICIES = ("drop", *CARRIED, "multi")
BOTH = ModelKey("r", 0), ModelKey("s", 0)
EDGES = {"topology": {"kind": "per-rsu"}}


def handed_over(
    scene: Any,
    policy: str,
    at_s: float,
    learning: Any = None,
    *,
    begin_s: float = 0.0,
    more_windows: tuple[Any, ...] = (),
    **rules: Any,
) -> Any:
    """Return a run of one vehicle whose first RSU's disc ends at a time, when it is in the second one's as well."""
    windows = [scene.window("a", begin_s, at_s), scene.window("a", at_s - 0.25, 60, rsu_id="s"), *more_windows]
    handover = {"policy": policy, "interruption_s": 0.5, **rules.pop("handover", {})}
    return scene.run(windows, rsus=(scene.rsu, scene.beside), handover=handover, learning=learning, **rules)


def test_with_drop_it_ends_and_the_record_tells_who_served_it_next(scene):
    log = handed_over(scene, "drop", 5.0).log
    record = scene.of(log, "a")["r", 0.0]
    assert (record.outcome, record.end_s, record.upload_bytes) == ("left_upload", 5.0, 1e6)
    [row] = log.handovers
    assert row._asdict() == {
        "handover": 0,
        "participation": record.participation,
        "round": 0,
        "vehicle_id": "a",
        "time_s": 5.0,
        "from_rsu_id": "r",
        "to_rsu_id": "s",
        "stage": "upload",
        "moved_bytes": 1e6,
        "link_bytes": 2e6,
        "gap_s": 0.0,
        "backhaul_s": 0.0,
        "policy": "drop",
        "fate": "left_upload",
        "aggregator": "single",
    }


@pytest.mark.parametrize("policy", CARRIED)
@pytest.mark.parametrize("transfer", ["restart", "resume"])
@pytest.mark.parametrize(("at_s", "stage"), [(0.5, "download"), (2.0, "training"), (5.0, "upload")])
def test_under_one_aggregator_all_others_let_it_go_on(policy, transfer, at_s, stage, scene):
    result = handed_over(scene, policy, at_s, handover={"transfer": transfer})
    record, [row] = scene.of(result.log, "a")["r", 0.0], result.log.handovers
    moved = {"download": 0.5e6, "training": 0.0, "upload": 1e6}[stage]
    again = moved if transfer == "restart" else 0.0
    interrupted_s = 0.0 if stage == "training" else 0.5
    assert (row.stage, row.moved_bytes, row.gap_s, row.policy, row.fate) == (stage, moved, 0.0, "forward", "committed")
    assert (record.outcome, record.end_s) == ("committed", 6.0 + interrupted_s + again / 1e6)
    assert (record.download_bytes + record.upload_bytes, record.upload_rsu_id) == (3e6 + again, "s")
    assert (record.train_s, record.outside_s) == (3.0, 0.0)
    seconds = (record.download_s, record.train_s, record.upload_s)
    assert math.fsum(seconds) == record.end_s - record.start_s
    assert {name: use.carried_bytes for name, use in result.channels.items()} == {
        "r": 1e6 if stage == "training" else moved + 1e6 * (stage == "upload"),
        "s": {"download": 2.5e6 + again, "training": 2e6, "upload": 1e6 + again}[stage],
    }


def test_a_handover_may_come_while_another_interrupts(scene):
    third = Rsu(id="t", x_m=100.0, y_m=100.0, range_m=250.0)
    windows = [scene.window("a", 0, 5.0), scene.window("a", 1, 5.25, rsu_id="s"), scene.window("a", 2, 60, rsu_id="t")]
    handover = {"policy": "forward", "interruption_s": 0.5, "transfer": "resume"}
    wires = {"cloud_latency_s": 0.25}
    log = scene.run(windows, rsus=(scene.rsu, scene.beside, third), handover=handover, backhaul=wires).log
    assert [(row.from_rsu_id, row.to_rsu_id, row.moved_bytes, row.backhaul_s) for row in log.handovers] == [
        ("r", "s", 0.75e6, 0.0),
        ("s", "t", 0.0, 0.25),
    ]
    assert (scene.of(log, "a")["r", 0.0].end_s, scene.of(log, "a")["r", 0.0].upload_bytes) == (
        5.25 + 0.5 + 1.25 + 0.25,
        2e6,
    )


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("forward", {"aggregator": "r", "counted_from": None, "carried": "model"}),
        ("carry", {"aggregator": "s", "counted_from": 0, "carried": "model"}),
        ("carry-delta", {"aggregator": "s", "counted_from": 0, "carried": "change"}),
    ],
)
def test_whose_update_it_becomes(policy, expected, scene):
    learning = scene.learning()
    log = handed_over(scene, policy, 2.0, learning, **EDGES).log
    record, [row] = scene.of(log, "a")["r", 0.0], log.handovers
    assert (record.outcome, record.end_s, record.base_aggregator) == ("committed", 6.0, "r")
    assert (record.aggregator, row.aggregator, row.policy) == (expected["aggregator"], expected["aggregator"], policy)
    summary, [told] = next(call for call in learning.calls if call[1])
    assert (summary.aggregator, told.base) == (expected["aggregator"], ModelKey("r", 0))
    assert (told.handover.counted_from, told.handover.carried, told.handover.mixed) == (
        expected["counted_from"],
        expected["carried"],
        (),
    )
    assert (told.neighbours, told.peers) == (0, ()), "nobody exchanged"


def test_mix_downloads_the_new_model_before_it_trains_on(scene):
    learning = scene.learning()
    log = handed_over(scene, "mix", 1.25, learning, compute=ComputeSettings(median_flops=6e9, spread=0.0), **EDGES).log
    record = scene.of(log, "a")["r", 0.0]
    # half of the training is done at 1.25 s; 0.5 s of interruption, 1 s of download, the other half, the upload
    assert (record.outcome, record.end_s) == ("committed", 1.25 + 0.5 + 1.0 + 0.25 + 2.0)
    assert (record.download_bytes, record.train_s, record.base_aggregator) == (2e6, 0.5, "r")
    [[told]] = [call[1] for call in learning.calls if call[1]]
    assert (told.base, told.handover.mixed) == (ModelKey("r", 0), ((0.5, ModelKey("s", 0)),))
    # what had not begun to train begins with the new model, and what is being uploaded is uploaded
    for at_s, base, end_s in ((0.5, "s", 7.0), (5.0, "r", 7.5)):
        learning = scene.learning()
        log = handed_over(scene, "mix", at_s, learning, handover={"transfer": "resume"}, **EDGES).log
        [[told]] = [call[1] for call in learning.calls if call[1]]
        assert (told.base, told.handover.mixed) == (ModelKey(base, 0), ())
        assert scene.of(log, "a")["r", 0.0].end_s == (end_s if base == "s" else 6.5)


def test_what_is_carried_counts_by_the_rounds_of_the_new_aggregator_since_its_download(scene):
    # training takes 10 s; the other vehicle closes a round of its RSU at 13 s, between download and handover
    rules = {"rounds": 3, "compute": scene.slow, "more_windows": (scene.window("b", 0, 30, rsu_id="s"),), **EDGES}
    learning = scene.learning()
    log = handed_over(scene, "carry", 15.0, learning, begin_s=8.0, **rules).log
    assert learning.needed[0] == set(BOTH), "both are still to be trained"
    record = scene.of(log, "a")["r", 8.0]
    assert (record.outcome, record.aggregator, record.round, record.end_s) == ("stale", "s", 1, 15.0)
    learning = scene.learning()
    log = handed_over(scene, "carry", 15.0, learning, begin_s=8.0, max_staleness=1, **rules).log
    told = next(p for _, who in learning.calls for p in who if p.vehicle_id == "a")
    assert (told.round, told.base, told.handover.counted_from) == (1, ModelKey("r", 0), 0)
    assert scene.of(log, "a")["r", 8.0].outcome == "committed"


def test_none_counts_twice_in_a_round_also_when_it_is_carried_back(scene):
    windows = [
        scene.window("a", 0, 6.5, rsu_id="s"),  # commits there at 6 s, and the round stays open
        scene.window("a", 5.5, 9),
        scene.window("a", 8, 30, rsu_id="s"),
    ]
    rules = {
        "rsus": (scene.rsu, scene.beside),
        "handover": {"policy": "carry", "interruption_s": 0.0},
        "quorum": 5,
        **EDGES,
    }
    log = scene.run(windows, **rules).log
    [row] = log.handovers
    assert (row.time_s, row.to_rsu_id, row.policy, row.fate, row.aggregator) == (9.0, "s", "forward", "committed", "r")
    assert scene.of(log, "a")["r", 5.5].upload_rsu_id == "s"


@pytest.mark.parametrize(("distinct", "policy"), [(True, "forward"), (False, "carry")])
def test_where_silos_must_differ_it_counts_elsewhere_only_if_its_silo_does_not(distinct, policy, scene):
    others = tuple(scene.window(f"v{i}", 0, 30, rsu_id="s") for i in range(4))  # the last has the silo of the first
    rules = {"more_windows": others, "silos": 4, "distinct_silos": distinct, **EDGES}
    [row] = handed_over(scene, "carry", 2.0, **rules).log.handovers
    assert row.policy == policy


@pytest.mark.parametrize("policy", POLICIES)
def test_of_one_rsu_and_of_those_who_stay_there_is_no_handover_and_the_policies_are_one(policy, scene):
    windows = [scene.window(f"v{i}", 3.0 * i, 3.0 * i + 9, rsu_id="rs"[i % 2]) for i in range(8)]
    for topology in ("per-rsu", "single") if policy != "multi" else ("per-rsu",):
        rules = {"rounds": 3, "invited": 2, "topology": {"kind": topology}, "rsus": (scene.rsu, scene.beside)}
        one, other = (scene.run(windows, handover={"policy": p}, **rules).log for p in ("drop", policy))
        assert list(other.handovers) == []
        assert (one.participations, one.rounds) == (other.participations, other.rounds)


def test_who_is_free_once_its_update_counts_elsewhere_is_invited_at_once(scene):
    log = handed_over(scene, "forward", 2.0, handover={"interruption_s": 0.0}, quorum=5, **EDGES).log
    assert (scene.of(log, "a")["r", 0.0].aggregator, scene.of(log, "a")["r", 0.0].end_s) == ("r", 6.0)
    assert (scene.of(log, "a")["s", 1.75].aggregator, scene.of(log, "a")["s", 1.75].start_s) == ("s", 6.0)


KINDS = [*itertools.product(POLICIES[:-1], ("single", "per-rsu")), ("multi", "per-rsu")]
QUICK = [*((*kind, "first") for kind in KINDS), ("mix", "per-rsu", "nearest"), ("carry", "per-rsu", "strongest")]
"""Each way with the rule that costs least, and each rule."""


@pytest.mark.parametrize(
    ("policy", "kind", "rule"),
    [
        pytest.param(*kind, rule, marks=[] if (*kind, rule) in QUICK else pytest.mark.all_only)
        for kind, rule in itertools.product(KINDS, ("first", "nearest", "strongest"))
    ],
)
def test_bytes_seconds_and_participations_are_conserved(policy, kind, rule, scene):
    rsus = [Rsu(id=f"r{i}", x_m=180.0 * i, y_m=0.0, range_m=130.0) for i in range(6)]
    windows = []
    for i in range(24):
        speed_mps, enter_s, y_m = 9.0 + i % 5, 4.0 * i, float(7 - 3 * (i % 4))
        for rsu in rsus:
            half_m = math.sqrt(rsu.range_m**2 - y_m**2)
            times_s = [enter_s + (rsu.x_m + side * half_m + 200) / speed_mps for side in (-1, 1)]
            window = scene.window(f"v{i}", *times_s, rsu_id=rsu.id, start=(rsu.x_m - half_m, y_m), speed_mps=speed_mps)
            windows.append(window)
    later = {"hysteresis": 2.0, "trigger_s": 0.5} if rule != "first" else {}
    settings = scene.experiment(
        rounds=12, invited=24, quorum=2, max_staleness=1, deadline_s=40.0, compute=scene.slow,
        radio={"name": "tr37885"}, association={"rule": rule, **later},
        handover={"policy": policy, "transfer": "resume"}, topology={"kind": kind},
    )  # fmt: skip
    learning = scene.learning()
    result = scene.simulate(settings, scene.traffic(windows, rsus), learning, Streams(seed=0))
    log, records = result.log, result.log.participations
    invited = [record for record in records if record.outcome != "not_selected"]
    assert len(log.handovers) > 5 or policy == "multi"
    for record in invited:
        parts = (record.download_s, record.train_s, record.wait_s, record.outside_s, record.upload_s)
        assert math.fsum(parts) == pytest.approx(record.end_s - record.start_s, abs=1e-9)
    moved = math.fsum(record.download_bytes + record.upload_bytes for record in records)
    assert moved == pytest.approx(sum(use.carried_bytes for use in result.channels.values()), rel=1e-12)
    over = dict.fromkeys(result.channels, 0.0)
    for record in records:
        handed = [row for row in log.handovers if row.participation == record.participation]
        last = handed[-1].to_rsu_id if handed else record.rsu_id
        over[last] += record.download_bytes + record.upload_bytes - math.fsum(row.link_bytes for row in handed)
        for row in handed:
            over[row.from_rsu_id] += row.link_bytes
    assert over == pytest.approx({name: use.carried_bytes for name, use in result.channels.items()}, rel=1e-12)
    for record in invited if rule == "first" else ():
        served_s = {t for w in windows if w.vehicle_id == record.vehicle_id for t in (w.enter_s, w.exit_s)}
        free_s = {other.end_s for other in invited if other.vehicle_id == record.vehicle_id}
        joint = policy == "multi"  # another RSU may have invited it
        opened_s = {0.0, *(one.close_s for one in log.rounds if joint or one.aggregator == record.base_aggregator)}
        assert record.start_s in served_s | free_s | opened_s, "nobody waits beside a free place"
    committed = [record for record in invited if record.outcome == "committed"]
    assert len(committed) == sum(len(who) for _, who in learning.calls)
    for _, who in learning.calls:
        assert len({participant.vehicle_id for participant in who}) == len(who), "none counts twice in a round"
    for row in log.handovers:
        record = next(record for record in records if record.participation == row.participation)
        assert (record.vehicle_id, record.outcome, record.aggregator) == (row.vehicle_id, row.fate, row.aggregator)
        assert record.start_s <= row.time_s <= record.end_s
        assert row.from_rsu_id != row.to_rsu_id
        assert row.policy in (("drop",) if policy == "drop" else ("forward", policy))
    if policy == "multi":
        by_training: dict[tuple[str, float], list[Any]] = {}
        for record in invited:
            by_training.setdefault((record.vehicle_id, record.start_s), []).append(record)
        assert {len(rows) for rows in by_training.values()} == {1, 2}
        for rows in by_training.values():
            assert len({row.aggregator for row in rows}) == len(rows)
            assert math.fsum(row.train_s for row in rows) <= scene.cost.work_flop / 3e8 + 1e-9, "it trains once"


@pytest.mark.parametrize(("policy", "carried_out"), [("carry", "carry"), ("mix", "forward")])
def test_what_waits_for_the_clouds_model_is_not_mixed(policy, carried_out, scene):
    rules = {"rounds": 2, "more_windows": (scene.window("b", 0, 30, rsu_id="s"),), "topology": {"kind": "hierarchical"}}
    log = handed_over(scene, policy, 8.0, begin_s=5.0, **rules).log  # the round of s closes at 6 s
    assert log.handovers[0].policy == carried_out


def test_nearest_hands_over_at_the_bisector_and_who_waits_waits_there(scene):
    first, second = Rsu(id="r", x_m=0.0, y_m=0.0, range_m=250.0), Rsu(id="s", x_m=300.0, y_m=0.0, range_m=250.0)
    windows = [
        scene.window(who, at_s + x_m / 10, at_s + (x_m + 500) / 10, rsu_id=name, start=(x_m - 250.0, 0.0))
        for who, at_s in (("a", 0.0), ("b", 1.0))
        for name, x_m in (("r", 0.0), ("s", 300.0))
    ]
    rules = {"rsus": (first, second), "association": {"rule": "nearest"}, "deadline_s": 300.0, **EDGES}
    minute = ComputeSettings(median_flops=5e7, spread=0.0)
    log = scene.run(windows, compute=minute, handover={"policy": "carry"}, **rules).log
    assert [(row.vehicle_id, row.from_rsu_id, row.to_rsu_id, row.time_s) for row in log.handovers] == [
        ("a", "r", "s", pytest.approx(40.0)),
        ("b", "r", "s", pytest.approx(41.0)),
    ]
    idle = scene.run(windows, invited=1, compute=minute, **rules).log
    assert idle.handovers[0].policy == "drop"
    waited = next(record for record in idle.participations if record.rsu_id == "s" and record.outcome != "not_selected")
    assert waited.start_s == pytest.approx(40.0), "not at 30 s, when it entered that disc"


def test_strongest_needs_a_model_that_tells_the_power(scene):
    with pytest.raises(InputError, match=r"association.rule: 'strongest' needs .* 'constant' does not report"):
        simulation_plugins(scene.experiment(association={"rule": "strongest"}))


def test_by_default_who_leaves_in_training_is_cut(scene):
    log = scene.run([scene.window("a", 0, 2), scene.window("a", 10, 20)], rounds=2).log
    first = scene.of(log, "a")["r", 0.0]
    assert (first.outcome, first.end_s, first.train_s, first.outside_s) == ("left_training", 2.0, 1.0, 0.0)


@pytest.mark.parametrize("rsu", ["r", "s"])
def test_it_uploads_when_it_is_covered_again(rsu, scene):
    start = (1950.0, 50.0) if rsu == "s" else (0.0, 100.0)
    back = scene.window("a", 10, 20, rsu_id=rsu, start=start)
    learning = scene.learning()
    result = scene.run([scene.window("a", 0, 2), back], handover=OUTSIDE, rsus=(scene.rsu, OTHER), learning=learning)
    record = scene.of(result.log, "a")["r", 0.0]
    assert (record.outcome, record.start_s, record.end_s) == ("committed", 0.0, 12.0)
    assert (record.download_s, record.train_s, record.outside_s, record.upload_s) == (1.0, 3.0, 6.0, 2.0)
    assert (record.rsu_id, record.upload_rsu_id) == ("r", rsu)
    assert scene.of(result.log, "a")[rsu, 10.0].outcome == "not_selected", "nobody invited it in its second window"
    carried = {name: use.carried_bytes for name, use in result.channels.items()}
    assert carried == ({"r": 3e6, "s": 0.0} if rsu == "r" else {"r": 1e6, "s": 2e6})
    assert [p.vehicle_id for p in learning.calls[0][1]] == ["a"]
    rows = [(row.time_s, row.from_rsu_id, row.to_rsu_id, row.stage, row.gap_s) for row in result.log.handovers]
    assert rows == ([(2.0, "r", "s", "training", 8.0)] if rsu == "s" else [])


@pytest.mark.parametrize(("transfer", "again"), [("restart", 0.5e6), ("resume", 0.0)])
def test_a_transfer_goes_on_after_a_gap(transfer, again, scene):
    windows = [scene.window("a", 0, 0.5), scene.window("a", 10, 30)]
    record = scene.of(scene.run(windows, handover={**OUTSIDE, "transfer": transfer}).log, "a")["r", 0.0]
    assert (record.outcome, record.download_bytes, record.outside_s) == ("committed", 1e6 + again, 9.5)


@pytest.mark.parametrize(("deadline_s", "end_s"), [(60.0, 7.0), (4.0, 4.0)])
def test_the_longest_gap_ends_what_is_not_over(deadline_s, end_s, scene):
    windows = [scene.window("a", 0, 2), scene.window("b", 8, 9)]
    log = scene.run(windows, handover={**OUTSIDE, "longest_gap_s": 5.0}, deadline_s=deadline_s, rounds=2).log
    assert [(p.outcome, p.end_s) for p in log.participations if p.vehicle_id == "a"] == [("left_training", end_s)]


@pytest.mark.parametrize("longest_gap_s", [1e6, 1.5])  # which is over at 3.5 s, when it is covered and trains
def test_one_that_is_back_before_it_is_done_trains_on_in_its_place(longest_gap_s, scene):
    windows = [scene.window("a", 0, 2), scene.window("a", 3, 20), scene.window("b", 4, 20)]
    log = scene.run(windows, handover={**OUTSIDE, "longest_gap_s": longest_gap_s}, invited=1).log
    record = scene.of(log, "a")["r", 0.0]
    assert (record.outcome, record.end_s, record.outside_s, record.train_s) == ("committed", 6.0, 0.0, 3.0)
    assert scene.of(log, "b")["r", 4.0].outcome == "not_selected"


def test_leaving_in_another_stage_ends_it_as_before(scene):
    for leaves_s, outcome in ((0.5, "left_download"), (5.0, "left_upload")):
        log = scene.run([scene.window("a", 0, leaves_s), scene.window("b", 30, 40)], handover=OUTSIDE).log
        assert scene.of(log, "a")["r", 0.0].outcome == outcome
    twice = scene.run([scene.window("a", 0, 2), scene.window("a", 10, 11)], handover=OUTSIDE, deadline_s=20.0).log
    cut = scene.of(twice, "a")["r", 0.0]
    assert (cut.outcome, cut.end_s, cut.upload_bytes) == ("left_upload", 11.0, 1e6)
    assert scene.of(twice, "a")["r", 10.0].outcome == "not_selected"


def test_one_that_is_not_back_in_time_is_cut_with_the_round_and_takes_no_place_until_then(scene):
    windows = [scene.window("a", 0, 2), scene.window("b", 2, 8.1), scene.window("a", 50, 60), scene.window("c", 51, 60)]
    log = scene.run(windows, handover=OUTSIDE, invited=1, rounds=2).log
    record, other = scene.of(log, "a")["r", 0.0], next(r for r in log.participations if r.vehicle_id == "b")
    assert (other.start_s, other.outcome, log.rounds[0].close_s) == (2.0, "committed", 8.0)
    assert (record.outcome, record.round, record.end_s) == ("left_training", 0, 8.0)
    assert (record.train_s, record.outside_s) == (3.0, 4.0)
    assert scene.of(log, "a")["r", 50.0].outcome == "committed", "it is invited anew"
    assert scene.of(log, "c")["r", 51.0].outcome == "not_selected", "one place"


def test_staleness_lets_it_upload_in_a_later_round(scene):
    windows = [scene.window("a", 0, 2), scene.window("b", 2, 8.5), scene.window("a", 11, 20)]
    learning = scene.learning()
    rules = {"handover": OUTSIDE, "invited": 1, "rounds": 2, "max_staleness": 1}
    log = scene.run(windows, learning=learning, **rules).log
    record = scene.of(log, "a")["r", 0.0]
    assert (record.outcome, record.base_round, record.round, record.end_s) == ("committed", 0, 1, 13.0)
    assert [(p.vehicle_id, p.base.version) for p in learning.calls[1][1]] == [("a", 0)]


def test_the_round_of_everyone_does_not_wait_for_who_is_outside(scene):
    windows = [scene.window("a", 0, 10), scene.window("b", 5, 7.5)]
    log = scene.run(windows, handover=OUTSIDE, pace="coverage").log
    assert (log.rounds[0].closed_by, log.rounds[0].close_s) == ("everyone", 7.5)
    assert scene.of(log, "b")["r", 5.0].outcome == "left_training"


def test_who_never_comes_back_is_recorded_at_the_end_of_the_traffic(scene):
    log = scene.run([scene.window("a", 0, 2), scene.window("b", 30, 31)], handover=OUTSIDE).log
    record = scene.of(log, "a")["r", 0.0]
    assert (record.outcome, record.end_s, record.train_s) == ("left_training", 31.0, 3.0)
    assert math.fsum((record.download_s, record.train_s, record.outside_s)) == record.end_s - record.start_s
    ended = scene.run([scene.window("a", 0, 2, exit_cause="end")], handover=OUTSIDE).log
    assert [(r.outcome, r.end_s) for r in ended.participations] == [("left_training", 2.0)]


def on_a_ring(scene: Any, probability: float, policy: str, **silos: Any) -> tuple[Any, Any]:
    """Return log and learning of 24 vehicles that stand at four RSUs, each with an aggregator, below a cloud."""
    source = {"rsus": 4, "vehicles": 24, "probability": probability, "step_s": 5.0, "duration_s": 120.0}
    rounds = scene.experiment(
        rounds=100,
        quorum=2,
        invited=3,
        max_staleness=9,
        compute=ComputeSettings(preset="ecu", spread=0.5),
        topology={"kind": "hierarchical", "edge_rounds": 3},
        handover={"policy": policy},
    )
    experiment = replace(rounds, scenario="jumps", source=source, silos=SiloSettings(count=24, **silos))
    learning = scene.learning()
    return scene.simulate(experiment, open_traffic(experiment), learning, Streams(seed=0)).log, learning


TWIN = {"by": "place", "replaced_share": 1.0}


def test_the_static_twin_has_forwards_instants_and_bytes_and_every_model_its_own_rsus_data(scene):
    """Forward with data that are of the place as a whole: the control of the study of mobility."""
    (log, learning), (twin, of_twin) = (on_a_ring(scene, 0.6, "forward", **how) for how in ({"by": "origin"}, TWIN))
    assert [row._replace(silo=0) for row in twin.participations] == [row._replace(silo=0) for row in log.participations]
    assert list(twin.rounds) == list(log.rounds)
    assert list(twin.merges) == list(log.merges)
    assert list(twin.handovers) == list(log.handovers)
    assert len(log.handovers) > 50

    def strangers(calls: Any) -> int:
        of = [(summary.aggregator, one) for summary, ones in calls for one in ones]
        assert all((one.base.aggregator, one.earlier) == (name, ()) for name, one in of)
        return sum(one.silo % 4 != int(name.removeprefix("rsu_")) for name, one in of)

    assert strangers(of_twin.calls) == 0 < strangers(learning.calls)


def test_where_nobody_moves_all_policies_and_the_twin_are_one(scene):
    first = on_a_ring(scene, 0.0, "forward", by="origin")
    others = [on_a_ring(scene, 0.0, policy, by="origin") for policy in POLICIES if policy != "forward"]
    for log, learning in (*others, on_a_ring(scene, 0.0, "forward", **TWIN)):
        assert learning.calls == first[1].calls
        assert learning.mixed == first[1].mixed
        assert list(log.participations) == list(first[0].participations)
