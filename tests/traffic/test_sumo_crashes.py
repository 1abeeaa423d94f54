"""A SUMO that crashes, dies or finds no display: the user hears of it, and this process goes on."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest
from coverage_laws import open_scenario

from vnetsim.errors import InputError, RunError
from vnetsim.traffic.sumo.session import SumoSession
from vnetsim.traffic.sumo.source import SumoTraffic

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def _without(folder: Path, connection: str) -> Path:
    """The shipped intersection without one connection of its net."""
    shutil.copytree(SCENARIOS / "intersection", folder / "intersection")
    shutil.copy(SCENARIOS / "intersection.sumocfg", folder)
    net = folder / "intersection" / "intersection.net.xml"
    text = net.read_text()
    damaged = re.sub(rf"\n\s*<connection {connection}[^\n]*", "", text, count=1)
    assert damaged != text
    net.write_text(damaged)
    return folder / "intersection.sumocfg"


def test_a_net_that_crashes_sumo(windows_of, tmp_path):
    config = _without(tmp_path, 'from=":center_1" to="south_out" fromLane="1"')
    expected = r"intersection\.sumocfg: SUMO refuses the scenario: signal SIGSEGV ended SUMO\. .*damaged net"
    with pytest.raises(InputError, match=expected) as caught:
        windows_of(config)
    assert "\n" not in str(caught.value)


def test_a_net_that_sumo_refuses_itself(windows_of, tmp_path):
    config = _without(tmp_path, 'from=":center_0" to="west_out"')
    with pytest.raises(InputError, match="Internal edge ':center_0' is not properly connected"):
        windows_of(config)


def test_a_sumo_that_dies_while_running(scenario):
    traffic = open_scenario(scenario, rsu=("B1:120",))
    events = traffic.events()
    next(events)
    traffic._session._process.send_signal(signal.SIGKILL)
    with pytest.raises(RunError, match=r"scenario\.sumocfg: SUMO failed while running: signal SIGKILL ended"):
        list(events)
    traffic.close()


def test_a_sumo_that_dies_before_its_first_step(scenario, monkeypatch):
    expected = r"scenario\.sumocfg: SUMO failed while running: signal SIGKILL ended SUMO"
    traffic = open_scenario(scenario, rsu=("B1:120",))
    traffic._session._process.kill()
    with pytest.raises(RunError, match=expected):
        next(traffic.events())
    traffic.close()

    describe = SumoTraffic._describe

    def kill(opened: SumoTraffic, session: SumoSession) -> None:
        session.kill()
        describe(opened, session)

    monkeypatch.setattr(SumoTraffic, "_describe", kill)
    with pytest.raises(RunError, match=expected):
        open_scenario(scenario, rsu=("B1:120",))


def test_a_window_without_a_display(scenario, windows_of, monkeypatch):
    monkeypatch.setenv("DISPLAY", "nowhere.invalid:99")
    with pytest.raises(InputError, match=r"unable to open display.* \(--gui needs a display\)\."):
        windows_of(scenario, rsu=("B1",), gui=True)
