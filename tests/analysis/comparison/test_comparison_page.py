"""The page, tables and figures of comparisons made of made-up runs."""

import base64
import html
import json
import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_runs import DRAWN, figures, write_table

from analysis.comparison.loading import load_comparison
from analysis.comparison.page import ComparisonResult, build_comparison
from vnetsim.errors import InputError
from vnetsim.storage.records import FORMAT
from vnetsim.storage.run_directory import RunDirectory

Entry = tuple[str, str, int, str]
"""Arm, condition, seed, traffic."""


Make = Callable[..., Path]


def write_comparison(folder: Path, make_run: Make, entries: Sequence[Entry], **more: Any) -> Path:
    """Write a comparison of made-up runs."""
    cells = []
    for number, (arm, condition, seed, traffic) in enumerate(entries):
        name = f"cell{number}-seed{seed}"
        run = RunDirectory(make_run(folder / "cells" / name, vehicles=40, rounds=3, seed=seed + len(arm)))
        inputs = {"/x/windows.parquet": traffic}
        run.write_json("manifest.json", {**run.manifest(), "inputs": inputs, "time_s": 9.0})
        entry = {"folder": name, "arm": arm, "condition": condition, "learner": arm.split(",")[0]}
        cells.append({**entry, "seed": seed, "traffic": f"traffic/{traffic}"})
    traffics = sorted({entry[3] for entry in entries})
    for traffic in traffics:
        run = RunDirectory(make_run(folder / "traffic" / traffic, vehicles=20))
        manifest = run.manifest()
        seed = 1000 + sum(map(ord, traffic))  # unlike that of the settings, as SUMO's own seed is
        run.write_json("manifest.json", {**manifest, "traffic": {**manifest["traffic"], "seed": seed}})
    recorded = [
        {"folder": f"traffic/{one}", "settings": {"scenario": "gaussian", "seed": 1}, "sha256": one} for one in traffics
    ]
    record = {"cells": cells, "failed": {}, "traffic": recorded, "vnetsim": "0.1.0", "format": FORMAT}
    RunDirectory(folder).write_json("comparison.json", record | more)
    return folder


@pytest.fixture
def made(make_run, tmp_path) -> Make:
    """A function that writes a comparison of made-up runs."""
    return partial(write_comparison, tmp_path, make_run)


@pytest.fixture(scope="module")
def of_learners(make_run, tmp_path_factory) -> Path:
    """A comparison of two learners at three seeds."""
    entries = [(name, "", seed, "abc") for seed in range(3) for name in ("one", "<script>two")]
    return write_comparison(tmp_path_factory.mktemp("learners"), make_run, entries)


@pytest.fixture(scope="module")
def built_study(make_run, tmp_path_factory) -> ComparisonResult:
    """Two arms under two conditions, traffic by condition and seed, and an arm that is skipped; with its page."""
    entries = [
        (arm, condition, seed, f"{condition[:1]}{seed}")
        for seed in range(3)
        for condition in ("dense & slow", "sparse")
        for arm in ("fedavg", "fedavg, <i>lr</i>=0.1")
    ]
    more = {
        "title": "Rates <u>under</u> load",
        "notes": ["The paper does not state <s>it</s>."],
        "skipped": [{"arm": "cdl", "condition": "sparse", "reason": "no <b>neighbours</b>"}],
    }
    with figures(DRAWN):
        return build_comparison(write_comparison(tmp_path_factory.mktemp("study"), make_run, entries, **more))


@pytest.fixture
def folder(of_learners, tmp_path) -> Path:
    """A copy of the comparison of two learners."""
    return shutil.copytree(of_learners, tmp_path / "all")


@pytest.fixture
def study(built_study, tmp_path) -> Path:
    """A copy of the built study."""
    return shutil.copytree(built_study.path.parent, tmp_path / "all")


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_page_of_hostile_names(folder):
    result = build_comparison(folder)
    page = result.path.read_text()
    assert "&lt;script&gt;two" in page
    (code,) = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:; ")
    allowed = base64.b64encode(sha256(code.encode()).digest()).decode()
    assert f"; script-src 'sha256-{allowed}';" in policy
    tables = ("", "_differences", "_measure_differences", "_measures", "_targets")
    files = {f"comparison{name}.{kind}" for name in tables for kind in ("csv", "parquet")}
    assert {path.name for path in folder.glob("comparison*.*")} == files | {"comparison.html", "comparison.json"}
    before = everything(folder)
    build_comparison(folder)
    assert before == everything(folder)


