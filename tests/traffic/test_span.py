"""Begin, end and warm-up: the same stretch of a simulation, whether it is run, read from a recording or replayed."""

from __future__ import annotations

import pytest
from coverage_laws import open_scenario

from vnetsim.coverage.windows import Window
from vnetsim.display import progress_display
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.runs.traffic_recording import record_mobility
from vnetsim.traffic import open_traffic

RSU = ("B1:120",)


def _spans(windows: list[Window]) -> list[tuple[str, float, float, str, str]]:
    return sorted((w.vehicle_id, round(w.enter_s, 5), round(w.exit_s, 5), w.entry_cause, w.exit_cause) for w in windows)


def _within(windows: list[Window], begin_s: float, last_s: float) -> list[tuple[str, float, float]]:
    cut = ((w.vehicle_id, max(w.enter_s, begin_s), min(w.exit_s, last_s)) for w in windows)
    return sorted((name, round(first, 5), round(last, 5)) for name, first, last in cut if first < last)


def test_windows_begin_after_the_warm_up(scenario, windows_of):
    whole = windows_of(scenario, rsu=RSU)
    late = windows_of(scenario, rsu=RSU, warmup_s=40.0, end_s=100.0)
    # SUMO's last step begins one step before the end
    assert [row[:3] for row in _spans(late)] == _within(whole, 40.0, 99.5)
    assert {w.entry_cause for w in late if w.enter_s == 40.0} == {"begin"}
    assert {w.exit_cause for w in late if w.exit_s == 99.5} == {"end"}


def test_the_clock_of_rounds_begins_after_the_warm_up(scenario):
    traffic = open_scenario(scenario, rsu=RSU, begin_s=10.0, warmup_s=40.0, end_s=100.0)
    traffic.close()
    assert (traffic.info.begin_s, traffic.info.end_s, traffic.time_s) == (50.0, 100.0, 50.0)


def test_a_later_begin_is_sumos_own(make_scenario, windows_of, tmp_path):
    early, late = make_scenario(tmp_path / "a"), make_scenario(tmp_path / "b", begin=30)
    assert _spans(windows_of(early, rsu=RSU, begin_s=30.0)) == _spans(windows_of(late, rsu=RSU))


def test_a_recording_gives_the_same_stretch(scenario, windows_of, sumo_tool, tmp_path):
    path = tmp_path / "fcd.xml"
    sumo_tool("sumo", "-c", scenario, "--fcd-output", path, "--precision", 12, cwd=tmp_path)
    place = ("500,500:120",)
    live = windows_of(scenario, rsu=place, warmup_s=40.0, end_s=100.0)
    read = windows_of(path, rsu=place, warmup_s=40.0, end_s=100.0)
    assert [row[:4] for row in _spans(read)] == [row[:4] for row in _spans(live)]
    assert _spans(windows_of(path, rsu=place, begin_s=30.0, warmup_s=10.0, end_s=100.0)) == _spans(read)
    with pytest.raises(InputError, match=r"fcd\.xml: the recording ends at 149\.5 s, before 900 s"):
        windows_of(path, rsu=place, begin_s=900.0)


@pytest.mark.parametrize(("end_s", "took_s"), [(None, 150.0), (100.2, 100.5)])
def test_a_recording_is_as_long_as_its_simulation(scenario, sumo_tool, tmp_path, end_s, took_s):
    """Its last row stands at the beginning of the last step, 149.5 s: an hour is not 59 min 59.5 s."""
    path = tmp_path / "fcd.xml"
    sumo_tool("sumo", "-c", scenario, "--fcd-output", path, "--precision", 12, cwd=tmp_path)
    for source in (scenario, path):
        traffic = open_scenario(source, rsu=("500,500:120",), end_s=end_s)
        last_s = max(event.time_s for event in traffic.events())
        assert (last_s, traffic.time_s) == (took_s - 0.5, took_s), source
    assert traffic.info.end_s == took_s


def test_a_replay_is_the_whole_recording(scenario, windows_of, tmp_path):
    settings = TrafficSettings(rsu=RSU, warmup_s=20.0)
    with progress_display(show=False) as progress:
        run = record_mobility(
            Experiment(scenario=str(scenario), traffic=settings), tmp_path / "run", command=(), progress=progress
        )
    assert _spans(windows_of(run, warmup_s=20.0)) == _spans(windows_of(scenario, rsu=RSU, warmup_s=20.0))
    for changed in (
        {"warmup_s": 40.0},
        {"warmup_s": 20.0, "end_s": 60.0},
        {"warmup_s": 20.0, "range_m": 90.0},
        {"warmup_s": 20.0, "seed": 7},
        {"warmup_s": 20.0, "vehicle_types": ("all",)},
    ):
        with pytest.raises(InputError, match="a replay is the whole recording, made with"):
            windows_of(run, **changed)


def test_what_leaves_no_time_is_refused(scenario, windows_of):
    with pytest.raises(InputError, match=r"traffic\.end_s: 20 s leaves no time"):
        TrafficSettings(begin_s=10.0, warmup_s=10.0, end_s=20.0)
    with pytest.raises(InputError, match=r"scenario\.sumocfg: it ends at 150 s, before a warm-up of 150 s"):
        windows_of(scenario, rsu=RSU, warmup_s=150.0)
    with pytest.raises(InputError, match=r"gaussian: this traffic does not read traffic\.warmup_s: leave them out"):
        open_traffic(Experiment(scenario="gaussian", traffic=TrafficSettings(warmup_s=5.0)))
    for sumo_alone in (TrafficSettings(gui=True), TrafficSettings(seed=0)):
        with pytest.raises(InputError, match=r"gaussian: this traffic does not read traffic\.(gui|seed)"):
            open_traffic(Experiment(scenario="gaussian", traffic=sumo_alone))


def test_a_run_goes_on_to_the_configured_end_when_nobody_is_left(make_scenario, tmp_path):
    """As the ``sumo`` program does, whose clock and outputs go on."""
    routes = '<routes><vehicle id="v" depart="0"><route edges="A1B1 B1C1"/></vehicle></routes>'
    config = make_scenario(tmp_path, routes=routes, end=300, step=1.0)
    traffic = open_scenario(config, rsu=("B1:150",))
    assert len([e for e in traffic.events() if hasattr(e, "window")]) == 1
    assert traffic.time_s == 300.0
