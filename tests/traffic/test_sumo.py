"""Live SUMO against its own recordings, its two interfaces against each other, and against closed forms."""

from __future__ import annotations

import dataclasses
import math
import re
import threading
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from coverage_laws import open_scenario

from vnetsim.coverage.windows import Window
from vnetsim.errors import RunError
from vnetsim.traffic.sumo.net import shared_place

RSUS = ("B1:120", "A1:60", "310,505:90.5")


def _key(window: Window) -> tuple[str, str, float]:
    return window.rsu_id, window.vehicle_id, round(window.enter_s, 5)


def _assert_same(ours: list[Window], theirs: list[Window], *, recorded: bool = False) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(sorted(ours, key=_key), sorted(theirs, key=_key), strict=True):
        assert (a.rsu_id, a.vehicle_id, a.vehicle_type) == (b.rsu_id, b.vehicle_id, b.vehicle_type)
        assert a.enter_s == pytest.approx(b.enter_s, abs=1e-6)
        assert a.exit_s == pytest.approx(b.exit_s, abs=1e-6)
        # A recording cannot know in time that a vehicle that vanished will come back.
        unknown = recorded and (a.exit_cause, b.exit_cause) == ("teleport", "arrival")
        assert a.entry_cause == b.entry_cause
        assert unknown or a.exit_cause == b.exit_cause
        assert (a.entry_edge, a.exit_edge) == (b.entry_edge, b.exit_edge)
        np.testing.assert_allclose(a.path_x_m, b.path_x_m, atol=1e-4)
        np.testing.assert_allclose(a.path_speed_mps, b.path_speed_mps, atol=1e-4)
        assert a.path_length_m == pytest.approx(b.path_length_m, abs=1e-3)


@pytest.fixture(scope="module")
def live(scenario, windows_of):
    return windows_of(scenario, rsu=RSUS)


def test_every_cause_occurs(live):
    assert {window.exit_cause for window in live} == {"crossing", "arrival", "teleport", "end"}
    assert {window.entry_cause for window in live} >= {"crossing", "departure"}
    assert {window.vehicle_type for window in live} == {"car", "bus"}
    assert {window.rsu_id for window in live} == {"B1", "A1", "310,505"}


def test_overlapping_discs_watched_as_one_give_the_same_windows(scenario, windows_of, monkeypatch):
    chosen = []

    def spied(*arguments: Any) -> Any:
        chosen.append(shared_place(*arguments))
        return chosen[-1]

    rsus = ("B1:120", "500,520:110", "480,500:150")
    monkeypatch.setattr("vnetsim.traffic.sumo.steps.shared_place", spied)
    as_one = windows_of(scenario, rsu=rsus)
    assert chosen[0] is not None
    monkeypatch.setattr("vnetsim.traffic.sumo.steps.shared_place", lambda *_: None)
    one_by_one = windows_of(scenario, rsu=rsus)
    assert len(as_one) == len(one_by_one) > 100
    for ours, theirs in zip(as_one, one_by_one, strict=True):
        for field in dataclasses.fields(Window):
            np.testing.assert_array_equal(getattr(ours, field.name), getattr(theirs, field.name))


@pytest.mark.parametrize(
    "suffix",
    ["xml", "csv.gz", "parquet", *(pytest.param(one, marks=pytest.mark.all_only) for one in ("xml.gz", "csv"))],
)
def test_recording_gives_the_same_windows(live, scenario, grid_net, windows_of, sumo_tool, tmp_path, suffix):
    path = tmp_path / f"recording.{suffix}"
    sumo_tool("sumo", "-c", scenario, "--fcd-output", path, "--precision", 12, cwd=tmp_path)
    _assert_same(live, windows_of(path, rsu=RSUS, net=str(grid_net)), recorded=True)


