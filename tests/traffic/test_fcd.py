"""Recordings: what is read, what is refused, and that memory does not grow with their length."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from coverage_laws import open_scenario

from vnetsim.errors import InputError

RSU = ("0,0:50",)


def xml(*steps: tuple[float, list[tuple[str, object, object, object]]]) -> str:
    """A recording; vehicles as (id, x, y, speed)."""
    lines = ["<fcd-export>"]
    for time_s, vehicles in steps:
        lines.append(f'<timestep time="{time_s}">')
        lines += [
            f'<vehicle id="{v}" x="{x}" y="{y}" speed="{s}" type="car" lane="road_1_0"/>' for v, x, y, s in vehicles
        ]
        lines.append("</timestep>")
    return "\n".join([*lines, "</fcd-export>"])


def table(*steps: tuple[float, list[tuple[str, object, object, object]]]) -> str:
    rows = ["timestep_time;vehicle_id;vehicle_x;vehicle_y;vehicle_speed"]
    rows += [f"{t};{v};{x};{y};{s}" for t, vehicles in steps for v, x, y, s in vehicles]
    return "\n".join([*rows, ""])


PASSING = tuple((float(t), [("v", -80 + 20 * t, 0, 20)]) for t in range(9))


def write(path: Path, steps: tuple[tuple[float, list[tuple[str, object, object, object]]], ...]) -> Path:
    if path.name.endswith(".xml"):
        path.write_text(xml(*steps))
    elif path.name.endswith(".csv"):
        path.write_text(table(*steps))
    else:
        rows = [(t, v, x, y, s) for t, vehicles in steps for v, x, y, s in vehicles]
        names = ["timestep_time", "vehicle_id", "vehicle_x", "vehicle_y", "vehicle_speed"]
        kinds = [pl.Float64, pl.String, pl.Float64, pl.Float64, pl.Float64]
        pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row").write_parquet(path)
    return path


@pytest.mark.parametrize("suffix", ["xml", "csv", "parquet"])
def test_a_passing_vehicle(tmp_path, windows_of, suffix):
    (window,) = windows_of(write(tmp_path / f"v.{suffix}", PASSING), rsu=RSU)
    assert (window.enter_s, window.exit_s) == (pytest.approx(1.5), pytest.approx(6.5))
    if suffix == "xml":
        assert (window.entry_edge, window.vehicle_type) == ("road_1", "car")


def test_persons_and_unknown_attributes_are_skipped(tmp_path, windows_of):
    path = write(tmp_path / "v.xml", PASSING)
    path.write_text(
        path.read_text().replace("</timestep>", '<person id="p" x="nan" y="0" speed="1"><x/></person></timestep>')
    )
    assert [window.vehicle_id for window in windows_of(path, rsu=RSU)] == ["v"]


def test_reasons_are_inferred(tmp_path, windows_of):
    inside = ("v", 0, 0, 5)
    steps = ((0.0, []), (1.0, [inside]), (2.0, [inside]), (3.0, []), (4.0, [inside]), (5.0, [inside]))
    first, second = windows_of(write(tmp_path / "v.xml", steps), rsu=RSU)
    assert (first.enter_s, first.exit_s, first.entry_cause, first.exit_cause) == (1, 2, "departure", "arrival")
    assert (second.enter_s, second.exit_s, second.entry_cause, second.exit_cause) == (4, 5, "teleport", "end")


def _replace(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


BAD = [
    ("v.xml", lambda text: text[: len(text) // 2], r"v\.xml:\d+: not well-formed XML: .*\(the file seems cut off\)"),
    ("v.xml", lambda _: "", r"v\.xml:1: not well-formed XML: no element found"),
    ("v.xml", lambda _: "time;x;y", r"v\.xml:1: not well-formed XML"),
    ("v.xml", lambda _: "<tripinfos/>", r"v\.xml:1: not an FCD recording: its root element is <tripinfos>"),
    ("v.xml", lambda _: "<fcd-export/>", r"v\.xml: the recording is empty"),
    ("v.xml", lambda _: '<fcd-export><vehicle id="a"/></fcd-export>', r"v\.xml:1: expected <timestep>"),
    ("v.xml", _replace(' y="0"', ""), r"v\.xml:3: <vehicle> has no attribute 'y'"),
    ("v.xml", _replace('x="-60"', 'x="here"'), r"v\.xml:6: <vehicle> is malformed: .*'here'"),
    ("v.xml", _replace('time="3.0"', 'tim="3.0"'), r"v\.xml:11: <timestep> has no attribute 'time'"),
    ("v.xml", _replace('x="-60"', 'x="nan"'), r"v\.xml:5: x of vehicle 'v' at time 1 s is missing or not finite"),
    ("v.xml", _replace('speed="20"', 'speed="inf"'), r"v\.xml:2: speed of vehicle 'v' at time 0 s"),
    ("v.xml", _replace('time="3.0"', 'time="1.0"'), r"v\.xml:11: time 1 s follows 2 s; .*sorted"),
    ("v.xml", _replace('time="3.0"', 'time="nan"'), r"v\.xml:11: time nan is not finite"),
    (
        "v.csv",
        lambda text: text[: text.index(";-20") - 1],
        r"v\.csv:\d: 2 columns instead of 5; the file may be cut off",
    ),
    ("v.csv", lambda _: "", r"v\.csv: not an FCD table: no column 'timestep_time', 'vehicle_id'"),
    (
        "v.csv",
        _replace("vehicle_x", "vehicle_lon"),
        r"v\.csv: not an FCD table: no column 'vehicle_x'; it has timestep",
    ),
    ("v.csv", _replace("-60", "nan"), r"v\.csv:3: x of vehicle 'v' at time 1 s"),
    ("v.csv", _replace("-60", "here"), r"v\.csv:3: .*'here'"),
    ("v.csv", _replace("3.0;", "1.0;"), r"v\.csv:\d: vehicle 'v' occurs twice at time 1 s"),  # rows are sorted by time
    ("v.csv", _replace("3.0;", "now;"), r"v\.csv:5: .*'now'"),
    ("v.csv", lambda text: text.splitlines()[0] + "\n", r"v\.csv: the recording is empty"),
]


@pytest.mark.parametrize(("name", "damage", "message"), BAD)
def test_damaged_text(tmp_path, windows_of, name, damage, message):
    path = write(tmp_path / name, PASSING)
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    with pytest.raises(InputError, match=message) as caught:
        windows_of(path, rsu=RSU)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("suffix", ["xml", "csv", "parquet"])
def test_a_vehicle_twice_in_a_step(tmp_path, windows_of, suffix):
    steps = ((0.0, [("v", 0, 0, 1), ("w", 1, 1, 1), ("v", 2, 2, 1)]),)
    with pytest.raises(InputError, match=r"vehicle 'v' occurs twice at time 0 s"):
        windows_of(write(tmp_path / f"v.{suffix}", steps), rsu=RSU)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (((0.0, [("v", float("nan"), 0, 1)]),), "x of vehicle 'v' at time 0 s is missing or not finite"),
        (((0.0, [("v", 0, None, 1)]),), "y of vehicle 'v' at time 0 s is missing or not finite"),
        ((), "the recording is empty"),
    ],
)
def test_damaged_parquet(tmp_path, windows_of, steps, message):
    with pytest.raises(InputError, match=message):
        windows_of(write(tmp_path / "v.parquet", steps), rsu=RSU)  # type: ignore[arg-type]


def test_parquet_that_is_none_or_has_other_columns(tmp_path, windows_of):
    path = write(tmp_path / "v.parquet", PASSING)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"v\.parquet: not a readable Parquet file"):
        windows_of(path, rsu=RSU)
    pl.DataFrame({"timestep_time": [0.0], "vehicle_id": ["v"]}).write_parquet(path)
    with pytest.raises(InputError, match=r"no column 'vehicle_x', 'vehicle_y'; it has timestep_time, vehicle_id\."):
        windows_of(path, rsu=RSU)


@pytest.mark.parametrize("suffix", ["xml", "csv"])
def test_damaged_gzip(tmp_path, windows_of, suffix):
    plain = write(tmp_path / f"v.{suffix}", PASSING).read_bytes()
    path = tmp_path / f"v.{suffix}.gz"
    path.write_bytes(gzip.compress(plain))
    assert len(windows_of(path, rsu=RSU)) == 1
    for content in (gzip.compress(plain)[:-20], plain):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"v\.\w+\.gz: damaged or cut off in the middle of the gzip stream"):
            windows_of(path, rsu=RSU)


def test_entities_do_not_expand(tmp_path, windows_of):
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + k)} "{f"&{chr(97 + k)};" * 10}">' for k in range(9)
    )
    path = tmp_path / "bomb.xml"
    path.write_text(f"{bomb}]><fcd-export>&j;</fcd-export>")
    with pytest.raises(InputError, match=r"bomb\.xml:1: the file declares XML entities, which are not expanded"):
        windows_of(path, rsu=RSU)


def test_rsus_must_be_named(tmp_path, grid_net, windows_of):
    path = write(tmp_path / "v.xml", PASSING)
    with pytest.raises(InputError, match=r"a recording holds no RSU; name RSUs with --rsu x,y.*traffic\.net="):
        windows_of(path)
    with pytest.raises(InputError, match=r"junction 'B1' needs the net; .*traffic\.net="):
        windows_of(path, rsu=("B1",))
    with pytest.raises(InputError, match=r"nope\.net\.xml: no such file"):
        windows_of(path, rsu=("B1",), net=str(tmp_path / "nope.net.xml"))
    with pytest.raises(InputError, match=r"v\.xml: not a SUMO net: its root element is <fcd-export>"):
        windows_of(path, rsu=("B1",), net=str(path))
    with pytest.raises(InputError, match=r"grid\.net\.xml: unknown junction 'B7'\. Available: A0, A1"):
        windows_of(path, rsu=("B7",), net=str(grid_net))
    assert windows_of(path, rsu=("B1",), net=str(grid_net)) == []


def test_the_net_gives_junctions_and_lanes(tmp_path, grid_net):
    traffic = open_scenario(write(tmp_path / "v.xml", PASSING), rsu=("B1:50",), net=str(grid_net))
    assert (traffic.rsus[0].x_m, traffic.rsus[0].y_m) == (500.0, 500.0)
    assert traffic.info.lanes
    assert traffic.info.step_s == 1.0
    assert str(grid_net) in traffic.info.inputs
    assert not traffic.info.whole_paths, "where a path leads is read as it goes on"
    traffic.close()
    with pytest.raises(InputError, match="closed or already read"):
        list(traffic.events())


def test_lanes_of_a_net_with_heights_in_the_frame_of_the_map(tmp_path, monkeypatch):
    net = tmp_path / "hilly.net.xml"
    lanes = {"near": "0,0,7 900,0,9", "far": "0,9000,7 900,9000,7", "passing": "-9000,60,0 9000,60,0"}
    lanes["between"] = "2500,500 2500,600"
    net.write_text(
        "<net>" + "".join(f'<lane id="{name}" shape="{shape}"/>' for name, shape in lanes.items()) + "</net>"
    )
    near_these = {"rsu": ("0,0:50", "5000,0:50", "60,0:50"), "net": str(net)}
    traffic = open_scenario(write(tmp_path / "v.xml", PASSING), **near_these)
    near = [[[0, 0], [900, 0]], [[-9000, 60], [9000, 60]]]
    assert [lane.tolist() for lane in traffic.info.lanes] == [*near, [[2500, 500], [2500, 600]]]
    traffic.close()
    monkeypatch.setattr("vnetsim.coverage.rsu._MOST_LANES", 2)
    traffic = open_scenario(tmp_path / "v.xml", **near_these)
    assert [lane.tolist() for lane in traffic.info.lanes] == near
    assert "Maps show only the streets near an RSU: there are 3 lanes in the frame." in traffic.info.notes
    traffic.close()


PEAK = """
import sys
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.traffic import open_traffic
traffic = open_traffic(Experiment(scenario=sys.argv[1], traffic=TrafficSettings(rsu=("0,0:50",))))
count = sum(1 for event in traffic.events())
# Not resource.getrusage: its peak includes the process that started this one.
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(count, peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
@pytest.mark.parametrize("suffix", ["xml", "csv", "parquet"])
def test_memory_does_not_grow_with_length(tmp_path, suffix):
    peaks_kib = []
    for steps in (4000, 16000):
        path = tmp_path / f"{steps}.{suffix}"
        fleet = (
            (float(t), [(f"v{t // 50}.{k}", 4.0 * (t % 50) - 100, 3.0 * k - 60, 4) for k in range(40)])
            for t in range(steps)
        )
        write(path, tuple(fleet))
        result = subprocess.run(
            [sys.executable, "-c", PEAK, path], check=True, capture_output=True, text=True, timeout=120
        )
        count, peak = map(int, result.stdout.split())
        assert count >= steps // 50 * 30 * 2 * 0.9
        peaks_kib.append(peak)
    # four times the length, by when polars' own pool of buffers is full; it varies by some MiB
    assert peaks_kib[1] - peaks_kib[0] < 24 * 1024, peaks_kib
    assert path.stat().st_size > 0


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("vehicle_x", pl.struct("vehicle_x", "vehicle_y")),
        ("timestep_time", pl.duration(seconds=pl.col("timestep_time"))),  # was read as microseconds
        ("vehicle_id", pl.concat_list("vehicle_x")),
    ],
)
def test_a_column_of_neither_numbers_nor_text_is_named(column, kind, tmp_path):
    path = write(tmp_path / "trace.parquet", PASSING)
    pl.read_parquet(path).with_columns(kind.alias(column)).write_parquet(path)
    with pytest.raises(InputError, match=rf"trace\.parquet: column '{column}' holds .*; write numbers or text"):
        list(open_scenario(path, rsu=RSU).events())


def test_a_missing_time_among_times_of_the_clock_is_named(tmp_path):
    path = write(tmp_path / "trace.parquet", PASSING)
    rows = pl.read_parquet(path)
    times = [None, *(f"00:00:{time}" for time in rows["timestep_time"][1:])]
    rows.with_columns(pl.Series("timestep_time", times)).write_parquet(path)
    with pytest.raises(InputError, match="time nan is not finite"):
        open_scenario(path, rsu=RSU)


def test_a_mark_of_utf_8_is_no_part_of_the_first_column(tmp_path, windows_of):
    path = write(tmp_path / "trace.csv", PASSING)
    plain = windows_of(path, rsu=RSU)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert [window.enter_s for window in windows_of(path, rsu=RSU)] == [window.enter_s for window in plain]


def test_an_encoding_that_is_not_read_byte_by_byte_is_one_line(tmp_path):
    (tmp_path / "trace.xml").write_text('<?xml version="1.0" encoding="utf-7"?>\n<fcd-export/>')
    with pytest.raises(InputError, match=r"trace\.xml: multi-byte encodings are not supported; write"):
        open_scenario(tmp_path / "trace.xml", rsu=RSU)
