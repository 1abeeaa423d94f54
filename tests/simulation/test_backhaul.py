"""The wires between RSUs and the aggregator over all of them. A participation alone: 1 s down, 3 s training, 2 s up."""

from collections.abc import Generator
from typing import Any

import pytest
import simpy

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import BackhaulSettings
from vnetsim.learning import AGGREGATOR, ModelKey
from vnetsim.simulation.backhaul import Backhaul, refuse_slow_wires
from vnetsim.simulation.tasks import Activity, Signal, Task, until

WEST, EAST = (Rsu(id=name, x_m=x, y_m=0.0, range_m=250.0) for name, x in (("west", 0.0), ("east", 1000.0)))
WIRE = {"latency_s": 0.5, "cloud_latency_s": 0.25, "down_bps": 4e6, "up_bps": 2e6}
"""1 MB to an RSU takes 0.75 s and 2 s, 2 MB from it 8 s and 0.75 s."""


def test_a_model_crosses_a_wire_once_and_each_upload_does(scene):
    windows = [scene.window(name, at_s, 200.0) for name, at_s in (("a", 0.0), ("b", 20.0))]
    result = scene.run(windows, quorum=2, backhaul=WIRE)
    a, b = result.log.participations
    assert (a.download_s, a.train_s, a.upload_s, a.backhaul_s) == (2.75 + 1.0, 3.0, 2.0, 8.75)
    assert (b.download_s, b.train_s, b.upload_s, b.backhaul_s) == (1.0, 3.0, 2.0, 8.75)  # the model is there
    assert (a.end_s, b.end_s) == (17.5, 34.75)
    assert result.log.rounds[0].close_s == 34.75
    wire = result.wires["r"]
    assert (wire.down_bytes, wire.down_messages, wire.up_bytes, wire.up_messages) == (1e6, 1, 4e6, 2)
    assert (wire.down.busy_s, wire.up.busy_s) == (2.0, 16.0)


def test_a_new_model_crosses_the_wire_of_each_rsu_where_somebody_needs_it(scene):
    windows = [scene.window("a", 0.0, 300.0, rsu_id="west"), scene.window("b", 1.0, 300.0, rsu_id="east")]
    result = scene.run(windows, rsus=(WEST, EAST), rounds=2, quorum=2, backhaul=WIRE)
    assert {name: wire.down_messages for name, wire in result.wires.items()} == {"west": 2, "east": 2}
    moved = sum(wire.up_bytes for wire in result.wires.values())
    assert moved == sum(p.upload_bytes for p in result.log.participations) == 8e6


def test_wires_that_take_no_time_change_nothing_but_are_counted(scene):
    windows = [scene.window(f"v{i}", 0.3 * i, 30.0 + i) for i in range(30)]
    fast = {"latency_s": 0.0, "cloud_latency_s": 0.0}
    one, other = (
        scene.run(windows, rounds=4, quorum=2, invited=5, max_staleness=1, backhaul=wire) for wire in ({}, fast)
    )
    assert (one.log.participations, one.log.rounds) == (other.log.participations, other.log.rounds)
    committed = [p for p in one.log.participations if p.upload_s > 0 and p.outcome in ("committed", "stale")]
    assert one.wires["r"].up_messages >= sum(p.outcome == "committed" for p in committed) > 5
    assert one.wires["r"].down_messages == len(one.log.rounds)


@pytest.mark.parametrize("policy", ["drop", "forward"])
@pytest.mark.parametrize("next_s", [None, 8.9, 10.0])
def test_an_update_on_its_way_needs_the_vehicle_no_more(policy, next_s, scene):
    # the vehicle leaves at 9 s, and enters another disc before or after: its upload ended at 8.75 s, arrives at 17.5 s
    windows = [scene.window("a", 0.0, 9.0, rsu_id="west")]
    windows += [scene.window("a", next_s, 50.0, rsu_id="east")] if next_s else []
    gap = {"longest_gap_s": 3.0} if policy == "forward" else {}
    result = scene.run(windows, rsus=(WEST, EAST), backhaul=WIRE, end_s=60.0, handover={"policy": policy, **gap})
    a = result.log.participations[0]
    assert (a.outcome, a.end_s, a.upload_s, a.backhaul_s) == ("committed", 17.5, 2.0, 8.75)
    assert not result.log.handovers


