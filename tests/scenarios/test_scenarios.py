"""The shipped scenarios, run by the real SUMO: what the rest of the project relies on."""

import gzip
import math
import os
import re
import shutil
import statistics
import subprocess
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sumo

from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.experiment.camera import Camera
from vnetsim.scenario.settings_file import load_experiment
from vnetsim.traffic import open_traffic
from vnetsim.traffic.gaussian import GaussianSource

SCENARIOS = Path(__file__).parents[2] / "scenarios"
NAMES = ("intersection", "expressway")
LARGE = ("corridor", "city")
MPS_PER_KMH = 1 / 3.6
VERSION = r"SUMO netconvert (?:Version )?(\d\S*)"


def call(program: str, *arguments: object, folder: Path) -> str:
    """Run a program of the installed SUMO in ``folder`` and return all it prints."""
    environment = os.environ | {"SUMO_HOME": sumo.SUMO_HOME}
    command = [str(Path(sumo.SUMO_HOME) / "bin" / program), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def child(element: ET.Element, path: str) -> ET.Element:
    """Return the first descendant at ``path``, which must exist."""
    found = element.find(path)
    assert found is not None, path
    return found


@dataclass
class Drive:
    """What one vehicle did: where it was first and last, how close it came to the RSU, how fast it entered the disc."""

    vehicle_type: str
    first_m: tuple[float, float]
    last_m: tuple[float, float] = (0.0, 0.0)
    distance_m: float = math.inf
    speed_at_entry_mps: float | None = None
    speeds_mps: list[float] = field(default_factory=list)


@dataclass
class Run:
    printed: str
    statistics: ET.Element
    drives: dict[str, Drive]
    arrived: set[str]
    covered: list[int]


@pytest.fixture(scope="module", params=NAMES)
def run(request, tmp_path_factory) -> Run:
    """Run a scenario as it stands, with SUMO's own outputs on."""
    folder = tmp_path_factory.mktemp(request.param)
    config = SCENARIOS / f"{request.param}.sumocfg"
    outputs = ("--fcd-output", "fcd.xml", "--statistic-output", "statistics.xml", "--tripinfo-output", "trips.xml")
    printed = call("sumo", "-c", config, *outputs, "--output-prefix", f"{folder}/", folder=folder)
    centre_x, centre_y, range_m = rsu_of(request.param)
    drives: dict[str, Drive] = {}
    covered = [0]
    for _, element in ET.iterparse(folder / "fcd.xml"):
        if element.tag == "vehicle":
            x, y, speed = (float(element.attrib[key]) for key in ("x", "y", "speed"))
            drive = drives.setdefault(element.attrib["id"], Drive(element.attrib["type"], (x, y)))
            drive.last_m = (x, y)
            distance_m = math.hypot(x - centre_x, y - centre_y)
            covered[-1] += distance_m <= range_m
            drive.distance_m = min(drive.distance_m, distance_m)
            if drive.speed_at_entry_mps is None and drive.distance_m <= range_m:
                drive.speed_at_entry_mps = speed
            drive.speeds_mps.append(speed)
        elif element.tag == "timestep":
            covered.append(0)
            element.clear()
    arrived = {trip.attrib["id"] for trip in ET.parse(folder / "trips.xml").getroot()}
    return Run(printed, ET.parse(folder / "statistics.xml").getroot(), drives, arrived, covered[:-1])


def rsu_of(name: str) -> tuple[float, float, float]:
    """Return x, y and range (m) of the scenario's only RSU."""
    pois = ET.parse(SCENARIOS / name / f"{name}.add.xml").getroot().findall("poi[@type='rsu']")
    assert len(pois) == 1
    range_m = child(pois[0], "param[@key='range']").attrib["value"]
    return float(pois[0].attrib["x"]), float(pois[0].attrib["y"]), float(range_m)


@pytest.mark.all_only  # the quick suite has the golden windows of this traffic
def test_runs_without_a_warning_teleport_or_collision(run):
    assert "Warning" not in run.printed
    assert "Error" not in run.printed
    assert child(run.statistics, "teleports").attrib["total"] == "0"
    safety = child(run.statistics, "safety").attrib
    assert (safety["collisions"], safety["emergencyStops"], safety["emergencyBraking"]) == ("0", "0", "0")


@pytest.mark.all_only  # the quick suite has the golden windows of this traffic
def test_every_trip_begins_and_ends_outside_the_disc_and_crosses_it(run, request):
    """Coverage windows then open and close by crossing, except for who is inside when the traffic begins or ends."""
    name = request.node.callspec.params["run"]
    x, y, range_m = rsu_of(name)
    assert run.arrived
    for vehicle_id, drive in run.drives.items():
        if vehicle_id.startswith("start_"):
            continue
        assert math.dist(drive.first_m, (x, y)) > 1.2 * range_m
        if vehicle_id in run.arrived:
            assert drive.distance_m < range_m / 2
            assert math.dist(drive.last_m, (x, y)) > 1.2 * range_m


@pytest.mark.parametrize(("name", "rsus"), [("corridor", 8), pytest.param("city", 49, marks=pytest.mark.slow)])
def test_a_large_scenario_flows_past_an_rsu_at_each_of_its_signals(name, rsus, tmp_path):
    outputs = ("--statistic-output", "s.xml", "--tripinfo-output", "t.xml", "--tripinfo-output.write-unfinished")
    printed = call("sumo", "-c", SCENARIOS / f"{name}.sumocfg", *outputs, folder=tmp_path)
    assert "Warning" not in printed
    found = ET.parse(tmp_path / "s.xml").getroot()
    assert child(found, "teleports").attrib["total"] == child(found, "safety").attrib["collisions"] == "0"
    trips = list(ET.parse(tmp_path / "t.xml").getroot().iter("tripinfo"))
    assert len({trip.attrib["vType"] for trip in trips}) == 5
    waited = sum(float(trip.attrib["departDelay"]) > 30 for trip in trips)
    assert waited < 0.05 * len(trips), "roads take in whom the demand sends"
    signals = {
        (float(junction.attrib["x"]), float(junction.attrib["y"]))
        for junction in ET.fromstring(text_of(net_of(name))).iter("junction")
        if junction.attrib["type"] == "traffic_light"
    }
    pois = ET.parse(SCENARIOS / name / f"{name}.add.xml").getroot().findall("poi[@type='rsu']")
    assert len(pois) == len(signals) == rsus
    for poi in pois:
        assert (float(poi.attrib["x"]), float(poi.attrib["y"])) in signals


@pytest.mark.parametrize(
    "name", ["intersection", *(pytest.param(name, marks=pytest.mark.slow) for name in (*NAMES[1:], "corridor", "city"))]
)
def test_the_seed_decides_the_traffic(name, tmp_path):
    def departures(seed: int) -> list[tuple[str, str, str]]:
        config = SCENARIOS / f"{name}.sumocfg"
        outputs = ("--vehroute-output", "routes.xml", "--vehroute-output.write-unfinished")
        call("sumo", "-c", config, "--seed", seed, "--end", 120, *outputs, folder=tmp_path)
        vehicles = ET.parse(tmp_path / "routes.xml").getroot().iter("vehicle")
        return [(v.attrib["id"], v.attrib["type"], v.attrib["depart"]) for v in vehicles]

    first, again, other = departures(1), departures(1), departures(2)
    assert len(first) > 30
    assert first == again
    assert [depart for *_, depart in first] != [depart for *_, depart in other]
    assert [kind for _, kind, _ in first] != [kind for _, kind, _ in other]


@pytest.mark.all_only  # as above
@pytest.mark.parametrize("run", ["expressway"], indirect=True)
def test_a_good_share_exceeds_100_kmh_at_the_rsu(run):
    entries = [d.speed_at_entry_mps for d in run.drives.values() if d.speed_at_entry_mps is not None]
    share = sum(speed > 100 * MPS_PER_KMH for speed in entries) / len(entries)
    assert 0.3 <= share <= 0.7
    trucks = [d.speed_at_entry_mps for d in run.drives.values() if d.vehicle_type == "truck" and d.speed_at_entry_mps]
    assert sum(trucks) / len(trucks) == pytest.approx(85 * MPS_PER_KMH, rel=0.03)


@pytest.mark.all_only  # as above
@pytest.mark.parametrize("run", ["intersection"], indirect=True)
def test_the_default_scenario_mixes_vehicles_that_queue_with_fast_ones_whose_images_blur(run):
    """The first run a person sees has blurred images and unequal weights, and vehicles that leave too soon."""
    entries = [d.speed_at_entry_mps for d in run.drives.values() if d.speed_at_entry_mps is not None]
    fast = [speed for speed in entries if speed > 100 * MPS_PER_KMH]
    slow = [speed for speed in entries if speed < 60 * MPS_PER_KMH]
    assert 0.35 <= len(fast) / len(entries) <= 0.55
    assert 0.55 <= sum(speed > 80 * MPS_PER_KMH for speed in entries) / len(entries) <= 0.75
    assert 0.25 <= len(slow) / len(entries) <= 0.45
    camera = Camera()
    assert camera.kernel_px(statistics.median(fast), 32) > 2 > 1.2 > camera.kernel_px(statistics.median(slow), 32)
    assert all("truck" not in drive.vehicle_type or max(drive.speeds_mps) < 25.1 for drive in run.drives.values())


@pytest.mark.all_only  # as above
@pytest.mark.parametrize("run", ["intersection"], indirect=True)
def test_the_default_scenario_begins_with_the_traffic_that_it_has_later(run):
    """So that the first rounds need no warm-up; a net that starts empty takes more than a minute to fill."""
    later = statistics.mean(run.covered[len(run.covered) // 3 :])
    assert run.covered[0] == pytest.approx(later, rel=0.25)
    assert min(run.covered) > 0.6 * later


def test_the_urban_scenario_is_the_intersection_without_the_expressway():
    """Published results of studies were measured on it: its golden windows are those of before the expressway."""
    urban, whole = (ET.parse(SCENARIOS / f"{name}.sumocfg").getroot() for name in ("urban", "intersection"))
    assert child(urban, "input/net-file").attrib == child(whole, "input/net-file").attrib
    flows = {flow.attrib["id"] for flow in ET.parse(SCENARIOS / "intersection" / "xway.rou.xml").iter("flow")}
    assert flows == {"xway_eastbound", "xway_westbound"}
    routes = child(whole, "input/route-files").attrib["value"].split(",")
    more = ["intersection/xway.rou.xml", "intersection/start.rou.xml"]
    assert routes == [child(urban, "input/route-files").attrib["value"], *more]


def net_of(name: str) -> Path:
    """Return a scenario's net file, which is compressed where it is large."""
    return next((SCENARIOS / name).glob("*.net.xml*"))


def text_of(path: Path) -> str:
    """Return what a file says, decompressed if need be."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")


def without_header(net: Path) -> str:
    """Return a net file without netconvert's comment, which carries the date and the command."""
    return re.sub(r"<!-- generated on .*?-->", "", text_of(net), count=1, flags=re.DOTALL)


@pytest.mark.parametrize("name", [*NAMES, *LARGE])
def test_rebuilding_the_net_from_its_sources_reproduces_it(name, tmp_path):
    shipped = net_of(name)
    built_by = re.search(VERSION, text_of(shipped))
    installed = re.search(VERSION, call("netconvert", "--version", folder=tmp_path))
    if built_by[1] != installed[1]:
        pytest.skip(f"the net was built by netconvert {built_by[1]}, installed is {installed[1]}")
    copied = tmp_path / "scenarios" / name
    shutil.copytree(SCENARIOS / name, copied)
    (copied / shipped.name).unlink()
    printed = call("netconvert", "-c", f"scenarios/{name}/{name}.netccfg", folder=tmp_path)
    assert "Warning" not in printed
    assert without_header(copied / shipped.name) == without_header(shipped)


def test_no_file_carries_a_path_of_the_machine_it_was_made_on():
    for path in (p for p in SCENARIOS.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        text = re.sub(r"https?://\S+", "", text_of(path))
        assert not re.search(r'="(/|[A-Za-z]:[\\/])|/(home|Users)/', text), path
        assert path.stat().st_size < 100_000, path


def test_the_gaussian_experiment_is_accepted_and_states_every_setting_of_its_model():
    path = SCENARIOS / "gaussian.toml"
    experiment = load_experiment(str(path))
    assert experiment.scenario == "gaussian"
    written = tomllib.loads(path.read_text(encoding="utf-8"))["source"]
    assert set(written) == set(vars(GaussianSource(**experiment.source)))
    assert experiment.source["v_min_kmh"] < 100 < experiment.source["v_max_kmh"]


@pytest.mark.parametrize(
    ("name", "environment"), [("intersection", "urban"), ("urban", "urban"), ("expressway", "highway")]
)
def test_every_scenario_says_what_surrounds_its_rsu(name, environment):
    """SUMO tells it, for an RSU placed by hand as well."""
    scenario = str(SCENARIOS / f"{name}.sumocfg")
    for specs in ((), ("10,10:100",)):
        traffic = open_traffic(Experiment(scenario=scenario, traffic=TrafficSettings(rsu=specs)))
        traffic.close()
        assert [rsu.environment for rsu in traffic.rsus] == [environment]
