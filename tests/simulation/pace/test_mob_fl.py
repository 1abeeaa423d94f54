"""MOB-FL: the plan against brute force, and what a round does with it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vnetsim.learning import Cost
from vnetsim.random_streams import Streams
from vnetsim.simulation.pace import PlannedRound
from vnetsim.simulation.pace.mob_fl import best_round

COST = Cost(download_bytes=1_000_000, upload_bytes=2_000_000, work_flop=4e9, steps=8)


@pytest.mark.parametrize("seed", range(8))
def test_no_other_round_is_better(seed):
    draw = np.random.default_rng(seed)
    count, steps, longest_s = int(draw.integers(1, 9)), int(draw.integers(1, 12)), 12.0
    transfer_s, train_s, rest_s = (draw.uniform(0.1, most, count) for most in (3, 8, 12))

    def value(length_s: float, taken: int) -> float:
        took_s = transfer_s + train_s * taken / steps
        return float(((took_s <= rest_s) & (took_s <= length_s)).sum()) * taken / length_s

    planned = best_round(transfer_s, train_s, rest_s, steps=steps, longest_s=longest_s)
    choices = [(t, e) for t in np.linspace(0.1, longest_s, 1200) for e in range(1, steps + 1)]
    best = max(value(*choice) for choice in choices)
    if planned is None:
        assert best == 0
        return
    assert value(planned.length_s * (1 + 1e-12), round(planned.share * steps)) >= best * (1 - 1e-9)
    assert 0.1 <= planned.length_s <= longest_s


def test_many_steps_are_looked_at_in_part_and_instant_participations_do_no_harm():
    """A fixed part pays off best over the most steps that end in time, of 1, 11, 21, ..., 596, 606, ..., 1000."""
    planned = best_round([1.0], [1000.0], [601.0], steps=1000, longest_s=1500.0)
    assert planned == PlannedRound(length_s=597.0, share=0.596)
    assert best_round([3.0], [1.0], [4.0], steps=4, longest_s=4.0) == PlannedRound(length_s=4.0, share=1.0), "in time"
    instant = best_round([0.0], [0.0], [1.0], steps=2, longest_s=5.0)
    assert (instant.length_s, instant.share) == (0.1, 1.0)
    assert best_round([3.0], [1.0], [2.0], steps=4, longest_s=9.0) is None


def play(scene: Any, windows: list[Any], *, margin: float = 0.01, predictor: str = "oracle", **rules: Any) -> Any:
    learning = scene.learning(cost_of=dict.fromkeys(range(95), rules.pop("cost", COST)))
    settings = scene.experiment(**{"pace": "mob-fl", **rules})
    settings = replace(settings, pace={"name": "mob-fl", "predictor": predictor, "margin": margin})
    return scene.simulate(settings, scene.traffic(windows, whole=True), learning, Streams(seed=0)).log


def test_length_and_steps_are_the_plans(scene):
    # alone one takes 3 s and half a second a step, times 1.01; in 5.6 s it does 5 of 8: E / T = 5 / 5.555
    log = play(scene, [scene.window("a", 2, 7.6), scene.window("late", 2.05, 60)])
    (first,) = log.rounds
    records = {record.vehicle_id: record for record in log.participations}
    assert records["a"].work_share == 5 / 8
    assert records["a"].train_s == 2.5
    assert (records["a"].outcome, first.closed_by, first.close_s) == ("committed", "everyone", 7.5)
    assert records["late"].outcome == "not_selected", "it would not have been done by the end of the round"


def test_the_round_ends_after_its_length_though_somebody_is_at_work(scene):
    # two share the channel, which the plan does not know: 2 + 4 + 4 s where 1.01 x 7 s are planned
    log = play(scene, [scene.window(name, 0, 60) for name in "ab"])
    (first,) = log.rounds
    assert (first.closed_by, first.close_s) == ("deadline", pytest.approx(7.07))
    assert {record.outcome for record in log.participations} == {"deadline"}
    roomy = play(scene, [scene.window(name, 0, 60) for name in "ab"], margin=0.5)
    assert [(one.closed_by, one.close_s) for one in roomy.rounds] == [("everyone", 10.0)]


def test_who_has_no_time_is_not_invited_and_a_round_of_nobody_is_not_planned(scene):
    log = play(scene, [scene.window("short", 0, 3.2), scene.window("long", 20, 60)], rounds=1)
    records = {record.vehicle_id: record for record in log.participations}
    assert records["short"].outcome == "not_selected"
    assert (records["long"].outcome, records["long"].start_s) == ("committed", 20.0)
    assert [(one.round, one.closed_by) for one in log.rounds] == [(0, "everyone")]
    whole = play(scene, [scene.window("short", 0, 6)], cost=replace(COST, steps=1))
    assert whole.participations[0].outcome == "not_selected", "its one step cannot be divided"
    empty = play(scene, [scene.window("short", 0, 3.2), scene.window("far", 80, 90)], rounds=1, deadline_s=30.0)
    assert [(one.closed_by, one.close_s) for one in empty.rounds] == [("deadline", 30.0)]


def test_no_more_than_invited_and_a_plan_of_what_is_left(scene):
    windows = [scene.window(f"v{i}", 0, 60) for i in range(5)]
    log = play(scene, windows, invited=2, margin=1.0)
    taken = [record for record in log.participations if record.outcome != "not_selected"]
    assert max(sum(r.start_s <= at.start_s < r.end_s for r in taken) for at in taken) == 2
    # the deadline leaves 5 s: 4 of 8 steps would take 5.05 s
    late = play(scene, [scene.window("a", 5, 60)], deadline_s=10.0)
    assert late.participations[0].work_share == 3 / 8


def test_the_predictor_is_that_of_the_settings(scene):
    # 5 s in truth; straight on at 10 m/s more than 20 s
    told = {
        predictor: play(scene, [scene.window("a", 0, 5)], predictor=predictor).participations[0]
        for predictor in ("oracle", "straight")
    }
    assert (told["oracle"].work_share, told["oracle"].outcome) == (3 / 8, "committed")
    assert (told["straight"].work_share, told["straight"].outcome) == (1, "left_training")
