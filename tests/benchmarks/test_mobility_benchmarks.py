"""The mobility command against bare SUMO, and Parquet FCD against sumolib's XML reader.

Run with ``pytest tests/benchmarks/test_mobility_benchmarks.py --benchmark-only -s``. The ratios are printed and kept in
the benchmark's ``extra_info``. Processor time is compared beside wall time: on a busy machine only it says something.
``VNETSIM_DATA`` names a folder with ``sumo_bologna_pasubio/run.sumocfg``; without it that scenario is skipped.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sumo

from vnetsim.scenario.shipped import copy_scenarios

HOME = Path(sumo.SUMO_HOME)

READ = """
import sys
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.traffic import open_traffic
libsumo, given = sys.argv[1] == "--libsumo", [word for word in sys.argv[1:] if word != "--libsumo"]
settings = TrafficSettings(rsu=tuple(given[1:]), repeat=False, backend="libsumo" if libsumo else "auto")
traffic = open_traffic(Experiment(scenario=given[0], traffic=settings))
print(sum(1 for event in traffic.events()), "events")
traffic.close()
"""

SUBSCRIBE = """
import importlib
import sys
api = importlib.import_module(sys.argv[1])
api.start([sys.argv[4], "-c", sys.argv[2], "--no-step-log", "true", "--verbose", "false"])
variables = [0x42, 0x40, 0x4F, 0x49, 0x50]  # position, speed, type, class, road, as the reader subscribes to
api.junction.subscribeContext(sys.argv[3], 0xA4, 250.0, variables)
end_s, rows = api.simulation.getEndTime(), 0
while (end_s < 0 or api.simulation.getTime() < end_s) and api.simulation.getMinExpectedNumber() > 0:
    api.simulationStep()
    rows += len(api.junction.getContextSubscriptionResults(sys.argv[3]))
print(rows, "rows")
api.close()
"""

STEP = """
import sys
import libsumo
libsumo.start(["sumo", "-c", sys.argv[1], "--no-step-log", "true", "--verbose", "false"])
end_s = libsumo.simulation.getEndTime()
while (end_s < 0 or libsumo.simulation.getTime() < end_s) and libsumo.simulation.getMinExpectedNumber() > 0:
    libsumo.simulationStep()
libsumo.close()
"""

SUMOLIB = """
import sys
import sumolib
fields = ["id", "x", "y", "speed", "lane"]
rows = sumolib.xml.parse_fast_nested(sys.argv[1], "timestep", ["time"], "vehicle", fields)
print(sum(1 for time, vehicle in rows if float(vehicle.x) ** 2 + float(vehicle.y) ** 2 < 2500), "rows")
"""


def _timed(*command: object, cwd: Path | None = None) -> tuple[float, float]:
    """Run a command; return its wall time and processor time (s)."""
    environment = {**os.environ, "SUMO_HOME": str(HOME)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(list(map(str, command)), cwd=cwd, check=True, capture_output=True, env=environment, timeout=280)
    wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture(params=["A10KW", "pasubio"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A scenario in a writable folder."""
    if request.param == "intersection":
        copy_scenarios(tmp_path / "scenarios")
        return tmp_path / "scenarios" / "intersection.sumocfg"
    if request.param == "A10KW":
        shutil.copytree(HOME / "tools" / "game", tmp_path / "game")
        return tmp_path / "game" / "A10KW.sumocfg"
    data = os.environ.get("VNETSIM_DATA")
    if data is None:
        pytest.skip("VNETSIM_DATA names no folder with sumo_bologna_pasubio")
    folder = tmp_path / "pasubio"
    folder.mkdir()
    for source in (Path(data) / "sumo_bologna_pasubio").iterdir():
        (folder / source.name).write_bytes(source.read_bytes())
    return folder / "run.sumocfg"


