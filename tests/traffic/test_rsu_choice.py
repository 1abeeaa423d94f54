"""RSUs from a file, at all signalised junctions, or at the busiest one, which is where most vehicles pass."""

from __future__ import annotations

import math
import re
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest
import sumo
from coverage_laws import open_scenario

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.traffic.sumo.outputs import SumoOutputs

GAME = Path(sumo.SUMO_HOME) / "tools" / "game"


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def placed(scenario: Path, **settings: object) -> tuple[tuple[Rsu, ...], tuple[str, ...]]:
    traffic = open_scenario(scenario, **settings)
    traffic.close()
    return traffic.rsus, traffic.info.notes


# One route of 200 vehicles passes A0 and B0, at the bottom; later, thirty routes of one vehicle each pass the top.
MANY = "".join(
    f'<vehicle id="v{k}" depart="{401 + k}"><route edges="left2A2 A2B2 {("B2C2", "B2top1")[k % 2]}"/></vehicle>'
    for k in range(30)
)
DEMANDS = {
    "number": '<flow id="f" begin="0" end="400" number="200"><route edges="left0A0 A0B0 B0bottom1"/></flow>',
    "period": '<route id="r" edges="left0A0 A0B0 B0bottom1"/><flow id="f" begin="0" end="400" period="2" route="r"/>',
    "vehsPerHour": '<flow id="f" begin="0" end="400" vehsPerHour="1800" from="left0A0" to="B0bottom1"/>',
    "probability": '<flow id="f" begin="0" end="400" probability="0.5" from="left0A0" to="B0bottom1"/>',
    "trips": "".join(f'<trip id="t{k}" depart="{2 * k}" from="left0A0" to="B0bottom1"/>' for k in range(200)),
    "a route many drive": '<route id="r" edges="left0A0 A0B0 B0bottom1"/>'
    + "".join(f'<vehicle id="u{k}" depart="{2 * k}" route="r"/>' for k in range(200)),
}


@pytest.mark.parametrize("written", DEMANDS)
def test_vehicles_are_counted_not_routes(make_scenario, tmp_path, written):
    config = make_scenario(tmp_path, routes=f"<routes>{DEMANDS[written]}{MANY}</routes>", end=500, step=1.0)
    (rsu,), notes = placed(config)
    assert rsu.id in {"A0", "B0"}
    (note,) = (note for note in notes if "has no RSU" in note)
    counted = int(re.search(r"drive most often \((\d+) times in the first 500 s", note)[1])  # type: ignore[index]
    assert 60 < counted <= 200  # no more fit through the lights; each route at the top has one


@pytest.mark.parametrize(
    ("name", "end_s"),
    [
        *(pytest.param(*one, marks=pytest.mark.all_only) for one in (("corridor", 600.0), ("grid6", 220.0))),
        ("square", 180.0),
    ],
)
def test_the_busiest_junction_of_scenarios_by_others(name, end_s, tmp_path):
    """Against the times at which SUMO says that vehicles left their edges; a mesoscopic run names another junction."""
    config = GAME / f"{name}.sumocfg"
    (rsu,), notes = placed(config, end_s=end_s)
    counted = int(re.search(rf"most often \((\d+) times in the first {end_s:g} s", " ".join(notes))[1])  # type: ignore[index]
    routes, outputs = tmp_path / "routes.xml", SumoOutputs(config, tmp_path / "others")
    written = ("--vehroute-output", routes, "--vehroute-output.exit-times", "--vehroute-output.write-unfinished")
    command = [Path(sumo.SUMO_HOME) / "bin" / "sumo", "-c", config, *outputs.options(), "--end", end_s, *written]
    subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=120)
    net = re.search(r'net-file value="([^"]*)"', config.read_text())[1]  # type: ignore[index]
    text = (GAME / net).read_text()
    to = dict(re.findall(r'<edge id="([^":]*)"[^>]* to="([^"]*)"', text))
    lights = set(re.findall(r'<junction id="([^"]*)" type="traffic_light"', text))
    driven: Counter[str] = Counter()
    for vehicle in ET.parse(next(tmp_path.rglob("*routes.xml"))).getroot().iter("vehicle"):
        route = vehicle.findall(".//route")[-1]  # those before were given up
        edges, times = route.get("edges", "").split(), route.get("exitTimes", "").split()
        driven.update(to[edge] for edge, time in list(zip(edges, times, strict=True))[:-1] if float(time) >= 0)
    assert driven[rsu.id] == counted == max(driven[name] for name in lights)


def test_one_junction_needs_no_count():
    (rsu,), notes = placed(GAME / "cross.sumocfg")
    assert (rsu.id, rsu.range_m) == ("0", 250.0)
    assert "took junction '0', the only signalised junction." in " ".join(notes)


def test_a_file_of_rsus(scenario, tmp_path):
    file = tmp_path / "rsus.add.xml"
    file.write_text(
        '<additional><poi id="r1" type="rsu" x="500" y="500"><param key="range" value="80"/></poi>'
        '<poi id="tree" type="tree" x="1" y="1"/><poi id="r2" type="rsu" x="320" y="500"/></additional>'
    )
    rsus, _ = placed(scenario, rsu=(str(file),))
    assert [(rsu.id, rsu.x_m, rsu.range_m) for rsu in rsus] == [("r1", 500, 80), ("r2", 320, 250)]
    assert [rsu.id for rsu in placed(scenario, rsu=(str(file), "A1"))[0]] == ["r1", "r2", "A1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<additional/>", "no RSU in it"),
        ("<additional>", "not well-formed XML"),
        ('<additional><poi id="p" type="rsu" lane="A1B1_0" pos="3"/></additional>', "'p' needs x and y"),
        ('<!DOCTYPE a [<!ENTITY e "x">]><additional/>', "XML entities"),
    ],
)
def test_a_file_of_no_rsus(scenario, tmp_path, text, expected):
    file = tmp_path / "rsus.add.xml"
    file.write_text(text)
    with pytest.raises(InputError, match=expected):
        placed(scenario, rsu=(str(file),))


def test_all_signalised_junctions(scenario, grid_net, tmp_path):
    rsus, notes = placed(scenario, rsu=("all-signalised:90",))
    lights = sorted(re.findall(r'<junction id="([^"]*)" type="traffic_light"', grid_net.read_text()))
    assert [rsu.id for rsu in rsus] == lights
    assert {rsu.range_m for rsu in rsus} == {90.0}
    assert f"{len(lights)} signalised junctions are RSUs." in notes
    apart, _ = placed(scenario, rsu=("all-signalised",), rsu_spacing_m=250.0)
    assert 2 <= len(apart) < len(lights)
    for one in apart:
        assert all(one is other or math.hypot(one.x_m - other.x_m, one.y_m - other.y_m) >= 250 for other in apart)
    recording = tmp_path / "r.xml"
    recording.write_text('<fcd-export><timestep time="0"/></fcd-export>')
    assert len(placed(recording, rsu=("all-signalised",), net=str(grid_net))[0]) == len(lights)
