"""Exchange between vehicles in simulated time: hand-made scenes with every instant known, and laws."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from coverage_laws import path_of
from hypothesis import given
from hypothesis import strategies as st

from vnetsim.coverage.rsu import Rsu
from vnetsim.learning import Cost, Exchange
from vnetsim.radio.models import Tr37885
from vnetsim.radio.propagation import path_loss_db
from vnetsim.simulation.exchange import contact_time_s

MIX = Cost(
    download_bytes=0,
    upload_bytes=0,
    work_flop=3e9,
    exchange=Exchange(before_training=False, mutual=True, send_bytes=1_000_000),
)
"""Train for 3 s, then swap a megabyte with each neighbour (1 s over the whole airtime)."""

OVERSEAS = Cost(
    download_bytes=1_000_000,
    upload_bytes=1_000_000,
    work_flop=2e9,
    exchange=Exchange(before_training=True, mutual=False, send_bytes=1_000_000, work_flop=4e9, return_bytes=1_000_000),
)
"""Download, have the neighbours train for 4 s each, train for 2 s, upload."""


@pytest.fixture
def play(scene):
    """``play(windows, cost, ...)`` gives the result and the participants by round."""

    def run(windows: Any, cost: Cost, **settings: Any) -> Any:
        learning = scene.learning(every=cost)
        result = scene.run(windows, learning=learning, **settings)
        return result, [participants for _, participants in learning.calls]

    return run


def in_a_row(scene: Any, *until_s: float) -> list[Any]:
    """Return windows of vehicles a, b and c that drive 10 m apart, from 0 s to the times given."""
    return [
        scene.window(name, 0, end_s, start=(10.0 * place, 0.0), speed_mps=1.0)
        for place, (name, end_s) in enumerate(zip("abc", until_s, strict=True))
    ]


def peers(participants: Any) -> dict[str, list[str]]:
    return {p.vehicle_id: [peer.vehicle_id for peer in p.peers] for p in participants}


@pytest.mark.parametrize(("cost", "rows"), [(MIX, 0), (replace(MIX, upload_bytes=1_000_000), 1)])
def test_who_waits_for_its_exchange_alone_is_handed_to_nobody(cost, rows, scene, play):
    windows = [scene.window("a", 0, 5), scene.window("a", 4, 20, rsu_id="s")]
    result, _ = play(windows, cost, rsus=(scene.rsu, scene.beside), quorum=2)
    assert result.log.participations[0].outcome == "left_exchange"
    assert len(result.log.handovers) == rows


def test_two_vehicles_swap_models_over_a_shared_sidelink(scene, play):
    result, (participants,) = play(
        [scene.window("a", 0, 20), scene.window("b", 1, 20, start=(30.0, 100.0))], MIX, quorum=2
    )
    # a is ready at 3 and waits; b at 4; then two megabytes share 1 MB/s
    assert [(e.sender_id, e.receiver_id, e.start_s, e.end_s, e.via, e.outcome) for e in result.log.exchanges] == [
        ("a", "b", 4.0, 6.0, "sidelink", "completed"),
        ("b", "a", 4.0, 6.0, "sidelink", "completed"),
    ]
    assert all(e.bytes == 1e6 and e.contact_s == pytest.approx(2.0) for e in result.log.exchanges)
    a, b = sorted(result.log.participations, key=lambda record: record.vehicle_id)
    assert (a.outcome, a.train_s, a.wait_s, a.exchange_s, a.end_s) == ("committed", 3.0, 1.0, 2.0, 6.0)
    assert (b.wait_s, b.exchange_s, b.exchange_bytes) == (0.0, 2.0, 1e6)
    assert peers(participants) == {"a": ["b"], "b": ["a"]}
    assert [p.neighbours for p in participants] == [1, 1]
    assert participants[0].peers[0].silo == participants[1].silo
    (round_,) = result.log.rounds
    assert (round_.closed_by, round_.close_s, round_.committed) == ("quorum", 6.0, 2)
    assert result.sidelinks["r"].carried_bytes == 2e6
    assert result.channels["r"].carried_bytes == 0
    first = result.log.exchanges[0]
    assert (first.sender_x_m, first.receiver_x_m) == (pytest.approx(40.0), pytest.approx(60.0))


@pytest.mark.parametrize(("topology", "relay"), [("contact", True), ("star", False)])
def test_the_rsu_relays_over_two_hops(scene, play, topology, relay):
    far = [scene.window("a", 0, 20), scene.window("b", 0, 20, start=(0.0, -100.0))]
    result, (participants,) = play(far, MIX, quorum=2, exchange={"topology": topology, "relay": relay})
    assert peers(participants) == {"a": ["b"], "b": ["a"]}
    # two uploads share the airtime until 5, then two downloads until 7
    assert [(e.via, e.end_s, e.bytes, e.contact_s) for e in result.log.exchanges] == [("relay", 7.0, 2e6, 4.0)] * 2
    assert result.channels["r"].carried_bytes == 4e6
    assert result.sidelinks["r"].carried_bytes == 0


@pytest.mark.parametrize("topology", ["ring", "complete", "contact"])
def test_a_pair_waits_until_it_meets_unless_contact_makes_pairs(topology, scene, play):
    # b comes towards a at 20 m/s: 200 m apart at 3 s, within 170 m from 4.5 s on, seen at 5 s
    windows = [
        scene.window("a", 0, 30, start=(-100.0, 0.0), speed_mps=0.0, path=[(0, -100, 0), (30, -100, 0)]),
        scene.window("b", 0, 12, path=[(0, 160, 0), (12, -80, 0)]),
    ]
    range_m = 200.0 if topology == "contact" else 170.0  # to be as far apart is no contact
    result, (participants,) = play(windows, MIX, quorum=2, exchange={"topology": topology, "range_m": range_m})
    if topology == "contact":
        assert list(result.log.exchanges) == []
        return
    assert peers(participants) == {"a": ["b"], "b": ["a"]}
    assert [e.end_s for e in result.log.exchanges] == [7.0, 7.0]
    assert result.log.exchanges[0].contact_s == pytest.approx(2.5)


def test_who_drives_out_of_range_is_cut(scene, play):
    # they part at 40 m/s: 120 m apart at 3 s, 160 m at 4 s, when half of each model is there
    windows = [
        scene.window("a", 0, 11, path=[(0, 0, 0), (3, 0, 0), (11, -160, 0)]),
        scene.window("b", 0, 11, path=[(0, 120, 0), (3, 120, 0), (11, 280, 0)]),
    ]
    result, (participants,) = play(windows, MIX, quorum=2, exchange={"range_m": 160.0})
    assert [(e.outcome, e.end_s, e.bytes) for e in result.log.exchanges] == [("cut", 4.0, 5e5)] * 2
    assert result.log.exchanges[0].contact_s == pytest.approx(1.0)
    assert peers(participants) == {"a": [], "b": []}
    assert {p.outcome for p in result.log.participations} == {"committed"}
    assert result.sidelinks["r"].carried_bytes == 1e6


def test_who_leaves_coverage_during_the_exchange_counts_when_nothing_else_is_to_do(scene, play):
    result, (participants,) = play(in_a_row(scene, 20, 20, 4), MIX, quorum=3)
    # six megabytes begin at 3; c leaves at 4 with a sixth of each of its four
    assert Counter(e.outcome for e in result.log.exchanges) == {"cut": 4, "completed": 2}
    assert all(math.isclose(e.bytes, 1e6 / 6) for e in result.log.exchanges if e.outcome == "cut")
    assert peers(participants) == {"c": [], "a": ["b"], "b": ["a"]}
    assert {p.vehicle_id: p.end_s for p in result.log.participations} == pytest.approx(
        {"c": 4.0, "a": 5.667, "b": 5.667}, abs=1e-3
    )
    assert {p.outcome for p in result.log.participations} == {"committed"}
    windows = [*in_a_row(scene, 20, 20, 4), scene.window("c", 3.5, 20, rsu_id="s")]
    result, _ = play(windows, MIX, rsus=(scene.rsu, replace(scene.rsu, id="s")), quorum=3)
    assert list(result.log.handovers) == [], "nothing goes on at the other RSU"


def test_who_leaves_while_waiting_or_with_work_left_does_not_count(scene, play):
    early = [scene.window("a", 0, 3.5), scene.window("b", 1, 20), scene.window("c", 2, 20)]
    result, (participants,) = play(early, MIX, quorum=2)
    first = result.log.participations[0]
    assert (first.vehicle_id, first.outcome, first.wait_s, first.exchange_s) == ("a", "left_exchange", 0.5, 0.0)
    assert peers(participants) == {"b": ["c"], "c": ["b"]}

    result, (participants,) = play([scene.window("a", 0, 5), scene.window("b", 0, 60)], OVERSEAS, quorum=2)
    left, stayed = result.log.participations
    assert (left.vehicle_id, left.outcome, left.end_s) == ("a", "left_exchange", 5.0)
    assert (stayed.outcome, peers(participants)) == ("committed", {"b": []})

    upload_too = replace(MIX, upload_bytes=1)
    result, (participants,) = play([scene.window("a", 0, 3.5), scene.window("b", 0, 60)], upload_too, quorum=2)
    left, stayed = result.log.participations
    assert (left.vehicle_id, left.outcome, left.end_s) == ("a", "left_exchange", 3.5)
    assert (stayed.outcome, peers(participants)) == ("committed", {"b": []})


def test_hosts_work_for_one_guest_after_the_other(scene, play):
    windows = [scene.window(name, 0, 60, start=(10.0 * i, 0.0), speed_mps=1.0) for i, name in enumerate("abc")]
    result, (participants,) = play(windows, OVERSEAS, quorum=3)
    # downloads share the air until 3; six models until 9; then two jobs of 4 s at each host, and the ways back
    ends = [e.end_s for e in result.log.exchanges]
    assert ends == pytest.approx([16.0, 16.0, 16.0, 20.0, 20.0, 20.0])
    assert [(p.neighbours, [q.neighbours for q in p.peers]) for p in participants] == [(2, [2, 2])] * 3
    assert {p.vehicle_id: sorted(q.vehicle_id for q in p.peers) for p in participants} == {
        "a": ["b", "c"],
        "b": ["a", "c"],
        "c": ["a", "b"],
    }
    assert all(e.bytes == 2e6 for e in result.log.exchanges)
    for record in result.log.participations:
        assert (record.download_s, record.exchange_s, record.train_s, record.upload_s) == pytest.approx((3, 17, 2, 3))
        assert record.exchange_bytes == 4e6


def test_a_guest_that_leaves_frees_its_host(scene, play):
    result, (participants,) = play(in_a_row(scene, 12, 60, 60), OVERSEAS, quorum=3)
    ends = {(e.sender_id, e.receiver_id): (e.outcome, e.end_s) for e in result.log.exchanges}
    assert ends["a", "b"] == ends["a", "c"] == ("cut", 12.0)
    assert ends["b", "a"] == ("cut", 12.0)
    # a's jobs, first in line, stop at 12; b and c train each other's model from then to 16, and two models go back
    assert ends["b", "c"] == ends["c", "b"] == ("completed", 18.0)
    assert peers(participants) == {"b": ["c"], "c": ["b"]}
    assert [(p.neighbours, p.peers[0].neighbours) for p in participants] == [(2, 2), (2, 2)], "a had been there"


def test_a_mutual_exchange_needs_both_directions(scene, play):
    """With a directed ring of three, one direction of every pair is never sent."""
    windows = [scene.window(name, 0, 60, start=(10.0 * i, 0.0), speed_mps=1.0) for i, name in enumerate("abc")]
    one_way = replace(MIX, exchange=replace(MIX.exchange, mutual=False))
    result, (participants,) = play(windows, one_way, quorum=3, exchange={"topology": "ring"})
    assert [(e.sender_id, e.receiver_id) for e in result.log.exchanges] == [("a", "b"), ("b", "c"), ("c", "a")]
    assert peers(participants) == {"a": ["c"], "b": ["a"], "c": ["b"]}
    result, (participants,) = play(windows, MIX, quorum=3, exchange={"topology": "ring"})
    assert len(result.log.exchanges) == 6
    assert peers(participants) == {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"]}


@pytest.mark.parametrize("change", [{"work_flop": 0.0, "return_bytes": 1}, {"work_flop": 1.0, "return_bytes": 0}])
def test_who_is_worked_for_or_gets_something_back_counts_the_other(scene, play, change):
    cost = replace(OVERSEAS, exchange=replace(OVERSEAS.exchange, **change))
    result, (participants,) = play(in_a_row(scene, 60, 60, 60), cost, quorum=3, exchange={"topology": "ring"})
    # three downloads end at 3 s and three models arrive at 6 s
    moved = 1e6 + change["return_bytes"]
    assert [(e.bytes, e.end_s) for e in result.log.exchanges] == [(moved, pytest.approx(6.0, abs=1e-5))] * 3
    assert peers(participants) == {"a": ["b"], "b": ["c"], "c": ["a"]}


def test_the_deadline_begins_the_exchange_with_who_is_there(scene, play):
    windows = [scene.window("a", 0, 60), scene.window("b", 0, 60, start=(5.0, 100.0)), scene.window("c", 8, 60)]
    result, (participants,) = play(windows, MIX, quorum=3, deadline_s=10.0)
    assert peers(participants) == {"a": ["b"], "b": ["a"]}
    outcomes = {p.vehicle_id: (p.outcome, p.end_s) for p in result.log.participations}
    assert outcomes == {"a": ("committed", 12.0), "b": ("committed", 12.0), "c": ("deadline", 10.0)}
    assert result.log.rounds[0].closed_by == "deadline"
    alone, (participants,) = play(windows[:1], MIX, quorum=3, deadline_s=10.0)
    assert alone.log.rounds[0].close_s == 10.0
    assert peers(participants) == {"a": []}


def test_the_second_part_of_a_round_has_a_deadline_of_its_own(scene, play):
    slow, windows = replace(OVERSEAS, work_flop=25e9), [scene.window("a", 0, 90), scene.window("b", 0, 90)]
    # the exchange is over at 10 s, the training at 35 s, and uploads would be at 37 s
    for staleness, ended in ((0, {("deadline", 22.0)}), (1, {("committed", 37.0), ("deadline", 59.0)})):
        rules = {"quorum": 2, "deadline_s": 20.0, "rounds": 1 + 2 * staleness, "max_staleness": staleness}
        result, _ = play(windows, slow, **rules)
        assert {(p.outcome, p.end_s) for p in result.log.participations} == ended
        assert (result.log.rounds[0].close_s, result.log.rounds[0].committed) == (22.0, 0)
    # where it ends the exchange at 7 s, all go on with what is there: 2 s of training, 2 s of uploads
    result, rounds = play(windows, OVERSEAS, quorum=2, deadline_s=5.0, rounds=2, max_staleness=1)
    assert {(p.outcome, p.end_s, p.base_round) for p in result.log.participations} == {("committed", 11.0, 0)}
    assert [peers(who) for who in rounds] == [{}, {"a": [], "b": []}]


def test_nobody_is_invited_while_others_exchange(scene, play):
    windows = [scene.window("a", 0, 60), scene.window("b", 0, 60), scene.window("c", 4, 60), scene.window("d", 4, 60)]
    result, rounds = play(windows, MIX, quorum=2, rounds=2)
    assert [sorted(peers(r)) for r in rounds] == [["a", "b"], ["c", "d"]] or len(rounds) == 2
    starts = {p.vehicle_id: p.start_s for p in result.log.participations if p.round == 1}
    assert min(starts.values()) == result.log.rounds[0].close_s == 5.0


def test_values_come_back_to_their_exchanges(scene):
    class Telling(scene.learning):  # type: ignore[misc, name-defined]
        def close_round(self, summary: Any, participants: Any) -> Any:
            result = super().close_round(summary, participants)
            pairs = {(q.vehicle_id, p.vehicle_id): summary.round + 0.25 for p in participants for q in p.peers}
            return replace(result, exchanges={**pairs, ("nobody", "a"): 1.0})

    windows = [scene.window(name, 0, 60, start=(5.0 * i, 100.0)) for i, name in enumerate("ab")]
    # the deadline of the first exchange is in the second
    result = scene.run(windows, learning=Telling(every=MIX), quorum=2, rounds=2, deadline_s=6.0)
    assert [(e.round, e.value) for e in result.log.exchanges] == [(0, 0.25), (0, 0.25), (1, 1.25), (1, 1.25)]


def test_a_late_vehicle_exchanges_in_the_next_round_when_staleness_allows(scene, play):
    windows = [
        scene.window(n, t, 90, start=(5.0 * i, 0.0), speed_mps=1.0)
        for i, (n, t) in enumerate(zip("abcd", (0, 0, 1, 1), strict=True))
    ]
    result, rounds = play(windows, MIX, quorum=2, rounds=2, max_staleness=1, selection="arrival")
    assert [peers(who) for who in rounds] == [{"a": ["b"], "b": ["a"]}, {"c": ["d"], "d": ["c"]}]
    assert [(p.round, p.base.version) for p in rounds[1]] == [(1, 0), (1, 0)]
    assert [r.close_s for r in result.log.rounds] == [5.0, 7.0], "ready since 4 s"
    result, rounds = play(windows, MIX, quorum=2, rounds=1, selection="arrival")
    assert [p.outcome for p in result.log.participations if p.vehicle_id in "cd"] == ["stale"] * 2


def test_the_end_of_traffic_ends_an_exchange(scene, play):
    windows = [scene.window("a", 0, 4.5, exit_cause="end"), scene.window("b", 0, 4.5, exit_cause="end")]
    result, rounds = play(windows, MIX, quorum=2, end_s=4.5)
    assert [(e.outcome, e.end_s, e.bytes) for e in result.log.exchanges] == [("cut", 4.5, 7.5e5)] * 2
    assert {p.outcome for p in result.log.participations} == {"committed"}
    assert peers(rounds[0]) == {"a": [], "b": []}


@given(data=st.data())
def test_laws(scene, data):
    """Over random scenes: bytes and participations are conserved, peers are completed exchanges, contact fits."""
    number = data.draw(st.integers(1, 9))
    windows = []
    for i in range(number):
        enter = data.draw(st.floats(0, 30, allow_subnormal=False))
        dwell_s = data.draw(st.floats(1, 60))
        at = (data.draw(st.floats(-200, 200)), data.draw(st.floats(-150, 150)))
        speed = data.draw(st.floats(-20, 20))
        rsu = data.draw(st.sampled_from(["r", "s"]))
        windows.append(scene.window(f"v{i}", enter, enter + dwell_s, start=at, speed_mps=speed, rsu_id=rsu))
    cost = data.draw(st.sampled_from([MIX, OVERSEAS, replace(MIX, exchange=replace(MIX.exchange, mutual=False))]))
    exchange = {
        "topology": data.draw(st.sampled_from(["contact", "ring", "complete", "star"])),
        "relay": data.draw(st.booleans()),
        "limit_s": data.draw(st.floats(0.5, 40)),
        "range_m": data.draw(st.floats(20, 400)),
    }
    rules = {
        "quorum": data.draw(st.integers(1, 4)),
        "deadline_s": data.draw(st.floats(2, 30)),
        "max_staleness": data.draw(st.integers(0, 1)),
        "distinct_silos": data.draw(st.booleans()),
        "silos": data.draw(st.integers(4, 9)),
        "radio": data.draw(st.sampled_from([scene.constant, {}])),
    }
    rsus = (scene.rsu, scene.beside)
    learning = scene.learning(every=cost)
    result = scene.run(windows, rsus=rsus, learning=learning, rounds=3, exchange=exchange, **rules)
    log = result.log
    booked = math.fsum(p.exchange_bytes for p in log.participations)
    assert booked == pytest.approx(math.fsum(e.bytes for e in log.exchanges))
    over_air = math.fsum(use.carried_bytes for uses in (result.channels, result.sidelinks) for use in uses.values())
    parts = math.fsum(p.download_bytes + p.upload_bytes + p.exchange_bytes for p in log.participations)
    assert over_air == pytest.approx(parts, abs=1e-3)
    done = {(e.round, e.sender_id, e.receiver_id) for e in log.exchanges if e.outcome == "completed"}
    for summary, participants in learning.calls:
        for p in participants:
            others = [q.vehicle_id for q in p.peers]
            assert len(set(others)) == len(others)
            assert p.vehicle_id not in others
            for q in others:
                sent, received = (p.round, p.vehicle_id, q) in done, (p.round, q, p.vehicle_id) in done
                assert summary.round == p.round or rules["max_staleness"]
                if p.round == summary.round and p.base.version == p.round:
                    assert (sent and received) if cost.exchange.mutual else sent if cost is OVERSEAS else received
    for e in log.exchanges:
        assert -1e-9 <= e.contact_s <= e.end_s - e.start_s + 1e-9 <= exchange["limit_s"] + 2e-9
        assert e.outcome == "cut" or e.via
        size = cost.exchange.send_bytes + cost.exchange.return_bytes
        hops = 2 if e.via == "relay" else 1
        assert e.bytes == pytest.approx(hops * size) if e.outcome == "completed" else e.bytes <= hops * size + 1e-6


@given(seed=st.integers(0, 10**6), range_m=st.floats(5, 100))
def test_contact_time_against_fine_sampling(seed, range_m):
    rng = np.random.default_rng(seed)
    paths = []
    for _ in range(2):
        times = np.sort(np.r_[0.0, rng.uniform(0, 20, 6), 20.0])
        paths.append((times, rng.uniform(-60, 60, 8), rng.uniform(-60, 60, 8)))
    one, other = (path_of(list(zip(*path, strict=True))) for path in paths)
    fine = np.linspace(0, 20, 20001)
    offset = [np.interp(fine, paths[0][0], paths[0][k]) - np.interp(fine, paths[1][0], paths[1][k]) for k in (1, 2)]
    sampled = float((np.hypot(*offset) < range_m).mean() * 20)
    assert contact_time_s(one, other, range_m, 0.0, 20.0) == pytest.approx(sampled, abs=0.03)
    beside = path_of([(0.0, 0.0, 0.0), (9.0, 0.0, 0.0)]), path_of([(0.0, 3.0, 4.0), (9.0, 3.0, 4.0)])
    assert [contact_time_s(*beside, within_m, 1.0, 9.0) for within_m in (5.0, 5.1)] == [0.0, 8.0]


OPEN = {
    "state": "los",
    "bandwidth_hz": 10e6,
    "max_spectral_efficiency": 100.0,
    "rsu_antenna_dbi": 0.0,
    "vehicle_antenna_dbi": 0.0,
}
"""Line of sight without a cap, where distance and shadowing show."""


def test_the_sidelink_has_the_loss_of_the_air_between_equal_antennas():
    # an RSU may send with more than a vehicle, and has no part in this
    link = {**OPEN, "efficiency": 1.0, "rsu_power_dbm": 46.0, "vehicle_power_dbm": 17.0, "shadowing_db": 2.0}
    noise = -174 + 70 + 9
    expected = 10e6 * math.log2(1 + 10 ** ((17 - path_loss_db(120.0, 5.9e9, "highway") - 2.0 - noise) / 10))
    model = Tr37885(**link)  # type: ignore[arg-type]
    rsu = Rsu(id="r", x_m=0.0, y_m=0.0, range_m=250.0, environment="highway")
    state = model.draw(np.random.default_rng(0), model.begin([rsu], []), (1.6, 1.6))
    state = replace(state, shadowing=lambda *_: 1.0)
    assert model.sidelink_bps(rsu, (10.0, 0.0), (130.0, 0.0), state) == pytest.approx(expected)


def test_the_sidelink_has_the_environment_of_the_rsu_that_schedules_it(scene, play):
    windows = [scene.window("a", 0, 90), scene.window("b", 0, 90, start=(80.0, 100.0))]
    took = {}
    for environment in ("scenario", "urban", "highway"):
        link = {**OPEN, "shadowing_db": 0.0, "environment": environment}
        result, _ = play(windows, MIX, radio=link, quorum=2, rounds=1)
        took[environment] = result.log.exchanges[0].end_s - result.log.exchanges[0].start_s
        assert result.sidelink_rates.looked_up >= 2
        assert result.sidelink_rates.capped == 0
    assert took["scenario"] == took["urban"] < took["highway"]


def test_shadowing_is_the_same_both_ways_and_by_round(scene, play):
    windows = [scene.window("a", 0, 90), scene.window("b", 0, 90, start=(80.0, 100.0))]
    link = OPEN
    result, _ = play(windows, MIX, radio=link, quorum=2, rounds=3)
    took = [e.end_s - e.start_s for e in result.log.exchanges]
    assert took[0] == pytest.approx(took[1], rel=1e-3)  # the second a little quicker: alone at the end
    assert len({round(t, 3) for t in took}) >= 3
    flat, _ = play(windows, MIX, radio={**link, "shadowing_db": 0.0}, quorum=2, rounds=3)
    assert len({round(e.end_s - e.start_s, 2) for e in flat.log.exchanges}) == 1


@pytest.mark.parametrize("mutual", [True, False])
def test_of_a_mutual_exchange_one_direction_alone_counts_for_neither(scene, play, mutual):
    """Over the RSU, b's model reaches a later than a's reaches b, for b is far from it; the limit falls between."""
    windows = [
        scene.window(name, 0, 90, path=[(0, x_m, 0), (90, x_m, 0)]) for name, x_m in (("a", 10.0), ("b", 1500.0))
    ]
    radio = {**OPEN, "shadowing_db": 0.0, "rsu_power_dbm": 10.0}
    cost = replace(MIX, exchange=Exchange(before_training=False, mutual=mutual, send_bytes=1_000_000))
    whole, (participants,) = play(windows, cost, radio=radio, exchange={"topology": "star"}, quorum=2)
    assert peers(participants) == {"a": ["b"], "b": ["a"]}
    first, second = whole.log.exchanges
    assert first.end_s + 0.01 < second.end_s
    limit_s = (first.end_s + second.end_s) / 2 - first.start_s
    cut, (participants,) = play(windows, cost, radio=radio, exchange={"topology": "star", "limit_s": limit_s}, quorum=2)
    assert [(e.sender_id, e.outcome) for e in cut.log.exchanges] == [
        (first.sender_id, "completed"),
        (second.sender_id, "cut"),
    ]
    received = {first.sender_id: [], first.receiver_id: [first.sender_id]}
    assert peers(participants) == ({"a": [], "b": []} if mutual else received)
