"""Recordings that SUMO did not make: units, orders, texts and speeds of their own."""

from __future__ import annotations

import math
import re
from pathlib import Path

import polars as pl
import pytest
from coverage_laws import open_scenario

from vnetsim.coverage.windows import Window
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.traffic import open_traffic
from vnetsim.traffic.fcd import readers, tables

RSU = ("0,0:150",)
NAMES = ["timestep_time", "vehicle_id", "vehicle_x", "vehicle_y", "vehicle_speed"]


def cars(*, metres: float = 1.0, seconds: float = 1.0, speed: float = 25.0, step_s: float = 0.1) -> pl.DataFrame:
    """Four cars at 25 m/s, 12 s in the disc, in other units."""
    rows = [
        (seconds * round(t * step_s + car, 3), f"c{car}", metres * (25 * t * step_s - 400), metres * 3.7 * car, speed)
        for car in range(4)
        for t in range(round(32 / step_s) + 2)
    ]
    return pl.DataFrame(rows, schema=NAMES, orient="row").sort("timestep_time", maintain_order=True)


def dwells(windows: list[Window]) -> list[float]:
    return [window.exit_s - window.enter_s for window in windows]


RIGHT = pytest.approx([12.0] * 4, abs=0.04)
UNITS = [
    ({"speed": 90.0}, r"speeds are 3\.6 times .*: speeds in km/h\? Then --speed-unit km/h", {"speed_unit": "km/h"}),
    ({"metres": 1 / 0.3048}, r"0\.305 times .*: positions in feet\? Then --length-unit ft", {"length_unit": "ft"}),
    ({"speed": 56.0}, r"2\.24 times .*: speeds in miles an hour", {"speed_unit": "mph"}),
    ({"seconds": 10.0}, r"10 times .*: times as frames, 10 a second\? Then --time-unit 1/10", {"time_unit": "1/10"}),
    ({"seconds": 1000.0}, r"1e\+03 times .*: times in milliseconds\? Then --time-unit ms", {"time_unit": "ms"}),
    ({"speed": 0.0}, r"all speeds are 0, while vehicles moved .*--columns speed=", {"columns": {"speed": ""}}),
    ({"speed": 90.0, "step_s": 10.0}, r"Then --speed-unit km/h", {"speed_unit": "km/h"}),
]


@pytest.mark.parametrize(("made", "refusal", "mended"), UNITS)
def test_units_that_disagree_are_refused_with_what_mends_them(tmp_path, windows_of, made, refusal, mended):
    path = tmp_path / "x.csv"
    cars(**made).write_csv(path)
    with pytest.raises(InputError, match=refusal):
        windows_of(path, rsu=RSU)
    windows = windows_of(path, rsu=RSU, **mended)
    assert dwells(windows) == RIGHT
    assert [window.entry_speed_mps for window in windows] == pytest.approx([25.0] * 4, rel=0.01)


def notes_of(path: Path, **settings: object) -> str:
    traffic = open_scenario(path, rsu=RSU, **settings)
    list(traffic.events())
    return " ".join(traffic.info.notes)


def test_a_factor_that_no_unit_explains_is_noted(tmp_path):
    cars(speed=175.0).write_csv(tmp_path / "x.csv")
    assert "4 of 4 paths are less than half" in notes_of(tmp_path / "x.csv")


def test_a_vehicle_that_circles_between_its_rows_is_not_doubted(tmp_path, windows_of):
    """Its chords are 3.6 times shorter than its way, as if speeds were in km/h."""
    turn = 4.815
    rows = [(20 * turn / 10 * k, "v", 20 * math.cos(turn * k), 20 * math.sin(turn * k), 10.0) for k in range(50)]
    pl.DataFrame(rows, schema=NAMES, orient="row").write_csv(tmp_path / "x.csv")
    assert len(windows_of(tmp_path / "x.csv", rsu=RSU)) == 1