def _junctions(config: Path, count: int) -> list[str]:
    """Return junctions spread over the net; all in one process of their own, for libsumo holds one simulation."""
    code = (
        "import sys, libsumo\n"
        "libsumo.start(['sumo', '-c', sys.argv[1], '--no-step-log', 'true', '--verbose', 'false'])\n"
        "places = {libsumo.edge.getToJunction(libsumo.lane.getEdgeID(lane))\n"
        "          for light in libsumo.trafficlight.getIDList()\n"
        "          for lane in libsumo.trafficlight.getControlledLanes(light)}\n"
        "print('\\n'.join('junction ' + place for place in sorted(places)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, config], check=True, capture_output=True, text=True, timeout=60
    )
    found = [line.removeprefix("junction ") for line in result.stdout.splitlines() if line.startswith("junction ")]
    return found[:: max(1, len(found) // count)][:count]


@pytest.mark.parametrize(("rsus", "range_m"), [(1, 250), (8, 250), (8, 100)])
def test_mobility_against_bare_sumo(benchmark: Any, config: Path, tmp_path: Path, rsus: int, range_m: int) -> None:
    """Everything the command does, and two parts of it: libsumo stepping alone, and reading the coverage events."""
    specs = [] if rsus == 1 else [f"{junction}:{range_m}" for junction in _junctions(config, rsus)]
    options = [text for spec in specs for text in ("--rsu", spec)]
    runs = count()
    ratios: dict[str, list[float]] = {"command": [], "events": [], "libsumo stepping alone": []}

    def all_of_them() -> None:
        out = tmp_path / f"out{next(runs)}"
        bare_s, _ = _timed(HOME / "bin" / "sumo", "-c", config, cwd=config.parent)
        command = [sys.executable, "-m", "vnetsim", "mobility", config, *options, "--out", out]
        for name, words in {
            "command": command,
            "events": [sys.executable, "-c", READ, config, *specs],
            "libsumo stepping alone": [sys.executable, "-c", STEP, config],
        }.items():
            ratios[name].append(_timed(*words)[0] / bare_s)

    benchmark.pedantic(all_of_them, rounds=2, iterations=1)
    best = {name: min(values) for name, values in ratios.items()}
    benchmark.extra_info.update(best)
    figures = ", ".join(f"{name} {value:.2f}" for name, value in best.items())
    print(f"\n{config.name}, {len(specs) or 1} RSUs of {range_m} m, wall time relative to bare sumo: {figures}")
    assert all(values for values in ratios.values())


@pytest.mark.parametrize("config", ["intersection", "pasubio"], indirect=True)
def test_reader_of_coverage_events_against_subscriptions(benchmark: Any, config: Path) -> None:
    """Coverage events of one disc by either backend, and the same rows by both packages' subscriptions, thrown away."""
    place, program = _junctions(config, 1)[0], HOME / "bin" / "sumo"
    read = [sys.executable, "-c", READ]
    commands: dict[str, list[object]] = {
        "events, a process read one step behind": [*read, config, f"{place}:250"],
        "events, libsumo": [*read, "--libsumo", config, f"{place}:250"],
        "rows, traci": [sys.executable, "-c", SUBSCRIBE, "traci", config, place, program],
        "rows, libsumo": [sys.executable, "-c", SUBSCRIBE, "libsumo", config, place, program],
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}

    def all_of_them() -> None:
        for name, words in commands.items():
            seconds[name].append(_timed(*words))

    benchmark.pedantic(all_of_them, rounds=3, iterations=1)
    best = {name: (min(wall for wall, _ in both), min(cpu for _, cpu in both)) for name, both in seconds.items()}
    wall_s, cpu_s = best["rows, traci"]
    ratios = {name: (wall / wall_s, cpu / cpu_s) for name, (wall, cpu) in best.items()}
    benchmark.extra_info.update(ratios)
    figures = "; ".join(f"{name} {wall:.2f} and {cpu:.2f}" for name, (wall, cpu) in ratios.items())
    print(f"\n{config.name}, wall and processor time relative to rows by traci: {figures}")


def test_parquet_against_sumolib_xml(benchmark: Any, config: Path, tmp_path: Path) -> None:
    paths = {suffix: tmp_path / f"fcd.{suffix}" for suffix in ("xml", "parquet")}
    for path in paths.values():
        _timed(HOME / "bin" / "sumo", "-c", config, "--end", "900", "--fcd-output", path, cwd=config.parent)
    seconds: list[tuple[tuple[float, float], tuple[float, float]]] = []

    def both() -> None:
        theirs = _timed(sys.executable, "-c", SUMOLIB, paths["xml"])
        seconds.append((theirs, _timed(sys.executable, "-c", READ, paths["parquet"], "900,700:250")))

    benchmark.pedantic(both, rounds=2, iterations=1)
    theirs, ours = (min(pair[side][1] for pair in seconds) for side in (0, 1))
    benchmark.extra_info.update(times_faster=theirs / ours)
    print(f"\n{config.name}: Parquet {ours:.2f} s, sumolib XML {theirs:.2f} s: {theirs / ours:.1f} x faster")
    assert seconds
