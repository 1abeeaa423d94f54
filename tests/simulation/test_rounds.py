"""When rounds open and close, who is invited, and what becomes of late updates."""

import math
from collections import Counter
from typing import Any

import pytest

from vnetsim.learning import Cost
from vnetsim.simulation.pace.quorum import QuorumPace
from vnetsim.simulation.selection.rules import RandomSelection


def crowd(scene: Any, count: int, until_s: float = 100.0) -> list[Any]:
    return [scene.window(f"v{i}", 0.01 * i, until_s) for i in range(count)]


def test_the_next_round_opens_when_the_previous_closes(scene):
    result = scene.run([scene.window("a", 2, 50)], rounds=3)
    assert [(r.open_s, r.close_s, r.closed_by) for r in result.log.rounds] == [
        (0.0, 8.0, "quorum"),
        (8.0, 14.0, "quorum"),
        (14.0, 20.0, "quorum"),
    ]
    assert [r.round for r in result.log.participations] == [0, 1, 2]
    assert [r.loss for r in result.log.rounds] == [0.5, 1.5, 2.5]


def test_a_quorum_closes_the_round_with_the_commit_that_completes_it(scene):
    learning = scene.learning()
    result = scene.run(crowd(scene, 5), quorum=3, learning=learning)
    ((_, participants),) = learning.calls
    assert [p.vehicle_id for p in participants] == ["v0", "v1", "v2"]
    assert result.log.rounds[0].committed == 3
    assert result.log.rounds[0].invited == 5
    assert Counter(r.outcome for r in result.log.participations) == {"committed": 3, "stale": 2}
    assert [r.weight for r in result.log.participations] == [1 / 3] * 3 + [None] * 2


def test_a_deadline_closes_the_round_with_what_has_committed(scene):
    learning = scene.learning()
    result = scene.run(
        [scene.window("a", 0, 50), scene.window("b", 20, 50)], quorum=2, deadline_s=22, learning=learning
    )
    assert [r[:4] for r in result.log.rounds] == [(0, 0.0, 22.0, "deadline")]
    assert [[p.vehicle_id for p in participants] for _, participants in learning.calls] == [["a"]]
    assert [r.outcome for r in result.log.participations] == ["committed", "deadline"]


def test_empty_rounds_close_at_the_deadline_too(scene):
    learning = scene.learning()
    result = scene.run([scene.window("a", 25, 50)], deadline_s=10, rounds=4, learning=learning)
    assert [(r.close_s, r.closed_by, r.committed, r.loss) for r in result.log.rounds] == [
        (10.0, "deadline", 0, None),
        (20.0, "deadline", 0, None),
        (30.0, "deadline", 0, None),
        (36.0, "quorum", 1, 3.5),
    ]
    assert [len(participants) for _, participants in learning.calls] == [0, 0, 0, 1]
    assert [summary.final for summary, _ in learning.calls] == [False, False, False, True]


def test_no_more_than_invited_are_in_flight_and_a_freed_place_is_filled_at_once(scene):
    windows = [scene.window("a", 0, 2), *(scene.window(v, s, 90) for v, s in (("b", 0.1), ("c", 0.2), ("d", 0.3)))]
    result = scene.run(windows, quorum=2, invited=2)
    starts = {r.vehicle_id: r.start_s for r in result.log.participations}
    ends = {r.vehicle_id: r.end_s for r in result.log.participations}
    assert starts["a"] == 0.0
    assert starts["b"] == 0.1
    assert starts["c"] == 2.0  # a left
    assert starts["d"] == ends["b"]  # b committed
    records = [r for r in result.log.participations if r.outcome != "not_selected"]
    for instant in sorted(starts.values()):
        assert sum(r.start_s <= instant < r.end_s for r in records) <= 2


def test_a_pace_that_looks_at_the_clock_is_asked_again_at_each_event(scene):
    class Late(QuorumPace):
        def places(self, state):
            return super().places(state) if state.now_s >= 10 else 0

    result = scene.run([scene.window("a", 2, 50), scene.window("b", 20, 50)], plugins={"pace": Late()})
    assert {row.vehicle_id: row.start_s for row in result.log.participations} == {"a": 20.0, "b": 20.0}


