"""Clouds and neighbours: when models are averaged, with which weights, and who waits meanwhile.

A participation alone takes 1 s of download, 3 s of training and 2 s of upload; a model has 1 MB.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import TopologySettings
from vnetsim.learner_facts import CLOUD
from vnetsim.simulation.topology import aggregators, metropolis_hastings, neighbours

WEST, EAST = (Rsu(id=name, x_m=x, y_m=0.0, range_m=250.0) for name, x in (("west", 0.0), ("east", 1000.0)))
BOTH = (WEST, EAST)
SLOW = {"latency_s": 2.0, "cloud_latency_s": 1.0, "down_bps": 8e6, "up_bps": 4e6}


def parked(scene: Any, until_s: float = 200.0, **of: float) -> list[Any]:
    """Return a window of one vehicle at each RSU that is named, from a time on (s)."""
    return [scene.window(f"at {name}", enter_s, until_s, rsu_id=name) for name, enter_s in of.items()]


def hierarchy(**settings: Any) -> dict[str, Any]:
    return {"rsus": BOTH, "topology": {"kind": "hierarchical", **settings}}


def averages(result: Any) -> list[tuple[float, dict[tuple[str, int], float]]]:
    """Return when the cloud made each model, and the weights of its sources."""
    made = [merge for merge in result.log.merges if merge.aggregator == CLOUD]
    return [
        (time_s, {(merge.source, merge.source_version): merge.weight for merge in one})
        for (_, time_s), one in itertools.groupby(made, key=lambda merge: (merge.version, merge.time_s))
    ]


def test_a_cloud_waits_for_all_and_all_wait_for_the_cloud(scene):
    learning = scene.learning()
    # west closes its second round at 12 s, east, whose vehicle comes 5 s later, at 17 s
    result = scene.run(parked(scene, west=0.0, east=5.0), rounds=4, learning=learning, **hierarchy(edge_rounds=2))
    assert averages(result) == [
        (17.0, {("west", 2): 0.5, ("east", 2): 0.5}),
        (29.0, {("west", 4): 0.5, ("east", 4): 0.5}),
    ]
    opened = {(r.aggregator, r.round): r.open_s for r in result.log.rounds}
    assert opened["west", 2] == opened["east", 2] == 17.0
    assert opened["west", 1] == 6.0
    assert (result.ended_by, result.time_s) == ("rounds", 29.0)
    assert [(m.round, m.final) for m in learning.mixed] == [(0, False), (1, True)]
    # the cloud's model is made first, and then takes the place of those that it was made of
    assert [into for into, _ in learning.mixed[0].means] == [(CLOUD, 1), ("west", 2), ("east", 2)]
    assert [p.base for _, who in learning.calls for p in who if p.round == 2] == [("west", 2), ("east", 2)]


def test_weights_are_the_samples_committed_since_the_last_average(scene):
    windows = [
        scene.window("first", 0.0, 7.0, rsu_id="west"),
        *parked(scene, east=0.0),
        scene.window("second", 7.0, 200.0, rsu_id="west"),
    ]
    images = {0: 4, 2: 3}  # by silo, dealt in order of entry; one that is not told counts 1
    result = scene.run(windows, rounds=2, more={"images": images}, **hierarchy())
    assert averages(result) == [
        (6.0, {("west", 1): 4 / 5, ("east", 1): 1 / 5}),
        (13.0, {("west", 2): 3 / 4, ("east", 2): 1 / 4}),
    ]


def test_a_rejected_update_weighs_nothing(scene):
    learning = scene.learning(rejects=frozenset({"at west"}))
    result = scene.run(parked(scene, west=0.0, east=0.0), learning=learning, backhaul=SLOW, **hierarchy())
    assert averages(result) == [(11.0, {("east", 1): 1.0})]
    assert (result.log.rounds[-1].close_s, result.time_s) == (6.0, 11.0)


def test_where_nobody_committed_the_cloud_keeps_its_model(scene):
    result = scene.run(
        [scene.window("late", 130.0, 200.0, rsu_id="west")], rounds=3, deadline_s=60.0, end_s=300.0, **hierarchy()
    )
    assert averages(result) == [(60.0, {(CLOUD, 0): 1.0}), (120.0, {(CLOUD, 1): 1.0}), (180.0, {("west", 3): 1.0})]


def test_after_the_deadline_the_cloud_goes_on_without_the_late_ones(scene):
    result = scene.run(parked(scene, west=0.0, east=20.0), rounds=2, **hierarchy(cloud_deadline_s=4.0))
    rows = {(m.source, m.source_version): (m.time_s, m.closed_by) for m in result.log.merges if m.aggregator == CLOUD}
    assert rows == {
        ("west", 1): (10.0, "deadline"),
        ("west", 2): (20.0, "deadline"),
        ("east", 1): (26.0, "everyone"),  # west has finished, and nobody waits for it
        ("east", 2): (32.0, "everyone"),
    }


def test_a_model_takes_its_time_to_the_cloud_and_back(scene):
    result = scene.run(parked(scene, west=0.0, east=0.0), rounds=2, backhaul=SLOW, **hierarchy())
    # 1 MB at 4 Mbit/s and 3 s of latency there, 3 s and 1 MB at 8 Mbit/s back
    ((first_s, _), (second_s, _)) = averages(result)
    assert first_s == 6.0 + 2.0 + 3.0
    back = [m for m in result.log.merges if m.closed_by == "arrival"]
    assert {(m.aggregator, m.version, m.source, m.source_version, m.weight, m.time_s) for m in back} == {
        (name, 1, CLOUD, 1, 1.0, first_s + 3.0 + 1.0) for name in ("west", "east")
    }
    assert {r.open_s for r in result.log.rounds if r.round == 1} == {15.0}
    assert second_s == 15.0 + 6.0 + 2.0 + 3.0
    for wire in result.wires.values():
        assert (wire.up_bytes, wire.up_messages) == (2e6, 2)
        assert (wire.down_bytes, wire.down_messages) == (1e6, 1)  # nobody waits for the last


@pytest.mark.parametrize(("reset", "outcomes"), [("none", ["committed"]), ("in-flight", ["stale"])])
def test_a_model_of_the_cloud_may_cut_those_in_flight(scene, reset, outcomes):
    # the second vehicle of west begins at 5 s and is at work until 11 s, when the cloud's first round closes at 8 s
    windows = [*parked(scene, west=0.0, east=2.0), scene.window("second", 5.0, 200.0, rsu_id="west")]
    result = scene.run(windows, rounds=2, max_staleness=5, **hierarchy(reset=reset))
    second = [p for p in result.log.participations if p.vehicle_id == "second"]
    assert [p.outcome for p in second][:1] == outcomes
    assert second[0].base_round == 0
    if reset == "in-flight":
        assert second[0].end_s == averages(result)[0][0]
        assert second[1].base_round == 1


def test_the_end_of_the_traffic_closes_the_cloud_with_what_was_committed(scene):
    learning = scene.learning()
    result = scene.run(
        [scene.window("a", 0.0, 30.0, rsu_id="west")], rounds=50, deadline_s=1000.0, end_s=30.0, learning=learning,
        **hierarchy(edge_rounds=3),
    )  # fmt: skip
    assert averages(result) == [(30.0, {("west", 3): 1.0})]
    taken = [(model, {(CLOUD, 1): 1.0}) for model in (("west", 3), ("east", 0))]
    assert learning.mixed[0].means == [((CLOUD, 1), {("west", 3): 1.0}), *taken]
    assert [m.closed_by for m in result.log.merges] == ["traffic_end"]
    assert result.ended_by == "traffic"


def test_neighbours_average_what_has_arrived(scene):
    learning = scene.learning()
    result = scene.run(
        parked(scene, west=0.0, east=1.0), rsus=BOTH, rounds=3, learning=learning, topology={"kind": "peers"},
        backhaul={"latency_s": 0.75},
    )  # fmt: skip
    made: dict[tuple[str, int], dict[tuple[str, int], float]] = {}
    for m in result.log.merges:
        made.setdefault((m.aggregator, m.version), {})[m.source, m.source_version] = m.weight
    # two RSUs of a ring are each other's only neighbour: 1/2; what west sent at 6 s reaches east at 7.5 s, after 7 s
    assert made == {
        ("west", 1): {("west", 1): 1.0},
        ("east", 1): {("east", 1): 1.0},
        ("west", 2): {("west", 2): 0.5, ("east", 1): 0.5},
        ("east", 2): {("east", 2): 0.5, ("west", 1): 0.5},
        ("west", 3): {("west", 3): 0.5, ("east", 2): 0.5},
        ("east", 3): {("east", 3): 0.5, ("west", 2): 0.5},
    }
    # what is under way, or was heard, has to be kept
    for mixing in learning.mixed[1:]:
        ((_, sources),) = mixing.means
        others = {model for model in sources if model.aggregator != mixing.aggregator}
        assert others <= set(mixing.needed)
    assert sum(w.up_bytes for w in result.wires.values()) == 6e6


@pytest.mark.parametrize(
    ("wire", "up_mb", "down_mb", "crossed_s"),
    [
        # one leaves every 6 s and takes 11 s: 2 waits for 1, and 4 takes the place of 3, which waits for 2
        ({"up_bps": 8e6 / 11}, 6, 5, {1: 17, 2: 28, 4: 39, 6: 50, 8: 61}),
        ({"down_bps": 8e6 / 11}, 9, 6, {1: 17, 2: 28, 4: 39, 6: 50, 8: 61}),
        # latency alone holds nothing back
        ({"latency_s": 5.0}, 9, 8, {version: 6 * version + 10 for version in range(1, 10)}),
    ],
)
def test_over_a_slow_wire_only_the_newest_model_waits(wire, up_mb, down_mb, crossed_s, scene):
    every_7_s = [scene.window(f"e{i}", 0.5 + 7 * i, 7.4 + 7 * i, rsu_id="east") for i in range(9)]
    learning = scene.learning()
    result = scene.run(
        [*parked(scene, west=0.0), *every_7_s], rsus=BOTH, rounds=9, deadline_s=100.0, backhaul=wire,
        topology={"kind": "peers"}, learning=learning,
    )  # fmt: skip
    heard = {m.time_s: m.source_version for m in result.log.merges if (m.aggregator, m.source) == ("east", "west")}
    assert heard == {
        at_s: max(version for version, crossed in crossed_s.items() if crossed < at_s)
        for at_s in (6.5 + 7 * i for i in range(9))
        if at_s > crossed_s[1]
    }
    assert (result.wires["west"].up_bytes, result.wires["east"].down_bytes) == (up_mb * 1e6, down_mb * 1e6)
    # one that was superseded is kept no longer
    kept = next(mixing.needed for mixing in learning.mixed if mixing.time_s > 26.0)
    assert (("west", 3) in kept) == ("latency_s" in wire)


def rsus_at(*x_m: float) -> Sequence[Rsu]:
    return [Rsu(id=f"r{i}", x_m=x, y_m=0.0, range_m=100.0) for i, x in enumerate(x_m)]


def test_metropolis_hastings_is_doubly_stochastic_and_a_third_on_a_ring():
    row = rsus_at(0.0, 90.0, 180.0, 280.0, 1000.0, 1090.0)
    graph = neighbours(TopologySettings(kind="peers", peers="distance", range_m=800.0), row)
    weights = metropolis_hastings(graph)
    a = np.array([[weights[one.id].get(other.id, 0.0) for other in row] for one in row])
    assert (a >= 0).all()
    np.testing.assert_allclose(a, a.T, atol=1e-15)
    np.testing.assert_allclose(a.sum(axis=0), 1.0, atol=1e-15)
    ring = metropolis_hastings(neighbours(TopologySettings(kind="peers"), row))
    assert [w for of_one in ring.values() for w in of_one.values()] == pytest.approx([1 / 3] * 18)
    b = np.array([[ring[one.id].get(other.id, 0.0) for other in row] for one in row])
    # the second largest eigenvalue of a ring of N, (1 + 2 cos(2 pi / N)) / 3
    assert np.sort(np.linalg.eigvalsh(b))[-2] == pytest.approx((1 + 2 * math.cos(2 * math.pi / 6)) / 3)


def test_rsus_whose_models_would_never_meet_are_refused():
    settings = TopologySettings(kind="peers", peers="distance", range_m=410.0)
    with pytest.raises(InputError, match="models of RSU r0 never reach RSU r2") as refused:
        aggregators(settings, rsus_at(0.0, 90.0, 500.0, 590.0))
    assert "the next is 410 m away" in str(refused.value)