def test_several_conditions(built_study):
    study, page = built_study.path.parent, built_study.path.read_text()
    for markup in ("<u>", "<s>", "<b>neigh", "<i>"):
        assert markup not in page
    for text in (
        "<h1>Rates &lt;u&gt;under&lt;/u&gt; load</h1>",
        "The paper does not state &lt;s&gt;it&lt;/s&gt;.",
        '<h2 class="condition">dense &amp; slow</h2>',
        "Left out on purpose: cdl: no &lt;b&gt;neighbours&lt;/b&gt;",
        "under every condition (Holm): a verdict is given where it is at most 0.05",
        '<section id="conditions">',
        "What differs between the conditions: the recorded traffic, so that a seed has initial weights and data in",
        "all arms replayed the same recorded traffic",
        "The traffic differs from seed to seed.",
        "12 of 12",
    ):
        assert text in page, text
    for traffic in ("d0", "s2"):
        assert f"<td>{traffic}</td>" in page
        assert f"<td>{1000 + sum(map(ord, traffic))}</td>" in page, "the seed that the traffic was made with"
    assert "kNN accuracy: differences (points)" in [table.title for table in built_study.tables]
    rows = [row[0] for table in built_study.tables for row in table.rows]
    assert {"under dense & slow:", "under sparse:", "fedavg, conditions:", "  dense & slow \u2212 sparse"} <= set(rows)
    figures = {path.stem for path in (study / "figures").iterdir()}
    assert {
        "overview-knn",
        "differences-all",
        "c1-curves-knn-bytes",
        "c2-bias-speed",
        "c2-outcomes",
    } <= figures
    assert page.count("<svg") == len(figures)


def test_the_page_leads_with_verdict_and_all_differences(built_study, of_learners):
    page = built_study.path.read_text()
    lead = page.split('<section class="lead">')[1].split("</section>")[0]
    assert page.index('<p class="finding">') < page.index('<section class="lead">') < page.index("<table")
    assert re.findall(r'<figure class="wide" id="figure-([^"]+)">', lead) == [
        "overview-knn",
        "differences-all",
    ]
    first, second = re.findall(r'<p class="(?:finding|verdict)">(.*?)</p>', page)[:2]
    assert re.fullmatch("40 vehicles drove past in a run, in range for .*\u202fs in the median.", first)
    assert second.startswith("fedavg, dense &amp; slow: of ")
    assert '<p class="warning">This comparison did not meet the traffic: fedavg, dense &amp; slow (runs of 9.00' in page
    assert "What decided who took part" in page
    assert "vehicles drove past" in built_study.tables[0].title
    pairs = ("dense & slow: fedavg \u2212", "sparse: fedavg \u2212", "fedavg: dense & slow \u2212 sparse")
    assert all(html.escape(pair) in lead for pair in pairs)
    assert "How to read these tables" in page
    learners = build_comparison(of_learners).path.read_text().split('<section class="lead">')[1].split("</section>")[0]
    assert re.findall(r'<figure class="half" id="figure-([^"]+)">', learners) == [
        "curves-knn",
        "differences-all",
    ]
    assert re.findall(r'<th scope="col" title="mean over standard deviation[^"]*">d_z</th>', page)


def test_the_tables_of_a_study(built_study):
    study = built_study.path.parent
    table = pl.read_parquet(study / "comparison.parquet")
    assert list(table.columns) == [
        "arm", "condition", "learner", "seed", "metric", "unit", "value", "evaluations", "rounds", "simulated_s",
        "bytes", "cell",
    ]  # fmt: skip
    assert set(table["condition"]) == {"dense & slow", "sparse"}
    differences = pl.read_parquet(study / "comparison_differences.parquet")
    assert set(differences.select("compared", "within").rows()) == {
        *(("arms", name) for name in ("dense & slow", "sparse")),
        *(("conditions", name) for name in ("fedavg", "fedavg, <i>lr</i>=0.1")),
    }
    mine = table.filter(arm="fedavg", metric="knn").sort("seed")
    dense, sparse = (mine.filter(condition=name)["value"] for name in ("dense & slow", "sparse"))
    (row,) = differences.filter(compared="conditions", within="fedavg", metric="knn").to_dicts()
    assert (row["first"], row["second"], row["seeds"]) == ("dense & slow", "sparse", 3)
    assert row["difference"] == pytest.approx((dense - sparse).mean())
    assert (row["low"], row["high"], row["p"], row["resolves"], row["verdict"]) == (None, None, None, None, "")
    targets = pl.read_parquet(study / "comparison_targets.parquet")
    assert targets.height == 12
    assert set(targets["metric"]) == {"knn"}
    reached = targets.filter(pl.col("round").is_not_null())
    final = table.filter(pl.col("metric") == "knn").select("cell", "value")
    joined = reached.join(final, on="cell")
    assert joined.height == reached.height > 0
    late = joined.filter(pl.col("round") == 3)
    assert (late["value"] >= late["target"]).all()


