"""Two runs on one page: what differs stands in their titles, and who plays different traffic is told so."""

import re

import polars as pl
import pytest
from small_runs import write_table

from analysis.loading import load
from analysis.report.side_by_side import build_side_by_side
from vnetsim.errors import InputError
from vnetsim.storage.run_directory import RunDirectory


def test_two_runs_in_step(tmp_path, make_run):
    left, right = (make_run(tmp_path / name, vehicles=20) for name in ("left", "right"))
    directory = RunDirectory(right)
    text = directory.read_bytes("experiment.toml").decode()
    directory.put({"experiment.toml": f"{text}\n[radio]\nname = '<b>mine'\n".encode()})
    page = build_side_by_side(left, right).read_text(encoding="utf-8")
    assert page.count('type="application/octet-stream"') == 2
    invited = load(left).invited
    committed = (invited["outcome"] == "committed").sum()
    says = f"{committed} committed, {committed / invited.height:.0%} of {invited.height} invitations".replace("%", " %")
    assert page.replace("\u202f", " ").replace("\xa0", " ").count(says) == 2
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["radio.name = -", "radio.name = &lt;b&gt;mine"]
    assert "saw different traffic" not in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(set(ids)) == len(ids) > 2, "the two maps share none"
    assert "script-src 'sha256-" in page
    windows = directory.read("windows")
    moved = windows.with_columns(
        pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("other")).otherwise("vehicle_id").alias("vehicle_id")
    )
    write_table(directory, "windows", moved)
    assert "saw different traffic" in build_side_by_side(left, right).read_text(encoding="utf-8")


def test_nobody_to_play(tmp_path, make_run):
    left, right = (make_run(tmp_path / name, vehicles=number) for name, number in (("left", 5), ("right", 0)))
    with pytest.raises(InputError, match="nobody was in coverage: there is nothing to play"):
        build_side_by_side(left, right)