def test_who_entered_first_is_invited_first(scene):
    windows = [scene.window("a", 0, 90), scene.window("z", 1, 90), scene.window("b", 2, 90)]
    result = scene.run(windows, quorum=3, invited=3, rounds=1)
    assert [r.vehicle_id for r in sorted(result.log.participations, key=lambda r: r.start_s)] == ["a", "z", "b"]
    result = scene.run(windows, invited=1, rounds=2)
    # round 1: a may be invited again and entered first
    assert [(r.vehicle_id, r.round) for r in result.log.participations if r.outcome == "committed"] == [
        ("a", 0),
        ("a", 1),
    ]


def test_each_vehicle_at_most_once_a_round(scene):
    # a leaves and comes back in the same round: no second invitation before round 1
    windows = [scene.window("a", 0, 2), scene.window("a", 5, 30)]
    result = scene.run(windows, deadline_s=10, rounds=2)
    assert [(r.round, r.start_s, r.outcome) for r in result.log.participations] == [
        (0, 0.0, "left_training"),
        (1, 10.0, "committed"),
    ]
    # a committed once; with a quorum of two it idles until the deadline
    result = scene.run([scene.window("a", 0, 90)], quorum=2, deadline_s=30)
    assert [r.outcome for r in result.log.participations] == ["committed"]
    assert result.log.rounds[0].closed_by == "deadline"


@pytest.mark.parametrize("distinct", [True, False])
def test_where_silos_must_differ_vehicles_of_one_take_part_in_different_rounds(distinct, scene):
    log = scene.run(crowd(scene, 5), rounds=2, silos=4, distinct_silos=distinct).log
    assert [r.invited for r in log.rounds] == [4 if distinct else 5] * 2


def test_a_participant_has_its_chance_of_having_been_taken_for_a_place(scene):
    class Telling(RandomSelection):
        def select(self, candidates: Any, free: int, context: Any) -> Any:
            context.chances["v0"] = 0.25
            return candidates[:free]

    learning, windows = scene.learning(), [scene.window(f"v{i}", 0, 90) for i in range(6)]
    scene.run(windows, learning=learning, quorum=2, invited=2, plugins={"selection": Telling()})
    assert {p.vehicle_id: p.chance for p in learning.calls[0][1]} == {"v0": 0.25 * 6 / 2, "v1": 1.0}


def slow_second_silo() -> dict[int, Cost]:
    return {1: Cost(download_bytes=1, upload_bytes=1, work_flop=10e9)}


def test_staleness_accepted(scene):
    # a takes 6 s a round, b trains for 10 s and returns during round 1
    windows = [scene.window("a", 0, 90), scene.window("b", 0, 90)]
    learning = scene.learning(cost_of=slow_second_silo())
    result = scene.run(windows, rounds=2, max_staleness=1, learning=learning)
    late = next(r for r in result.log.participations if r.vehicle_id == "b")
    assert (late.outcome, late.base_round, late.round) == ("committed", 0, 1)
    assert late.end_s == pytest.approx(10.0, abs=1e-3)
    ((_, first), (_, second)) = learning.calls
    assert [(p.vehicle_id, p.base.version) for p in first] == [("a", 0)]
    assert [(p.vehicle_id, p.base.version, p.round) for p in second] == [("b", 0, 1)]


def test_staleness_dropped_when_older_than_allowed(scene):
    windows = [scene.window("a", 0, 90), scene.window("b", 0, 90)]
    cost = {1: Cost(download_bytes=1, upload_bytes=1, work_flop=15e9)}  # returns in round 2
    result = scene.run(windows, rounds=3, max_staleness=1, learning=scene.learning(cost_of=cost))
    late = next(r for r in result.log.participations if r.vehicle_id == "b")
    assert (late.outcome, late.base_round, late.round, late.end_s) == ("stale", 0, 1, result.log.rounds[1].close_s)
    result = scene.run(windows, rounds=3, max_staleness=2, learning=scene.learning(cost_of=cost))
    late = next(r for r in result.log.participations if r.vehicle_id == "b")
    assert (late.outcome, late.base_round, late.round) == ("committed", 0, 2)


