"""Each outcome on purpose. Alone at the RSU, a vehicle takes 1 s download, 3 s training, 2 s upload."""

import math
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pytest

from vnetsim.coverage.rsu import Rsu
from vnetsim.simulation.log import Rows
from vnetsim.storage.rows import ParticipationRecord
from vnetsim.storage.tables import TABLES, to_parquet


def outcomes(result: Any) -> dict[str, str]:
    """Return vehicle -> outcome; a vehicle with several is an error of the test."""
    records = result.log.participations
    assert len({r.vehicle_id for r in records}) == len(records)
    return {r.vehicle_id: r.outcome for r in records}


def test_records_are_rows_of_the_tables(scene):
    log = scene.run([scene.window("a", 0, 10), scene.window("b", 3, 8)]).log
    for name in (f.name for f in fields(log)):
        assert name in TABLES
    assert to_parquet("participations", log.participations)
    assert to_parquet("rounds", log.rounds)


def test_committed(scene):
    learning = scene.learning()
    entered = scene.window("a", 0.5, 20, speed_mps=12.0)
    result = scene.run([replace(entered, path_speed_mps=entered.path_time_s + 11.5)], learning=learning)
    (record,) = result.log.participations
    assert record == ParticipationRecord(
        participation=0,
        round=0,
        base_round=0,
        vehicle_id="a",
        rsu_id="r",
        silo=0,
        approach=0,
        enter_s=0.5,
        outcome="committed",
        start_s=0.5,
        end_s=6.5,
        download_s=1.0,
        train_s=3.0,
        upload_s=2.0,
        wait_s=0.0,
        exchange_s=0.0,
        download_bytes=1e6,
        upload_bytes=2e6,
        exchange_bytes=0.0,
        speed_mps=12.0,
        level_px=pytest.approx(0.01 * 0.004 * 12.0 / (3e-6 * 10.0)),
        weight=1.0,
        loss=0.5,
        work_share=1.0,
        outside_s=0.0,
        upload_rsu_id="r",
        remaining_straight_s=pytest.approx(350 / 12.0),  # not yet known to turn: through the middle, as towards the RSU
        remaining_history_s=None,
    )
    ((summary, (participant,)),) = learning.calls
    assert (summary.round, summary.open_s, summary.close_s, summary.closed_by) == (0, 0.0, 6.5, "quorum")
    assert (summary.final, summary.mixed) == (True, False)
    assert (participant.vehicle_id, participant.round, participant.base.version) == ("a", 0, 0)
    assert (participant.speed_mps, participant.level_px, participant.stay_s) == (12.0, record.level_px, 6.0)
    assert result.ended_by == "rounds"
    assert result.time_s == 6.5


@pytest.mark.parametrize(
    ("exit_s", "outcome", "seconds", "transferred"),
    [
        (0.25, "left_download", (0.25, 0, 0), (0.25e6, 0)),
        (1.0, "left_download", (1.0, 0, 0), (1e6, 0)),
        (2.5, "left_training", (1.0, 1.5, 0), (1e6, 0)),
        (5.0, "left_upload", (1.0, 3.0, 1.0), (1e6, 1e6)),
        (6.0, "left_upload", (1.0, 3.0, 2.0), (1e6, 2e6)),  # half-open: the last byte comes at the exit, too late
    ],
)
def test_left(scene, exit_s, outcome, seconds, transferred):
    result = scene.run([scene.window("a", 0, exit_s), scene.window("later", 100, 101)])
    record = result.log.participations[0]
    assert record.outcome == outcome
    assert record.end_s == exit_s
    assert (record.download_s, record.train_s, record.upload_s) == pytest.approx(seconds)
    assert (record.download_bytes, record.upload_bytes) == pytest.approx(transferred)
    assert record.weight is None
    assert record.loss is None


def test_an_upload_that_ends_with_the_recording_still_counts(scene):
    windows = [scene.window("a", 0, 6, exit_cause="end"), scene.window("b", 1, 6, exit_cause="end")]
    result = scene.run(windows, invited=1)
    assert outcomes(result) == {"a": "committed", "b": "not_selected"}
    assert [window.exit_s for window in result.log.windows] == [6.0, 6.0]
    assert result.ended_by == "rounds"


def test_deadline(scene):
    result = scene.run([scene.window("a", 0, 20), scene.window("b", 4, 20)], deadline_s=5.0)
    # a is in its upload from 4 s, shared with b's download: 0.5 MB up, 0.5 MB down by 5 s
    assert outcomes(result) == {"a": "deadline", "b": "deadline"}
    a, b = result.log.participations
    assert (a.end_s, a.upload_bytes, a.upload_s) == (5.0, 0.5e6, 1.0)
    assert (b.end_s, b.download_bytes, b.upload_bytes) == (5.0, 0.5e6, 0.0)
    assert [r.closed_by for r in result.log.rounds] == ["deadline"]


def test_not_selected(scene):
    result = scene.run([scene.window("a", 0, 20), scene.window("b", 0.5, 3)], invited=1)
    assert outcomes(result) == {"b": "not_selected", "a": "committed"}
    b = result.log.participations[0]
    assert (b.start_s, b.end_s, b.download_s, b.download_bytes) == (0.5, 3.0, 0.0, 0.0)
    assert b.base_round == b.round == 0


