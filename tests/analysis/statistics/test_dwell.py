import dataclasses
import math
import re
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from analysis.loading import load
from analysis.plots.traffic import chord_panel, dwell_panel
from analysis.report.page import build_report
from analysis.statistics.windows import dwell, entries, kaplan_meier_median
from analysis.style import styled
from vnetsim.storage.run_directory import RunDirectory


def windows(lengths_s, *, cut=(), begun=()):
    """Windows that begin at 10 s and last ``lengths_s``; those of ``cut`` and ``begun`` are not whole."""
    return pl.DataFrame(
        [
            {
                "enter_s": 10.0, "exit_s": 10.0 + length, "entry_cause": "begin" if i in begun else "crossing",
                "exit_cause": "end" if i in cut else "crossing", "entry_speed_mps": 1.0 + i,
            }
            for i, length in enumerate(lengths_s)
        ]
    )  # fmt: skip


def test_without_cut_windows_it_is_the_median():
    assert dwell(windows([1.0, 2.0, 7.0, 9.0])).median_s == 4.5
    assert dwell(windows([3.0])).brief == "3.00\u202fs"


def test_a_window_cut_off_lasted_longer():
    """Kaplan-Meier by hand: S(2) = 4/5, S(6) = 4/5 * 1/2, so the median is 6; of what was seen it would be 4."""
    found = dwell(windows([2.0, 3.0, 4.0, 6.0, 8.0], cut={1, 2}))
    assert (found.median_s, found.cut, found.windows, found.at_least_s) == (6.0, 2, 5, 4.0)
    assert found.brief == "6.00\u202fs (2 of 5 cut off)"
    assert "the end of the run cut 2 of 5 windows off" in found.sentence


@pytest.mark.parametrize("cut", [{0, 1, 2}, {1, 2}])
def test_a_median_beyond_what_was_seen_is_told_as_a_bound(cut):
    found = dwell(windows([5.0, 16.0, 20.0], cut=cut))
    assert found.brief == f"more than 16.0\u202fs ({len(cut)} of 3 cut off)"


def test_vehicles_inside_from_the_beginning_are_left_out():
    found = dwell(windows([1.0, 9.0, 9.0], begun={0}))
    assert (found.median_s, found.windows, found.begun) == (9.0, 2, 1)
    assert dwell(windows([1.0, 3.0], begun={0, 1})).windows == 2
    assert dwell(windows([1.0]).clear()).windows == 0


def test_the_median_is_where_exactly_half_have_ended():
    """S(2.34) = 1/2 as a fraction: multiplied in floating point it may come out above a half."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        values = np.round(rng.exponential(3.0, rng.integers(2, 40)), 1)
        cut = rng.random(len(values)) < rng.random()
        survival, median = Fraction(1), math.inf
        for value in np.unique(values):
            ended = int(((values == value) & ~cut).sum())
            survival *= 1 - Fraction(ended, int((values >= value).sum()))
            if ended and survival <= Fraction(1, 2):
                median = float(value)
                break
        assert kaplan_meier_median(values, cut) == median


def test_the_estimate_finds_the_median_of_censored_exponentials():
    rng = np.random.default_rng(1)
    true, seen = rng.exponential(60.0, 4000), rng.uniform(0, 200, 4000)
    rows = windows(np.minimum(true, seen).tolist(), cut=set(np.flatnonzero(true > seen).tolist()))
    assert dwell(rows).median_s == pytest.approx(60 * np.log(2), rel=0.05)


def test_a_vehicle_that_departs_inside_has_no_speed_at_entry():
    rows = windows([1.0, 2.0]).with_columns(entry_cause=pl.Series(["departure", "crossing"]))
    assert entries(rows)["entry_speed_mps"].to_list() == [2.0]
    assert entries(rows.head(1)).height == 1


def test_a_page_has_one_median_dwell_and_one_median_speed(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=120)
    directory = RunDirectory(run)
    table = directory.read("windows")
    late = table["exit_s"] > 600
    directory.write("windows", table.with_columns(
        exit_cause=pl.when(late).then(pl.lit("end")).otherwise("exit_cause"),
        entry_speed_mps=pl.when(pl.col("entry_cause") == "departure").then(0.0).otherwise("entry_speed_mps"),
    ).rows())  # fmt: skip
    numbers = dict(build_report(run).headline)
    page = (run / "report.html").read_text(encoding="utf-8")
    expected = dwell(load(run).windows)
    assert expected.cut > 30
    assert numbers["Median dwell"] == expected.brief
    assert set(re.findall(r"[Mm]edian dwell(?:</dt><dd>)? ?([\d.]+)", page)) == {expected.median.split("\u202f")[0]}
    speed = numbers["Median speed at entry"]
    assert f"n = {entries(table).height}, median {speed}." in page


def test_nothing_is_said_of_bytes_that_never_moved(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=120)
    directory = RunDirectory(run)
    table = directory.read("participations").with_columns(download_bytes=pl.lit(0.0), upload_bytes=pl.lit(0.0))
    directory.write("participations", table.rows())
    build_report(run)
    page = (run / "report.html").read_text(encoding="utf-8")
    committed = (table["outcome"] == "committed").sum()
    assert f"moved no data, {committed} of them committed" in page
    assert "nothing was committed" not in page
    assert "data (B)" not in page
    assert "vehicle time (" in page


def test_the_histogram_of_the_dwell_draws_every_window(tmp_path, make_run):
    """Also where hardly any vehicle drives from rim to rim, as on a net cropped around the RSU."""
    run = load(make_run(tmp_path / "run", kind="mobility", vehicles=60))
    inside = run.windows.with_columns(entry_cause=pl.lit("departure"), exit_cause=pl.lit("arrival"))
    with styled():
        panel = dwell_panel(dataclasses.replace(run, windows=inside))
        assert not chord_panel(dataclasses.replace(run, windows=inside)).svg
    assert f"n = {inside.height} windows. {dwell(inside).sentence}" in panel.caption
    assert "cut off" not in panel.svg
    cut = inside.with_columns(exit_cause=pl.lit("end"))
    with styled():
        assert "at least: cut off" in dwell_panel(dataclasses.replace(run, windows=cut)).svg
