"""Teleports too short to be told from a drive by their distance."""

from __future__ import annotations

import pytest

import vnetsim
from analysis.report.page import build_report

# Both wait behind the blocker for 20 s, and are moved 35.5 m on within one step.
ROUTES = """<routes><vType id="car" sigma="0"/>
  <vehicle id="blocker" type="car" depart="0"><route edges="A1B1 B1C1 C1D1"/>
    <stop lane="B1C1_0" endPos="22" duration="200"/></vehicle>
  <vehicle id="f" type="car" depart="5"><route edges="A1B1 B1C1 C1D1 D1D2"/></vehicle>
  <vehicle id="g" type="car" depart="12"><route edges="A1B1 B1C1 C1D1 D1D2"/></vehicle>
</routes>"""


@pytest.fixture(scope="module")
def blocked(tmp_path_factory, sumo_tool):
    folder = tmp_path_factory.mktemp("blocked")
    grid = ("--grid", "--grid.number", 4, "--grid.length", 45)
    sumo_tool("netgenerate", *grid, "-o", folder / "small.net.xml", cwd=folder)
    (folder / "small.rou.xml").write_text(ROUTES)
    config = folder / "small.sumocfg"
    config.write_text(
        '<configuration><input><net-file value="small.net.xml"/><route-files value="small.rou.xml"/></input>'
        '<time><end value="120"/></time><processing><time-to-teleport value="20"/></processing></configuration>'
    )
    return config


def test_a_short_teleport_crosses_no_rim(blocked, windows_of):
    windows = windows_of(blocked, rsu=("45,45:40", "130,45:40", "85,45:10", "85,45.5:60"))
    moved = {
        (w.rsu_id, w.vehicle_id, round(w.enter_s) if w.entry_cause == "teleport" else None, w.exit_cause): w
        for w in windows
        if "teleport" in (w.entry_cause, w.exit_cause)
    }
    # the disc that it leaves, the one it comes to; none that lies between; and both windows in one that holds both ends
    assert set(moved) == {
        ("45,45", "f", None, "teleport"),
        ("45,45", "g", None, "teleport"),
        ("130,45", "f", 32, "arrival"),
        ("130,45", "g", 56, "arrival"),
        ("85,45.5", "f", None, "teleport"),
        ("85,45.5", "g", None, "teleport"),
        ("85,45.5", "f", 32, "crossing"),
        ("85,45.5", "g", 56, "crossing"),
    }
    assert moved["45,45", "f", None, "teleport"].exit_s == 31.0
    assert not [w for w in windows if w.rsu_id == "85,45" and w.vehicle_id in "fg"]
    for window in windows:
        assert window.max_speed_mps * 2 > window.mean_speed_mps


def test_a_recording_takes_short_teleports_for_drives_and_says_so(blocked, windows_of, sumo_tool, tmp_path):
    recording = tmp_path / "fcd.xml"
    sumo_tool("sumo", "-c", blocked, "--fcd-output", recording, cwd=tmp_path)
    rsu = ("85,45.5:60",)
    assert {w.exit_cause for w in windows_of(blocked, rsu=rsu) if w.vehicle_id in "fg"} == {"teleport", "crossing"}
    assert {w.exit_cause for w in windows_of(recording, rsu=rsu) if w.vehicle_id in "fg"} == {"crossing"}
    traffic = vnetsim.mobility(recording, rsu=rsu, out=tmp_path / "recorded", progress=False)
    assert "counts as driven, unlike live" in build_report(traffic.path).path.read_text()


ACROSS = """<routes><vType id="car"/>
  <flow id="w" type="car" begin="0" end="40" period="8" from="left1A1" to="C1right1" departSpeed="max"/>
  <flow id="s" type="car" begin="3" end="40" period="8" from="bottom1B0" to="B2top1" departSpeed="max"/></routes>"""


def test_who_passes_a_junction_without_lanes_in_no_time_drove_there(windows_of, sumo_tool, tmp_path):
    """In a disc that holds the junction, one in its middle, and one beside it that cars come to from far outside."""
    grid = ("--grid", "--grid.number", 3, "--grid.length", 400, "--grid.attach-length", 300)
    wide = ("--default.junctions.radius", 50, "--no-internal-links", "--output-file", tmp_path / "net.net.xml")
    sumo_tool("netgenerate", *grid, *wide, cwd=tmp_path)
    (tmp_path / "net.rou.xml").write_text(ACROSS)
    config = tmp_path / "net.sumocfg"
    config.write_text(
        '<configuration><input><net-file value="net.net.xml"/><route-files value="net.rou.xml"/></input>'
        '<time><end value="120"/></time></configuration>'
    )
    for rsu, number in (("B1:150", 10), ("705,705:30", 10), ("765,700:10", 5)):
        windows = windows_of(config, rsu=(rsu,))
        assert {(w.entry_cause, w.exit_cause) for w in windows} == {("crossing", "crossing")}
        assert len({w.vehicle_id for w in windows}) == len(windows) == number
