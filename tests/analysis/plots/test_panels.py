"""Panels of the page: RSUs on the map, vehicles in coverage, what is seen where, several RSUs, places of failures."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.formatting import THIN
from analysis.loading import load
from analysis.plots.place import map_panel
from analysis.plots.seen import explained_variance, predictability_by_place
from analysis.plots.several_rsus import apart_panel, commits_panel, multiplicity, successions
from analysis.plots.traffic import occupancy_panel
from analysis.report import possible
from analysis.report.places import places_page
from analysis.style import styled, time_axis, to_svg
from vnetsim.coverage.rsu import Rsu


def test_many_rsus_are_tinted_and_few_are_named(tmp_path, make_run):
    for count in (12, 13):
        rsus = tuple((f"node {i}", 900.0 * (i % 5), 900.0 * (i // 5), 200.0) for i in range(count))
        with styled():
            panel = map_panel(load(make_run(tmp_path / f"run{count}", vehicles=60, rsus=rsus, lanes=count == 12)))
        assert panel.caption.endswith(
            "Grey lines are lanes." if count == 12 else "No road net is known for this traffic."
        )
        assert all((f">node {i}<" in panel.svg) == (count == 12) for i in range(count))
        assert panel.caption.startswith(f"{count} RSUs, coverage {'dashed' if count == 12 else 'tinted'}.")
        assert ("stroke-dasharray" in panel.svg) == (count == 12), "the rims of many discs hide the roads"


def test_one_curve_counts_vehicles_and_several_share_a_scale(tmp_path, make_run, monkeypatch):
    drawn, step = [], Axes.step

    def noted(ax, times, values, **how):
        drawn.append(values - values.min())
        return step(ax, times, values, **how)

    monkeypatch.setattr(Axes, "step", noted)
    one = (("centre", 500.0, 500.0, 250.0),)
    for rsus in (one, (*one, ("north", 500.0, 1500.0, 250.0))):
        drawn.clear()
        with styled():
            panel = occupancy_panel(load(make_run(tmp_path / str(len(rsus)), vehicles=40, rsus=rsus)))
        assert len(drawn) == len(rsus)
        highest = max(values.max() for values in drawn)
        if len(rsus) == 1:
            assert panel.caption.startswith(f"RSU centre: at most {highest:.0f}, ")
        else:
            assert highest == pytest.approx(0.86), "and not the rows' whole height"


def test_groups_explain_all_or_by_chance_nothing_of_a_variance():
    groups = np.repeat(np.arange(50), 20)
    assert explained_variance(3.0 * groups, groups) == 1
    rng = np.random.default_rng(0)
    drawn = [explained_variance(rng.normal(size=1000), groups) for _ in range(200)]
    assert 0 <= np.mean(drawn) < 0.015, "uncorrected it is 0.05"
    half = [explained_variance(rng.normal(size=50)[groups] + rng.normal(size=1000), groups) for _ in range(200)]
    assert np.mean(half) == pytest.approx(0.5, abs=0.03)
    assert np.isnan(explained_variance(np.ones(5), np.zeros(5, int)))
    assert np.isnan(explained_variance(np.arange(5.0), np.arange(5)))


def test_an_image_is_told_by_the_others_from_its_square_and_not_by_itself():
    squares = np.array([0, 1, 1, 2, 2, 2, 3, 3])
    labels = np.array([4, 0, 1, 2, 2, 0, 1, 1])
    assert predictability_by_place(labels, squares) == 2 / 8, "alone, tied, a majority of one, and a pair"
    assert predictability_by_place(np.zeros(4, int), np.zeros(4, int)) == 1


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


@pytest.mark.parametrize(("most", "drawn"), [(20_000, ""), (20, " Shown is one in 5 of them.")])
def test_of_very_many_cut_participations_some_are_drawn_and_all_counted(learning_run, monkeypatch, most, drawn):
    monkeypatch.setattr(possible, "_MOST_FAILED", most)
    read = []
    monkeypatch.setattr(
        possible, "_find_ends", lambda run, failed, ends=possible._find_ends: read.append(failed) or ends(run, failed)
    )
    run = load(learning_run)
    with styled():
        panel = possible.failed_panel(run)
    outcomes = run.invited["outcome"]
    cut = len(outcomes) - outcomes.is_in(["committed", "unfinished", "rejected"]).sum()
    assert f"{cut} of {run.invited.height} participations were cut: " in panel.caption
    assert panel.caption.endswith(f".{drawn}")
    assert read[0].height == (cut if not drawn else -(-cut // 5))


CANDIDATES = [Rsu(id=name, x_m=x_m, y_m=500.0, range_m=300.0) for name, x_m in (("a", 0.0), ("b", 1000.0))]
RSUS = pl.DataFrame(
    {"id": ["b"], "x_m": [1000.0], "y_m": [500.0], "range_m": [300.0], "adds": [9], "reached": [9], "share": [0.9]}
)


@pytest.fixture
def map_with(tmp_path):
    def draw(lanes: list[np.ndarray]) -> str:
        places_page(tmp_path, "city.sumocfg", RSUS, CANDIDATES, lanes, 10, [])
        return Path(tmp_path / "map.svg").read_text()

    return draw


def test_many_lanes_around_the_candidates_are_one_picture(map_with):
    generator = np.random.default_rng(0)
    lanes = [generator.uniform(200, 800, 2) + generator.uniform(0, 50, (10, 2)) for _ in range(2_500)]
    assert "<image" in map_with(lanes)
    far = [lane + 9e5 for lane in lanes]
    assert "<image" not in map_with([*lanes[:100], *far]), "lanes elsewhere are not drawn"


def words_of(svg):
    return [element.text for element in ET.fromstring(svg).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "$x^2$", "a $ b", "'DejaVu Sans' & <b>", '" onload="x', "]]>", "-->", "\u6f22\u5b57"],
)
def test_any_text_is_text(text):
    with styled():
        figure = Figure((2, 2))
        figure.text(0.5, 0.5, text)
        figure.text(0.5, 0.2, "second")
        svg = to_svg(figure, "any")
    assert words_of(svg) == [text, "second"]


def test_a_time_axis_says_its_begin_as_a_clock_does():
    assert time_axis(600.0).label == "simulated time (min)"
    assert time_axis(600.0, 300.0).label == "simulated time since 0:05:00 (min)"
