"""Laws of the whole loop: conservation, determinism, replay, errors."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Entered
from vnetsim.errors import InputError, RunError
from vnetsim.experiment import ComputeSettings
from vnetsim.learning import Cost
from vnetsim.radio.models import Tr37885
from vnetsim.radio.propagation import path_loss_db
from vnetsim.random_streams import Streams
from vnetsim.storage.rows import OUTCOMES

FAR = Rsu(id="far", x_m=150.0, y_m=0.0, range_m=250.0)
SLOW = {"bandwidth_hz": 1e6, "max_spectral_efficiency": 50.0}  # about 1 MB/s; shadowing and distance matter


@st.composite
def crossings(draw: st.DrawFn) -> list[tuple[str, str, float, float]]:
    """Return (vehicle, RSU, enter, exit): windows of one vehicle at one RSU are disjoint, those at two may overlap."""
    rows = []
    for vehicle in range(draw(st.integers(1, 8))):
        for rsu_id in ("r", "far"):
            now = draw(st.floats(0, 40))
            for _ in range(draw(st.integers(0, 2))):
                dwell_s = draw(st.floats(0.1, 40))
                rows.append((f"v{vehicle}", rsu_id, now, now + dwell_s))
                now += dwell_s + draw(st.floats(0.1, 20))
    return rows


rules = st.fixed_dictionaries(
    {
        "rounds": st.integers(1, 6),
        "pace": st.sampled_from(["quorum", "coverage"]),
        "quorum": st.integers(1, 3),
        "invited": st.integers(3, 6),
        "deadline_s": st.floats(1, 40),
        "max_staleness": st.integers(0, 2),
        "selection": st.sampled_from(["arrival", "random"]),
        "radio": st.sampled_from([{"name": "constant", "rate_bps": 8e6}, SLOW]),
        "compute": st.just(ComputeSettings(median_flops=1e9, spread=0.5)),
        "seed": st.integers(0, 3),
    }
)


@given(rows=crossings(), rule=rules)
@settings(deadline=None, max_examples=150)
def test_everything_is_conserved(scene, rows, rule):
    learning = scene.learning(rejects=frozenset({"v1"}))
    everyone = rule["pace"] == "coverage"
    windows = [scene.window(v, t0, t1, rsu_id=r) for v, r, t0, t1 in rows]
    result = scene.run(windows, rsus=(scene.rsu, FAR), learning=learning, **rule)
    log = result.log

    # every participation has one outcome; every window at least one participation, and none belongs to no window
    assert {r.outcome for r in log.participations} <= set(OUTCOMES)
    assert sum(Counter(r.outcome for r in log.participations).values()) == len(log.participations)
    assert [r.participation for r in log.participations] == list(range(len(log.participations)))
    keys = [(w.vehicle_id, w.rsu_id, w.enter_s) for w in log.windows]
    assert len(set(keys)) == len(keys)
    assert {(r.vehicle_id, r.rsu_id, r.enter_s) for r in log.participations} == set(keys)

    participations = Counter((r.vehicle_id, r.rsu_id, r.enter_s) for r in log.participations)
    assert all(participations[r[3], r[4], r[7]] == 1 for r in log.participations if r.outcome == "not_selected")

    # all windows that began by the end of the run are there
    began = sum(t0 <= result.time_s for _, _, t0, _ in rows)
    before = sum(t0 < result.time_s for _, _, t0, _ in rows)
    assert before <= len(keys) <= began

    # bytes: channels = participations
    for rsu_id, use in result.channels.items():
        mine = [r for r in log.participations if r.rsu_id == rsu_id]
        assert use.carried_bytes == pytest.approx(math.fsum(r.download_bytes + r.upload_bytes for r in mine), rel=1e-9)
        assert use.busy_s <= math.fsum(r.download_s + r.upload_s for r in mine) + 1e-9

    by_window = {(w.vehicle_id, w.rsu_id, w.enter_s): w for w in log.windows}
    for r in log.participations:
        w = by_window[r.vehicle_id, r.rsu_id, r.enter_s]
        assert w.enter_s <= r.start_s <= r.end_s <= w.exit_s
        if r.outcome == "not_selected":
            assert r.download_bytes == r.upload_bytes == r.download_s == 0
        else:
            assert r.download_s + r.train_s + r.upload_s == pytest.approx(r.end_s - r.start_s, abs=1e-9)
            assert 0 <= r.round - r.base_round <= rule["max_staleness"]
        assert r.download_bytes <= scene.cost.download_bytes
        assert r.upload_bytes <= scene.cost.upload_bytes
        if r.outcome in {"committed", "rejected"}:
            assert r.download_bytes == scene.cost.download_bytes
            assert r.upload_bytes == scene.cost.upload_bytes
            assert r.end_s < w.exit_s or w.exit_cause == "end"

    # rounds: contiguous, as counted; no vehicle twice in one aggregate, nor invited twice in one round
    assert [r.round for r in log.rounds] == list(range(len(log.rounds)))
    assert [r.open_s for r in log.rounds] == [0.0, *(r.close_s for r in log.rounds)][: len(log.rounds)]
    for r in log.rounds:
        here = [p for p in log.participations if p.round == r.round]
        assert r.committed == sum(p.outcome == "committed" for p in here)
        assert r.rejected == sum(p.outcome == "rejected" for p in here)
        started = [p for p in log.participations if p.base_round == r.round and p.outcome != "not_selected"]
        assert r.invited == len(started) == len({p.vehicle_id for p in started})
        assert r.close_s <= r.open_s + rule["deadline_s"] + 1e-9
        assert everyone or r.committed + r.rejected <= rule["quorum"]
        assert everyone == (r.closed_by == "everyone") or r.closed_by in {"deadline", "traffic_end"}
        if r.closed_by == "everyone":
            assert r.committed + r.rejected > 0
            assert all(p.end_s <= r.close_s for p in log.participations if p.base_round == r.round)
        assert r.closed_by != "deadline" or r.close_s == pytest.approx(r.open_s + rule["deadline_s"], rel=1e-12)
        assert r.closed_by != "quorum" or r.committed + r.rejected == rule["quorum"]
    for _, participants in learning.calls:
        assert len({p.vehicle_id for p in participants}) == len(participants)

    # one participation at a time for each vehicle, and no more than may be invited
    used = sorted((p for p in log.participations if p.outcome != "not_selected"), key=lambda p: p.start_s)
    last_end: dict[str, float] = {}
    for p in used:
        assert p.start_s >= last_end.get(p.vehicle_id, -math.inf)
        last_end[p.vehicle_id] = p.end_s
        assert everyone or sum(q.start_s <= p.start_s < q.end_s for q in used) <= rule["invited"]

    # everyone: who is inside when a round opens is invited then, or still busy with an earlier one
    for r in log.rounds if everyone else ():
        for vehicle in {w.vehicle_id for w in log.windows if w.enter_s <= r.open_s < w.exit_s}:
            mine = [p for p in used if p.vehicle_id == vehicle]
            assert any(p.start_s == r.open_s or p.start_s < r.open_s < p.end_s for p in mine)


@given(rows=crossings(), rule=rules)
@settings(deadline=None, max_examples=60)
def test_a_replay_of_the_recorded_windows_gives_the_same_records(scene, rows, rule):
    rsus = (scene.rsu, FAR)
    windows = [scene.window(v, t0, t1, rsu_id=r) for v, r, t0, t1 in rows]
    end_s = max((t1 for _, _, _, t1 in rows), default=0.0) + 5
    first = scene.run(windows, rsus=rsus, end_s=end_s, **rule)
    again = scene.run(windows, rsus=rsus, end_s=end_s, **rule)
    assert again.log.participations == first.log.participations
    assert again.log.rounds == first.log.rounds
    # windows cut by the end of the run are played as far as they were recorded
    order = sorted(
        first.log.windows, key=lambda w: [rows.index(r) for r in rows if r[:3] == (w.vehicle_id, w.rsu_id, w.enter_s)]
    )
    replay = scene.run(order, rsus=rsus, end_s=end_s, **rule)
    assert replay.log.participations == first.log.participations
    assert replay.log.rounds == first.log.rounds
    assert replay.ended_by == first.ended_by


def test_the_clock_starts_with_the_traffic(scene):
    result = scene.simulate(
        scene.experiment(),
        scene.traffic([scene.window("a", 21605, 21700)], begin_s=21600.0),
        scene.learning(),
        Streams(seed=0),
    )
    assert (result.begin_s, result.time_s) == (21600.0, 21611.0)
    assert result.log.rounds[0].open_s == 21600.0


def test_both_transfers_follow_the_path_each_with_its_own_power(scene):
    link = {"bandwidth_hz": 1e6, "shadowing_db": 0.0, "max_spectral_efficiency": 50.0}
    link |= {"rsu_power_dbm": 30.0, "vehicle_power_dbm": 15.0, "rsu_antenna_dbi": 0.0, "vehicle_antenna_dbi": 0.0}
    link |= {"state": "los"}
    # straight away from the RSU at 100 m/s; no training, so that both transfers are seen
    away = scene.window("a", 0, 6.25, path=[(0, 0, 0), (6.25, 625, 0)])
    model = Tr37885(**link)
    losses_db = [path_loss_db(math.hypot(100 * t, 3.4), model.carrier_hz, "urban") for t in range(7)]
    bytes_per_s = [[model.capacity_bps(power - loss_db, 9.0) / 8 for loss_db in losses_db] for power in (30.0, 15.0)]
    # a download that takes exactly two seconds, an upload that the exit cuts after 4.25 s
    size = sum(bytes_per_s[0][:2])
    cost = Cost(download_bytes=size, upload_bytes=10**9, work_flop=0.0)  # type: ignore[arg-type]
    (record,) = scene.run([away], radio=link, learning=scene.learning(cost_of={0: cost})).log.participations
    assert record.download_s == pytest.approx(2.0, rel=1e-9)
    assert record.upload_s == pytest.approx(4.25, rel=1e-9)
    assert record.upload_bytes == pytest.approx(sum(bytes_per_s[1][2:6]) + 0.25 * bytes_per_s[1][6], rel=1e-6)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("silos: too few images."), "too few images"),
        (KeyboardInterrupt("by hand"), "by hand"),
        (OSError(28, "No space left on device", "x.parquet"), "No space left"),
    ],
)
def test_what_learning_raises_comes_out_unchanged(scene, error, message):
    class Failing(scene.learning):  # type: ignore[name-defined,misc]
        def close_round(self, *_: Any) -> Any:
            raise error

    with pytest.raises(type(error), match=message) as caught:
        scene.run([scene.window("a", 0, 20)], learning=Failing())
    assert caught.value is error


def test_what_the_traffic_raises_comes_out_unchanged(scene):
    error = InputError("trace.xml:7: time runs backwards.")

    class Failing(scene.traffic):  # type: ignore[name-defined,misc]
        def events(self) -> Any:
            yield from list(super().events())[:1]
            raise error

    with pytest.raises(InputError, match="time runs backwards") as caught:
        scene.simulate(scene.experiment(), Failing([scene.window("a", 0, 20)]), scene.learning(), Streams(seed=0))
    assert caught.value is error


def test_traffic_must_not_go_back_in_time(scene):
    class Backwards(scene.traffic):  # type: ignore[name-defined,misc]
        def events(self) -> Any:
            first, second = (event for event in super().events() if isinstance(event, Entered))
            yield from (second, first)

    traffic = Backwards([scene.window("a", 3.0, 4.0), scene.window("b", 1.0, 2.0)])
    with pytest.raises(RunError, match=r"back in time, from 3.0 s to 1.0 s"):
        scene.simulate(scene.experiment(), traffic, scene.learning(), Streams(seed=0))
