"""Codecs and hostile vehicles in whole runs: timing, bytes, tables, page, resumed runs, wrong input."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_runs import SMALL_TIMING, interrupted_at

import vnetsim
from analysis.loading import load
from analysis.report.headline import headline
from learners.classification_fedavg import ClassificationFedAvg
from vnetsim.storage.run_directory import RunDirectory

Cli = Callable[..., Any]
Refused = Callable[..., str]
ResultsOf = Callable[[Path], dict[str, bytes]]
LEARNER = (*SMALL_TIMING, "--learner", "fedavg-classification")
TOP_K = ("--set", "codec.name=top-k", "--set", "codec.share=0.05", "--set", "download_codec=int8")
HOSTILE = ("--set", "hostile.share=0.4", "--set", "conduct.name=sign-flip")


@pytest.fixture(scope="module")
def trained(cli: Cli, scenarios: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rounds with a codec each way and hostile vehicles."""
    folder = tmp_path_factory.mktemp("codecs") / "run"
    done = cli("run", scenarios / "gaussian.toml", *LEARNER, *TOP_K, *HOSTILE, "--rounds", "3", "--out", folder)
    assert (done.status, done.err) == (0, "")
    return folder


@pytest.fixture(scope="module")
def timed(cli: Cli, scenarios: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without training."""
    folder = tmp_path_factory.mktemp("codecs") / "timed"
    command = ("run", scenarios / "gaussian.toml", *LEARNER, *TOP_K, *HOSTILE, "--timing-only")
    assert cli(*command, "--out", folder).status == 0
    return folder


def loaded(folder: Path) -> vnetsim.Run:
    run = vnetsim.load(folder)
    assert isinstance(run, vnetsim.Run)
    return run


def test_timing_is_that_of_training_and_bytes_follow_from_the_codec(trained: Path, timed: Path) -> None:
    run = loaded(trained)
    both = [one.participations.filter(pl.col("round") < 3).drop("weight", "loss") for one in (loaded(timed), run)]
    assert both[0].equals(both[1])
    values = RunDirectory(trained).manifest()["learner"]["cost"]["model"]["bytes"] // 4
    committed = run.participations.filter(outcome="committed")
    count = -(-values * 5 // 100)
    assert set(committed["upload_bytes"]) == {4 * count + min(4 * count, -(-values // 8))}
    assert set(committed["download_bytes"]) == {values + 4}


def test_page_and_table_say_who_and_with_what(trained: Path, timed: Path) -> None:
    run = loaded(timed)
    page = (timed / "report.html").read_text()
    assert "top-k (share = 0.05) up, int8 down" in page
    assert set(run.hostile["conduct"]) == {"sign-flip"}
    hostile, parts = set(run.hostile["vehicle_id"]), run.participations
    vehicles, commits = set(parts["vehicle_id"]), parts.filter(outcome="committed")["vehicle_id"].to_list()
    assert set(loaded(trained).hostile["vehicle_id"]) == hostile & set(loaded(trained).participations["vehicle_id"])
    assert 0 < len(hostile) < len(vehicles)
    share, of_commits = len(hostile) / len(vehicles), sum(one in hostile for one in commits) / len(commits)
    words = f"{len(hostile)} of {len(vehicles)} vehicles ({share:.0%}), {of_commits:.0%} of the commits: sign-flip"
    assert words in re.sub(r"\s+%", "%", dict(headline(load(timed)))["Hostile"])
    assert "of the commits: sign-flip" in page


def test_a_stopped_run_goes_on_to_the_same_bits(
    trained: Path, cli: Cli, scenarios: Path, tmp_path: Path, results_of: ResultsOf
) -> None:
    command = ("run", scenarios / "gaussian.toml", *LEARNER, *TOP_K, *HOSTILE, "--rounds", "3")
    with interrupted_at(ClassificationFedAvg, "aggregate", 2):
        assert cli(*command, "--out", tmp_path / "run").status == 130
    assert cli("resume", tmp_path / "run").status == 0
    first, again = results_of(trained), results_of(tmp_path / "run")
    assert {name for name in first if first[name] != again[name]} == set()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("codec.name=top-k", "codec.share=0"), "codec.share must be between"),
        (("codec.name=top-k", "codec.share=1.5"), "codec.share must be between"),
        (("codec.name=qsgd", "codec.levels=0"), "codec.levels must be between"),
        (("codec.name=qsdg",), "codec.name: unknown codec 'qsdg'. Did you mean 'qsgd'?"),
        (("download_codec=top-k",), "download_codec"),
        (("hostile.share=0.2",), "hostile.share: hostile vehicles need conduct.name"),
        (('hostile.vehicles=["a"]',), "hostile.vehicles: hostile vehicles need conduct.name"),
        (("hostile.share=1.5", "conduct.name=ipm"), "hostile.share must be between 0 and 1"),
        (("learner=dsgd", "codec.name=int8"), "neighbours of dsgd mix their models"),
        (("learner=flsimco", "conduct.name=label-flip", "hostile.share=0.1"), "trains without classes"),
    ],
)
def test_wrong_input_is_one_line(options: tuple[str, ...], message: str, refused: Refused, tmp_path: Path) -> None:
    settings = [part for option in options for part in ("--set", option)]
    assert message in refused("run", "gaussian", *SMALL_TIMING, *settings, "--out", tmp_path / "run")