@pytest.mark.parametrize(("max_staleness", "outcome", "round_"), [(0, "deadline", 0), (1, "committed", 1)])
def test_an_update_may_come_too_late(scene, max_staleness, outcome, round_):
    result = scene.run(
        [scene.window("a", 0.0, 9.5)], rounds=2, deadline_s=12.0, backhaul=WIRE, end_s=60.0, max_staleness=max_staleness
    )
    (a,) = result.log.participations
    assert (a.outcome, a.round, a.base_round) == (outcome, round_, 0)
    assert a.backhaul_s == (8.75 if max_staleness else 12.0 - 8.75)


def test_an_rsu_that_aggregates_by_itself_needs_no_wire(scene):
    windows = [scene.window("a", 0.0, 100.0, rsu_id="west"), scene.window("b", 0.0, 100.0, rsu_id="east")]
    own = {"rsus": (WEST, EAST), "rounds": 2, "topology": {"kind": "per-rsu"}}
    slow, fast = (scene.run(windows, backhaul=wire, **own) for wire in (WIRE, {}))
    assert (slow.log.participations, slow.log.rounds) == (fast.log.participations, fast.log.rounds)
    assert [wire.up_bytes + wire.down_bytes for wire in slow.wires.values()] == [0.0, 0.0]


def test_messages_share_a_wire_and_arrive_whole():
    env = simpy.Environment()
    settings = BackhaulSettings(latency_s=1.0, cloud_latency_s=0.0, up_bps=8e6, down_bps=16e6)
    backhaul = Backhaul(env, settings, [WEST, EAST], 0)
    arrived: list[tuple[str, float]] = []

    def note(name: str, sending: Generator[Any, None, bool]) -> Activity:
        yield from sending
        arrived.append((name, env.now))

    for name, target in (("to the cloud", None), ("to east", "east")):
        Task(note(name, backhaul.send(1e6, "west", target)))
    env.run()
    # both leave west in 2 s together; between RSUs both wires' latencies add, and east's wire takes 0.5 s
    assert arrived == [("to the cloud", 3.0), ("to east", 4.5)]
    west, east = backhaul.wires["west"], backhaul.wires["east"]
    assert (west.up_bytes, west.down_bytes, east.up_bytes, east.down_bytes) == (2e6, 0.0, 0.0, 1e6)
    assert west.up.carried_bytes == 2e6
    Task(note("at once", Backhaul(env, BackhaulSettings(), [WEST], 0).send(1e6, "west", None)))
    assert arrived[2:] == [("at once", 4.5)]


def test_an_rsu_keeps_as_many_older_models_as_may_be_stale():
    env = simpy.Environment()
    backhaul = Backhaul(env, BackhaulSettings(**WIRE), [WEST], max_staleness=1)
    arrived: list[Any] = []

    def note(version: int, copy: Signal) -> Activity:
        yield from until(copy)
        arrived.append((version, env.now))

    for version, size_bytes in ((0, 1e6), (2, 1.0), (3, 0.0), (2, 1.0), (0, 0.0)):
        model = ModelKey(AGGREGATOR, version)
        Task(note(version, backhaul.fetch("west", model, size_bytes)))
        if arrived or version == 2:
            env.run()
    # a byte overtakes a megabyte, who waits for that gets it still, and where 3 is, 2 is kept, and 0 is sent again
    times = [(2, 0.75 + 4e-6), (0, 0.75 + 2 + 2e-6), (3, 3.5), (2, 3.5), (0, 4.25)]
    assert arrived == [(version, pytest.approx(time_s)) for version, time_s in times]
    assert backhaul.wires["west"].down_messages == 4


def test_a_hierarchy_is_refused_where_no_model_reaches_the_cloud_before_the_traffic_ends(scene):
    """Latencies of 0.5 s and 0.25 s, and 1 MB at 2 Mbit/s."""
    cloud, none = (scene.experiment(topology={"kind": kind}, backhaul=WIRE) for kind in ("hierarchical", "single"))
    refuse_slow_wires(none, 1.0, 1_000_000)
    refuse_slow_wires(cloud, 4.76, 1_000_000)
    with pytest.raises(InputError, match=r"at least 4\.75 s to the cloud"):
        refuse_slow_wires(cloud, 4.75, 1_000_000)
