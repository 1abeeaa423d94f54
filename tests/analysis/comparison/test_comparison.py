"""Verdicts in words, figures and the page of a comparison, from made-up cells."""

import itertools
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from made_cells import ACCURACY, LOSS, TRAFFIC, cell, compare_pairs, comparison, condition
from scipy import stats

from analysis.comparison.data import CellData, ComparisonData, ConditionData, Metric
from analysis.comparison.loading import with_metrics
from analysis.comparison.measures import traffic_metrics
from analysis.comparison.pairs import Columns, ComparedPair, compare_together, correct_together
from analysis.comparison.plots import (
    mean_and_interval,
)
from analysis.comparison.sections import _not_compared_words as not_compared_words
from analysis.comparison.tables import (
    cell_table,
    final_values,
    overview_table,
)
from analysis.comparison.verdicts import (
    Family,
    across_arms,
    across_conditions,
    corrected_words,
    figures_of,
    p_words,
    pairs_in,
    spread_words,
    verdict_sentences,
)
from analysis.comparison.warnings import warnings_of
from analysis.formatting import NONE
from analysis.statistics.paired import LEVEL

ERROR = Metric(name="rmse", label="Error", unit="rad", caption="")


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


def test_what_is_resolved_and_what_is_not(ten):
    ab, ac, bc = compare_pairs(ten, ACCURACY)
    assert ab.verdict.startswith("not resolved; ")
    assert ac.verdict == bc.verdict == "c higher"
    assert ac.found.mean < 0
    assert ac.p_value == bc.p_value == pytest.approx(3 * 2 / 1024)
    assert ab.p_value == ab.found.p_value, "the last of Holm's steps"
    assert {pair.tests for pair in (ab, ac, bc)} == {3}
    assert {pair.found.level for pair in (ab, ac, bc)} == {LEVEL / 3}
    assert [pair.resolved for pair in (ab, ac, bc)] == [0, -1, -1]


def pair_of(first: list[float], second: list[float], *more: list[float]) -> ComparedPair:
    """The first pair of columns of values."""
    return compare_together([Columns("xyz"[: 2 + len(more)], np.array([first, second, *more]).T)], "sign-flip")[0][0]


def test_the_words_of_a_verdict():
    up = [0.014, 0.02, 0.01, 0.016, 0.012, 0.03]
    none = [0.0] * 6
    pair = pair_of(none, up)
    assert (pair.verdict, pair.brief, pair.resolved, pair.p_value) == ("y higher", "lower", -1, 2 / 64)
    assert figures_of(pair, ACCURACY)[1] == "\u22123.0 to \u22121.0"
    assert figures_of(pair, ERROR)[1] == "\u22120.030 to \u22120.010"
    assert verdict_sentences([pair], ACCURACY) == [
        "Accuracy: y is higher than x by 1.7 points (95 % interval 1.0 to 3.0)."
    ]
    assert "with 6 seeds is 0.48 to 1.49 times the true one" in spread_words(6)
    same = pair_of(none, none)
    assert (same.verdict, same.brief) == ("equal at all 6 seeds", "equal")
    assert replace(pair, withheld=True).brief == "withheld"
    assert p_words(0.00099) == "< 0.001"


def test_seeds_needed_are_more_than_did_not_do():
    """A difference of d_z near 2 over 6 seeds, one against the others: the t-test would reckon with 6 or fewer."""
    pair = pair_of([0.0] * 6, [0.04, 0.05, 0.06, 0.05, 0.04, -0.005])
    assert abs(pair.found.effect or 0) > 1.6
    assert (pair.resolved, pair.needed) == (0, 7)
    assert (pair.verdict, pair.brief) == ("not resolved; 7 seeds needed", "needs 7 seeds")


