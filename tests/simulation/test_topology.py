"""Several aggregators: whose round a vehicle takes part in, and what they have in common."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import pytest

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import TopologySettings
from vnetsim.simulation.selection.rules import RandomSelection
from vnetsim.simulation.topology import aggregators
from vnetsim.storage.rows import ParticipationRecord

WEST, EAST = (Rsu(id=name, x_m=x, y_m=0.0, range_m=250.0) for name, x in (("west", 0.0), ("east", 1000.0)))
PER_RSU = {"kind": "per-rsu"}


def test_each_rsu_has_rounds_of_its_own(scene):
    learning = scene.learning()
    windows = [
        *(scene.window(f"w{i}", 0.0, 90.0, rsu_id="west") for i in range(2)),
        scene.window("e0", 0.0, 90.0, rsu_id="east"),
        scene.window("late", 12.0, 90.0, rsu_id="east"),
    ]
    result = scene.run(
        windows, rsus=(WEST, EAST), rounds=2, quorum=2, topology=PER_RSU, learning=learning, deadline_s=60.0
    )
    rounds = [(r.aggregator, r.round, r.invited, r.committed, r.closed_by) for r in result.log.rounds]
    assert sorted(rounds) == [(name, number, 2, 2, "quorum") for name in ("east", "west") for number in (0, 1)]
    assert [r.close_s for r in result.log.rounds] == sorted(r.close_s for r in result.log.rounds)
    for summary, participants in learning.calls:
        assert {p.rsu_id for p in participants} == {p.base.aggregator for p in participants} == {summary.aggregator}
        assert summary.final == (summary.round == 1)
    assert result.ended_by == "rounds"
    assert result.time_s == result.log.rounds[-1].close_s
    assert {(p.aggregator, p.base_aggregator) for p in result.log.participations} == {("west",) * 2, ("east",) * 2}


def test_an_rsu_that_sees_nobody_closes_empty_rounds(scene):
    result = scene.run(
        [scene.window("a", 0.0, 300.0, rsu_id="west")], rsus=(WEST, EAST), rounds=3, topology=PER_RSU, end_s=400.0
    )
    assert Counter((r.aggregator, r.committed) for r in result.log.rounds) == {("west", 1): 3, ("east", 0): 3}
    # the busy RSU has finished and invites nobody any more
    assert max(p.start_s for p in result.log.participations) < result.log.rounds[2].close_s
    assert [r.close_s for r in result.log.rounds if r.aggregator == "east"] == [60.0, 120.0, 180.0]


def test_one_rsu_with_an_aggregator_of_its_own_is_one_aggregator(scene):
    windows = [scene.window(f"v{i}", 0.3 * i, 100.0) for i in range(20)]
    one, own = (scene.run(windows, rounds=3, quorum=2, invited=3, topology=topology) for topology in ({}, PER_RSU))
    assert one.log.participations == own.log.participations
    assert one.log.rounds == own.log.rounds


def test_a_vehicle_between_two_rsus_takes_part_at_one_of_them_at_a_time(scene):
    windows = [scene.window("a", 0.0, 40.0, rsu_id="west"), scene.window("a", 10.0, 80.0, rsu_id="east")]
    result = scene.run(windows, rsus=(WEST, EAST), rounds=9, topology=PER_RSU, end_s=90.0, deadline_s=1000.0)
    took_part = [p for p in result.log.participations if p.outcome != "not_selected"]
    spans = sorted((p.start_s, p.end_s, p.aggregator) for p in took_part)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))
    assert {p.aggregator for p in took_part if p.start_s < 40.0} == {"west"}
    assert {p.aggregator for p in took_part if p.start_s >= 40.0} == {"east"}
    cut = [p for p in took_part if p.end_s == 40.0]
    assert [p.outcome for p in cut] == ["left_training"]


class Listening(RandomSelection):
    """Keeps what it is told of rounds."""

    told: ClassVar[list[set[str]]] = []

    def after_round(self, records: Sequence[ParticipationRecord], _memory: object) -> None:
        self.told.append({record.rsu_id for record in records})


def test_an_rsu_learns_of_its_own_rounds_alone(scene):
    windows = [scene.window("a", 0.0, 90.0, rsu_id="west"), scene.window("b", 2.0, 90.0, rsu_id="east")]
    scene.run(windows, rsus=(WEST, EAST), rounds=3, topology=PER_RSU, plugins={"selection": Listening()})
    assert Listening.told == [{"west"}, {"east"}] * 3


@pytest.mark.parametrize(
    ("kind", "rsus", "why"),
    [
        ("hierarchical", [WEST], "needs two RSUs or more, and this scenario has one (west)"),
        ("peers", [WEST], "needs two RSUs or more, and this scenario has one (west)"),
        ("hierarchical", [WEST, Rsu(id="cloud", x_m=1.0, y_m=0.0, range_m=9.0)], "an RSU is called 'cloud'"),
    ],
)
def test_a_topology_that_cannot_be_is_refused_in_one_line(kind, rsus, why):
    with pytest.raises(InputError, match="topology") as refused:
        aggregators(TopologySettings(kind=kind), rsus)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