@pytest.mark.parametrize("period_s", [1, 30])
@pytest.mark.parametrize("speeds_recorded", [True, False])
def test_sumo_s_own_are_not_doubted(windows_of, scenario, grid_net, sumo_tool, tmp_path, period_s, speeds_recorded):
    path = tmp_path / "x.xml"
    attributes = ("--fcd-output.attributes", "x,y,lane" + ",speed" * speeds_recorded)
    options = ("--fcd-output", path, "--device.fcd.period", period_s, *attributes)
    sumo_tool("sumo", "-c", scenario, *options, "--step-length", 1, cwd=tmp_path)
    assert windows_of(path, rsu=("B1:120",), net=str(grid_net))
    traffic = open_scenario(path, rsu=("B1:120",), net=str(grid_net))
    list(traffic.events())
    told = [note for note in traffic.info.notes if note != readers.COMPUTED]
    assert not [note for note in told if "paths" in note or "lanes" in note]
    assert (readers.COMPUTED in traffic.info.notes) is not speeds_recorded


def test_a_net_of_another_offset_is_refused(windows_of, scenario, grid_net, sumo_tool, tmp_path):
    sumo_tool("sumo", "-c", scenario, "--fcd-output", tmp_path / "x.csv", cwd=tmp_path)
    options = ("-s", grid_net, "--offset.x", 150, "--offset.y", 150, "-o", tmp_path / "other.net.xml")
    sumo_tool("netconvert", *options, cwd=tmp_path)
    with pytest.raises(InputError, match=r"vehicles are \d+ m, .* from the lanes .*other\.net\.xml is another"):
        windows_of(tmp_path / "x.csv", rsu=("B1:120",), net=str(tmp_path / "other.net.xml"))


def test_missing_speeds_are_those_of_the_positions(tmp_path, windows_of, monkeypatch):
    """In pieces of any length; also of a first row alone, and where a vehicle jumps."""
    whole = cars(step_s=0.2)
    jump = whole.with_columns(
        pl.when((pl.col("vehicle_id") == "c3") & (pl.col("timestep_time") >= 19))
        .then(pl.col("vehicle_x") + 900)
        .otherwise("vehicle_x")
        .alias("vehicle_x")
    )
    first = pl.col("timestep_time") == pl.col("vehicle_id").str.tail(1).cast(pl.Float64)
    sparse = whole.with_columns(pl.when(first).then(math.nan).otherwise("vehicle_speed").alias("vehicle_speed"))
    for around, rows in ((50_000, 8192), (1, 3)):
        monkeypatch.setattr(readers, "_SEARCHED_ROWS", around)
        monkeypatch.setattr(tables, "_TEXT_ROWS", rows)
        for table in (whole.drop("vehicle_speed"), sparse):
            table.write_csv(tmp_path / "x.csv")
            windows = windows_of(tmp_path / "x.csv", rsu=RSU)
            assert dwells(windows) == RIGHT
            assert [w.path_speed_mps for w in windows] == [pytest.approx(25.0)] * 4
    monkeypatch.undo()
    jump.drop("vehicle_speed").write_csv(tmp_path / "x.csv")
    (jumped,) = (w for w in windows_of(tmp_path / "x.csv", rsu=RSU) if w.vehicle_id == "c3")
    assert (jumped.exit_cause, jumped.path_speed_mps.max()) == ("teleport", pytest.approx(25.0))
    assert readers.COMPUTED in notes_of(tmp_path / "x.csv")


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_rows_by_vehicle_are_sorted(tmp_path, windows_of, suffix):
    path = tmp_path / f"x.{suffix}"
    table = cars().sort("vehicle_id", "timestep_time")
    table.write_parquet(path) if suffix == "parquet" else table.write_csv(
        path, compression="gzip" if "gz" in suffix else "uncompressed"
    )
    assert dwells(windows_of(path, rsu=RSU)) == RIGHT
    assert "not in order of time; its rows were sorted" in notes_of(path)


