"""Persons and containers are nobody's vehicles, in whatever format a simulation was recorded."""

from __future__ import annotations

import pytest
from coverage_laws import open_scenario

from vnetsim.coverage.windows import Window

RSU = ("300,300:60",)
FORMATS = ("xml", "xml.gz", "csv", "csv.gz", "parquet")


def _rounded(windows: list[Window]) -> list[tuple[str, str, float, float, float]]:
    return sorted(
        (w.vehicle_id, w.vehicle_type, round(w.enter_s, 5), round(w.exit_s, 5), round(w.path_length_m, 3))
        for w in windows
    )


@pytest.fixture(scope="module")
def live(mixed_scenario, windows_of):
    return windows_of(mixed_scenario, rsu=RSU, vehicle_types=("all",))


CASES = [
    *((suffix, "") for suffix in FORMATS),
    *((suffix, f"x,y,speed,type{more}") for suffix in ("csv", "parquet") for more in (",edge", ",lane", "")),
]
FEW = [("xml", ""), ("csv.gz", ""), ("parquet", ""), ("csv", "x,y,speed,type"), ("parquet", "x,y,speed,type,lane")]


@pytest.mark.parametrize(
    ("suffix", "attributes"),
    [pytest.param(*one, marks=[] if one in FEW else [pytest.mark.all_only]) for one in CASES],
)
def test_every_format_gives_the_windows_of_the_simulation(
    live, mixed_scenario, windows_of, sumo_tool, tmp_path, suffix, attributes
):
    path = tmp_path / f"fcd.{suffix}"
    chosen = ("--fcd-output.attributes", attributes) if attributes else ()
    sumo_tool("sumo", "-c", mixed_scenario, "--fcd-output", path, "--precision", 12, *chosen, cwd=tmp_path)
    assert _rounded(windows_of(path, rsu=RSU, vehicle_types=("all",))) == _rounded(live)
    # the name of the bicycles' type gives away their class, so that the default takes the same vehicles as well
    motor = [window for window in live if window.vehicle_type != "bike"]
    assert len(motor) < len(live)
    assert _rounded(windows_of(path, rsu=RSU)) == _rounded(motor)
    traffic = open_scenario(path, rsu=RSU)
    traffic.close()
    assert any("cannot be told" in note for note in traffic.info.notes) == (attributes == "x,y,speed,type")
