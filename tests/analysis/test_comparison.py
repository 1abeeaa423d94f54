"""Verdicts in words, figures and the page of a comparison, from made-up cells."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.comparison import build_comparison, cell_table, differing_settings
from analysis.comparison_loading import CellData, ComparisonData, Metric, load_comparison
from analysis.comparison_statistics import paired_difference
from analysis.comparison_verdicts import compare_pairs, friedman_words, p_words, verdict
from analysis.plots.comparison import curve, curve_panel, difference_panel, mean_and_interval, outcome_panel
from analysis.style import styled
from vnetsim.errors import InputError
from vnetsim.run_directory import RunDirectory

ACCURACY = Metric(name="accuracy", label="Accuracy", unit="%", caption="On images that no vehicle holds.")
LOSS = Metric(name="loss", label="Loss", unit="", caption="")
ERROR = Metric(name="rmse", label="Error", unit="rad", caption="")


def cell(learner: str, seed: int, values: list[float], **more: object) -> CellData:
    rows = [(round_, 10.0 * round_, "accuracy", value) for round_, value in enumerate(values)]
    given: dict[str, object] = {
        "name": f"{learner}-seed{seed}",
        "learner": learner,
        "seed": seed,
        "ended_by": "rounds",
        "rounds": len(values) - 1,
        "wanted_rounds": len(values) - 1,
        "time_s": 100.0,
        "moved_bytes": 1e6,
        "metrics": pl.DataFrame(rows, schema=["round", "time_s", "name", "value"], orient="row"),
        "outcomes": {"committed": 3, "deadline": 1},
        "series": {"accuracy": ACCURACY},
        "settings": {"rounds": 3},
    }
    return CellData(**{**given, **more})  # type: ignore[arg-type]


def comparison(cells: list[CellData], learners: tuple[str, ...] = ("a", "b", "c")) -> ComparisonData:
    return ComparisonData(
        record={"failed": {}, "cells": []},
        traffic={},
        learners=learners,
        seeds=tuple(dict.fromkeys(one.seed for one in cells)),
        cells=tuple(cells),
        unfinished=(),
        metrics=(ACCURACY,),
        other_meanings=(),
        alike=(),
    )


@pytest.fixture
def ten() -> ComparisonData:
    """Ten seeds: c is above a and b at every one, which differ by chance alone."""
    rng = np.random.default_rng(5)
    level = rng.uniform(0.3, 0.5, 10)
    noise = 0.01 * rng.normal(size=(10, 3))
    return comparison(
        [
            cell(name, seed, [0.1, 0.2, float(level[seed] + noise[seed, i] + 0.04 * (name == "c"))])
            for seed in range(10)
            for i, name in enumerate("abc")
        ]
    )


def test_what_is_resolved_and_what_is_not(ten: ComparisonData) -> None:
    ab, ac, bc = compare_pairs(ten, ACCURACY)
    assert ab.verdict.startswith("no difference resolved at 10 seeds")
    assert ac.verdict.startswith("c higher by ")
    assert " points (95\u202f% interval " in ac.verdict
    assert ac.found.mean < 0
    assert ac.holm_p == pytest.approx(3 * 2 / 1024)
    assert bc.holm_p == pytest.approx(max(3 * 2 / 1024, 2 * bc.found.p_value))
    assert "chi-square" in friedman_words(ten, ACCURACY)


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


def test_only_seeds_that_both_have_are_paired(ten: ComparisonData) -> None:
    less = replace(ten, cells=tuple(c for c in ten.cells if (c.learner, c.seed) not in {("a", 0), ("b", 1)}))
    assert [pair.found.count for pair in compare_pairs(less, ACCURACY)] == [8, 9, 9]
    finals = less.finals(ACCURACY)
    assert np.isnan(finals).sum() == 2
    assert np.isnan(finals[0, 0])
    assert np.isnan(finals[1, 1])


def test_the_curve_is_that_of_rounds_all_seeds_reached() -> None:
    data = comparison([cell("a", 0, [0.1, 0.2, 0.3]), cell("a", 1, [0.3, 0.4])], ("a",))
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
    data = comparison([cell(name, seed, [0.1, 0.2 + seed / 10]) for seed in range(3) for name in names], names)
    with styled():
        panels = [
            curve_panel(data, ACCURACY, 1),
            difference_panel(ACCURACY, compare_pairs(data, ACCURACY), 1),
            outcome_panel(data),
        ]
    for panel in panels:
        texts = [element.text for element in ET.fromstring(panel.svg).iter() if element.tag.endswith("}text")]
        assert any(name in str(text) for text in texts for name in names), panel.name
    assert "<b> 75.0" in panels[2].caption


def test_learners_that_differ_in_more_than_their_own_settings_are_told_apart() -> None:
    cells = [cell("a", 0, [0.1, 0.2]), cell("b", 0, [0.1, 0.2], settings={"rounds": 3, "data.name": "road"})]
    assert differing_settings(comparison(cells, ("a", "b"))) == ["data.name"]


def test_the_table_has_a_row_for_each_cell_and_metric(ten: ComparisonData) -> None:
    table = cell_table(ten)
    assert table.height == 30
    assert table["value"].to_list() == [one.final("accuracy") for one in ten.cells]


@pytest.fixture
def folder(make_run, tmp_path: Path) -> Path:  # type: ignore[no-untyped-def]
    """A comparison of two learners at three seeds, made of made-up runs."""
    cells = []
    for seed in range(3):
        for learner in ("one", "<script>two"):
            name = f"{learner}-seed{seed}"
            run = RunDirectory(
                make_run(tmp_path / "cells" / name, vehicles=20, rounds=3, seed=seed + 10 * len(learner))
            )
            run.write_json("manifest.json", {**run.manifest(), "inputs": {"/x/windows.parquet": "abc"}, "time_s": 9.0})
            cells.append({"folder": name, "learner": learner, "seed": seed, "traffic": "traffic/abc"})
    run = RunDirectory(tmp_path)
    make_run(tmp_path / "traffic" / "abc", vehicles=20)
    traffic = [{"folder": "traffic/abc", "settings": {"scenario": "gaussian"}, "sha256": "abc"}]
    run.write_json("comparison.json", {"cells": cells, "failed": {}, "traffic": traffic, "vnetsim": "0.1.0"})
    return tmp_path


def test_the_page_of_hostile_names(folder: Path) -> None:
    result = build_comparison(folder)
    page = result.path.read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;two" in page
    assert sorted(path.name for path in folder.glob("comparison.*")) == [
        "comparison.csv",
        "comparison.html",
        "comparison.json",
        "comparison.parquet",
    ]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    build_comparison(folder)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_units_travel_with_the_table(folder: Path) -> None:
    build_comparison(folder)
    metadata = pl.read_parquet_schema(folder / "comparison.parquet")
    assert list(metadata) == [
        "learner", "seed", "metric", "unit", "value", "rounds", "time_s", "bytes", "cell",
    ]  # fmt: skip


def test_a_cell_of_other_traffic_is_named(folder: Path) -> None:
    run = RunDirectory(folder / "cells" / "one-seed1")
    run.write_json("manifest.json", {**run.manifest(), "inputs": {"/x/windows.parquet": "abd"}})
    with pytest.raises(InputError, match="one-seed1: replayed other traffic"):
        load_comparison(folder)


def test_what_is_unfinished_is_told(folder: Path) -> None:
    run = RunDirectory(folder / "cells" / "one-seed1")
    run.write_json("manifest.json", {**run.manifest(), "status": "interrupted"})
    (line,) = [line for line in build_comparison(folder).warnings if line.startswith("Not finished")]
    assert "one-seed1" in line


@pytest.mark.parametrize("text", ["{}", "[]", '{"cells": [{}], "traffic": [], "failed": {}}', "{"])
def test_a_damaged_record_is_refused(folder: Path, text: str) -> None:
    (folder / "comparison.json").write_text(text)
    with pytest.raises(InputError, match=r"comparison\.json"):
        load_comparison(folder)
