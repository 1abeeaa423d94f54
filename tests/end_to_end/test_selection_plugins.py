"""Selection policies and paces of a file on the command line."""

import pytest
from small_runs import interrupted_at

from learners.federated import FederatedLearner
from vnetsim.storage.run_directory import RunDirectory

POLICY = '''
from collections import Counter
from dataclasses import dataclass
from typing import Annotated
from vnetsim.errors.bounds import Within

@dataclass(frozen=True, kw_only=True)
class Mine:
    """Takes the silo with the greatest loss first.

    Equation:  argmax l_n

    Args:
        unseen: loss of a silo without one.
    """
    name, source, uses_losses = "mine", "none", True
    unseen: Annotated[float, Within(0, 10, "nat", "no loss of a classifier is greater")] = 3.0

    def begin(self):
        return Counter()

    def select(self, candidates, free, context):
        unseen = self.unseen + context.memory["n"]
        return sorted(candidates, key=lambda c: -(unseen if c.loss is None else c.loss))

    def after_round(self, records, reported):
        reported["n"] += sum(record.outcome == "committed" for record in records)
'''
FEW = ("--set", "round.invited=2", "--set", "round.quorum=2", "--set", "source.arrivals_per_s=0.8")


def test_resume_equals_uninterrupted_where_the_choice_is_by_losses(cli, toy, results_of, tmp_path):
    (tmp_path / "mine.py").write_text(POLICY)
    options = ("--learner", "toy", "--rounds", "8", "--set", "silos.count=6", "--set", "compute.median_flops=5e7")
    options = (*options, "--set", f"selection.name={tmp_path / 'mine.py'}:Mine", *FEW)
    whole, stopped, other = tmp_path / "whole", tmp_path / "stopped", tmp_path / "other"
    assert cli("run", "gaussian", *options, "--out", whole).status == 0
    losses = RunDirectory(whole).read("participations")["loss"].drop_nulls()
    assert len(losses) >= 12

    with interrupted_at(toy, "train", 5):
        assert cli("run", "gaussian", *options, "--out", stopped).status == 130
    assert cli("resume", stopped, "--trust").status == 0
    expected = results_of(whole)
    assert results_of(stopped) == expected

    random = (*options[: -len(FEW) - 1], "selection.name=random", *FEW)
    assert cli("run", "gaussian", *random, "--out", other).status == 0
    assert results_of(other)["participations.parquet"] != expected["participations.parquet"], "losses decide"


@pytest.mark.parametrize("name", ["least-similar", "mach"])
def test_resume_equals_uninterrupted_where_the_choice_is_by_updates(name, cli, refused, toy, results_of, tmp_path):
    """What decides is read from the checkpoint; MACH weighs unevenly. A learner that tells no figure is refused."""
    crowded = ("source.arrivals_per_s=3", "round.invited=3", "round.quorum=2", f"selection.name={name}")
    quick = ("silos.count=8", "learning.steps=1", "learning.batch=8", "data.train_images=400", "data.test_images=80")
    options = [word for setting in (*crowded, *quick) for word in ("--set", setting)]
    options += ["--learner", "fedavg-classification", "--rounds", "7", "--device", "cpu"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert cli("run", "gaussian", *options, "--out", whole).status == 0
    committed = RunDirectory(whole).read("participations").filter(outcome="committed")
    assert (committed["weight"].n_unique() > 1) == (name == "mach")

    with interrupted_at(FederatedLearner, "train", 5):
        assert cli("run", "gaussian", *options, "--out", stopped).status == 130
    assert cli("resume", stopped, "--trust").status == 0
    assert results_of(stopped) == results_of(whole)

    foreign = ("--learner", toy.name, "--set", f"selection.name={name}", *FEW)
    line = refused("run", "gaussian", *foreign, "--out", tmp_path / "foreign", status=1)
    assert f"selection.name: '{name}' chooses vehicles by the" in line
