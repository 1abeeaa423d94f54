"""What holds for the coverage events of any traffic."""

from __future__ import annotations

from vnetsim.coverage.windows import CoverageEvent, Entered


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
