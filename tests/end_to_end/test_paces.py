"""Paces that end training early, and training outside coverage, from the command line to the folder and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import interrupted_at

from vnetsim.storage.run_directory import RunDirectory

QUICK = ("--learner", "toy", "--rounds", "6", "--set", "silos.count=6", "--set", "traffic.range_m=150")
SLOW = ("--set", "compute.median_flops=2e7", "--set", "round.quorum=2", "--set", "round.invited=4")


@pytest.mark.parametrize(
    "rules",
    [
        ("pace.name=early-upload", "pace.margin=0.5"),
        ("pace.name=mob-fl", "pace.predictor=oracle"),
        ("handover.policy=forward", "handover.longest_gap_s=1e6", "round.max_staleness=1"),
    ],
    ids=lambda rules: rules[0].partition("=")[2],
)
def test_a_killed_run_resumes_to_the_bits_of_the_uninterrupted_one(
    rules: tuple[str, ...],
    cli: Callable[..., Any],
    toy: Any,
    results_of: Callable[[Path], dict[str, bytes]],
    tmp_path: Path,
) -> None:
    options = (*QUICK, *SLOW, *(word for rule in rules for word in ("--set", rule)))
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    done = cli("run", "gaussian", *options, "--out", whole)
    assert (done.status, done.err) == (0, "")
    run = RunDirectory(whole)
    rows = run.read("participations")
    committed = rows.filter(rows["outcome"] == "committed")
    assert committed.height >= 6
    if rules[0].startswith("pace"):
        shares = set(committed["work_share"])
        assert min(shares) < 1
        assert shares <= {0.25, 0.5, 0.75, 1.0}
        assert run.manifest()["plugins"]["pace"]["name"] in rules[0]
    else:
        left = rows.filter(rows["outcome"] == "left_training")
        assert left["outside_s"].max() > 0
    invited = rows.filter(rows["outcome"] != "not_selected")
    assert invited["remaining_straight_s"].null_count() == 0
    with interrupted_at(toy, "train", 3):
        assert cli("run", "gaussian", *options, "--out", stopped).status == 130
    assert cli("resume", stopped).status == 0
    assert results_of(stopped) == results_of(whole)


def test_a_learner_whose_training_cannot_be_divided_is_refused(
    refused: Callable[..., str], toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = toy.cost
    monkeypatch.setattr(toy, "cost", lambda self, silo: replace(cost(self, silo), steps=0))
    line = refused("run", "gaussian", *QUICK, "--set", "pace.name=early-upload", "--out", tmp_path / "run")
    assert "pace.name: 'early-upload' ends the training after some of the local steps, and that of toy" in line
    assert not (tmp_path / "run").exists()
