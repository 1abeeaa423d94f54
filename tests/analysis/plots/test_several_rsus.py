"""Vehicles that meet several RSUs, in a table of windows small enough to count by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from analysis.formatting import THIN
from analysis.loading import load
from analysis.plots.several_rsus import apart_panel, commits_panel, multiplicity, successions
from analysis.style import styled

WINDOWS = pl.DataFrame(
    [
        ("a", "north", 0.0, 10.0),
        ("a", "south", 8.0, 20.0),  # in both for 2 s
        ("b", "south", 0.0, 5.0),
        ("a", "east", 25.0, 30.0),  # after 5 s in none
        ("b", "south", 6.0, 7.0),  # the same RSU again is no succession
        ("b", "north", 7.0, 9.0),
        ("c", "north", 3.0, 4.0),
    ],
    schema=["vehicle_id", "rsu_id", "enter_s", "exit_s"],
    orient="row",
)


def test_successions_tell_gaps_and_overlaps():
    assert successions(WINDOWS).rows() == [
        ("a", "north", "south", -2.0),
        ("a", "south", "east", 5.0),
        ("b", "south", "north", 0.0),
    ]


def test_the_mean_number_of_discs_is_that_of_the_time_in_coverage():
    held, covered = 10 + 12 + 5 + 5 + 1 + 2 + 1, 20 + 5 + 5 + 3 + 1
    assert multiplicity(WINDOWS) == pytest.approx(held / covered)
    assert multiplicity(WINDOWS.clear()) == 0


def test_one_training_that_reaches_several_rsus_is_told(tmp_path, make_run):
    rsus = (("north", 500.0, 1500.0, 250.0), ("south", 500.0, 500.0, 250.0))
    run = load(make_run(tmp_path / "run", vehicles=60, rsus=rsus))
    first = run.participations.filter(outcome="committed").head(1)
    twice = replace(run, participations=pl.concat([run.participations, first]))
    with styled():
        once, again = commits_panel(run).caption, commits_panel(twice).caption
    number = run.participations.filter(outcome="committed").height
    assert once.startswith(f"{number} updates, most of them, ")
    assert again.startswith(f"{number + 1} updates of {number} trainings (handover.policy = multi: ")


def test_the_models_of_rsus_are_lines_over_time_beside_the_clouds():
    rows = [(0, 0.0, "knn", 0.1, "a"), (1, 9.0, "knn", 0.3, "a"), (0, 0.0, "knn", 0.1, "b"), (1, 5.0, "knn", 0.2, "b")]
    rows += [(1, 9.0, "knn", 0.4, "cloud"), (1, 9.0, "spread", 0.05, ""), (2, 12.0, "knn", float("nan"), "b")]
    schema = ["round", "time_s", "name", "value", "aggregator"]
    series = [
        SimpleNamespace(name=name, result=True, unit=unit, label="") for name, unit in (("loss", ""), ("knn", "%"))
    ]
    run = SimpleNamespace(
        rsus=[SimpleNamespace(id=name) for name in "ab"],
        manifest=SimpleNamespace(series=series),
        measured=pl.DataFrame(rows, schema=schema, orient="row"),
    )
    with styled():
        panel = apart_panel(cast("Any", run))
    assert panel.svg.count(">cloud<") == panel.svg.count(">a<") == panel.svg.count(">b<") == 1
    percents = [f"{value}{THIN}%" for value in ("20.0", "30.0", "5.0")]
    assert [panel.caption.find(words) > 0 for words in (f"from {percents[0]} (RSU b)", f"to {percents[1]} (RSU a)")]
    assert f"{percents[2]} at first" in panel.caption
    run.measured = run.measured.filter(aggregator="cloud")
    assert apart_panel(cast("Any", run)).caption == "Not drawn: no model of an RSU was measured."
