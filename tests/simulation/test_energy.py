"""Joules of hand-made participations: watts x seconds, by stage."""

from typing import Any

import pytest

from vnetsim.experiment import ComputeSettings
from vnetsim.learning import Cost, Exchange

OUTSIDE = {"policy": "forward", "longest_gap_s": 1e6, "interruption_s": 0.0}

ECU = ComputeSettings(preset="ecu", spread=0.0)
XAVIER = ComputeSettings(preset="agx-xavier", median_flops=1e9, spread=0.0)
"""30 W, and so slow that a training takes 3 s."""


def joules(record: Any) -> tuple[float | None, ...]:
    return record.download_j, record.train_j, record.upload_j, record.wait_j, record.exchange_j


def test_a_participation_takes_its_stages_watts_times_their_seconds(scene):
    """1 s receiving at 1 W, 3 s training at 30 W, 2 s sending at 2 W; b is cut after 1 s of training."""
    late = scene.window("b", 30, 32)
    result = scene.run([scene.window("a", 0, 20), late, scene.window("c", 50, 70)], compute=XAVIER, quorum=2)
    by_id = {record.vehicle_id: record for record in result.log.participations}
    assert joules(by_id["a"]) == (1.0, 90.0, 4.0, 0.0, 0.0)
    assert by_id["b"].outcome == "left_training"
    assert joules(by_id["b"]) == (1.0, 30.0, 0.0, 0.0, 0.0)


def test_no_energy_is_claimed_without_a_known_power_or_an_invitation(scene):
    windows = [scene.window("a", 0, 20), scene.window("b", 0, 2.5)]
    (left, committed) = scene.run(windows, invited=1, compute=XAVIER).log.participations
    invited, other = (committed, left) if left.outcome == "not_selected" else (left, committed)
    assert (other.outcome, joules(other)) == ("not_selected", (None,) * 5)
    assert joules(invited)[1] is not None
    assert all(joules(record) == (None,) * 5 for record in scene.run(windows, compute=ECU).log.participations)


def test_waiting_and_exchange_take_the_radio_and_the_work_for_others_the_computer(scene):
    """Each receives for 1 s, or 2 s when both do; then each has the other train 4 s for it, beside the transfers."""
    plan = Exchange(before_training=True, mutual=False, send_bytes=1_000_000, work_flop=4e9, return_bytes=1_000_000)
    cost = Cost(download_bytes=1_000_000, upload_bytes=1_000_000, work_flop=2e9, exchange=plan)
    windows = [scene.window("a", 0, 60), scene.window("b", 2, 60, start=(30.0, 100.0))]
    result = scene.run(windows, learning=scene.learning(every=cost), quorum=2, compute=XAVIER)
    a, b = sorted(result.log.participations, key=lambda record: record.vehicle_id)
    assert (a.outcome, a.wait_s, b.wait_s, a.exchange_s) == ("committed", 2.0, 0.0, 8.0)
    for record in (a, b):
        assert record.exchange_j == pytest.approx(2 * record.exchange_s + 30 * 4)
        assert (record.wait_j, record.train_j) == (record.wait_s, 60.0)
    # of three each works for two others
    three = [*windows, scene.window("c", 2, 60, start=(60.0, 100.0))]
    result = scene.run(three, learning=scene.learning(every=cost), quorum=3, compute=XAVIER)
    for record in result.log.participations:
        assert record.exchange_j == pytest.approx(2 * record.exchange_s + 30 * 8)
    # b leaves after 1 s of its work for a: two transfers of 1 MB share 1 MB/s from 3 s on, and the work begins at 5 s
    cut = [windows[0], scene.window("b", 2, 6, start=(30.0, 100.0))]
    result = scene.run(cut, learning=scene.learning(every=cost), quorum=2, compute=XAVIER)
    left = next(record for record in result.log.participations if record.vehicle_id == "b")
    assert (left.outcome, left.exchange_s, left.exchange_j) == ("left_exchange", 3.0, 2 * 3.0 + 30 * 1.0)


def test_waiting_trained_outside_coverage_listens(scene):
    windows = [scene.window("a", 0, 2), scene.window("a", 10, 20)]
    record = scene.run(windows, handover=OUTSIDE, compute=XAVIER).log.participations[0]
    assert (record.outcome, record.outside_s) == ("committed", 6.0)
    assert joules(record) == (1.0, 90.0, 4.0, 6.0, 0.0)
