"""Windows computed a second time: from what the ``sumo`` program itself records of a scenario, by another method.

No state machine here: the part of each straight step that lies inside the disc is an interval, and a window is a union
of intervals that touch. That both agree also shows that watching the traffic leaves it as it is.

Besides the shipped scenarios these are configurations that others wrote, as they come with SUMO: no RSU inside,
vehicles that depart and arrive near the junction, type distributions, begin and end of their own.
"""

import itertools
import math
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sumo

from vnetsim.scenario.settings_file import load_experiment

GAMES = Path(sumo.SUMO_HOME) / "tools" / "game"
GAME_SECONDS = 150
ONCE = (("traffic", "repeat"), False)
Point = tuple[float, float, float]
Interval = tuple[float, float]


def recording_of(
    config: Path, folder: Path, *, without: tuple[str, ...] = (), options: tuple[str, ...] = ()
) -> dict[str, list[Point]]:
    """Return (time, x, y) of every vehicle, but those of some types, as the ``sumo`` program itself records them."""
    environment = os.environ | {"SUMO_HOME": sumo.SUMO_HOME}
    output = ("--fcd-output", folder / "fcd.xml", "--fcd-output.attributes", "x,y,type", "--precision", "12")
    command = [str(part) for part in (Path(sumo.SUMO_HOME) / "bin" / "sumo", "-c", config, *options, *output)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    paths: dict[str, list[Point]] = defaultdict(list)
    for _, step in ET.iterparse(folder / "fcd.xml"):
        if step.tag == "timestep":
            for vehicle in step.iterfind("vehicle"):
                if vehicle.attrib["type"] in without:
                    continue
                x, y = float(vehicle.attrib["x"]), float(vehicle.attrib["y"])
                paths[vehicle.attrib["id"]].append((float(step.attrib["time"]), x, y))
            step.clear()
    return paths


def part_inside(start: Point, end: Point, x: float, y: float, range_m: float) -> Interval | None:
    """Return when a straight step at constant speed is inside the disc."""
    (t0, x0, y0), (t1, x1, y1) = start, end
    dx, dy, px, py = x1 - x0, y1 - y0, x0 - x, y0 - y
    length = math.hypot(dx, dy)
    if length == 0.0:
        return (t0, t1) if math.hypot(px, py) <= range_m else None
    along = -(px * dx + py * dy) / length  # of the foot of the perpendicular from the centre
    across = (px * dy - py * dx) / length
    if abs(across) >= range_m:
        return None
    half_chord = math.sqrt((range_m - across) * (range_m + across))
    first, last = max(0.0, (along - half_chord) / length), min(1.0, (along + half_chord) / length)
    return (t0 + first * (t1 - t0), t0 + last * (t1 - t0)) if first < last else None


def intervals(path: list[Point], x: float, y: float, range_m: float) -> list[Interval]:
    """Return the maximal intervals inside the disc."""
    union: list[Interval] = []
    for start, end in itertools.pairwise(path):
        part = part_inside(start, end, x, y, range_m)
        if part is not None:
            if union and part[0] - union[-1][1] <= 1e-9:
                union[-1] = (union[-1][0], part[1])
            else:
                union.append(part)
    return union


@pytest.fixture(scope="module")
def games(tmp_path_factory) -> Path:
    """Return a copy of the games of the SUMO package, shortened; a copy because they write files beside themselves."""
    if not GAMES.is_dir():
        pytest.skip("this SUMO package has no tools/game")
    copied = tmp_path_factory.mktemp("sumo") / "game"
    shutil.copytree(GAMES, copied, ignore=shutil.ignore_patterns("*.py", "*.gif", "images", "sounds", "__pycache__"))
    for config in copied.glob("*.sumocfg"):
        text = config.read_text(encoding="utf-8")
        config.write_text(re.sub(r'<end value="[\d.]+"/>', f'<end value="{GAME_SECONDS}"/>', text), encoding="utf-8")
    return copied


def compare(config: Path, result: Any, folder: Path, **choice: Any) -> int:
    """Assert that every window is found by both computations and return their number."""
    paths = recording_of(config, folder, **choice)
    count = 0
    for rsu in result.rsus:
        expected = {vehicle: intervals(path, rsu.x_m, rsu.y_m, rsu.range_m) for vehicle, path in paths.items()}
        found: dict[str, list[Interval]] = defaultdict(list)
        for window in sorted(result.windows, key=lambda w: w.enter_s):
            if window.rsu_id == rsu.id:
                found[window.vehicle_id].append((window.enter_s, window.exit_s))
        assert {vehicle: len(parts) for vehicle, parts in expected.items() if parts} == {
            vehicle: len(parts) for vehicle, parts in found.items()
        }
        for vehicle, parts in found.items():
            # to 12 digits and more: SUMO writes so many, of times up to 54,150 s
            assert np.abs(np.array(parts) - np.array(expected[vehicle])).max() <= 1e-9, (rsu.id, vehicle)
            count += len(parts)
    return count


@pytest.mark.parametrize("name", ["intersection", "expressway"])
def test_shipped_scenarios(name, scenarios, recorded, tmp_path):
    config = scenarios / f"{name}.sumocfg"
    result = recorded(load_experiment(str(config), [ONCE]))
    assert compare(config, result, tmp_path) > 400


@pytest.mark.parametrize("name", ["A10KW", "corridor", "cross", "fkk_in", "grid6", "ramp", "square"])
def test_foreign_configurations_at_their_busiest_junction(name, games, recorded, tmp_path):
    config = games / f"{name}.sumocfg"
    result = recorded(load_experiment(str(config), [ONCE]))
    assert any(f"'{result.rsus[0].id}'" in note for note in result.info.notes)
    # The bicycles of fkk_in take no part unless asked for.
    assert compare(config, result, tmp_path, without=("bicycle",)) > 50


def test_two_overlapping_rsus_named_by_the_user(games, recorded, tmp_path):
    config = games / "square.sumocfg"
    result = recorded(load_experiment(str(config), [ONCE, (("traffic", "rsu"), ["250,250:150", "150,250:150"])]))
    assert [rsu.range_m for rsu in result.rsus] == [150.0, 150.0]
    compare(config, result, tmp_path)
    vehicles = [{w.vehicle_id for w in result.windows if w.rsu_id == rsu.id} for rsu in result.rsus]
    assert vehicles[0] & vehicles[1]


MIXED = """<routes>
  <vType id="car"/><vType id="bike" vClass="bicycle"/><vType id="bus" vClass="bus"/><vType id="T" vClass="tram"/>
  <flow id="tram" type="T" begin="54000" end="54150" period="35" line="1"><route edges="track back"/>
    <stop busStop="platform" duration="6"/></flow>
  <flow id="bus" type="bus" begin="54000" end="54150" period="30" line="7"><route edges="left1A1 A1B1 B1C1 C1right1"/>
    <stop busStop="halt" duration="8"/></flow>
  <flow id="w" type="car" begin="54000" end="54150" period="4" from="left1A1" to="C1right1"/>
  <flow id="n" type="car" begin="54000" end="54150" probability="0.2" from="top1B2" to="bottom1B0"/>
  <flow id="b" type="bike" begin="54000" end="54150" period="9" from="left1A1" to="B1B2"/>
  <personFlow id="p" begin="54000" end="54150" period="6"><walk from="A1B1" to="B1C1"/></personFlow>
  <personFlow id="q" begin="54000" end="54100" period="20"><ride from="A1B1" busStop="halt" lines="7"/></personFlow>
</routes>"""


TRACKS = {
    "nod": '<nodes><node id="t0" x="-40" y="255"/><node id="t1" x="480" y="330" type="rail_signal"/>'
    '<node id="t2" x="480" y="560"/></nodes>',
    "edg": '<edges><edge id="track" from="t0" to="t1" allow="tram" speed="14" shape="-40,255 300,270 480,330"/>'
    '<edge id="back" from="t1" to="t2" allow="tram" speed="14"/></edges>',
}
"""A tramway of its own across the grid, with bends and without junctions."""


@pytest.fixture(scope="module")
def street(tmp_path_factory) -> Path:
    """A scenario with pedestrians, bicycles, and buses and trams that stop, from 15:00 on in steps of 0.1 s."""
    folder = tmp_path_factory.mktemp("street")
    environment = os.environ | {"SUMO_HOME": sumo.SUMO_HOME}
    grid = ("--grid", "--grid.number", "3", "--grid.length", "150", "--grid.attach-length", "150", "-L", "2")
    made = ("--sidewalks.guess", "--crossings.guess", "-j", "traffic_light", "-o", str(folder / "grid.net.xml"))
    for suffix, text in TRACKS.items():
        (folder / f"track.{suffix}.xml").write_text(text)
    tracks = ("-n", str(folder / "track.nod.xml"), "-e", str(folder / "track.edg.xml"))
    joined = ("-s", str(folder / "grid.net.xml"), *tracks, "-o", str(folder / "street.net.xml"))
    for tool, *options in (("netgenerate", *grid, *made), ("netconvert", *joined, "--offset.disable-normalization")):
        command = [str(Path(sumo.SUMO_HOME) / "bin" / tool), *options]
        subprocess.run(command, env=environment, check=True, capture_output=True)
    (folder / "street.rou.xml").write_text(MIXED)
    (folder / "street.add.xml").write_text(
        '<additional><busStop id="halt" lane="B1C1_1" startPos="20" endPos="60"/>'
        '<busStop id="platform" lane="track_0" startPos="250" endPos="300"/></additional>'
    )
    config = folder / "street.sumocfg"
    config.write_text(
        '<configuration><input><net-file value="street.net.xml"/><route-files value="street.rou.xml"/>'
        '<additional-files value="street.add.xml"/></input><time><begin value="15:00:00"/><end value="15:02:30"/>'
        '<step-length value="0.1"/></time></configuration>'
    )
    return config


# Twelve discs around the middle of the net, every one of which overlaps others.
TWELVE = [f"{150 + 75 * column},{225 + 75 * row}:90" for column in range(4) for row in range(3)]


def test_pedestrians_bicycles_and_public_transport_under_twelve_overlapping_rsus(street, recorded, tmp_path):
    settings = [ONCE, (("traffic", "rsu"), TWELVE)]
    result = recorded(load_experiment(str(street), settings))
    assert (result.info.begin_s, result.info.step_s, len(result.rsus)) == (54000.0, 0.1, 12)
    assert compare(street, result, tmp_path, without=("bike", "T")) > 300
    assert {window.vehicle_type for window in result.windows} == {"car", "bus"}


def test_bicycles_and_trams_take_part_when_asked_for(street, recorded, tmp_path):
    def of(*kinds: str) -> Any:
        settings = [ONCE, (("traffic", "rsu"), TWELVE), (("traffic", "vehicle_types"), list(kinds))]
        return recorded(load_experiment(str(street), settings))

    everything = of("all")
    assert compare(street, everything, tmp_path) > 350
    assert {window.vehicle_type for window in everything.windows} == {"car", "bus", "bike", "T"}
    public = of("bus", "tram")
    assert compare(street, public, tmp_path, without=("car", "bike")) > 40
    assert {window.vehicle_type for window in public.windows} == {"bus", "T"}
    assert any(window.mean_speed_mps < window.max_speed_mps / 2 for window in public.windows), "some stop"
