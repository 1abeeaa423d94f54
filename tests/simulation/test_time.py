"""Runs that end when their time has passed; of a vehicle that stays, a participation takes 6 s."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from vnetsim.experiment import Experiment
from vnetsim.random_streams import Streams
from vnetsim.simulation.world import World


@pytest.mark.parametrize(
    ("ends", "ended_by", "last_s", "passed"),
    [
        ({"rounds": None, "time_s": 20.0}, "time", 20.0, [0.0, 6 / 20, 12 / 20]),
        ({"rounds": 10, "time_s": 20.0}, "time", 20.0, [0.0, 6 / 20, 12 / 20]),
        ({"rounds": 2, "time_s": 20.0}, "rounds", 12.0, [0.0, 1 / 2]),
        ({"rounds": 2, "time_s": 12.0}, "rounds", 12.0, [0.0, 1 / 2]),
        ({"rounds": 2}, "rounds", 12.0, [0.0, 1 / 2]),
        ({"rounds": None}, "traffic", 30.0, [t / 600 for t in (0.0, 6.0, 12.0, 18.0)]),
        ({"rounds": None, "time_s": 30.0}, "time", 30.0, [t / 30 for t in (0.0, 6.0, 12.0, 18.0)]),
    ],
)
@pytest.mark.parametrize("begin_s", [0.0, 100.0])
def test_whichever_comes_first_ends_the_run(ends, ended_by, last_s, passed, begin_s, scene):
    """The traffic ends at 30 s, in the fifth participation; shares of the run by hand."""
    learning = scene.learning()
    traffic = scene.traffic([scene.window("a", begin_s, begin_s + 29.0)], begin_s=begin_s, end_s=begin_s + 30.0)
    result = scene.simulate(scene.experiment(**ends), traffic, learning, Streams(seed=0))
    assert (result.ended_by, result.time_s) == (ended_by, begin_s + last_s)
    assert [one.passed for _, participants in learning.calls for one in participants] == pytest.approx(passed)
    log = result.log
    starts = [row.start_s for row in log.participations if row.outcome == "committed"]
    assert [one.start_s for _, participants in learning.calls for one in participants] == starts
    times = [row.close_s for row in log.rounds] + [row.end_s for row in log.participations]
    assert max(times + [window.exit_s for window in log.windows if window.exit_cause != "end"]) <= begin_s + last_s


def test_who_is_at_it_when_time_is_up_is_unfinished_and_not_stale(scene):
    result = scene.run([scene.window("a", 0, 90), scene.window("b", 15, 90)], rounds=None, time_s=20.0)
    rows = [(row.vehicle_id, row.outcome) for row in result.log.participations]
    assert [row for row in rows if row[0] == "a"] == [("a", "committed")] * 3 + [("a", "unfinished")]
    assert ("b", "unfinished") in rows
    assert {row.end_s for row in result.log.participations if row.outcome == "unfinished"} == {20.0}


def test_the_share_of_a_run_that_has_passed():
    def share(version: int, now_s: float, **ends: Any) -> float:
        world: Any = SimpleNamespace(experiment=Experiment(scenario="gaussian", **ends), begin_s=50.0)
        return World.share_passed(world, version, now_s)

    for rounds in (1, 3, 7, 20, 100_000):
        for version in range(25):
            assert share(version, 1e6, rounds=rounds) == min(version / rounds, 1), "to the bit"
    assert [share(9, 50.0 + t, time_s=40.0) for t in (0.0, 10.0, 40.0, 90.0)] == [0.0, 0.25, 1.0, 1.0]
    assert share(9, 650.0) == 1.0
    assert share(3, 60.0, rounds=10, time_s=40.0) == 0.3
    assert share(2, 60.0, rounds=10, time_s=40.0) == 0.25
    assert math.isinf(Experiment(scenario="gaussian", rounds=3).lasts_s)
