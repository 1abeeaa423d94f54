"""What the page plays: paths thinned within their tolerance, and packed so that a script finds them again."""

import base64
import dataclasses
import io
import json
import struct
import zlib

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from PIL import Image

import vnetsim
from analysis import loading
from analysis.loading import load
from analysis.plots import seen
from analysis.report import playback
from analysis.report.page import build_report
from vnetsim.storage.run_directory import Scan


def unpacked(text):
    """Return header and columns, read independently of the script and as it does."""
    data = zlib.decompress(base64.b64decode(text))
    (size,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + size])
    columns, at = {}, 4 + size
    assert at % 4 == 0
    for name, length, size in header["columns"]:
        columns[name] = np.frombuffer(data, {2: "<i2", 4: "<i4"}[size], length, at)
        at += length * size
    assert at == len(data)
    return header, columns


def paths(header, columns):
    """Yield vehicle, its windows (RSU, from, to), times (s) and places (m, from the middle of the map) of each path."""
    seconds = lambda ticks: header["begin_s"] + ticks / header["per_s"]  # noqa: E731
    enter = np.cumsum(columns["enter"])
    windows = zip(
        columns["rsu"].tolist(), seconds(enter).tolist(), seconds(enter + columns["exit"]).tolist(), strict=True
    )
    first = 0
    for vehicle, several, count in zip(
        *(columns[f"path_{name}"] for name in ("vehicle", "windows", "points")), strict=True
    ):
        time = np.cumsum(columns["time"][first : first + count])
        x_m, y_m = (np.cumsum(columns[n][first : first + count], dtype=np.int16) * header["step_m"] for n in ("x", "y"))
        yield header["vehicles"][vehicle], [next(windows) for _ in range(several)], seconds(time), x_m, y_m
        first += count
    assert first == len(columns["time"])
    assert not list(windows)


def test_thinned_paths_are_nowhere_further_off_than_the_tolerance():
    rng = np.random.default_rng(0)
    lengths = [2, 300, 3, 500]
    first = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    time_s = np.concatenate([np.arange(n) * 0.5 + place for place, n in enumerate(lengths)])
    speed = np.clip(np.cumsum(rng.normal(0, 0.4, len(time_s))), 0, 15)
    turn = np.cumsum(rng.normal(0, 0.03, len(time_s)))
    x_m, y_m = np.cumsum(0.5 * speed * np.cos(turn)), np.cumsum(0.5 * speed * np.sin(turn))
    for tolerance_m in (0.5, 5.0):
        keep = playback.thin_paths(time_s, x_m, y_m, first, 0.5) > tolerance_m
        assert keep.sum() < 0.4 * len(keep)
        for begin, count in zip(first, lengths, strict=True):
            one = slice(begin, begin + count)
            kept = keep[one]
            assert kept[0]
            assert kept[-1]
            off_m = [np.interp(time_s[one], time_s[one][kept], v[one][kept]) - v[one] for v in (x_m, y_m)]
            assert np.hypot(*off_m).max() <= tolerance_m + 1e-9


def test_a_point_is_needed_only_where_the_pieces_around_it_are():
    # 7.2 m from the line between the first two points that are kept, but within 5 m of that between the ends
    points = np.array([[0.0, 5.0, 6.0, 12.0], [0.0, -3.9, 4.0, 0.0], [0.0] * 4])
    needed_m = playback.thin_paths(*points, np.array([0]), 0.5)
    assert needed_m.tolist() == [np.inf, 4.0, 4.0, np.inf]


