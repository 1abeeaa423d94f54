"""Scenarios by others: those of SUMO's traffic-light game, with trains, pedestrians and on-demand buses among them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sumo

from vnetsim.coverage import CoverageEvent
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.mobility import open_traffic

GAME = Path(sumo.SUMO_HOME) / "tools" / "game"
CONFIGS = sorted(path.name for path in GAME.glob("*.sumocfg"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_plays(name: str, checked: Callable[[list[CoverageEvent]], None]) -> None:
    traffic = open_traffic(Experiment(scenario=str(GAME / name), traffic=TrafficSettings(repeat=False)))
    events = []
    open_tracks = set()
    try:
        assert traffic.rsus
        assert traffic.info.lanes
        for event in traffic.events():
            events.append(event)
            open_tracks ^= {id(event.track)}
            # long enough to meet traffic, and stopped with nobody inside or soon after
            if len(events) > 400 and (not open_tracks or len(events) > 800):
                break
    finally:
        traffic.close()
    if not open_tracks:
        checked(events)
    assert events, "no vehicle ever met the RSU"
