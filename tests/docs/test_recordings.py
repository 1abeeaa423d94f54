"""The layouts and recipes of the page on recordings, each on a small excerpt made here: three cars at 25 m/s."""

import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import vnetsim
from vnetsim.cli.commands import app
from vnetsim.cli.options import TrafficOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/recordings.md").read_text()
LAYOUTS = dict(re.findall(r"^\| (\w+).*\| `(--columns [^`]+)` \|$", PAGE, re.MULTILINE))
SCRIPTS = [line.split() for line in re.findall(r"^    python (scenarios/.*)$", PAGE, re.MULTILINE)]
FOOT_M, DEGREE_M, LAT = 0.3048, 111_195.0, 37.97
Row = tuple[int, float, float, float]
"""Vehicle, time (s), x and y (m)."""


def rows(step_s: float) -> list[Row]:
    """By vehicle, as most data sets come; in frames that are exact in text."""
    times = [round(k * step_s, 3) for k in range(round(32 / step_s) + 1)]
    return [(car, t + 4 * car, 25 * t - 400, 3.7 * car) for car in range(3) for t in times]


def lines(header: str, made: list[str]) -> str:
    return "\n".join([header, *made, ""])


def place(x: float, y: float) -> tuple[float, float]:
    return 23.73 + x / DEGREE_M / math.cos(math.radians(LAT)), LAT + y / DEGREE_M


EXCERPTS: dict[str, Callable[[], str]] = {
    "NGSIM": lambda: lines(
        "Vehicle_ID,Frame_ID,Global_Time,Local_X,Local_Y,v_Vel",
        [f"{v},0,{1118846980200 + 1000 * t:.0f},{x / FOOT_M},{y / FOOT_M},{25 / FOOT_M}" for v, t, x, y in rows(0.1)],
    ),
    "highD": lambda: lines(
        "frame,id,x,y,width,xVelocity", [f"{25 * t:.0f},{v},{x},{y},4.5,25" for v, t, x, y in rows(0.04)]
    ),
    "inD": lambda: lines(
        "recordingId,trackId,frame,xCenter,yCenter,xVelocity",
        [f"0,{v},{25 * t:.0f},{x},{y},25" for v, t, x, y in rows(0.04)],
    ),
    "CARLA": lambda: lines("timestamp,id,x,y,vx,vy", [f"{t},{v},{x},{y},25,0" for v, t, x, y in rows(0.1)]),
    "Waymo": lambda: lines(
        "timestamp_micros,track_id,center_x,center_y", [f"{1e6 * t:.0f},{v},{x},{y}" for v, t, x, y in rows(0.1)]
    ),
}


def test_every_layout_has_an_excerpt():
    assert set(LAYOUTS) == set(EXCERPTS)
    folder = ROOT / "scenarios" / "recordings"
    assert {ROOT / script for script, *_ in SCRIPTS} == {*folder.glob("*.py")}


def dwells(folder: Path, file: str, options: str, rsu: str = "0,0:150") -> list[float]:
    out = folder / "out"
    command = ["mobility", str(folder / file), f"--rsu={rsu}", *shlex.split(options), "--no-report", "--out", str(out)]
    assert app(command, exit_on_error=False, print_error=False) == 0
    made = vnetsim.load(out)
    assert isinstance(made, vnetsim.Traffic)
    return (made.windows["exit_s"] - made.windows["enter_s"]).to_list()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout(name, tmp_path):
    (tmp_path / "x.csv").write_text(EXCERPTS[name]())
    assert dwells(tmp_path, "x.csv", LAYOUTS[name]) == pytest.approx([12.0] * 3, abs=0.05)


def convert(number: int, folder: Path) -> None:
    script, *arguments = SCRIPTS[number]
    subprocess.run([sys.executable, str(ROOT / script), *arguments], cwd=folder, check=True, timeout=60)


def test_pneuma(tmp_path):
    made = []
    for car in range(3):
        samples = [(*place(x, y), t) for v, t, x, y in rows(0.1) if v == car]
        made.append(f"{car}; Car; 800.0; 90.0; " + "".join(f"{b}; {a}; 90.0; 0.0; 0.0; {t}; " for a, b, t in samples))
    header = "track_id; type; traveled_d; avg_speed; lat; lon; speed; lon_acc; lat_acc; time"
    (tmp_path / "pneuma.csv").write_text(lines(header, made))
    convert(0, tmp_path)
    assert dwells(tmp_path, "pneuma.parquet", "") == pytest.approx([12.0] * 3, abs=0.05)


def test_t_drive(tmp_path):
    (tmp_path / "taxis").mkdir()
    for car in range(3):
        times = [(t, *place(x, y)) for v, t, x, y in rows(1.0) if v == car]
        text = "".join(f"{car},2008-02-02 15:36:{t:02.0f},{lon},{lat}\n" for t, lon, lat in times)
        (tmp_path / "taxis" / f"{car}.txt").write_text(text + text[-60:].split("\n", 1)[1])  # the last row comes twice
    convert(1, tmp_path)
    assert pl.read_parquet(tmp_path / "taxis.parquet").height == 99
    assert dwells(tmp_path, "taxis.parquet", "") == pytest.approx([12.0] * 3, abs=0.05)


def test_the_page_names_every_option():
    for option in ("--columns", "--time-unit", "--length-unit", "--speed-unit"):
        assert option in PAGE
        assert hasattr(TrafficOptions(), option[2:].replace("-", "_"))