def test_every_window_is_played_as_it_was_driven(learning_run):
    run = load(learning_run)
    played = playback.playback(run)
    header, columns = unpacked(played.text)
    assert played.tolerance_m == 0.5
    table = run.paths.collect(lambda rows: rows)
    assert len(run.rsus) == 1, "whose place is the middle of the map"
    played_windows = [
        (vehicle, header["rsus"][rsu][0], enter_s, exit_s, path)
        for vehicle, windows, *path in paths(header, columns)
        for rsu, enter_s, exit_s in windows
    ]
    of_rows = table.sort("vehicle_id", "enter_s").iter_rows(named=True)
    for (vehicle, rsu_id, enter_s, exit_s, path), row in zip(sorted(played_windows), of_rows, strict=True):
        assert (vehicle, rsu_id) == (row["vehicle_id"], row["rsu_id"])
        assert (enter_s, exit_s) == pytest.approx((row["enter_s"], row["exit_s"]), abs=0.006)
        time_s, x_m, y_m = path
        for got, name, middle in ((x_m, "path_x_m", run.rsus[0].x_m), (y_m, "path_y_m", run.rsus[0].y_m)):
            off_m = np.interp(row["path_time_s"], time_s, got) + middle - row[name]
            assert np.abs(off_m).max() < 0.5 + 0.1 + 0.02 * 40  # tolerance, rounding of places and of times
    assert len(header["participations"]) == run.invited.height > 0
    for vehicle, _, _, outcome, start_s, end_s, spent in header["participations"]:
        rows = run.invited.filter(vehicle_id=header["vehicles"][vehicle], outcome=outcome)
        assert (rows["start_s"] - start_s).abs().min() < 0.01
        assert sum(seconds for _, seconds in spent) == pytest.approx(end_s - start_s, abs=0.1)
    assert [one[1] for one in header["rounds"]] == sorted(run.rounds["close_s"])
    assert header["curve"]["unit"] == "%", "the accuracy, before the loss"
    measured = run.metrics.filter(pl.col("name") == "knn")
    assert [value for _, value in header["curve"]["points"]] == pytest.approx(100 * measured["value"].to_numpy())


def test_a_run_too_large_for_a_page_is_thinned_further_and_says_so(learning_run, monkeypatch):
    run = load(learning_run)
    fine = playback.playback(run)
    monkeypatch.setattr(playback, "LIMIT_BYTES", len(fine.text) - 1)
    coarse = playback.playback(run)
    assert coarse.tolerance_m > fine.tolerance_m
    assert f"more than {coarse.tolerance_m:g} m from where it was" in coarse.caption


def test_a_run_in_which_nobody_was_covered_has_no_playback(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=0)
    build_report(run)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "octet-stream" not in page
    assert "DecompressionStream" not in page


def drive(vehicle, rsu_id, times, offset_m=0.0):
    """Return a row of the table ``windows``: east along the line y = 0 at 10 m/s; the rest of the row is empty."""
    east_m = [10.0 * t + offset_m for t in times]
    path = {"path_time_s": times, "path_x_m": east_m, "path_y_m": [0.0] * len(times)}
    return {"vehicle_id": vehicle, "rsu_id": rsu_id, "enter_s": times[0], "exit_s": times[-1], **path}


@pytest.fixture
def run_of_drives(tmp_path, make_run):
    def make(rows):
        run = load(make_run(tmp_path / "run", vehicles=0, rsus=(("a", 0.0, 0.0, 2500.0), ("b", 500.0, 0.0, 2500.0))))
        table = pl.DataFrame(rows).sort("exit_s")
        table.write_parquet(tmp_path / "windows.parquet")
        paths = Scan((tmp_path / "windows.parquet",))
        return dataclasses.replace(run, windows=table.with_row_index("row"), recorded=table.height, paths=paths)

    return make


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_overlapping_windows_are_slices_of_one_path(run_of_drives, monkeypatch, batch):
    monkeypatch.setattr(playback, "_BATCH", batch)
    again = drive("one", "a", [60.0, 400.0], offset_m=-2000.0)  # far enough that its step wraps
    rows = [drive("one", "a", [0.0, 1.0, 30.5]), drive("one", "b", [10.5, 11.0, 50.0]), drive("two", "b", [3.0, 4.0])]
    # two places at one time, as in an access log
    rows += [again, drive("three", "a", [5.0, 9.0]), drive("three", "b", [8.0, 12.0], offset_m=300.0)]
    header, columns = unpacked(playback.playback(run_of_drives(rows)).text)
    found = {
        (vehicle, times.tolist()[0]): (
            times.tolist(),
            (x_m + 250.0).tolist(),
            [tuple(map(float, one)) for one in windows],
        )
        for vehicle, windows, times, x_m, _ in paths(header, columns)
    }
    assert found == {
        ("one", 0.0): ([0.0, 50.0], [0.0, 500.0], [(0.0, 0.0, 30.5), (1.0, 10.5, 50.0)]),
        ("one", 60.0): ([60.0, 400.0], [-1400.0, 2000.0], [(0.0, 60.0, 400.0)]),
        ("two", 3.0): ([3.0, 4.0], [30.0, 40.0], [(1.0, 3.0, 4.0)]),
        ("three", 5.0): ([5.0, 9.0], [50.0, 90.0], [(0.0, 5.0, 9.0)]),
        ("three", 8.0): ([8.0, 12.0], [380.0, 420.0], [(1.0, 8.0, 12.0)]),
    }


