"""Recordings in degrees are refused, recordings of a small net in metres never."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from vnetsim.coverage.windows import Window
from vnetsim.errors import InputError

WindowsOf = Callable[..., list[Window]]
PLACED = (
    '<location netOffset="-680000.00,-4928000.00" convBoundary="0.00,0.00,600.00,600.00" origBoundary="11,44,12,45" '
    'projParameter="+proj=utm +zone=32 +ellps=WGS84 +datum=WGS84 +units=m +no_defs"/>'
)


@pytest.mark.parametrize("suffix", ["xml", "csv", "parquet"])
def test_degrees(
    mixed_scenario: Path, windows_of: WindowsOf, sumo_tool: Callable[..., None], tmp_path: Path, suffix: str
) -> None:
    net = tmp_path / "placed.net.xml"
    net.write_text(re.sub(r"<location [^>]*>", PLACED, (mixed_scenario.parent / "mixed.net.xml").read_text()))
    path = tmp_path / f"geo.{suffix}"
    sumo_tool("sumo", "-c", mixed_scenario, "-n", net, "--fcd-output", path, "--fcd-output.geo", cwd=tmp_path)
    with pytest.raises(InputError, match=r"geo\.\w+.*: positions are in degrees: .*Record without --fcd-output\.geo"):
        windows_of(path, rsu=("11.2654,44.4855:250",))


@pytest.mark.parametrize("period_s", [1, 10])
def test_a_small_net_in_metres(
    windows_of: WindowsOf, sumo_tool: Callable[..., None], tmp_path: Path, period_s: int
) -> None:
    """All of it lies within 90 units of its corner, and vehicles drive round and round."""
    grid = ("--grid", "--grid.number", 2, "--grid.length", 40)
    sumo_tool("netgenerate", *grid, "-o", tmp_path / "tiny.net.xml", cwd=tmp_path)
    (tmp_path / "tiny.rou.xml").write_text(
        '<routes><vehicle id="v" depart="0"><route edges="A0A1 A1B1 B1B0 B0A0" repeat="9"/></vehicle></routes>'
    )
    path = tmp_path / "tiny.xml"
    options = ("--fcd-output", path, "--device.fcd.period", period_s, "--end", 300)
    sumo_tool("sumo", "-n", tmp_path / "tiny.net.xml", "-r", tmp_path / "tiny.rou.xml", *options, cwd=tmp_path)
    assert max(float(x) for x in re.findall(r' [xy]="([^"]*)"', path.read_text())) < 90
    assert windows_of(path, rsu=("20,20:25",))


def test_a_recording_of_standing_vehicles(windows_of: WindowsOf, tmp_path: Path) -> None:
    steps = "".join(
        f'<timestep time="{t}"><vehicle id="v" x="1" y="1" speed="0.0" type="car"/></timestep>' for t in range(50)
    )
    (tmp_path / "standing.xml").write_text(f"<fcd-export>{steps}</fcd-export>")
    assert windows_of(tmp_path / "standing.xml", rsu=("0,0:5",))
