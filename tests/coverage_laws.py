"""What holds for the coverage events of any traffic, traffic to play, and paths by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vnetsim.coverage.windows import CoverageEvent, Entered, TrafficStream, VehiclePath
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.traffic import open_traffic


def open_scenario(scenario: Path | str, *, outputs: Path | None = None, **settings: Any) -> TrafficStream:
    """Open traffic with some settings of ``traffic``; it is played once unless ``repeat`` says otherwise."""
    given = TrafficSettings(**{"repeat": False, **settings})
    return open_traffic(Experiment(scenario=str(scenario), traffic=given), outputs=outputs)


def path_of(points: Sequence[Sequence[float]], **others: Any) -> VehiclePath:
    """Return a path along ``points`` (t, x, y) or (t, x, y, speed); where no speed is given it is 10 m/s."""
    t, x, y, *v = (list(values) for values in zip(*points, strict=True))
    who = {"vehicle_id": "v", "vehicle_type": "car", "rsu_id": "r", "entry_cause": "crossing", "entry_edge": ""}
    speed_mps = v[0] if v else [10.0] * len(t)
    return VehiclePath(**(who | others), time_s=t, x_m=x, y_m=y, speed_mps=speed_mps)


def check_events(events: list[CoverageEvent]) -> None:
    """Assert their order, and that each window is the one that was entered."""
    keys = [(e.time_s, isinstance(e, Entered), e.path.rsu_id, e.path.vehicle_id) for e in events]
    assert keys == sorted(keys)
    opened: dict[tuple[str, str], Entered] = {}
    last_exit: dict[tuple[str, str], float] = {}
    for event in events:
        key = event.path.vehicle_id, event.path.rsu_id
        if isinstance(event, Entered):
            assert key not in opened
            assert event.time_s == event.path.time_s[0] >= last_exit.get(key, 0.0)
            opened[key] = event
        else:
            assert opened.pop(key).path is event.path
            window = event.window
            assert window.enter_s < window.exit_s == event.time_s
            assert (window.path_time_s[1:] > window.path_time_s[:-1]).all()
            assert window.path_time_s[0] == window.enter_s
            assert window.path_time_s[-1] == window.exit_s
            last_exit[key] = window.exit_s
    assert not opened
