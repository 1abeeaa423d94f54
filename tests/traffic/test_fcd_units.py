"""Recordings in degrees are projected or refused, recordings of a small net in metres never."""

from __future__ import annotations

import re

import pytest
from coverage_laws import open_scenario

from vnetsim.errors import InputError

PLACED = (
    '<location netOffset="-680000.00,-4928000.00" convBoundary="0.00,0.00,600.00,600.00" origBoundary="11,44,12,45" '
    'projParameter="+proj=utm +zone=32 +ellps=WGS84 +datum=WGS84 +units=m +no_defs"/>'
)


@pytest.mark.parametrize("suffix", [pytest.param("xml", marks=pytest.mark.all_only), "csv", "parquet"])
def test_degrees(mixed_scenario, windows_of, sumo_tool, tmp_path, suffix):
    net = tmp_path / "placed.net.xml"
    net.write_text(re.sub(r"<location [^>]*>", PLACED, (mixed_scenario.parent / "mixed.net.xml").read_text()))
    path = tmp_path / f"geo.{suffix}"
    sumo_tool("sumo", "-c", mixed_scenario, "-n", net, "--fcd-output", path, "--fcd-output.geo", cwd=tmp_path)
    with pytest.raises(InputError, match=r"geo\.\w+.*: positions are in degrees: .*Record without --fcd-output\.geo"):
        windows_of(path, rsu=("11.2654,44.4855:250",))
    with pytest.raises(InputError, match="positions are in degrees"):  # known by their movement alone
        windows_of(path, rsu=("11.2654,44.4855:250",), columns={"speed": ""})
    plain = tmp_path / f"plain.{suffix}"
    sumo_tool("sumo", "-c", mixed_scenario, "-n", net, "--fcd-output", plain, cwd=tmp_path)
    expected = windows_of(plain, rsu=("300,300:120",))
    for rsu in ("300,300:120", "11.2674156,44.48550785:120"):
        windows = windows_of(path, rsu=(rsu,), net=str(net))
        assert [w.vehicle_id for w in windows] == [w.vehicle_id for w in expected]
        assert [w.enter_s for w in windows] == pytest.approx([w.enter_s for w in expected], abs=0.5)


def test_a_live_rsu_in_degrees(mixed_scenario, tmp_path):
    for name, location, place in (("placed", PLACED, "11.2674156,44.48550785"), ("nowhere", "", "11.3,13.7")):
        net = (mixed_scenario.parent / "mixed.net.xml").read_text()
        (tmp_path / f"{name}.net.xml").write_text(re.sub(r"<location [^>]*>", location, net) if location else net)
        config = mixed_scenario.read_text().replace("mixed.net.xml", f"{name}.net.xml")
        (tmp_path / f"{name}.sumocfg").write_text(config.replace("mixed.rou", f"{mixed_scenario.parent}/mixed.rou"))
        traffic = open_scenario(tmp_path / f"{name}.sumocfg", rsu=(f"{place}:1",))
        traffic.close()
        (rsu,), notes = traffic.rsus, " ".join(traffic.info.notes)
        if location:
            assert (rsu.x_m, rsu.y_m) == (pytest.approx(300, abs=0.01), pytest.approx(300, abs=0.01))
            assert "is read as longitude and latitude; it is at (300.0, 300.0) m" in notes
        else:
            assert (rsu.x_m, rsu.y_m) == (11.3, 13.7)
            assert "is read as" not in notes
            assert "no road within 101 m; it sees no traffic. x,y are metres of the net; this looks like longi" in notes


@pytest.mark.parametrize("period_s", [1, 10])
def test_a_small_net_in_metres(windows_of, sumo_tool, tmp_path, period_s):
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


def test_a_recording_of_standing_vehicles(windows_of, tmp_path):
    steps = "".join(
        f'<timestep time="{t}"><vehicle id="v" x="1" y="1" speed="0.0" type="car"/></timestep>' for t in range(50)
    )
    (tmp_path / "standing.xml").write_text(f"<fcd-export>{steps}</fcd-export>")
    assert windows_of(tmp_path / "standing.xml", rsu=("0,0:5",))
