"""Learners that go wrong: the run says which and when, and keeps what was finished."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from vnetsim.learning import Participant, Update
from vnetsim.run_directory import RunDirectory

Cli = Callable[..., Any]
Refused = Callable[..., str]
RUN = ("run", "gaussian", "--learner", "toy", "--set", "rounds=3", "--set", "gaussian.duration_s=120")


def test_a_learner_that_raises_is_named_with_its_round(
    toy: type,
    refused: Refused,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    results_of: Callable[[Path], dict[str, bytes]],
    tmp_path: Path,
) -> None:
    train = toy.train

    def fails_late(self: Any, participants: list[Participant]) -> list[Update]:
        if participants[0].round == 2:
            raise ValueError("wrong\nshape")
        return list(train(self, participants))

    monkeypatch.setattr(toy, "train", fails_late)
    line = refused(*RUN, "--out", tmp_path / "run", status=1)
    assert line.startswith(
        "vnetsim: learner 'toy' failed in round 2: ValueError: wrong shape. Earlier rounds are kept."
    )
    assert line.endswith(f"go on with: vnetsim resume {tmp_path / 'run'}\n")
    run = RunDirectory(tmp_path / "run")
    assert run.manifest()["status"] == "failed"
    assert run.read("rounds").height == 2
    assert cli("report", run.path).status == 0
    assert "The run failed" in (run.path / "report.html").read_text()

    monkeypatch.setattr(toy, "train", train)  # mended
    assert cli("resume", run.path).status == 0
    assert cli(*RUN, "--out", tmp_path / "whole").status == 0
    assert results_of(run.path) == results_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("method", "when"), [("aggregate", "in round 0"), ("evaluate", "before the first round"), ("train", "in round 0")]
)
def test_every_part_of_a_learner_may_fail(
    method: str, when: str, toy: type, refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(toy, method, fails)
    line = refused(*RUN, "--out", tmp_path / "run", status=1)
    assert line.startswith(f"vnetsim: learner 'toy' failed {when}: ZeroDivisionError. ")


def test_a_traceback_is_there_for_who_writes_a_learner(
    toy: type, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def a_bug_of_mine(*_: Any) -> None:
        raise IndexError("5")

    monkeypatch.setattr(toy, "train", a_bug_of_mine)
    done = cli(*RUN, "--debug", "--out", tmp_path / "run")
    assert done.status == 1
    assert "in a_bug_of_mine" in done.err
    assert done.err.splitlines()[-1].startswith("vnetsim: learner 'toy' failed in round 0: IndexError: 5.")


def test_updates_that_are_not_finite_are_rejected_and_the_others_aggregated(
    toy: type, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    train = toy.train
    bad: list[tuple[int, str]] = []

    def spoils_some(self: Any, participants: list[Participant]) -> list[Update]:
        updates = list(train(self, participants))
        spoilt = {0: [0], 1: range(len(updates)), 2: []}[participants[0].round]  # one, all, none
        for k in spoilt:
            state = {"w": torch.full((4,), torch.nan)}
            updates[k] = replace(updates[k], state=state, loss=float("nan"), finite=False)
            bad.append((participants[k].round, participants[k].vehicle_id))
        return updates

    monkeypatch.setattr(toy, "train", spoils_some)
    done = cli(*RUN, "--out", tmp_path / "run")
    assert (done.status, done.err) == (0, "")
    run = RunDirectory(tmp_path / "run")
    parts, rounds = run.read("participations"), run.read("rounds")
    rejected = parts.filter(pl.col("outcome") == "rejected")
    assert sorted(rejected.select("round", "vehicle_id").iter_rows()) == sorted(bad)
    assert rejected["weight"].is_null().all()
    assert rejected["loss"].is_null().all()
    assert (rejected["upload_bytes"] > 0).all()
    assert rounds["rejected"].to_list() == [1, rounds["rejected"][1], 0]
    assert rounds["committed"][1] == 0
    assert rounds["rejected"][1] > 1
    assert rounds["loss"].is_null().to_list() == [False, True, False]
    weights = parts.filter(pl.col("outcome") == "committed").group_by("round").agg(pl.col("weight").sum())
    assert weights.sort("round")["weight"].to_list() == pytest.approx([1, 1])
    distance = run.read("metrics").filter(pl.col("name") == "distance")["value"].to_list()
    assert distance[0] == 0
    assert distance[1] == distance[2] != distance[3], "the model is kept where nothing could be aggregated"


def test_a_learner_that_keeps_no_model_is_told(
    toy: type, refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(toy, "state_dict", lambda self: {"w": self._model})
    line = refused(*RUN, "--out", tmp_path / "run", status=1)
    assert "learner 'toy' keeps no tensors under 'model.'; nothing to save as its model." in line
    assert RunDirectory(tmp_path / "run").read("rounds").height == 3
