"""Small scenarios, built and run with the real SUMO."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import sumo
from coverage_laws import check_events, open_scenario

from vnetsim.coverage.windows import CoverageEvent, Left

HOME = Path(sumo.SUMO_HOME)


def _run(tool: str, *arguments: object, cwd: Path) -> None:
    subprocess.run(
        [HOME / "bin" / tool, *map(str, arguments)],
        cwd=cwd,
        check=True,
        capture_output=True,
        timeout=120,
        env={**os.environ, "SUMO_HOME": str(HOME)},
    )


@pytest.fixture(scope="session")
def sumo_tool():
    """Runs a tool of the SUMO package: ``sumo_tool("sumo", "-c", path, cwd=folder)``."""
    return _run


@pytest.fixture(scope="session")
def grid_net(tmp_path_factory):
    """A 3 x 3 grid, 200 m apart, signalised, with roads to the border."""
    folder = tmp_path_factory.mktemp("grid")
    path = folder / "grid.net.xml"
    options = ("--grid", "--grid.number", 3, "--grid.length", 200, "--grid.attach-length", 300, "-j", "traffic_light")
    _run("netgenerate", *options, "-o", path, cwd=folder)
    return path


CONFIG = """<configuration>
  <input><net-file value="{net}"/><route-files value="routes.rou.xml"/>{more}</input>
  <time><begin value="{begin}"/><end value="{end}"/><step-length value="{step}"/></time>
  <processing><time-to-teleport value="50"/></processing>
</configuration>"""

ROUTES = """<routes>
  <vType id="car" sigma="0.5" speedFactor="normc(1.0,0.1,0.5,1.5)"/><vType id="bus" vClass="bus" length="12"/>
  <flow id="west" type="car" begin="0" end="100" period="4" from="left1A1" to="C1right1"/>
  <flow id="bus" type="bus" begin="0" end="100" period="25" from="left1A1" to="B1B2" arrivalPos="60"/>
  <flow id="inside" type="car" begin="1" end="100" period="9" from="B1B2" to="B2top1" departPos="40"/>
  <vehicle id="blocker" type="car" depart="2">
    <route edges="C1B1 B1B0 B0bottom1"/><stop lane="B1B0_0" endPos="90" duration="110"/>
  </vehicle>
  <flow id="south" type="car" begin="3" end="100" period="6" from="bottom1B0" to="B2top1" departSpeed="max"/>
  <flow id="behind" type="car" begin="5" end="40" period="12" from="right1C1" to="B0bottom1" via="B1B0"/>
</routes>"""


@pytest.fixture(scope="session")
def make_scenario(grid_net):
    """Writes a scenario on the grid: ``make_scenario(folder, routes=..., begin=0, end=150, step=0.5, more="")``."""

    def make(
        folder: Path,
        *,
        routes: str = ROUTES,
        begin: float = 0,
        end: float = 150,
        step: float = 0.5,
        more: str = "",
    ) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "routes.rou.xml").write_text(routes)
        config = folder / "scenario.sumocfg"
        config.write_text(CONFIG.format(net=grid_net, begin=begin, end=end, step=step, more=more))
        return config

    return make


@pytest.fixture(scope="session")
def scenario(tmp_path_factory, make_scenario):
    """Traffic with teleports, departures, arrivals and several crossings of the disc at B1 (range 120 m)."""
    return make_scenario(tmp_path_factory.mktemp("scenario"))


MIXED_ROUTES = """<routes>
  <vType id="car"/><vType id="bike" vClass="bicycle"/><vType id="bus" vClass="bus"/>
  <flow id="w" type="car" begin="0" end="100" period="5" from="left1A1" to="C1right1"/>
  <flow id="b" type="bike" begin="0" end="100" period="11" from="left1A1" to="B1B2"/>
  <flow id="bus" type="bus" begin="0" end="100" period="40" from="left1A1" to="C1right1"/>
  <personFlow id="p" begin="0" end="100" period="7"><walk from="A1B1" to="B1C1"/></personFlow>
  <person id="w.1" depart="1"><walk from="A1B1" to="B1C1"/></person>
  <person id="rider" depart="1"><ride from="A1B1" to="C1right1" lines="ANY"/></person>
  <container id="c" depart="3"><tranship from="A1B1" to="B1C1" speed="2"/></container>
  <container id="box" depart="4"><transport from="A1B1" to="C1right1" lines="ANY"/></container>
</routes>"""


@pytest.fixture(scope="session")
def mixed_scenario(tmp_path_factory):
    """Cars, bicycles, buses, persons (one of them with a car's id) and containers around B1, at (300, 300)."""
    folder = tmp_path_factory.mktemp("mixed")
    grid = ("--grid", "--grid.number", 3, "--grid.length", 150, "--grid.attach-length", 150, "-L", 2)
    walks = ("--sidewalks.guess", "--crossings.guess", "-j", "traffic_light")
    _run("netgenerate", *grid, *walks, "-o", folder / "mixed.net.xml", cwd=folder)
    (folder / "mixed.rou.xml").write_text(MIXED_ROUTES)
    config = folder / "mixed.sumocfg"
    config.write_text(
        '<configuration><input><net-file value="mixed.net.xml"/><route-files value="mixed.rou.xml"/></input>'
        '<time><begin value="0"/><end value="150"/></time></configuration>'
    )
    return config


def play(scenario: Path | str, **settings: object) -> list[CoverageEvent]:
    """Return all events of a scenario, after checking what holds for any traffic."""
    traffic = open_scenario(scenario, **settings)
    try:
        events = []
        for event in traffic.events():
            assert event.path.time_s[-1] >= event.time_s, "a path must reach the present"
            events.append(event)
    finally:
        traffic.close()
    check_events(events)
    return events


@pytest.fixture(scope="session")
def windows_of():
    """Plays a scenario and returns its windows: ``windows_of(path, rsu=("B1:120",))``."""
    return lambda scenario, **settings: [e.window for e in play(scenario, **settings) if isinstance(e, Left)]


@pytest.fixture(scope="session")
def events_of():
    return play


@pytest.fixture(scope="session")
def checked():
    return check_events
