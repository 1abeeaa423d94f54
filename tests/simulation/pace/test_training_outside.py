"""Training that goes on outside coverage. Alone a vehicle takes 1 s down, 3 s of training, 2 s up."""

from __future__ import annotations

import math
from typing import Any

import pytest

from vnetsim.coverage.rsu import Rsu

OTHER = Rsu(id="s", x_m=2000.0, y_m=0.0, range_m=250.0)


def of(log: Any, who: str) -> dict[tuple[str, float], Any]:
    return {(record.rsu_id, record.enter_s): record for record in log.participations if record.vehicle_id == who}


def test_by_default_who_leaves_in_training_is_cut(scene: Any) -> None:
    log = scene.run([scene.window("a", 0, 2), scene.window("a", 10, 20)], rounds=2).log
    first = of(log, "a")["r", 0.0]
    assert (first.outcome, first.end_s, first.train_s, first.outside_s) == ("left_training", 2.0, 1.0, 0.0)


@pytest.mark.parametrize("rsu", ["r", "s"])
def test_it_uploads_when_it_is_covered_again(rsu: str, scene: Any) -> None:
    start = (1950.0, 50.0) if rsu == "s" else (0.0, 100.0)
    back = scene.window("a", 10, 20, rsu_id=rsu, start=start)
    learning = scene.learning()
    result = scene.run(
        [scene.window("a", 0, 2), back], training_outside=True, rsus=(scene.rsu, OTHER), learning=learning
    )
    record = of(result.log, "a")["r", 0.0]
    assert (record.outcome, record.start_s, record.end_s) == ("committed", 0.0, 12.0)
    assert (record.download_s, record.train_s, record.outside_s, record.upload_s) == (1.0, 3.0, 6.0, 2.0)
    assert (record.rsu_id, record.upload_rsu_id) == ("r", rsu)
    assert of(result.log, "a")[rsu, 10.0].outcome == "not_selected", "nobody invited it in its second window"
    carried = {name: use.carried_bytes for name, use in result.channels.items()}
    assert carried == ({"r": 3e6, "s": 0.0} if rsu == "r" else {"r": 1e6, "s": 2e6})
    assert [p.vehicle_id for p in learning.calls[0][1]] == ["a"]


def test_one_that_is_back_before_it_is_done_trains_on(scene: Any) -> None:
    log = scene.run([scene.window("a", 0, 2), scene.window("a", 3, 20)], training_outside=True).log
    record = of(log, "a")["r", 0.0]
    assert (record.outcome, record.end_s, record.outside_s, record.train_s) == ("committed", 6.0, 0.0, 3.0)


def test_another_disc_that_covers_it_takes_over_at_once(scene: Any) -> None:
    beside = Rsu(id="s", x_m=100.0, y_m=0.0, range_m=250.0)
    windows = [scene.window("a", 0, 2), scene.window("a", 1, 20, rsu_id="s")]
    log = scene.run(windows, training_outside=True, rsus=(scene.rsu, beside)).log
    record = of(log, "a")["r", 0.0]
    assert (record.outcome, record.end_s, record.upload_rsu_id) == ("committed", 6.0, "s")


def test_leaving_in_another_stage_ends_it_as_before(scene: Any) -> None:
    for leaves_s, outcome in ((0.5, "left_download"), (5.0, "left_upload")):
        log = scene.run([scene.window("a", 0, leaves_s), scene.window("b", 30, 40)], training_outside=True).log
        assert of(log, "a")["r", 0.0].outcome == outcome
    twice = scene.run([scene.window("a", 0, 2), scene.window("a", 10, 11)], training_outside=True, deadline_s=20.0).log
    cut = of(twice, "a")["r", 0.0]
    assert (cut.outcome, cut.end_s, cut.upload_bytes) == ("left_upload", 11.0, 1e6)
    assert of(twice, "a")["r", 10.0].outcome == "not_selected"


def test_one_that_is_not_back_in_time_is_cut_with_the_round_and_takes_no_place_until_then(scene: Any) -> None:
    windows = [scene.window("a", 0, 2), scene.window("b", 2, 8.01), scene.window("a", 50, 60)]
    log = scene.run(windows, training_outside=True, invited=1, rounds=2).log
    record, other = of(log, "a")["r", 0.0], next(r for r in log.participations if r.vehicle_id == "b")
    assert (other.start_s, other.outcome, log.rounds[0].close_s) == (2.0, "committed", 8.0)
    assert (record.outcome, record.round, record.end_s) == ("left_training", 0, 8.0)
    assert (record.train_s, record.outside_s) == (3.0, 4.0)
    assert of(log, "a")["r", 50.0].outcome == "committed", "it is invited anew"


def test_staleness_lets_it_upload_in_a_later_round(scene: Any) -> None:
    windows = [scene.window("a", 0, 2), scene.window("b", 2, 8.5), scene.window("a", 11, 20)]
    learning = scene.learning()
    rules = {"training_outside": True, "invited": 1, "rounds": 2, "max_staleness": 1}
    log = scene.run(windows, learning=learning, **rules).log
    record = of(log, "a")["r", 0.0]
    assert (record.outcome, record.base_round, record.round, record.end_s) == ("committed", 0, 1, 13.0)
    assert [(p.vehicle_id, p.base.version) for p in learning.calls[1][1]] == [("a", 0)]


def test_the_round_of_everyone_does_not_wait_for_who_is_outside(scene: Any) -> None:
    windows = [scene.window("a", 0, 10), scene.window("b", 5, 7.5)]
    log = scene.run(windows, training_outside=True, pace="coverage").log
    assert (log.rounds[0].closed_by, log.rounds[0].close_s) == ("everyone", 7.5)
    assert of(log, "b")["r", 5.0].outcome == "left_training"


def test_who_never_comes_back_is_recorded_at_the_end_of_the_traffic(scene: Any) -> None:
    log = scene.run([scene.window("a", 0, 2), scene.window("b", 30, 31)], training_outside=True).log
    record = of(log, "a")["r", 0.0]
    assert (record.outcome, record.end_s, record.train_s) == ("left_training", 31.0, 3.0)
    assert math.fsum((record.download_s, record.train_s, record.outside_s)) == record.end_s - record.start_s
    ended = scene.run([scene.window("a", 0, 2, exit_cause="end")], training_outside=True).log
    assert [(r.outcome, r.end_s) for r in ended.participations] == [("left_training", 2.0)]
