"""What commits cost, from made-up cells counted by hand."""

from dataclasses import replace

import polars as pl
import pytest
from made_cells import ACCURACY, LOSS, cell, compare_pairs, condition

from analysis.comparison.bias import spread_over_speeds
from analysis.comparison.data import CellData, ConditionData, Metric
from analysis.comparison.measures import (
    COMPARED,
    FLUCTUATION,
    compared_measures,
    measure_rows,
    measure_table,
    with_equal_commits,
)
from analysis.comparison.verdicts import Family

ARMS = ("a", "b", "</svg>c")
WINDOWS = {"speed_kmh": [31.0, 33.0, 38.0, 39.0], "approach": [0, 0, 1, 1], "dwell_s": [30.0, 30.0, 10.0, 10.0]}


def under(name: str, values: dict[str, list[float]], **more: object) -> ConditionData:
    """Cells with these values by arm and seed, and as many commits an hour as a thousand times that."""
    windows = pl.DataFrame({**WINDOWS, "updates": [3, 0, 1, 0]})
    measures = {"bytes_per_commit": 2.5e6, "wasted_train_share": 0.25, "wasted_train_s": 0.0}
    settings = {"silos.approaches": 2}
    cells = [
        cell(arm, seed, [0.1, value], condition=name, settings=settings, windows=windows,
             figures={**measures, "commits_per_h": 1000 * value})
        for arm, row in values.items() for seed, value in enumerate(row)
    ]  # fmt: skip
    seeds = tuple(range(max(map(len, values.values()))))
    return condition(cells, ARMS, name=name, seeds=seeds, **more)


def test_the_frame_of_measures():
    """Three of four updates are of the slow first window from the north, one of the third."""
    rows = measure_rows(under("x", {"a": [0.06], "b": [0.2]}))
    mine = rows.filter(arm="a")
    values = dict(mine.filter(bin="").select("measure", "value").iter_rows())
    assert values["commits_per_h"] == pytest.approx(60)
    assert (values["bytes_per_commit"], values["wasted_train_share"], values["gini"]) == (2.5e6, 0.25, None)
    speeds = mine.filter(measure="commit_share_speed")
    assert dict(speeds.select("bin", "value").iter_rows()) == {"30\u201335": 0.75, "35\u201340": 0.25}
    assert set(speeds["bin_unit"]) == {"km/h"}
    directions = mine.filter(measure="commit_share_direction")
    assert dict(directions.select("bin", "value").iter_rows()) == {"0\u00b0": 0.75, "180\u00b0": 0.25}
    assert set(rows["condition"]) == {"x"}


def test_windows_and_time_in_coverage_beside_the_updates_of_each_arm():
    """Half of the windows and 60 of 80 s are slow; who has no update has no share."""
    one = under("x", {"a": [0.06, 0.1], "b": [0.2]})
    nothing = [replace(cell, windows=cell.windows.with_columns(pl.col("updates") * 0)) for cell in one.of("b")]
    speeds = spread_over_speeds(replace(one, cells=(*one.of("a"), *nothing)))
    assert speeds.together["windows"].tolist() == [0.5, 0.5]
    assert speeds.together["dwell_s"].tolist() == [0.75, 0.25]
    assert [speeds.by_arm[arm]["updates"].tolist() for arm in "ab"] == [[0.75, 0.25], [0.0, 0.0]]


def test_the_table_of_measures():
    data = under("", {"a": [0.1] * 6, "b": [0.2, 0.21, 0.22, 0.23, 0.24, 0.25]}, against="a")
    families = [Family("arms", data.name, one, compare_pairs(data, one)) for one in COMPARED]
    assert [(one.first, one.second) for one in families[0].pairs] == [("b", "a")]
    table = measure_table(data, families, "arm")
    assert table.head[:4] == ("arm", "Commits per hour (1/h)", "Data per commit (MB)", "Wasted training time (s)")
    assert table.rows[0][:3] == ("a", "100 \u00b1 0", "2.50 \u00b1 0")
    assert table.rows[1][1:3] == ("225 \u00b1 19, higher", "2.50 \u00b1 0")
    bare = replace(data, cells=tuple(replace(one, figures={}) for one in data.cells))
    assert measure_table(bare, [], "arm") is None


def test_the_fluctuation_is_compared_where_arms_minimise_the_same_loss():
    """Whoever declares no loss is compared with itself alone."""
    data = under("", {arm: [0.1, 0.2, 0.3, 0.1] for arm in ARMS})
    assert compared_measures(data) == COMPARED, "no run was long enough"
    cells = [replace(one, figures={**one.figures, "fluctuation": 0.1 * one.entry.seed}) for one in data.cells]

    def shown(*losses: Metric | None) -> bool:
        series = dict(zip(ARMS, losses, strict=True))
        mine = [replace(one, series={"loss": found} if (found := series[one.entry.arm]) else {}) for one in cells]
        return FLUCTUATION in compared_measures(replace(data, cells=tuple(mine)))

    assert shown(LOSS, LOSS, LOSS)
    assert not shown(LOSS, LOSS, replace(LOSS, caption="Another."))
    assert not shown(LOSS, LOSS, None)
    assert not shown(None, None, None)


@pytest.mark.parametrize(("last", "slow", "fast"), [(1, 0.5, 0.45), (2, 0.4, 0.25 + 0.2 * 10 / 15)])
def test_at_equal_commits_the_faster_is_taken_where_the_slower_ends(last, slow, fast):
    """By hand: the fewest are 30, or 25 as the mean of two evaluations, which lie between the other's last two."""

    def made(arm: str, commits: list[int], values: list[float], **more: object) -> CellData:
        one = cell(arm, 0, values, **{"ended_by": "traffic", **more})
        return replace(one, metrics=one.metrics.with_columns(commits=pl.Series(commits)))

    a, b = made("a", [0, 20, 30], [0.1, 0.3, 0.5]), made("b", [0, 10, 20, 40], [0.1, 0.2, 0.3, 0.6])
    main = replace(ACCURACY, last=last)
    by_time = [replace(one, ended_by="time") for one in (a, b)]
    assert len(with_equal_commits(condition(by_time, (), main)).metrics) == 2
    found = with_equal_commits(condition([a, b], (), main))
    assert [metric.label for metric in found.metrics] == ["Accuracy", "Accuracy at equal committed updates"]
    assert found.finals(found.metrics[1])[0].tolist() == pytest.approx([slow, fast])
    assert found.finals(main)[0].tolist() == pytest.approx([slow, 0.6 if last == 1 else 0.45])
    alike = condition([a, made("b", [0, 20, 30], [0.1, 0.2, 0.9])], (), main)
    assert with_equal_commits(alike) is alike, "they committed as many"
    rounds = condition([a, made("b", [0, 20, 40], [0.1, 0.3, 0.6], ended_by="rounds")], (), main)
    assert with_equal_commits(rounds) is rounds, "they are compared after as many rounds"
