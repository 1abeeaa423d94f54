"""Learners that go wrong: the run says which and when, and keeps what was finished."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_runs import TINY

from vnetsim.learning import Participant, Update
from vnetsim.storage.run_directory import RunDirectory

RUN = ("run", "gaussian", "--learner", "toy", "--set", "rounds=3", "--set", "traffic.end_s=120")


def spoil(toy: type, monkeypatch: pytest.MonkeyPatch, method: str, change: Callable[..., Any]) -> None:
    """Let ``change`` make something else of what a method returns: ``change(result, *arguments)``."""
    original = getattr(toy, method)

    def spoilt(self: Any, *arguments: Any, **named: Any) -> Any:
        return change(original(self, *arguments, **named), *arguments)

    monkeypatch.setattr(toy, method, spoilt)


def test_a_learner_that_raises_is_named_with_its_round(toy, refused, cli, monkeypatch, results_of, tmp_path):
    whole = tmp_path / "whole"
    assert cli(*RUN, "--out", whole).status == 0
    train = toy.train

    def third_raises(updates: list[Update], participants: list[Participant]) -> list[Update]:
        if participants[0].round == 2:
            raise ValueError("wrong\nshape")
        return updates

    spoil(toy, monkeypatch, "train", third_raises)
    line = refused(*RUN, "--out", tmp_path / "run", status=1)
    assert line.startswith("vnetsim: learner 'toy' failed in train in round 2: ValueError: wrong shape.")
    assert line.endswith(f"go on with: vnetsim resume {tmp_path / 'run'}\n")
    run = RunDirectory(tmp_path / "run")
    assert run.manifest()["status"] == "failed"
    assert run.read("rounds").height == 2
    assert cli("report", run.path).status == 0
    assert "The run failed" in (run.path / "report.html").read_text()

    monkeypatch.setattr(toy, "train", train)  # mended
    assert cli("resume", run.path).status == 0
    assert results_of(run.path) == results_of(whole)


def with_state(update: Update, **state: Any) -> Update:
    return replace(update, state=state)


def test_a_steering_learner_that_diverges_keeps_the_last_finite_model(cli, tmp_path):
    settings = {**TINY, "rounds": 3, "cost.model": "trained", "data.image_px": 20}
    settings |= {"learning.optimizer": "sgd", "learning.lr": 30}
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    done = cli("run", "gaussian", "--learner", "fedavg-steering", *given, "--out", tmp_path / "run", status=0)
    assert re.search(r"note: [24] of 6 updates were not finite: lower\s+learning.lr", done.out)
    run = RunDirectory(tmp_path / "run")
    rmse = run.read("metrics").filter(name="rmse")["value"].to_list()
    assert len(rmse) == 4
    assert rmse[0] < 1
    assert rmse[-1] == torch.finfo(torch.float32).max, "the angles overflow, the weights do not"
    tensors = load_file(tmp_path / "run" / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_a_metric_that_is_not_finite_keeps_the_rounds_before_and_says_what_helps(toy, refused, monkeypatch, tmp_path):
    figures = iter([1.0, 0.5, math.nan])
    spoil(toy, monkeypatch, "evaluate", lambda _: {"distance": next(figures)})
    line = refused(*RUN, "--out", tmp_path / "run", status=1)
    assert "failed in evaluate: its 'distance' is nan; what is no finite number is to be left out" in line
    assert "If training diverged, start again with a lower learning.lr; if the code is at fault, mend it" in line
    assert RunDirectory(tmp_path / "run").read("rounds").height == 1


W = torch.zeros(4, dtype=torch.float64)
OF_A_VEHICLE = r"in round 0 at vehicle '[^']+': "


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("train", lambda us, _: us[:-1], r"in round 0: train returned 4 updates for 5 participants"),
        ("train", lambda us, _: us[::-1], OF_A_VEHICLE + r"its update is of vehicle '[^']+'; expected one each"),
        (
            "train",
            lambda us, _: [us[0], with_state(us[1], w=W[:1]), *us[2:]],
            OF_A_VEHICLE + r"tensor 'w' of its update has shape \(1,\), in the model \(4,\)",
        ),
        (
            "train",
            lambda us, _: [*us[:-1], with_state(us[-1], w=W, v=W)],
            OF_A_VEHICLE + r"its update and that of vehicle '[^']+' differ in their tensors: v\.",
        ),
        (
            "train",
            lambda us, _: [with_state(u, w=W, rows=torch.zeros(1 + i, 2 + i // 4)) for i, u in enumerate(us)],
            OF_A_VEHICLE + r"tensor 'rows' of its update has shape \(5, 3\), that of another vehicle \(1, 2\)",
        ),
        ("train", lambda us, _: [with_state(u, w=[1.0]) for u in us], "'w' of its update is a list, expected a tensor"),
        ("train", lambda us, _: [replace(u, loss="low") for u in us], OF_A_VEHICLE + "its update needs .* as loss"),
        ("aggregate", lambda *_: None, "in aggregate in round 0: it returned None, expected an Aggregation"),
        ("aggregate", lambda a, _: replace(a, weights=a.weights[1:]), "aggregate returned 4 weights for 5 updates"),
        ("aggregate", lambda a, _: replace(a, weights=[0.1] * 5), r"in round 0: its weights sum to 0\.5, expected 1"),
        (
            "aggregate",
            lambda a, _: replace(a, weights=[0.5, 1.5, -1, 0, 0]),
            OF_A_VEHICLE + "its weight is -1, expected a finite number of at least 0",
        ),
        ("aggregate", lambda a, _: replace(a, metrics={"x": math.inf}), "in round 0: its 'x' is inf; what is"),
        (
            "aggregate",
            lambda a, _: replace(a, exchanges={("a", "b"): math.nan}),
            "in round 0: its 'exchange from 'a' to 'b'' is nan",
        ),
        ("evaluate", lambda _: {"distance": math.nan}, "in evaluate: its 'distance' is nan"),
        ("cost", lambda cost, silo: 3 if silo else cost, r"in cost: it returned 3, expected Cost"),
        (
            "cost",
            lambda cost, _: replace(cost, work_flop=math.nan),
            "in cost: it returned nan, expected a finite number",
        ),
        ("describe", lambda _: 3, "in describe: it returned 3, expected Description; see vnetsim.learning.Learner"),
        ("evaluate", lambda _: None, "in evaluate: it returned None, expected a mapping"),
        ("train", lambda us, _: [3] * len(us), OF_A_VEHICLE + "it returned 3, expected an Update each"),
    ],
)
def test_what_is_not_as_the_protocol_says_is_told(method, change, message, toy, refused, monkeypatch, tmp_path):
    spoil(toy, monkeypatch, method, change)
    line = refused(*RUN, "--set", "round.quorum=5", "--out", tmp_path / "run", status=1)
    assert re.match(f"vnetsim: learner 'toy' failed .*{message}", line), line