def test_of_very_many_windows_some_vehicles_are_played(run_of_drives, monkeypatch):
    monkeypatch.setattr(playback, "MOST_WINDOWS", 3)
    run = run_of_drives([drive(f"v{k}", rsu, [float(k), k + 1.0]) for k in range(4) for rsu in "ab"])
    played = playback.playback(run)
    header, columns = unpacked(played.text)
    assert header["vehicles"] == ["v0", "v3"]
    assert len(columns["path_vehicle"]) == 2
    assert len(columns["rsu"]) == 4
    assert "Of more than 3 windows, only those of one in 3 vehicles are played" in played.caption


def test_of_very_many_windows_the_report_looks_at_some_vehicles(make_run, tmp_path, monkeypatch):
    rsus = tuple((f"r{k}", 600.0 * k, 0.0, 250.0) for k in range(12))
    path = make_run(tmp_path / "run", kind="mobility", vehicles=60, rsus=rsus)
    every_one = load(path)
    monkeypatch.setattr(loading, "MOST_WINDOWS", 12)
    monkeypatch.setattr(playback, "_BATCH", 1)
    run = load(path)
    assert 0 < run.windows.height < every_one.windows.height == run.recorded == 60
    assert run.windows.equals(every_one.windows[run.windows["row"]])
    made = build_report(path)
    assert dict(made.headline)["Windows"] == "60 (below, those of one in 5 vehicles)"
    shown = f"one in 5 vehicles, chosen by their ids: {run.windows.height} of 60 windows"
    assert any(shown in line for line in made.notices)
    assert not any("had no traffic" in line for line in made.notices)  # others' vehicles may have been there
    assert vnetsim.load(path).plot.dwell(Figure().subplots()).get_ylabel() == "windows of 1 in 5 vehicles"
    some, whole = (
        {vehicle: x_m.tolist() for vehicle, _, _, x_m, _ in paths(*unpacked(playback.playback(one).text))}
        for one in (run, every_one)
    )
    assert some.items() <= whole.items()
    assert set(some) == set(run.windows["vehicle_id"])


def test_the_windows_of_a_run_with_rounds_are_loaded_whole(learning_run, monkeypatch):
    monkeypatch.setattr(loading, "MOST_WINDOWS", 3)
    assert load(learning_run).every == 1


@pytest.mark.parametrize("task", ["classification", "steering"])
def test_the_playback_has_the_frames_of_some_vehicles(task, seeing_run):
    run, images = seeing_run(task)
    text = (run / "report.html").read_text(encoding="utf-8")
    assert text.count("</script>") == 3  # what is played, its frames, and the page's script
    film = json.loads(text.split('<script type="application/json">')[1].split("</script>")[0])
    header, _ = unpacked(text.split('<script type="application/octet-stream">')[1].split("</script>")[0])
    assert [header["vehicles"][vehicle] for vehicle, _, _ in film] == [f"</script><b>{k}</b>" for k in (5, 0, 39)]
    assert [len(frames) for _, _, frames in film] == [9, 8, 2]
    nothing, last = film[0][2][0], film[2][2][-1]
    assert nothing == [130.0, 18.0, 0.0, "no class in view" if task == "classification" else "no angle: its path ends"]
    assert last == [175.0, 72.0, 2.0, "class 7" if task == "classification" else "steers 0.00"]
    sprite = np.asarray(Image.open(io.BytesIO(base64.b64decode(film[1][1].partition(",")[2]))), dtype=int)
    rows = [np.concatenate(list(part[9:17]), axis=1) for part in (images, images // 2)]
    assert np.abs(sprite - np.concatenate(rows).astype(int)).mean() < 3, "sharp above blurred"
    assert "Of 3 vehicles frames are on this page" in text


def test_a_vehicle_that_is_not_played_or_too_large_takes_no_room_for_frames_from_the_others(seeing_run, monkeypatch):
    run = load(seeing_run("classification")[0])
    shown = run.samples.paths["vehicles"].tolist()
    sizes = [len(uri) for _, uri, _ in seen.film(run, shown)]
    monkeypatch.setattr(seen, "FILM_BYTES", sizes[1] + sizes[2])
    assert [vehicle for vehicle, _, _ in seen.film(run, ["other", *shown[1:]])] == [1, 2]
    monkeypatch.setattr(seen, "FILM_BYTES", sizes[0] + sizes[2])
    assert [vehicle for vehicle, _, _ in seen.film(run, shown)] == [0, 2]
