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
