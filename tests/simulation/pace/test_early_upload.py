"""Early upload: vehicles stop their local steps in time. Alone one takes 1 s down, 4 s for 8 steps, 2 s up."""

from dataclasses import replace
from typing import Any

import pytest

from vnetsim.learning import Cost

COST = Cost(download_bytes=1_000_000, upload_bytes=2_000_000, work_flop=4e9, steps=8)


def play(scene: Any, windows: list[Any], *, cost: Cost = COST, pace: dict[str, Any] | None = None, **rules: Any) -> Any:
    """Return log and learning; windows are predicted by the oracle, without a margin."""
    learning = scene.learning(every=cost)
    pace = {"name": "early-upload", "predictor": "oracle", "margin": 0.0, **(pace or {})}
    return scene.run(windows, learning=learning, whole=True, pace=pace, **rules).log, learning


@pytest.mark.parametrize(
    ("dwell_s", "steps", "outcome"),
    [
        (30.0, 8, "committed"),
        (7.01, 8, "committed"),  # 1 + 4 + 2 s, and a little
        (6.99, 7, "committed"),
        (5.3, 4, "committed"),  # 2.3 s of training are four steps of half a second
        (3.6, 1, "committed"),
        (3.2, 1, "left_upload"),  # one step at least
    ],
)
def test_a_vehicle_does_the_steps_that_leave_time_for_the_upload(dwell_s, steps, outcome, scene):
    log, learning = play(scene, [scene.window("a", 0, dwell_s)])
    (record,) = log.participations
    assert (record.outcome, record.work_share) == (outcome, steps / 8)
    assert record.train_s == pytest.approx(steps / 2)
    told = [p.work_share for _, participants in learning.calls for p in participants]
    assert told == ([steps / 8] if outcome == "committed" else [])


def test_who_has_nothing_to_train_uploads_at_once(scene):
    (record,) = play(scene, [scene.window("a", 0, 2.5)], cost=replace(COST, work_flop=0.0))[0].participations
    assert (record.outcome, record.train_s, record.end_s) == ("left_upload", 0.0, 2.5)


def test_margin_and_predictor_are_those_of_the_settings(scene):
    window = [scene.window("a", 0, 6.1)]
    assert play(scene, window)[0].participations[0].work_share == 6 / 8
    # half of 2 s kept besides: two steps less
    assert play(scene, window, pace={"margin": 0.5})[0].participations[0].work_share == 4 / 8
    # straight on at 10 m/s from 100 m beside the RSU it would be covered for more than 20 s
    assert play(scene, window, pace={"predictor": "straight"})[0].participations[0].work_share == 1


def test_what_was_history_is_a_prediction_later(scene):
    # the first is covered for 6.6 s; the second, from the same approach, is thought to
    windows = [scene.window("a", 0, 6.6), scene.window("b", 10, 17)]
    log, _ = play(scene, windows, pace={"predictor": "history"})
    assert [(r.vehicle_id, r.work_share, r.remaining_history_s) for r in log.participations] == [
        ("a", 1, None),
        ("b", 7 / 8, pytest.approx(6.6)),
    ]


def test_more_vehicles_commit_than_with_the_whole_training(scene):
    windows = [scene.window(f"v{i}", 10 * i, 10 * i + 4.6) for i in range(4)]
    early, _ = play(scene, windows, quorum=4)
    whole = scene.run(windows, quorum=4, learning=scene.learning(every=COST)).log
    assert [(r.outcome, r.work_share) for r in early.participations] == [("committed", 3 / 8)] * 4
    assert [(r.outcome, r.work_share) for r in whole.participations] == [("left_training", 1)] * 4
