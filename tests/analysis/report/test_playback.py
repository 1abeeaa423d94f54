"""What the page plays: paths thinned within their tolerance, and packed so that a script finds them again."""

import base64
import json
import struct
import zlib

import numpy as np
import polars as pl
import pytest

from analysis.loading import load
from analysis.report import playback
from analysis.report.page import build_report


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
    """Yield vehicle, RSU, times (s) and places (m, from the middle of the map) of each window."""
    first = 0
    for vehicle, rsu, count in zip(columns["vehicle"], columns["rsu"], columns["points"], strict=True):
        time, x, y = (np.cumsum(columns[name][first : first + count].astype(float)) for name in ("time", "x", "y"))
        step_m = header["step_m"]
        yield header["vehicles"][vehicle], rsu, header["begin_s"] + time / header["per_s"], x * step_m, y * step_m
        first += count


def test_thinned_paths_are_nowhere_further_off_than_the_tolerance():
    rng = np.random.default_rng(0)
    lengths = [2, 300, 3, 500]
    first = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    time_s = np.concatenate([np.arange(n) * 0.5 + place for place, n in enumerate(lengths)])
    speed = np.clip(np.cumsum(rng.normal(0, 0.4, len(time_s))), 0, 15)
    turn = np.cumsum(rng.normal(0, 0.03, len(time_s)))
    x_m, y_m = np.cumsum(0.5 * speed * np.cos(turn)), np.cumsum(0.5 * speed * np.sin(turn))
    for tolerance_m in (0.5, 5.0):
        keep = playback.thin_paths(time_s, x_m, y_m, first, tolerance_m)
        assert keep.sum() < 0.4 * len(keep)
        for begin, count in zip(first, lengths, strict=True):
            one = slice(begin, begin + count)
            kept = keep[one]
            assert kept[0]
            assert kept[-1]
            off_m = [np.interp(time_s[one], time_s[one][kept], v[one][kept]) - v[one] for v in (x_m, y_m)]
            assert np.hypot(*off_m).max() <= tolerance_m + 1e-9


def test_every_window_is_played_as_it_was_driven(learning_run):
    run = load(learning_run)
    played = playback.playback(run)
    header, columns = unpacked(played.text)
    assert played.tolerance_m == 0.5
    table = run.paths.collect(lambda rows: rows)
    assert len(run.rsus) == 1, "whose place is the middle of the map"
    for (vehicle, rsu, time_s, x_m, y_m), row in zip(paths(header, columns), table.iter_rows(named=True), strict=True):
        assert vehicle == row["vehicle_id"]
        assert header["rsus"][rsu][0] == row["rsu_id"]
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
