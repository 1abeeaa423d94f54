"""Reading a scenario's windows, and the laws every list of windows obeys whatever made it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from coverage_laws import check_events

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Left, TrafficInfo, Window
from vnetsim.experiment import Experiment
from vnetsim.traffic import open_traffic

ON_CIRCLE_M = 1e-6


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden values instead of comparing")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A scenario played to its end: windows in the order in which they closed."""

    info: TrafficInfo
    rsus: tuple[Rsu, ...]
    windows: tuple[Window, ...]


def record(experiment: Experiment) -> Recording:
    """Play the scenario once and check the laws of its events."""
    traffic = open_traffic(experiment)
    try:
        events = list(traffic.events())
        info, rsus = traffic.info, traffic.rsus
    finally:
        traffic.close()
    check_events(events)
    windows = tuple(event.window for event in events if isinstance(event, Left))
    return Recording(info=info, rsus=rsus, windows=windows)


def check_laws(recording: Recording) -> None:
    """Assert what holds for the windows of any traffic, with any simulator version."""
    rsus = {rsu.id: rsu for rsu in recording.rsus}
    types: dict[str, str] = {}
    for window in recording.windows:
        _check_window(window, rsus[window.rsu_id], recording.info)
        assert types.setdefault(window.vehicle_id, window.vehicle_type) == window.vehicle_type
    cut_at_begin = {w.enter_s for w in recording.windows if w.entry_cause == "begin"}
    cut_at_end = {w.exit_s for w in recording.windows if w.exit_cause == "end"}
    assert cut_at_begin <= {min((w.enter_s for w in recording.windows), default=0.0)}
    assert cut_at_end <= {max((w.exit_s for w in recording.windows), default=0.0)}


def _check_window(window: Window, rsu: Rsu, info: TrafficInfo) -> None:
    """Assert that a window lies in the simulated time and agrees with its own path and disc."""
    name = f"{window.vehicle_id} at {window.rsu_id} from {window.enter_s}"
    end_s = math.inf if info.end_s is None else info.end_s
    assert info.begin_s <= window.enter_s, name
    assert window.exit_s <= end_s, name

    time, x, y = window.path_time_s, window.path_x_m, window.path_y_m
    assert len(time) == len(x) == len(y) == len(window.path_speed_mps) >= 2, name
    length = float(np.hypot(np.diff(x), np.diff(y)).sum())
    assert window.path_length_m == pytest.approx(length, abs=1e-6), name
    assert window.mean_speed_mps == pytest.approx(length / (window.exit_s - window.enter_s), rel=1e-6), name
    assert (window.path_speed_mps >= 0).all(), name
    assert window.entry_speed_mps == window.path_speed_mps[0], name
    assert window.max_speed_mps == window.path_speed_mps.max(), name

    distance = np.hypot(x - rsu.x_m, y - rsu.y_m)
    assert (distance <= rsu.range_m + ON_CIRCLE_M).all(), name
    if window.entry_cause == "crossing":
        assert distance[0] == pytest.approx(rsu.range_m, abs=ON_CIRCLE_M), name
    if window.exit_cause == "crossing":
        assert distance[-1] == pytest.approx(rsu.range_m, abs=ON_CIRCLE_M), name


@pytest.fixture(scope="session")
def scenarios() -> Path:
    """Return the folder of the shipped scenarios."""
    return Path(__file__).parents[2] / "scenarios"


@pytest.fixture(scope="session")
def recorded() -> Callable[[Experiment], Recording]:
    """Return a function that plays an experiment's traffic once, checks every law and returns what it saw."""

    def play(experiment: Experiment) -> Recording:
        recording = record(experiment)
        check_laws(recording)
        return recording

    return play
