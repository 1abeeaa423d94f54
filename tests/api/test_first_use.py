"""What somebody tries first in a notebook: classes of a cell, short names, live curves, and what goes wrong."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import TINY

import vnetsim
from learners.classification_fedavg import ClassificationFedAvg


class Mine(ClassificationFedAvg):
    name = "mine"


@dataclass(frozen=True, kw_only=True)
class Backwards:
    name = "backwards"
    source = "a test"

    def select(self, candidates: Any, *_: object) -> Any:
        return candidates[::-1]


def run(out: Path, **more: Any) -> vnetsim.Run:
    return vnetsim.run("gaussian", out=out, settings=TINY, **{"progress": False, "rounds": 2, **more})


def test_classes_of_a_notebook_are_run(tmp_path):
    made = run(tmp_path / "run", learner=Mine, selection=Backwards, encoder="small", rounds=1)
    assert made.learner["name"] == "mine"
    assert made.settings["learner"].startswith("Mine@")
    assert made.settings["selection"]["name"].startswith("Backwards@")
    assert made.manifest["plugins"]["selection"]["name"] == "backwards"
    assert made.settings["learning"]["encoder"] == "small"
    plain = run(tmp_path / "plain", learner=ClassificationFedAvg, rounds=1)
    assert plain.settings["learner"] == "fedavg-classification"
    assert vnetsim.resume(made.path, learner=Mine).status == "finished"
    with pytest.raises(vnetsim.InputError, match="which its workers do not have; put it in a file"):
        vnetsim.compare("gaussian", learners=[Mine, "fedavg-classification"], workers=2, settings=TINY)


def test_a_table_may_be_named_for_what_it_chooses():
    made = vnetsim.Experiment("gaussian", data="cifar10", radio="constant", data__train_images=50)
    assert (made.data.name, made.data.train_images, made.radio["name"]) == ("cifar10", 50, "constant")


def test_a_class_that_was_changed_is_another():
    space: dict[str, Any] = {"Base": ClassificationFedAvg}
    names = []
    for value in (1, 1, 2):
        exec(f"class Typed(Base):\n    name = 'typed'\n    def mine(self, p):\n        return [{value}]\n", space)
        names.append(vnetsim.Experiment("gaussian", learner=space["Typed"]).learner)
    assert names[0] == names[1] != names[2]
    with pytest.raises(vnetsim.InputError, match=r"'Typed@00000000' is a class that a script or"):
        vnetsim.Experiment("gaussian", learner="Typed@00000000")


def test_it_is_told_of_every_round_and_may_stop(tmp_path):
    seen: list[int] = []

    def on_round(done: int, metrics: Any) -> bool:
        seen.append(done)
        assert 0 <= metrics["accuracy"] <= 1
        return done < 2

    stopped = run(tmp_path / "run", learner=Mine, rounds=5, on_round=on_round)
    assert seen == [1, 2]
    assert (stopped.status, stopped.manifest["ended_by"]) == ("finished", "caller")
    assert (stopped.rounds.height, stopped.model().round) == (2, 2)
    whole = run(tmp_path / "whole", learner=Mine, rounds=5)
    assert whole.rounds["close_s"][:2].equals(stopped.rounds["close_s"])
    assert "its caller ended it" in stopped.report().path.read_text()


def test_windows_say_how_long_they_last(tmp_path):
    traffic = vnetsim.mobility("gaussian", traffic__end_s=60, out=tmp_path / "traffic", progress=False)
    lasted = traffic.windows["exit_s"] - traffic.windows["enter_s"]
    assert traffic.windows["dwell_s"].equals(lasted, check_names=False)
    assert traffic.windows["dwell_s"].drop_nulls().min() > 0
    assert traffic.units["windows"]["dwell_s"] == "s"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vnetsim.run("gaussian", rounds="ten"), r"^rounds: expected a whole number, got 'ten'\.$"),
        (lambda: vnetsim.Experiment(evaluate_evry=3), "unknown key 'evaluate_evry'. Did you mean 'evaluate_every'"),
        (lambda: vnetsim.run("gaussian", radio={"efficiency": {}}), "radio.efficiency: expected a number"),
        (lambda: vnetsim.Experiment(nonsense={}), "unknown key 'nonsense'"),
        (lambda: vnetsim.run("gaussian", settings=[("rounds", 3)]), "settings: expected a mapping"),
        (lambda: vnetsim.Experiment(settings={3: 4}), "settings: expected a text, got"),
        (lambda: vnetsim.Experiment(5), "scenario: expected a path or a name, got 5"),
        (lambda: vnetsim.run("gaussian", learner="fedavg", out=5), "out: expected a path or a name, got 5"),
        (lambda: vnetsim.run("gaussian", lr=0.1), r"unknown setting 'lr'\. Did you mean learning__lr\?"),
        (lambda: vnetsim.run("gaussian", quorum=3), r"unknown setting 'quorum'\. Did you mean round__quorum\?"),
        (lambda: vnetsim.run("gaussian", warmup=60), r"unknown setting 'warmup'\. Did you mean traffic__warmup_s\?"),
        (lambda: vnetsim.run("gaussian", rsu_spacing=60), r"Did you mean traffic__rsu_spacing_m\?"),
        (lambda: vnetsim.run("gaussian", epochs=2), r"Did you mean learning__steps or rounds\?"),
        (lambda: vnetsim.run("gaussian", batch_size=2), r"Did you mean learning__batch\?"),
        (lambda: vnetsim.run("gaussian", learner="CDL"), r"unknown learner 'CDL'\. Did you mean 'cdl'\?"),
        (lambda: vnetsim.run("gaussian", selection="oorty"), "selection.name: unknown selection policy 'oorty'"),
        (lambda: vnetsim.run("gaussian", rounds=int), r"rounds: expected a value, got the class int; classes may be"),
        (lambda: vnetsim.run("gaussian", selection=int), "int: it lacks name, source, select"),
        (lambda: vnetsim.run("gaussian", learner=3), "learner: expected a string, got 3"),
        (lambda: vnetsim.run("gaussian", progress="yes"), "progress: expected True, False or a ProgressDisplay"),
        (lambda: vnetsim.run("gaussian", out="a\0b"), "out: 'a.*' has characters that no name can have"),
        (lambda: vnetsim.run("gaussian", learner="\udc80"), "has characters that no name can have"),
        (lambda: vnetsim.run("gau\0ssian"), "scenario: .*has characters that no name can have"),
        (lambda: vnetsim.run("gaussian", rsu=3), "traffic.rsu: expected a list of strings"),
        (lambda: vnetsim.compare("gaussian", learners=3), "learners: expected a text, got 3"),
        (lambda: vnetsim.compare("gaussian", learners=[3]), "learners: expected a text, got 3"),
        (
            lambda: vnetsim.compare("gaussian", seeds=1.5),
            r"seeds: expected one, or several such as range\(8\), got 1\.5",
        ),
        (lambda: vnetsim.compare("gaussian", learners=["cdl"], workers="2"), "workers: expected a whole number"),
        (lambda: vnetsim.compare("gaussian", learners=["cdl", "dsgd"], size=3), "size: expected a text, got 3"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(vnetsim.InputError, match=message) as told:
        call()
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_a_process_of_other_tensors_computes_the_same(tmp_path):
    plain = run(tmp_path / "plain")
    torch.set_default_dtype(torch.float64)
    try:
        other = run(tmp_path / "other")
    finally:
        torch.set_default_dtype(torch.float32)
    assert other.metrics.equals(plain.metrics)


def test_what_runs_take_is_documented():
    for function in (vnetsim.run, vnetsim.compare, vnetsim.resume):  # `mobility` takes what `run` takes
        for name in inspect.signature(function).parameters:
            assert f"        {name}: " in (function.__doc__ or ""), (function.__name__, name)