def test_pairs_of_one_test_each_are_corrected_for_their_number():
    """Two that differ at all six seeds, 2 / 64 each, are no more resolved once there are two; nor is a third, of 1."""
    up, none = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06], [0.0] * 6
    alone = [pair_of(up, none), pair_of(none, up), pair_of(none, none)]
    found = correct_together(alone)
    assert [pair.resolved for pair in alone] == [1, -1, 0]
    assert [pair.p_value for pair in found] == [pytest.approx(3 * 2 / 64), pytest.approx(3 * 2 / 64), 1.0]
    assert [pair.resolved for pair in found] == [0, 0, 0]
    assert [pair.found for pair in found] == [pair.found for pair in alone], "intervals stay"


def test_too_few_seeds_are_one_statement():
    """With 3 pairs at 6 seeds the least p is 3 x 2/64: the interval is unbounded, and 7 seeds are needed."""
    rng = np.random.default_rng(8)
    six, two = (compare_together([Columns("abc", rng.normal(size=(seeds, 3)))], "sign-flip")[0] for seeds in (6, 2))
    for pair in (*six, *two):
        assert (pair.least, pair.resolved, pair.resolves) == (7, 0, None)
        assert figures_of(pair, LOSS)[1] == "unbounded"
    assert (six[0].verdict, six[0].brief) == ("too few seeds", "too few seeds")
    assert two[0].verdict == "too few seeds"
    assert two[0].p_value is None
    three = compare_together([Columns("ab", rng.normal(size=(3, 2)))], "t")[0]
    assert three[0].found.bounded
    assert (three[0].least, three[0].found.method) == (3, "t")


def test_only_seeds_that_both_have_are_paired(ten):
    less = replace(ten, cells=tuple(c for c in ten.cells if (c.entry.arm, c.entry.seed) not in {("a", 0), ("b", 1)}))
    assert [pair.found.count for pair in compare_pairs(less, ACCURACY)] == [8, 9, 9]
    finals = less.finals(ACCURACY)
    assert np.isnan(finals).sum() == 2
    assert np.isnan(finals[0, 0])
    assert np.isnan(finals[1, 1])


def test_pairs_with_too_few_seeds_in_common_weigh_nothing_on_the_others(ten):
    """b has finished at two seeds only: a and c are the one pair tested, at p = 2 / 1024."""
    less = replace(ten, cells=tuple(c for c in ten.cells if c.entry.arm != "b" or c.entry.seed < 2))
    ab, ac, bc = compare_pairs(less, ACCURACY)
    assert (ab.p_value, bc.p_value, ab.resolved, bc.resolved) == (None, None, 0, 0)
    assert ab.verdict == "too few seeds"
    assert (ac.p_value, ac.tests) == (pytest.approx(2 / 1024), 1)


def test_an_arm_without_a_finished_cell_hides_nothing_of_the_others(ten):
    less = with_metrics(replace(ten, cells=tuple(c for c in ten.cells if c.entry.arm != "a"), metrics=()))
    assert less.metrics == (ACCURACY,)
    (bc,) = compare_pairs(less, ACCURACY)
    assert (bc.first, bc.second, bc.found.count) == ("b", "c", 10)
    assert final_values(less, "arm").rows[0][:3] == ("a", "0", NONE)


def of_arms(data: ComparisonData) -> list[Family]:
    """The pairs of arms in accuracy, under each condition."""
    return across_arms(data, [(one, ACCURACY) for one in data.conditions])