def test_the_map_has_every_lane_of_its_frame_in_both_readers(scenario, grid_net, sumo_tool, tmp_path):
    sumo_tool("sumo", "-c", scenario, "--fcd-output", tmp_path / "v.xml", cwd=tmp_path)
    x_m, y_m, half_x, half_y = 500, 500, 1.65 * 160, 160
    inside = set()
    for lane in ET.parse(grid_net).iter("lane"):
        points = [tuple(map(float, point.split(","))) for point in lane.attrib["shape"].split()]
        xs, ys = zip(*points, strict=True)
        if min(xs) <= x_m + half_x and max(xs) >= x_m - half_x and min(ys) <= y_m + half_y and max(ys) >= y_m - half_y:
            inside.add(tuple(points))
    for path in (scenario, tmp_path / "v.xml"):
        net = str(grid_net) if path.suffix == ".xml" else ""
        traffic = open_scenario(path, rsu=("B1:60",), net=net)
        traffic.close()
        assert {tuple(map(tuple, lane.round(2).tolist())) for lane in traffic.info.lanes} == inside


STRAIGHT = """<routes><vType id="fast" speedFactor="1" speedDev="0" sigma="0" maxSpeed="{speed}"/>
<vehicle id="v" type="fast" depart="0" departSpeed="max"><route edges="top1B2"/></vehicle></routes>"""


@pytest.mark.parametrize("speed_mps", [13.0, 7.3])
def test_halving_the_step_moves_no_crossing_of_constant_speed(make_scenario, windows_of, tmp_path, speed_mps):
    routes = STRAIGHT.format(speed=speed_mps)
    windows = []
    for step in (1.0, 0.5, 0.25):
        config = make_scenario(tmp_path / str(step), routes=routes, end=60, step=step)
        # beside the straight road into B2, so that entry and exit are both crossings
        (window,) = windows_of(config, rsu=("510,850:60",)) or windows_of(config, rsu=("500,850:60",))
        windows.append(window)
    for window in windows:
        assert (window.entry_cause, window.exit_cause) == ("crossing", "crossing")
        assert window.enter_s == pytest.approx(windows[0].enter_s, abs=1e-6)
        assert window.exit_s == pytest.approx(windows[0].exit_s, abs=1e-6)
        chord_m = math.hypot(window.path_x_m[-1] - window.path_x_m[0], window.path_y_m[-1] - window.path_y_m[0])
        assert window.exit_s - window.enter_s == pytest.approx(chord_m / speed_mps, rel=1e-6)
        assert window.mean_speed_mps == pytest.approx(speed_mps, rel=1e-6)


def test_crossings_lie_on_the_circle(live):
    centre = {"B1": (500.0, 500.0, 120.0), "A1": (300.0, 500.0, 60.0), "310,505": (310.0, 505.0, 90.5)}
    crossings = 0
    for window in live:
        x, y, r = centre[window.rsu_id]
        distance = np.hypot(window.path_x_m - x, window.path_y_m - y)
        assert (distance <= r + 1e-6).all()
        for cause, end in ((window.entry_cause, 0), (window.exit_cause, -1)):
            if cause == "crossing":
                crossings += 1
                assert distance[end] == pytest.approx(r, abs=1e-6)
    assert crossings > 50


def test_vehicles_in_the_disc_from_the_beginning_to_the_end(make_scenario, windows_of, tmp_path):
    config = make_scenario(tmp_path, begin=28, end=40, step=1.0)
    windows = windows_of(config, rsu=("B1:900",))
    assert {window.entry_cause for window in windows} == {"begin", "departure"}
    assert {window.exit_cause for window in windows} >= {"end"}
    assert min(window.enter_s for window in windows) == 28.0
    # SUMO's last step begins one step before the end.
    assert max(window.exit_s for window in windows) == 39.0


def test_a_teleport_is_not_drawn_across_the_disc(live):
    teleported = [window for window in live if window.exit_cause == "teleport"]
    assert teleported
    for window in live:
        steps_m = np.hypot(np.diff(window.path_x_m), np.diff(window.path_y_m))
        assert steps_m.max() < 20.0


def test_seed_of_the_settings_overrides_the_scenario(scenario, windows_of, live):
    again = windows_of(scenario, rsu=RSUS)
    other = windows_of(scenario, rsu=RSUS, seed=4)
    assert [w.enter_s for w in again] == [w.enter_s for w in live]
    assert [w.enter_s for w in other] != [w.enter_s for w in live]