def test_a_late_commit_uses_up_the_turn_in_the_round_it_counts_for(scene):
    windows = [scene.window("a", 0, 90), scene.window("b", 0, 90)]
    learning = scene.learning(cost_of=slow_second_silo())
    result = scene.run(windows, rounds=2, quorum=1, max_staleness=1, learning=learning)
    assert result.log.rounds[1].committed == 1
    result = scene.run(windows, rounds=2, quorum=2, max_staleness=1, deadline_s=9, learning=learning)
    # round 0: a commits, b is in flight at the deadline; round 1: b commits at 10 s and is not invited again in it
    assert [(r.vehicle_id, r.round, r.base_round) for r in result.log.participations if r.vehicle_id == "b"] == [
        ("b", 1, 0)
    ]
    assert result.log.rounds[1].committed == 2


def test_late_updates_end_with_the_run(scene):
    windows = [scene.window("a", 0, 90), scene.window("b", 0, 90)]
    result = scene.run(windows, rounds=1, max_staleness=5, learning=scene.learning(cost_of=slow_second_silo()))
    assert {r.vehicle_id: r.outcome for r in result.log.participations} == {"a": "committed", "b": "stale"}


def test_the_traffic_ends_in_a_round_with_commits(scene):
    learning = scene.learning()
    result = scene.run([scene.window("a", 0, 20)], quorum=2, rounds=2, learning=learning)
    assert result.ended_by == "traffic"
    assert result.time_s == 20.0
    assert [r[:4] for r in result.log.rounds] == [(0, 0.0, 20.0, "traffic_end")]
    assert [(s.final, len(p)) for s, p in learning.calls] == [(True, 1)]
    assert result.log.participations[0].weight == 1.0


def test_the_traffic_ends_in_a_round_without_commits(scene):
    learning = scene.learning()
    result = scene.run([scene.window("a", 0, 20), scene.window("b", 7, 9)], rounds=5, quorum=1, learning=learning)
    assert result.ended_by == "traffic"
    assert [r.round for r in result.log.rounds] == [0, 1, 2]
    result = scene.run([scene.window("b", 7, 9)], rounds=5, learning=learning)
    assert result.ended_by == "traffic"
    assert result.log.rounds == []
    assert [r.outcome for r in result.log.participations] == ["left_training"]


def test_no_traffic_at_all(scene):
    result = scene.run([], rounds=5)
    assert (result.ended_by, result.time_s, result.log.participations) == ("traffic", 0.0, [])


@pytest.mark.parametrize(("end_s", "rounds", "time_s"), [(35, 3, 35), (30, 3, 30), (math.inf, 0, 2)])
def test_deadlines_pass_until_the_traffics_known_end(end_s, rounds, time_s, scene):
    result = scene.run([scene.window("a", 0, 2)], rounds=5, deadline_s=10, end_s=end_s)
    assert [r.closed_by for r in result.log.rounds] == ["deadline"] * rounds
    assert (result.ended_by, result.time_s) == ("traffic", time_s)


def test_a_round_is_handed_over_complete(scene):
    seen = []

    def on_round(log: Any) -> None:
        closed = log.rounds[-1].round
        mine = [r for r in log.participations if r.round == closed]
        assert sum(r.weight is not None for r in mine) == log.rounds[-1].committed
        seen.append((closed, len(log.participations)))

    shown = []
    windows = [scene.window("a", 0, 40), scene.window("b", 1, 30)]
    scene.run(windows, rounds=3, more={"on_round": on_round, "progress": lambda **state: shown.append(state)})
    assert [index for index, _ in seen] == [0, 1, 2]
    assert [s["time_s"] for s in shown] == [0, 1]


def test_a_run_that_its_caller_ends_invites_nobody_any_more(scene):
    result = scene.run([scene.window("a", 0, 90)], rounds=9, more={"on_round": lambda log: len(log.rounds) < 2})
    assert (result.ended_by, result.time_s, len(result.log.rounds)) == ("caller", 12.0, 2)
    assert [(r.round, r.outcome) for r in result.log.participations] == [(0, "committed"), (1, "committed")]
    found = [(window.vehicle_id, window.exit_s, window.exit_cause) for window in result.log.windows]
    assert found == [("a", 13.0, "end")], "the path's next point"