def test_a_metric_is_corrected_over_the_arms_of_all_conditions(ten):
    """Under the second condition two arms have finished, at seven seeds: p = 2 / 128, the third smallest of four."""
    other = condition(
        [
            replace(c, entry=replace(c.entry, condition="y"))
            for c in ten.cells
            if c.entry.arm != "b" and c.entry.seed < 7
        ],
        name="y",
    )
    data = comparison(replace(ten, name="x"), other)
    families = of_arms(data)
    assert {(pair.tests, pair.found.level) for one in families for pair in one.pairs} == {(4, LEVEL / 4)}
    assert [pair.p_value for pair in pairs_in(families, "y", ACCURACY)] == [pytest.approx(2 * 2 / 128)]
    assert "p is corrected for 4 differences here and in other tables" in corrected_words(families[1].pairs)
    assert pairs_in(families, "y", ACCURACY)[0].found.low == -math.inf
    assert pairs_in(families, "y", ACCURACY)[0].verdict == "c higher", (
        "seven seeds are too few for the first step alone"
    )
    table = overview_table(data, ACCURACY, families)
    assert table.head == ("learner", "x", "y")
    assert [row[0] for row in table.rows] == ["a", "b", "c"]
    (a, a2), (b, b2), (c, c2) = (row[1:] for row in table.rows)
    assert b2 == NONE
    assert "\u00a0\u00b1\u00a0" in a
    assert "," not in a + a2
    assert b.endswith(", not\u00a0resolved")
    assert c.endswith(", higher")
    assert c2.endswith(", higher")
    without = comparison(
        *(replace(one, cells=tuple(c for c in one.cells if c.entry.arm != "b")) for one in data.conditions)
    )
    assert without.arms == ("a", "b", "c")
    table = overview_table(without, ACCURACY, [])
    assert [row[0] for row in table.rows] == ["a", "c"], "what was not measured is no row of dashes"


@pytest.mark.parametrize("apart", [10.0, 0.0])
def test_outcomes_of_the_traffic_are_compared_once_for_all_arms_unless_equal(apart):
    (metric,) = traffic_metrics({"trip_waiting_s": 0.0, "something": 1.0})
    conditions = []
    for number, name in enumerate("xy"):
        cells = []
        for arm, seed in itertools.product("ab", range(6)):
            found = {"trip_waiting_s": apart * number + seed % 3}
            more = {"figures": found, "series": {"accuracy": ACCURACY, metric.name: metric}}
            traffic = replace(TRAFFIC, outcomes=found)
            cells.append(cell(arm, seed, [0.1 * seed, 0.2], condition=name, traffic=traffic, **more))
        conditions.append(condition(cells, (), ACCURACY, name=name))
    families = [one for one in across_conditions(comparison(*conditions)) if one.metric is metric]
    assert [one.within for one in families] == ["a"] * (apart > 0)
    assert all(one.pairs[0].found.mean == pytest.approx(-apart) for one in families)
    assert {one.metric.name for one in across_conditions(comparison(*conditions))} - {metric.name} == {"accuracy"}
    without_a = [replace(one, cells=[c for c in one.cells if c.entry.arm == "b"]) for one in conditions]
    found = [one.within for one in across_conditions(comparison(*without_a)) if one.metric is metric]
    assert found == ["b"] * (apart > 0)


def test_warnings_name_the_condition_unless_they_hold_under_all(ten):
    few = [replace(c, entry=replace(c.entry, condition="y")) for c in ten.cells if c.entry.seed < 4]
    both = comparison(replace(ten, name="x"), condition(few, name="y"))
    (line,) = warnings_of(both, of_arms(both))
    assert line == (
        "Under y: 4 seeds can resolve no difference: test and interval of the 3 pairs of learners take at least 7."
    )
    alone = comparison(condition(few, name="y"))
    assert warnings_of(alone, of_arms(alone))[0].startswith("4 seeds can resolve no difference")
    assert warnings_of(comparison(replace(ten, name="x"), condition([], "abc", name="y"))) == [
        "Under y: no cell has finished."
    ]


def test_the_interval_is_students():
    values = np.random.default_rng(6).normal(size=(5, 3))
    mean, half = mean_and_interval(values)
    for column in range(3):
        expected = stats.ttest_1samp(values[:, column], 0.0).confidence_interval(0.95)
        assert (mean[column] - half[column], mean[column] + half[column]) == pytest.approx(tuple(expected))
    assert mean_and_interval(values[:2])[1] is None


def test_the_mean_of_the_last_evaluations():
    """By hand: of .1 untrained, .2, .3, .7 the last two have the mean .5; the untrained model never counts."""
    one = cell("a", 0, [0.1, 0.2, 0.3, 0.7])
    assert one.final(ACCURACY) == 0.7
    assert one.final(replace(ACCURACY, last=2)) == pytest.approx(0.5)
    assert one.final(replace(ACCURACY, last=3)) == pytest.approx(0.4)
    assert one.final(replace(ACCURACY, last=4)) is None
    assert one.evaluations == 3
    assert cell("a", 0, [0.1]).final(ACCURACY) == 0.1


