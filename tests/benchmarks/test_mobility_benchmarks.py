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
from statistics import median

import pytest
import sumo

HOME = Path(sumo.SUMO_HOME)

READ = """
import sys
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.traffic import open_traffic
settings = TrafficSettings(rsu=tuple(sys.argv[2:]), repeat=False)
traffic = open_traffic(Experiment(scenario=sys.argv[1], traffic=settings))
print(sum(1 for event in traffic.events()), "events")
traffic.close()
"""

SUMOLIB = """
import sys
import sumolib
fields = ["id", "x", "y", "speed", "lane"]
rows = sumolib.xml.parse_fast_nested(sys.argv[1], "timestep", ["time"], "vehicle", fields)
print(sum(1 for time, vehicle in rows if float(vehicle.x) ** 2 + float(vehicle.y) ** 2 < 2500), "rows")
"""


def _timed(*command: object, cwd: Path | None = None, **variables: str) -> tuple[float, float]:
    """Run a command with environment variables; return its wall time and processor time (s)."""
    environment = {**os.environ, "SUMO_HOME": str(HOME), **variables}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(list(map(str, command)), cwd=cwd, check=True, capture_output=True, env=environment, timeout=900)
    wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _game(folder: Path) -> Path:
    """Return a scenario that comes with SUMO, in a writable folder."""
    shutil.copytree(HOME / "tools" / "game", folder / "game")
    return folder / "game" / "A10KW.sumocfg"


def _bologna(folder: Path) -> Path:
    """Return the Pasubio district of Bologna, if it is there."""
    data = os.environ.get("VNETSIM_DATA")
    if data is None:
        pytest.skip("VNETSIM_DATA names no folder with sumo_bologna_pasubio")
    shutil.copytree(Path(data) / "sumo_bologna_pasubio", folder / "pasubio", copy_function=shutil.copyfile)
    return folder / "pasubio" / "run.sumocfg"


def _grid(folder: Path) -> Path:
    """Return 250 s of a grid of 20 x 20 signalised crossings, a vehicle a second from both ends of its rows."""
    side, apart_m = 20, 200
    net, trips = folder / "grid.net.xml", folder / "grid.rou.xml"
    size = ("--grid", "--grid.number", side, "--grid.length", apart_m, "-L", 2, "-j", "traffic_light")
    _timed(HOME / "bin" / "netgenerate", *size, "-o", net, cwd=folder)
    flows = "".join(
        f'<flow id="{name}" begin="0" end="250" period="1" from="{start}" to="{end}" departPos="random"/>'
        for line in range(side)
        for name, start, end in (
            (f"w{line}", f"A{line}B{line}", f"S{line}T{line}"),
            (f"e{line}", f"T{line}S{line}", f"B{line}A{line}"),
        )
    )
    trips.write_text(f"<routes>{flows}</routes>")
    config = folder / "grid.sumocfg"
    config.write_text(
        f'<configuration><input><net-file value="{net}"/><route-files value="{trips}"/></input>'
        '<time><end value="250"/></time></configuration>'
    )
    return config


EVERY_OTHER = [f"{chr(ord('A') + column)}{row}" for column in range(0, 20, 2) for row in range(0, 20, 2)]
"""A hundred of the grid's junctions."""

SCENARIOS = {"A10KW": _game, "Bologna": _bologna, "grid": _grid}


@pytest.mark.parametrize(
    ("name", "rsus"),
    [
        ("A10KW", ()),  # the first recording counts vehicles to find the busiest junction, later ones read the counts
        ("A10KW", ("--rsu", "cluster_1643085231_21432440_32500280_32500282")),
        ("Bologna", ("--rsu", "4")),
        ("Bologna", ("--rsu", "all-signalised:250")),
        ("grid", tuple(word for name in EVERY_OTHER for word in ("--rsu", f"{name}:250"))),
    ],
)
def test_mobility_against_bare_sumo(benchmark, tmp_path, name, rsus):
    """What a recording costs, its report included and left out."""
    config, runs = SCENARIOS[name](tmp_path), count()
    seconds: dict[str, list[tuple[float, float]]] = {}

    def in_turn() -> None:
        command = [sys.executable, "-m", "vnetsim", "mobility", config, *rsus, "--out"]
        cache = tmp_path / f"cache{next(runs)}"
        for what, words in {
            "sumo": [HOME / "bin" / "sumo", "-c", config, "--no-step-log", "true"],
            "mobility --no-report": [*command, tmp_path / f"out{next(runs)}", "--no-report"],
            "again": [*command, tmp_path / f"out{next(runs)}", "--no-report"],
            "mobility": [*command, tmp_path / f"out{next(runs)}"],
        }.items():
            if what != "again" or not rsus:
                seconds.setdefault(what, []).append(_timed(*words, cwd=config.parent, XDG_CACHE_HOME=str(cache)))

    benchmark.pedantic(in_turn, rounds=3, iterations=1)
    bare = seconds.pop("sumo")
    ratios = {
        what: [median(pair[side] / other[side] for pair, other in zip(pairs, bare, strict=True)) for side in (0, 1)]
        for what, pairs in seconds.items()
    }
    benchmark.extra_info.update(ratios)
    figures = "; ".join(f"{what} {wall:.2f} and {cpu:.2f}" for what, (wall, cpu) in ratios.items())
    places = " ".join(rsus[1::2])[:60] or "not named"
    bare_s = median(wall_s for wall_s, _ in bare)
    print(f"\n{name}, RSUs {places}: wall and processor time over those of bare sumo ({bare_s:.1f} s): {figures}")


@pytest.mark.parametrize("name", ["A10KW", "Bologna"])
def test_parquet_against_sumolib_xml(benchmark, tmp_path, name):
    config = SCENARIOS[name](tmp_path)
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
