"""Verdicts in words, figures and the page of a comparison, from made-up cells."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.comparison_data import CellData, ComparisonData, ConditionData, Metric, shortened
from analysis.comparison_loading import with_metrics
from analysis.comparison_statistics import paired_difference
from analysis.comparison_tables import NONE, cell_table, final_values, overview_table, verdict_table
from analysis.comparison_verdicts import compare_pairs, friedman_words, p_words, verdict
from analysis.comparison_warnings import differing_settings, warnings_of
from analysis.plots.comparison import (
    curve,
    curve_panel,
    difference_panel,
    mean_and_interval,
    outcome_panel,
    overview_panel,
)
from analysis.style import styled

ACCURACY = Metric(name="accuracy", label="Accuracy", unit="%", caption="On images that no vehicle holds.")
LOSS = Metric(name="loss", label="Loss", unit="", caption="")
ERROR = Metric(name="rmse", label="Error", unit="rad", caption="")


def cell(arm: str, seed: int, values: list[float], **more: object) -> CellData:
    rows = [(round_, 10.0 * round_, "accuracy", value) for round_, value in enumerate(values)]
    given: dict[str, object] = {
        "name": f"{arm}-seed{seed}",
        "arm": arm,
        "condition": "",
        "learner": arm,
        "seed": seed,
        "traffic_sha256": "abc",
        "ended_by": "rounds",
        "rounds": len(values) - 1,
        "wanted_rounds": len(values) - 1,
        "begin_s": 0.0,
        "time_s": 100.0,
        "metrics": pl.DataFrame(rows, schema=["round", "time_s", "name", "value"], orient="row"),
        "outcomes": {"committed": 3, "deadline": 1},
        "spent": pl.DataFrame({"end_s": [5.0], "bytes": [1e6], "train_s": [2.0]}),
        "passes": pl.DataFrame(),
        "participants": (),
        "series": {"accuracy": ACCURACY},
        "settings": {"rounds": 3},
    }
    return CellData(**{**given, **more})  # type: ignore[arg-type]


def condition(cells: list[CellData], arms: tuple[str, ...] = ("a", "b", "c"), name: str = "") -> ConditionData:
    return ConditionData(
        name=name,
        arms=arms,
        looks={arm: place for place, arm in enumerate(arms)},
        seeds=tuple(dict.fromkeys(one.seed for one in cells)),
        cells=tuple(cells),
        metrics=(ACCURACY,),
    )


def comparison(*conditions: ConditionData) -> ComparisonData:
    return ComparisonData(
        record={"failed": {}, "cells": []},
        arms=tuple(dict.fromkeys(arm for one in conditions for arm in one.arms)),
        seeds=tuple(dict.fromkeys(seed for one in conditions for seed in one.seeds)),
        conditions=conditions,
        traffics=(),
    )


@pytest.fixture
def ten() -> ConditionData:
    """Ten seeds: c is above a and b at every one, which differ by chance alone."""
    rng = np.random.default_rng(5)
    level = rng.uniform(0.3, 0.5, 10)
    noise = 0.01 * rng.normal(size=(10, 3))
    return condition(
        [
            cell(name, seed, [0.1, 0.2, float(level[seed] + noise[seed, i] + 0.04 * (name == "c"))])
            for seed in range(10)
            for i, name in enumerate("abc")
        ]
    )


def test_what_is_resolved_and_what_is_not(ten: ConditionData) -> None:
    ab, ac, bc = compare_pairs(ten, ACCURACY)
    assert ab.verdict.startswith("no difference resolved at 10 seeds")
    assert ac.verdict.startswith("c higher by ")
    assert " points (95\u202f% interval " in ac.verdict
    assert ac.found.mean < 0
    assert ac.holm_p == pytest.approx(3 * 2 / 1024)
    assert bc.holm_p == pytest.approx(max(3 * 2 / 1024, 2 * bc.found.p_value))
    assert [pair.resolved for pair in (ab, ac, bc)] == [0, -1, -1]
    assert "all 3 arms are alike, over 10 seeds: chi-square" in friedman_words(ten, ACCURACY)


def test_the_numbers_of_a_verdict() -> None:
    found = replace(paired_difference([1, 2, 4], [0, 0, 0]), mean=-0.008, low=-0.014, high=-0.002)
    assert verdict(ACCURACY, "x", "y", found, 0.02, 3) == (
        "y higher by 0.80 points (95\u202f% interval 0.20 to 1.4, Holm p = 0.020)"
    )
    assert verdict(ERROR, "x", "y", found, 0.0002, 3).startswith("y higher by 0.0080 rad (")
    assert verdict(LOSS, "x", "y", found, 0.0002, 3).endswith("Holm p < 0.001)")
    assert verdict(LOSS, "x", "y", replace(found, count=10), 0.2, 84) == "no difference resolved at 10 seeds; 84 needed"
    assert verdict(LOSS, "x", "y", replace(found, count=10), 0.2, None) == "no difference resolved at 10 seeds"
    assert verdict(LOSS, "x", "y", replace(found, count=10), 0.2, 9) == "no difference resolved at 10 seeds"
    assert verdict(LOSS, "x", "y", paired_difference([1, 2, 3], [1, 2, 3]), 1.0, None) == "equal at all 3 seeds"
    two = verdict(LOSS, "x", "y", paired_difference([1, 2], [3, 5]), None, None)
    assert two == "2 seeds in common: too few for an interval, which takes 3"
    assert p_words(0.00099) == "< 0.001"


def test_only_seeds_that_both_have_are_paired(ten: ConditionData) -> None:
    less = replace(ten, cells=tuple(c for c in ten.cells if (c.arm, c.seed) not in {("a", 0), ("b", 1)}))
    assert [pair.found.count for pair in compare_pairs(less, ACCURACY)] == [8, 9, 9]
    finals = less.finals(ACCURACY)
    assert np.isnan(finals).sum() == 2
    assert np.isnan(finals[0, 0])
    assert np.isnan(finals[1, 1])
    assert "over 8 seeds" in friedman_words(less, ACCURACY)


def test_pairs_with_too_few_seeds_in_common_weigh_nothing_on_the_others(ten: ConditionData) -> None:
    """b has finished at two seeds only: a and c are the one pair tested, at p = 2 / 1024."""
    less = replace(ten, cells=tuple(c for c in ten.cells if c.arm != "b" or c.seed < 2))
    ab, ac, bc = compare_pairs(less, ACCURACY)
    assert (ab.holm_p, bc.holm_p, ab.resolved, bc.resolved) == (None, None, 0, 0)
    assert ab.verdict == "2 seeds in common: too few for an interval, which takes 3"
    assert ac.holm_p == pytest.approx(2 / 1024)
    assert friedman_words(less, ACCURACY) == ""


def test_an_arm_without_a_finished_cell_hides_nothing_of_the_others(ten: ConditionData) -> None:
    less = with_metrics(replace(ten, cells=tuple(c for c in ten.cells if c.arm != "a"), metrics=()))
    assert less.metrics == (ACCURACY,)
    (bc,) = compare_pairs(less, ACCURACY)
    assert (bc.first, bc.second, bc.found.count) == ("b", "c", 10)
    assert final_values(less, "arm").rows[0][:3] == ("a", "0", NONE)


def test_conditions_are_corrected_each_by_itself(ten: ConditionData) -> None:
    """Under the second condition only two arms at six seeds have finished: one pair, p = 2 / 64."""
    other = condition([replace(c, condition="y") for c in ten.cells if c.arm != "b" and c.seed < 6], name="y")
    data = comparison(replace(ten, name="x"), other)
    pairs = {one.name: {"accuracy": compare_pairs(one, ACCURACY)} for one in data.conditions}
    assert [pair.holm_p for pair in pairs["y"]["accuracy"]] == [pytest.approx(2 / 64)]
    table = overview_table(data, ACCURACY, pairs)
    assert table.head == ("learner", "x", "y")
    assert [row[0] for row in table.rows] == ["a", "b", "c"]
    (a, a2), (b, b2), (c, c2) = (row[1:] for row in table.rows)
    assert b2 == NONE
    assert "\u00a0\u00b1\u00a0" in a
    assert "," not in a + a2
    assert b.endswith(", not\u00a0resolved")
    assert c.endswith(", higher")
    assert c2.endswith(", higher")
    down = comparison(*(replace(one, name=f"{name}{one.name}") for name in "12" for one in data.conditions))
    table = overview_table(down, ACCURACY, {one.name: {} for one in down.conditions})
    assert table.head == ("condition", "a", "b", "c")
    assert [row[0] for row in table.rows] == ["1x", "1y", "2x", "2y"]
    with styled():
        panel = overview_panel(data, ACCURACY, "overview-1")
    texts = {element.text for element in ET.fromstring(panel.svg).iter() if element.tag.endswith("}text")}
    assert {"x", "y", "a", "b", "c"} <= texts
    without = comparison(*(replace(one, cells=tuple(c for c in one.cells if c.arm != "b")) for one in data.conditions))
    assert without.arms == ("a", "b", "c")
    table = overview_table(without, ACCURACY, {one.name: {} for one in without.conditions})
    assert [row[0] for row in table.rows] == ["a", "c"], "what was not measured is no row of dashes"
    with styled():
        svg = overview_panel(without, ACCURACY, "overview-1").svg
    assert {element.text for element in ET.fromstring(svg).iter() if element.tag.endswith("}text")} >= {"a", "c"}
    assert "b" not in {element.text for element in ET.fromstring(svg).iter() if element.tag.endswith("}text")}


def test_warnings_name_the_condition_unless_they_hold_under_all(ten: ConditionData) -> None:
    few = [replace(c, condition="y") for c in ten.cells if c.seed < 4]
    both = comparison(replace(ten, name="x"), condition(few, name="y"))
    (line,) = warnings_of(both)
    assert line.startswith("Under y: 4 seeds cannot resolve any difference: with 3 pairs of ")
    assert line.endswith("below 0.05 from 7 seeds on.")
    alone = comparison(condition(few, name="y"))
    assert warnings_of(alone)[0].startswith("4 seeds cannot resolve")
    assert warnings_of(comparison(replace(ten, name="x"), condition([], name="y"))) == [
        "Under y: no cell has finished."
    ]


def test_the_curve_is_that_of_rounds_all_seeds_reached() -> None:
    data = condition([cell("a", 0, [0.1, 0.2, 0.3]), cell("a", 1, [0.3, 0.4])], ("a",))
    rounds, values = curve(data, "a", ACCURACY)
    assert rounds.tolist() == [0, 1]
    assert values.tolist() == [[0.1, 0.2], [0.3, 0.4]]


def test_the_interval_is_students() -> None:
    values = np.random.default_rng(6).normal(size=(5, 3))
    mean, half = mean_and_interval(values)
    for column in range(3):
        expected = stats.ttest_1samp(values[:, column], 0.0).confidence_interval(0.95)
        assert (mean[column] - half[column], mean[column] + half[column]) == pytest.approx(tuple(expected))
    assert mean_and_interval(values[:2])[1] is None


def test_the_figures_hold_any_name() -> None:
    names = ("<b>", "$x$ & y")
    data = condition([cell(name, seed, [0.1, 0.2 + seed / 10]) for seed in range(3) for name in names], names)
    with styled():
        panels = [
            curve_panel(data, ACCURACY, "curves-1", "arm"),
            difference_panel(ACCURACY, compare_pairs(data, ACCURACY), "differences-1", "arm"),
            outcome_panel(data, "outcomes", "arm"),
            overview_panel(comparison(data, replace(data, name="</svg>")), ACCURACY, "overview-1"),
        ]
    for panel in panels:
        texts = [element.text for element in ET.fromstring(panel.svg).iter() if element.tag.endswith("}text")]
        assert any(name in str(text) for text in texts for name in names), panel.name
    assert "<b> 75.0" in panels[2].caption


def test_long_names_keep_both_ends() -> None:
    assert shortened("flsimco, learning.lr=0.05", 25) == "flsimco, learning.lr=0.05"
    assert shortened("fedavg-classification, learning.lr=0.05", 11) == "fedav\u2026=0.05"
    long = "x" * 60
    data = condition([cell(arm, seed, [0.1, seed / 9]) for seed in range(3) for arm in (long + "1", long + "2")],
                     (long + "1", long + "2"))  # fmt: skip
    with styled():
        panel = difference_panel(ACCURACY, compare_pairs(data, ACCURACY), "differences-1", "arm")
    texts = [str(element.text) for element in ET.fromstring(panel.svg).iter() if element.tag.endswith("}text")]
    assert {"1", "2"} == {text[-1] for text in texts if "\u2026" in text}


def test_learners_that_differ_in_more_than_their_own_settings_are_told_apart() -> None:
    cells = [cell("a", 0, [0.1, 0.2]), cell("b", 0, [0.1, 0.2], settings={"rounds": 3, "data.name": "road"})]
    assert differing_settings(condition(cells, ("a", "b"))) == ["data.name"]


def test_the_table_has_a_row_for_each_cell_and_metric(ten: ConditionData) -> None:
    table = cell_table(comparison(ten))
    assert table.height == 30
    assert table["value"].to_list() == [one.final("accuracy") for one in ten.cells]


def test_a_pair_of_arms_has_a_row_of_seven(ten: ConditionData) -> None:
    table = verdict_table(ten, ACCURACY, compare_pairs(ten, ACCURACY), "arm")
    assert table.head[:2] == ("arms", "difference (points)")
    assert {len(row) for row in table.rows} == {7}
    assert [row[0] for row in table.rows] == ["a \u2212 b", "a \u2212 c", "b \u2212 c"]