def test_what_the_settings_alone_decide_is_not_compared():
    """A learning rate is no result, though it differs between arms; an accuracy of 0 at every seed is one."""
    rate, never = (
        Metric(name=name, label=name, unit=unit, caption="") for name, unit in (("rate", ""), ("never", "%"))
    )

    def of(arm: str, seed: int) -> CellData:
        made = cell(arm, seed, [0.1, 0.2 + seed / 10])
        more = [(1, 10.0, "rate", 0.1 + (arm == "b")), (1, 10.0, "never", 0.0 + (arm == "b") / 4)]
        metrics = pl.concat([made.metrics, pl.DataFrame(more, schema=made.metrics.schema, orient="row")])
        return replace(made, metrics=metrics, series={"accuracy": ACCURACY, "rate": rate, "never": never})

    data = with_metrics(replace(condition([of(a, s) for s in range(3) for a in "ab"], ("a", "b")), metrics=()))
    assert ([metric.name for metric in data.metrics], data.fixed) == (["never"], ("rate",))
    assert data.alike == (ACCURACY,)
    third = with_metrics(replace(data, arms=("a", "b", "c"), metrics=(), cells=(*data.cells, cell("c", 0, [0.1, 0.2]))))
    assert third.alike == (ACCURACY,)
    apart = replace(third, metrics=(), cells=(*third.cells, cell("a", 9, [0.1, 0.8]), cell("b", 9, [0.1, 0.7])))
    assert with_metrics(replace(apart, seeds=(*apart.seeds, 9))).metrics == (ACCURACY,), "at seed 9 c has no value"
    once = with_metrics(replace(condition([of(a, 0) for a in "ab"], ("a", "b")), metrics=()))
    assert once.fixed == (), "one seed does not tell"


def test_what_learners_measure_differently_is_not_compared():
    others = {"accuracy": replace(ACCURACY, caption="On the images of all vehicles.")}
    cells = [cell("a", seed, [0.1, seed / 9]) for seed in range(3)]
    cells += [cell("b", seed, [0.1, seed / 8], series=others) for seed in range(3)]
    data = with_metrics(replace(condition(cells), metrics=()))
    assert (data.metrics, data.other_meanings) == ((), ("Accuracy",))
    assert not_compared_words(data, "arm") == (
        "The arms report nothing in common. Not compared, because arms measure it differently: Accuracy."
    )


def test_what_is_measured_at_the_end_only_is_compared_by_its_last_value():
    probe = Metric(name="probe", label="Probe", unit="%", caption="")

    def of(arm: str, seed: int) -> CellData:
        made = cell(arm, seed, [0.1, 0.2 + seed / 10, 0.4, 0.6 + (arm == "b") / 9])
        end = pl.DataFrame([(3, 30.0, "probe", 0.5 + seed / 9)], schema=made.metrics.schema, orient="row")
        both = {"accuracy": ACCURACY, "probe": probe}
        return replace(made, metrics=pl.concat([made.metrics, end]), series=both)

    cells = [of(arm, seed) for seed in range(3) for arm in "ab"]
    data = with_metrics(replace(condition(cells, ("a", "b")), metrics=()), 3)
    assert [(metric.name, metric.last) for metric in data.metrics] == [("accuracy", 3)]
    assert data.alike == (probe,), "the last value is the same for both"
    assert data.finals(data.metrics[0])[1].tolist() == pytest.approx([1.3 / 3, (1.3 + 1 / 9) / 3])
    table = cell_table(comparison(data))
    assert set(table["evaluations"]) == {3}
    assert table["value"][0] == pytest.approx(0.4)
    assert data.metrics[0].words_compared == "Accuracy, mean of the last 3 evaluations"
    assert "mean of the last 3 evaluations of each run" in final_values(data, "arm").note