def test_windows_open_at_the_end_of_the_run_get_their_records(scene):
    result = scene.run([scene.window("a", 0, 20), scene.window("b", 0.5, 30), scene.window("c", 50, 60)], invited=1)
    assert outcomes(result) == {"a": "committed", "b": "not_selected"}
    assert [(w.vehicle_id, w.exit_cause) for w in result.log.windows] == [("a", "end"), ("b", "end")]
    for w in result.log.windows:
        assert w.exit_s >= result.time_s
        assert w.path_time_s[0] == w.enter_s
        assert w.path_time_s[-1] == w.exit_s
        assert w.path_length_m == pytest.approx(10.0 * (w.exit_s - w.enter_s))
        assert w.mean_speed_mps == pytest.approx(10.0)


def test_rejected(scene):
    windows = [scene.window("a", 0, 20), scene.window("b", 0, 20)]
    result = scene.run(windows, quorum=2, learning=scene.learning(rejects=frozenset({"a"})))
    assert outcomes(result) == {"a": "rejected", "b": "committed"}
    a, b = result.log.participations
    assert (a.weight, b.weight) == (None, 1.0)
    assert a.upload_bytes == 2e6
    (round_,) = result.log.rounds
    assert (round_.committed, round_.rejected, round_.loss) == (1, 1, 0.5)


def test_a_rounds_loss_is_the_mean_of_those_that_are_known(scene):
    class Telling(scene.learning):  # type: ignore[misc, name-defined]
        def close_round(self, *about: Any) -> Any:
            return replace(super().close_round(*about), losses=[1.0, None, math.nan, 4.0])

    log = scene.run([scene.window(name, 0, 90) for name in "abcd"], quorum=4, learning=Telling()).log
    assert [r.loss for r in log.participations] == [1.0, None, None, 4.0]
    assert log.rounds[0].loss == 2.5


def test_rows_that_were_forgotten_are_counted_still():
    rows: Rows[str] = Rows()
    rows.extend("abcde")
    rows.forget(3)
    rows.forget(2)
    rows.replace(3, "x")
    assert (rows.at(3), rows.at(4), rows.total, rows.since(4), rows.since(0)) == ("x", "e", 5, ["e"], ["x", "e"])


def test_a_vehicle_keeps_silo_and_approach_at_its_second_entry(scene):
    windows = [
        scene.window("a", 0, 5, path=[(0, 0, 250), (1, 250, -250), (5, 250, -250)]),
        scene.window("b", 1, 5, start=(250, 0)),
        scene.window("a", 10, 15, start=(0, -250)),
    ]
    result = scene.run(windows, by="approach", silos=8)
    assert {(r.vehicle_id, r.silo, r.approach) for r in result.log.participations} == {("a", 0, 0), ("b", 1, 1)}


def test_several_rsus_have_channels_of_their_own_and_one_aggregator(scene):
    far = Rsu(id="far", x_m=5000.0, y_m=0.0, range_m=250.0)
    windows = [scene.window("a", 0, 20), scene.window("b", 0, 20, rsu_id="far", start=(5000, 100))]
    result = scene.run(windows, rsus=(scene.rsu, far), quorum=2)
    assert outcomes(result) == {"a": "committed", "b": "committed"}
    assert [r.end_s for r in result.log.participations] == [6.0, 6.0]  # no sharing between them
    assert {r.rsu_id for r in result.log.participations} == {"r", "far"}
    assert {rsu: use.carried_bytes for rsu, use in result.channels.items()} == {"r": 3e6, "far": 3e6}
    assert {rsu: use.busy_s for rsu, use in result.channels.items()} == {"r": 3.0, "far": 3.0}


def test_overlapping_discs_serve_a_vehicle_once_at_a_time_through_the_earlier_window(scene):
    near = Rsu(id="near", x_m=100.0, y_m=0.0, range_m=250.0)
    windows = [scene.window("a", 0, 3), scene.window("a", 1, 20, rsu_id="near")]
    result = scene.run(windows, rsus=(scene.rsu, near), deadline_s=5.0, rounds=2)
    first, second = result.log.participations
    # through r until 3 s; idle then, as it was invited in round 0; through the other RSU when round 1 opens at 5 s
    assert (first.rsu_id, first.start_s, first.end_s, first.outcome) == ("r", 0.0, 3.0, "left_training")
    assert (second.rsu_id, second.start_s, second.end_s, second.outcome) == ("near", 5.0, 10.0, "deadline")
    assert Counter(w.rsu_id for w in result.log.windows) == {"r": 1, "near": 1}


def test_a_vehicle_waiting_in_two_discs_is_invited_through_the_one_left_when_the_first_closes(scene):
    near = Rsu(id="near", x_m=100.0, y_m=0.0, range_m=250.0)
    windows = [scene.window("x", 0, 5), scene.window("a", 1, 3), scene.window("a", 2, 20, rsu_id="near")]
    result = scene.run(windows, rsus=(scene.rsu, near), invited=1)
    assert [(r.vehicle_id, r.rsu_id, r.outcome, r.start_s) for r in result.log.participations] == [
        ("a", "r", "not_selected", 1.0),
        ("x", "r", "left_upload", 0.0),
        ("a", "near", "committed", 5.0),
    ]