def test_seeds_at_which_the_traffic_differs_are_left_out(made):
    entries = [(arm, "", seed, "t1" if (arm, seed) == ("bb", 1) else "t0") for seed in (0, 1) for arm in ("a", "bb")]
    result = build_comparison(made(entries, title="Two traffics"))
    assert "Left out, because not all learners replayed the same traffic there: seed 1." in result.warnings
    assert set(pl.read_parquet(result.path.with_name("comparison.parquet"))["seed"]) == {0}


def test_differences_in_two_groups_are_told_of_all_that_has_an_interval(made):
    """One cell of 24 is far from all others in accuracy, and in commits per hour, for it ended early."""
    entries = [(arm, name, seed, "t0") for seed in range(6) for name in ("x", "y") for arm in ("a", "bb")]
    folder = made(entries, title="Jumps")
    for place in (folder / "cells").iterdir():
        run = RunDirectory(place)
        run.write_json("manifest.json", {**run.manifest(), "time_s": 60_000.0})
    run = RunDirectory(folder / "cells" / "cell0-seed0")
    run.write_json("manifest.json", {**run.manifest(), "time_s": 600.0})
    knn = pl.when(pl.col("name") == "knn").then(pl.lit(50.0))
    write_table(run, "metrics", run.read("metrics").with_columns(knn.otherwise("value").alias("value")))
    (line,) = [line for line in build_comparison(folder).warnings if "two groups" in line]
    for told in (
        "a \u2212 bb in kNN accuracy (x)",
        "x \u2212 y in kNN accuracy (a)",
        "a \u2212 bb in commits per hour (x)",
    ):
        assert told in line


def test_a_condition_of_which_nothing_has_finished(study):
    record = json.loads((study / "comparison.json").read_text())
    record["failed"] = {cell["folder"]: "broke" for cell in record["cells"] if cell["condition"] == "sparse"}
    RunDirectory(study).write_json("comparison.json", record)
    result = build_comparison(study)
    assert "Under sparse: no cell has finished." in result.warnings
    rows = [row[0] for table in result.tables for row in table.rows]
    assert [row for row in rows if row.startswith("under")] == ["under dense & slow:"]
    assert result.tables[1].head[1] == "dense & slow"
    assert not [row for row in rows if row.endswith("conditions:")]


def test_cells_that_are_left_out_are_named(folder):
    """One of another version, one that was altered, one that was interrupted."""
    older, altered, stopped = (
        RunDirectory(folder / "cells" / f"cell{number}") for number in ("0-seed0", "2-seed1", "4-seed2")
    )
    older.write_json("manifest.json", {**older.manifest(), "vnetsim": "0.0.9"})
    metrics = altered.path / "metrics.parquet"
    metrics.write_bytes(metrics.read_bytes() + b" ")
    stopped.write_json("manifest.json", {**stopped.manifest(), "status": "interrupted"})
    lines = build_comparison(folder).warnings
    assert "Left out, because another version of vnetsim ran them: cell0-seed0." in lines
    assert any(line.startswith(f"Left out: {metrics}: altered") for line in lines)
    assert "Not finished, and missing here: cell4-seed2." in lines
    assert set(pl.read_parquet(folder / "comparison.parquet")["cell"]) == {"cell1-seed0", "cell3-seed1", "cell5-seed2"}


def test_a_cell_of_other_traffic_is_named(folder):
    run = RunDirectory(folder / "cells" / "cell2-seed1")
    run.write_json("manifest.json", {**run.manifest(), "inputs": {"/x/windows.parquet": "abd"}})
    with pytest.raises(InputError, match="cell2-seed1: replayed other traffic"):
        load_comparison(folder)


def test_runs_too_short_for_the_mean_are_named_and_left_out(folder):
    record = json.loads((folder / "comparison.json").read_text())
    RunDirectory(folder).write_json("comparison.json", record | {"last_evaluations": 3})
    run = RunDirectory(folder / "cells" / "cell2-seed1")
    write_table(run, "metrics", run.read("metrics").filter(pl.col("round") < 3))
    (line,) = [line for line in build_comparison(folder).warnings if line.startswith("Left out")]
    assert line == ("Left out, because their traffic ended before the 3 evaluations that are compared: cell2-seed1.")
    RunDirectory(folder).write_json("comparison.json", record | {"last_evaluations": 4})
    with pytest.raises(InputError, match="before any cell had the 4 evaluations that are compared"):
        load_comparison(folder)