def test_texts_of_spreadsheets(tmp_path, windows_of):
    path = tmp_path / "x.csv"
    cars().write_csv(path, separator=";", decimal_comma=True)
    assert dwells(windows_of(path, rsu=RSU)) == RIGHT
    assert "read as decimal points" in notes_of(path)
    path.write_text(path.read_text().replace(";", ","))
    with pytest.raises(InputError, match=r"x\.csv:2: \d columns instead of 5; decimal commas need another separator"):
        windows_of(path, rsu=RSU)
    cars().write_csv(path)
    path.write_text(path.read_text(), encoding="utf-16")
    with pytest.raises(InputError, match=r"x\.csv: the text is UTF-16; convert it to UTF-8: iconv"):
        windows_of(path, rsu=RSU)
    cars(metres=10).with_columns(vehicle_x=pl.format('"{}"', "vehicle_x")).write_csv(path, quote_style="never")
    path.write_text(path.read_text().replace("-4000.0", "-4,000.0"))
    with pytest.raises(InputError, match=r"x\.csv:2: vehicle_x '-4,000\.0' is not a number; write it without commas"):
        windows_of(path, rsu=RSU)


def test_columns_are_named_all_at_once(tmp_path, windows_of):
    path = tmp_path / "x.csv"
    short = ["time", "id", "x", "y", "speed"]
    cars().rename(dict(zip(NAMES, short, strict=True))).write_csv(path)
    assert dwells(windows_of(path, rsu=RSU, columns={name: name for name in short})) == RIGHT
    with pytest.raises(InputError) as caught:
        windows_of(path, rsu=RSU)
    for word in (*NAMES, "it has time, id, x, y, speed", "--columns time=NAME", "--time-unit", "(m)", "m/s", "(s"):
        assert word in str(caught.value)
    with pytest.raises(InputError, match=r"no column 'nope'; it has"):
        windows_of(path, rsu=RSU, columns={**{name: name for name in short}, "lane": "nope"})
    (tmp_path / "x.xml").write_text("<fcd-export/>")
    with pytest.raises(InputError, match="an XML recording has its own names"):
        windows_of(tmp_path / "x.xml", rsu=RSU, columns={"time": "t"})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"columns": {"tine": "t"}}, r"traffic\.columns: unknown column 'tine'"),
        *(({"time_unit": unit}, r"traffic\.time_unit must be") for unit in ("h", "1/0", "0", "-1", "nan", "1/2/3")),
    ],
)
def test_settings_that_cannot_be(setting, message):
    with pytest.raises(InputError, match=message):
        TrafficSettings(**setting)  # type: ignore[arg-type]


def test_other_traffic_has_no_units():
    experiment = Experiment(scenario="x.sumocfg", traffic=TrafficSettings(time_unit="ms", columns={"id": "v"}))
    with pytest.raises(InputError, match=r"does not read traffic\.columns, traffic\.time_unit: leave"):
        open_traffic(experiment)


@pytest.mark.parametrize("suffix", ["xml", "csv"])
def test_human_readable_time(windows_of, scenario, sumo_tool, tmp_path, suffix):
    """Over midnight, with fractions."""
    windows = []
    for name, more in (("plain", ()), ("clock", ("--human-readable-time",))):
        path = tmp_path / f"{name}.{suffix}"
        routes = tmp_path / "late.rou.xml"
        routes.write_text(
            '<routes><flow id="w" begin="86380" end="86420" period="4" from="left1A1" to="C1right1"/></routes>'
        )
        span = ("-r", routes, "--begin", 86380, "--end", 86450)
        sumo_tool("sumo", "-c", scenario, *span, "--fcd-output", path, *more, cwd=tmp_path)
        windows.append([(w.enter_s, w.exit_s) for w in windows_of(path, rsu=("300,500:120",))])
    assert windows[0]
    assert windows[1] == windows[0]
    assert re.search(r"\D1:00:00:0\d\.\d", path.read_text())
