"""FedMes: a vehicle takes part at all RSUs whose discs it is in. Alone it takes 1 s down, 3 s of training, 2 s up."""

import math
from typing import Any

import pytest

from vnetsim.errors import InputError
from vnetsim.experiment import ComputeSettings
from vnetsim.learning import ModelKey
from vnetsim.simulation.plugins import simulation_plugins

MULTI = {"policy": "multi"}
BOTH = ModelKey("r", 0), ModelKey("s", 0)
EDGES = {"topology": {"kind": "per-rsu"}}


def in_both(
    scene: Any, *, begin_s: float = 0.0, leaves_s: float = 60.0, more: tuple[Any, ...] = (), **rules: Any
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a run with ``multi`` of a vehicle in two discs; by RSU its first rows, and what was first told of it."""
    learning = scene.learning()
    windows = [scene.window("a", begin_s, leaves_s), scene.window("a", begin_s, 60, rsu_id="s", speed_mps=12), *more]
    rules = {"rsus": (scene.rsu, scene.beside), "handover": MULTI, "learning": learning, **EDGES, **rules}
    result = scene.run(windows, **rules)
    rows = {row.rsu_id: row for row in reversed(result.log.participations) if row.vehicle_id == "a"}
    told = {closed.aggregator: one for closed, who in reversed(learning.calls) for one in who if one.vehicle_id == "a"}
    return result, rows, told


def test_in_an_overlap_it_downloads_from_all_trains_once_and_uploads_to_all(scene):
    watts = ComputeSettings(preset="jetson-nano", median_flops=1e9, spread=0.0)
    result, rows, told = in_both(scene, compute=watts)
    assert {name: use.carried_bytes for name, use in result.channels.items()} == {"r": 3e6, "s": 3e6}
    for name, row in rows.items():
        assert (row.outcome, row.aggregator, row.start_s, row.end_s) == ("committed", name, 0.0, 6.0)
        assert (row.download_bytes, row.upload_bytes, row.upload_rsu_id) == (1e6, 2e6, name)
        assert (row.base_aggregator, row.speed_mps, row.weight) == (name, 10.0, 1.0)
    assert [(rows[name].train_s, rows[name].wait_s) for name in "rs"] == [(3.0, 0.0), (0.0, 3.0)]
    assert [(rows[name].train_j, rows[name].wait_j) for name in "rs"] == [(30.0, 0.0), (0.0, 0.0)]
    assert list(result.log.handovers) == []
    assert [closed.invited for closed in result.log.rounds] == [1, 0], "invited by the RSU that serves it"
    for name, counted_from in (("r", None), ("s", 0)):
        one = told[name]
        assert (one.base, one.handover.bases, one.handover.counted_from) == (ModelKey("r", 0), BOTH, counted_from)
        assert (one.rsu_id, one.train_s, one.speed_mps, one.work_share) == (name, 3.0, 10.0, 1.0)
        assert one.started == ("r", 0), "one training has the same random draws wherever it counts"


def test_the_rest_of_both_windows_is_predicted_from_the_invitation_on(scene):
    _, rows, _ = in_both(scene, begin_s=5.0)
    rests_s = {name: row.remaining_straight_s for name, row in rows.items()}
    assert rests_s == pytest.approx({"r": (100 + 250) / 10, "s": (math.hypot(100, 100) + 250) / 12}), "over the RSU"


def test_training_waits_for_the_slower_of_two_downloads(scene):
    _, rows, told = in_both(scene, more=(scene.window("b", 0, 60, rsu_id="s"),))
    assert (rows["r"].download_s, rows["r"].wait_s, rows["r"].train_s) == (1.0, 1.0, 3.0)
    assert (rows["s"].download_s, rows["s"].wait_s, rows["s"].train_s) == (2.0, 3.0, 0.0)
    assert rows["r"].end_s == 7.0
    assert told["r"].handover.bases == BOTH


@pytest.mark.parametrize(
    ("leaves_s", "outcome", "moved", "trained_s", "base", "bases"),
    [
        (0.5, "left_download", 0.5e6, (0.0, 3.0), "s", ()),
        (2.0, "left_training", 1e6, (1.0, 2.0), "r", BOTH),
        (5.0, "left_upload", 2e6, (3.0, 0.0), "r", BOTH),
    ],
)
def test_what_leaves_a_disc_is_ended_there_and_goes_on_in_the_other(
    leaves_s, outcome, moved, trained_s, base, bases, scene
):
    _, rows, told = in_both(scene, leaves_s=leaves_s)
    left, stayed = rows["r"], rows["s"]
    assert (left.outcome, left.end_s, left.download_bytes + left.upload_bytes) == (outcome, leaves_s, moved)
    assert (stayed.outcome, stayed.end_s) == ("committed", 6.0)
    assert (left.train_s, stayed.train_s) == trained_s
    assert (told["s"].base, told["s"].handover.bases) == (ModelKey(base, 0), bases)
    assert (told["s"].handover.counted_from, told["s"].train_s) == (None if base == "s" else 0, 3.0)
    assert set(told) == {"s"}


def test_it_is_stale_where_a_round_has_closed_and_counts_at_the_other_rsu(scene):
    more = (scene.window("b", 0, 60, rsu_id="s"),)
    _, rows, told = in_both(scene, begin_s=5.0, more=more, rounds=2, compute=scene.slow)
    assert (rows["s"].outcome, rows["s"].end_s, rows["s"].round) == ("stale", 13.0, 0)
    assert (rows["r"].outcome, rows["r"].end_s, told["r"].handover.bases) == ("committed", 18.0, BOTH)
    _, rows, told = in_both(scene, begin_s=5.0, more=more, rounds=2, compute=scene.slow, max_staleness=1)
    assert (told["s"].round, told["s"].handover.counted_from, told["s"].base) == (1, 0, ModelKey("r", 0))


def test_who_is_inside_later_or_counts_there_already_is_of_one_rsu(scene):
    later = (scene.window("b", 0, 60), scene.window("b", 0.5, 60, rsu_id="s"))
    result, _, _ = in_both(scene, more=later)
    assert scene.of(result.log, "b")["s", 0.5].outcome == "not_selected"
    assert scene.of(result.log, "b")["r", 0.0].outcome == "committed"
    # the round of s has an update of this vehicle, and is open still when r invites it
    rules = {"rsus": (scene.rsu, scene.beside), "handover": MULTI, "quorum": 5, **EDGES}
    windows = [scene.window("a", 0, 6.5, rsu_id="s"), scene.window("a", 7, 60), scene.window("a", 7, 60, rsu_id="s")]
    log = scene.run(windows, **rules).log
    assert (scene.of(log, "a")["r", 7.0].end_s, scene.of(log, "a")["r", 7.0].outcome) == (13.0, "committed")
    assert (scene.of(log, "a")["s", 0.0].outcome, scene.of(log, "a")["s", 7.0].outcome) == ("committed", "not_selected")


def test_an_rsu_that_waits_for_the_cloud_takes_no_part(scene):
    windows = [scene.window("b", 0, 6.5, rsu_id="s"), scene.window("a", 7, 60), scene.window("a", 7, 12, rsu_id="s")]
    rules = {"rsus": (scene.rsu, scene.beside), "topology": {"kind": "hierarchical"}, "handover": MULTI}
    log = scene.run(windows, rounds=2, **rules).log
    assert [(one.aggregator, one.close_s) for one in log.rounds[:2]] == [("s", 6.0), ("r", 13.0)]
    assert scene.of(log, "a")["s", 7.0].outcome == "not_selected"


def test_multi_is_refused_where_all_rsus_have_one_model(scene):
    with pytest.raises(InputError, match=r"handover.policy: with 'multi' .* topology.kind = 'single' all have one"):
        simulation_plugins(scene.experiment(handover=MULTI))