@pytest.mark.parametrize("warmup_s", [pytest.param(0.0, marks=pytest.mark.all_only), 40.0])
def test_repeat_plays_on_with_the_next_seed(scenario, windows_of, warmup_s):
    """Time runs on without a gap: of each pass of 150 s what follows the warm-up counts."""
    traffic = open_scenario(scenario, rsu=("B1:120",), seed=7, warmup_s=warmup_s, repeat=True)
    assert traffic.info.end_s is None
    lasts_s, windows = 150 - warmup_s, []
    for event in traffic.events():
        if event.time_s >= warmup_s + 2 * lasts_s:
            break
        if hasattr(event, "window"):
            windows.append(event.window)
    traffic.close()
    traffic.close()
    passes = {7: "", 8: "#2"}
    for index, (seed, suffix) in enumerate(passes.items()):
        expected = windows_of(scenario, rsu=("B1:120",), seed=seed, warmup_s=warmup_s)
        got = [w for w in windows if ("#2" in w.vehicle_id) == bool(suffix)]
        assert [w.vehicle_id for w in got] == [w.vehicle_id + suffix for w in expected]
        for name in ("enter_s", "exit_s"):
            shifted = [getattr(w, name) + lasts_s * index for w in expected]
            assert [getattr(w, name) for w in got] == pytest.approx(shifted, abs=1e-9)
        assert [w.exit_cause for w in got] == [w.exit_cause for w in expected]


def test_repetition_ends_when_nobody_comes(scenario, windows_of):
    assert windows_of(scenario, rsu=("50000,50000",), repeat=True) == []


@pytest.mark.timeout(60)
def test_a_port_of_the_users_own_keeps_nobody_waiting(scenario):
    file = scenario.with_name("port.sumocfg")
    port = '<traci_server><remote-port value="8813"/></traci_server>'
    file.write_text(re.sub(r"</\w+>\s*$", lambda end: port + end[0], scenario.read_text()))
    assert port in file.read_text()
    found = []
    for config in (scenario, file):  # the busiest junction is counted by a SUMO that nobody speaks to
        traffic = open_scenario(config)
        found.append((traffic.rsus, next(iter(traffic.events())).time_s))
        traffic.close()
    assert found[0] == found[1]


def test_pois_of_type_rsu_are_the_rsus(make_scenario, tmp_path):
    (tmp_path / "rsu.add.xml").write_text(
        '<additional><poi id="r1" type="rsu" x="500" y="500"><param key="range" value="80"/></poi>'
        '<poi id="r2" type="rsu" x="300" y="500"/><poi id="tree" type="tree" x="0" y="0"/></additional>'
    )
    config = make_scenario(tmp_path, more='<additional-files value="rsu.add.xml"/>')
    traffic = open_scenario(config, range_m=70)
    seen = Counter(event.path.rsu_id for event in traffic.events())
    assert [(rsu.id, rsu.range_m) for rsu in traffic.rsus] == [("r1", 80.0), ("r2", 70.0)]
    assert set(seen) == {"r2", "r1"}


@pytest.mark.parametrize("end", ["150", None])
def test_sumo_is_asked_for_the_steps_that_it_would_take_itself(scenario, sumo_tool, tmp_path, end):
    config = tmp_path / "same.sumocfg"
    text = scenario.read_text().replace('value="routes', f'value="{scenario.parent}/routes')
    text = text if end else re.sub("<end [^>]*>", "", text)
    config.write_text(text.replace("<time>", '<output><summary-output value="steps.xml"/></output><time>'))
    sumo_tool("sumo", "-c", config, cwd=tmp_path)
    traffic = open_scenario(config, rsu=("B1:120",), outputs=tmp_path / "o")
    assert list(traffic.events())
    traffic.close()
    steps = [
        re.findall(r'<step time="([^"]*)"', (tmp_path / path).read_text()) for path in ("steps.xml", "o/steps.xml")
    ]
    assert steps[0] == steps[1]


def test_closing_while_sumo_is_read_ends_the_reading(scenario):
    traffic = open_scenario(scenario, rsu=RSUS)
    events = traffic.events()
    next(events)
    before = threading.active_count()
    traffic.close()
    assert threading.active_count() == before - 1
    with pytest.raises(RunError, match="this traffic was closed; open it again"):
        list(events)