def coverage(scene: Any, windows: list[Any], **settings: Any) -> Any:
    return scene.run(windows, pace="coverage", quorum=1, invited=1, **settings)


def test_everyone_in_coverage_is_invited_on_entry_and_the_round_waits_for_all(scene):
    """Six at once, whatever quorum and invited say; the link is theirs in turn, so that the last is done last."""
    result = coverage(scene, crowd(scene, 6))
    assert [(r.start_s, r.outcome) for r in sorted(result.log.participations, key=lambda r: r.vehicle_id)] == [
        (0.01 * i, "committed") for i in range(6)
    ]
    (closed,) = result.log.rounds
    assert (closed.closed_by, closed.invited, closed.committed) == ("everyone", 6, 6)
    assert closed.close_s == max(r.end_s for r in result.log.participations)


def test_who_enters_after_the_first_upload_is_invited_to_the_next_round(scene):
    # alone: download 1 s, training 3 s, upload 2 s
    windows = [scene.window("a", 0, 90), scene.window("b", 3, 90), scene.window("late", 7, 90)]
    result = coverage(scene, windows, rounds=2)
    starts = {(r.vehicle_id, r.round): r.start_s for r in result.log.participations if r.outcome == "committed"}
    first, second = result.log.rounds
    assert first.close_s > 7
    assert starts == {("a", 0): 0.0, ("b", 0): 3.0, **{(v, 1): first.close_s for v in ("a", "b", "late")}}
    assert (second.invited, second.committed, second.closed_by) == (3, 3, "everyone")


def test_the_round_of_everyone_closes_when_the_last_leaves(scene):
    windows = [scene.window("a", 0, 90), scene.window("gone", 0, 7.5)]
    cost = {1: Cost(download_bytes=1, upload_bytes=1, work_flop=20e9)}
    result = coverage(scene, windows, rounds=1, learning=scene.learning(cost_of=cost))
    assert {r.vehicle_id: r.outcome for r in result.log.participations} == {"a": "committed", "gone": "left_training"}
    assert [(r.close_s, r.closed_by, r.committed) for r in result.log.rounds] == [(7.5, "everyone", 1)]


def test_the_round_of_everyone_waits_for_a_first_upload_until_the_deadline(scene):
    windows = [scene.window("a", 0, 2), scene.window("b", 5, 6), scene.window("c", 8, 9.5)]
    result = coverage(scene, windows, rounds=1, deadline_s=9)
    assert [r.outcome for r in result.log.participations] == ["left_training", "left_download", "deadline"]
    assert [(r.close_s, r.closed_by, r.committed) for r in result.log.rounds] == [(9.0, "deadline", 0)]
    # who is slow is cut, or counts for the next round where that is allowed
    slow = scene.learning(cost_of={1: Cost(download_bytes=1, upload_bytes=1, work_flop=15e9)})
    both = [scene.window("a", 0, 60), scene.window("slow", 0, 60)]
    cut = coverage(scene, both, rounds=2, deadline_s=9, learning=slow)
    assert [r.outcome for r in cut.log.participations if r.vehicle_id == "slow"] == ["deadline"] * 2
    kept = coverage(scene, both, rounds=2, deadline_s=9, max_staleness=1, learning=slow)
    late = [r for r in kept.log.participations if r.vehicle_id == "slow"]
    assert [(r.outcome, r.base_round, r.round) for r in late] == [("committed", 0, 1)]
    assert [r.closed_by for r in kept.log.rounds] == ["deadline", "everyone"]


def test_an_empty_road_waits_for_the_first_vehicle(scene):
    result = coverage(scene, [scene.window("a", 25, 50)], deadline_s=10, rounds=3)
    assert [(r.close_s, r.closed_by) for r in result.log.rounds] == [
        (10.0, "deadline"),
        (20.0, "deadline"),
        (30.0, "deadline"),
    ]
    longer = coverage(scene, [scene.window("a", 5, 50)], deadline_s=60, rounds=2)
    assert [(r.close_s, r.closed_by) for r in longer.log.rounds] == [(11.0, "everyone"), (17.0, "everyone")]
