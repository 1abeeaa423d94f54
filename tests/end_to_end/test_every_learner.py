"""Every installed learner, from the command line: on each kind of traffic, and interrupted."""

from itertools import cycle

import pytest
from small_runs import interrupted_at

from vnetsim.learning.kinds import LEARNERS
from vnetsim.storage.run_directory import RunDirectory

ROUNDS = (
    *("--device", "cpu", "--rounds", "3", "--set", "silos.count=6", "--set", "cost.model=trained"),
    *("--set", "round={quorum=5, invited=8, max_staleness=0}"),
)  # vehicles commit, and are many enough to be in contact
QUICK = {
    "contrastive": ("learning.batch=8", "learning.steps=1", "learning.bank=60", *(
        "learning.linear_probe=never", "data.train_images=120", "data.test_images=30")),
    "classification": ("learning.batch=8", "learning.steps=1", "data.train_images=120", "data.test_images=30"),
    "steering": ("learning.batch=8", "learning.steps=2", "data.train_images=120", "data.test_images=30"),
}  # fmt: skip
"""Settings by task, for runs of seconds."""
SCENARIOS = ("intersection.sumocfg", "expressway.sumocfg", "gaussian.toml")


def quick(learner: str) -> tuple[str, ...]:
    settings = QUICK[LEARNERS.find(learner).task]
    return (*ROUNDS, *(part for setting in settings for part in ("--set", setting)))


@pytest.mark.slow
@pytest.mark.parametrize(("learner", "scenario"), list(zip(LEARNERS.names(), cycle(SCENARIOS), strict=False)))
def test_it_runs_and_interrupted_it_goes_on_to_the_same_bits(learner, scenario, cli, scenarios, tmp_path, results_of):
    command = ("run", scenarios / scenario, "--learner", learner, *quick(learner))
    cli(*command, "--out", tmp_path / "whole", status=0)
    run = RunDirectory(tmp_path / "whole")
    assert run.manifest()["status"] == "finished"
    assert run.read("rounds").height == 3
    assert set(run.read("metrics")["name"]) <= {series["name"] for series in run.manifest()["series"]}
    assert run.has("exchanges") == (run.manifest()["learner"]["cost"]["exchange"] is not None)
    assert (run.path / "model.safetensors").stat().st_size > 1000
    with interrupted_at(LEARNERS.find(learner), "train", 2):
        assert cli(*command, "--out", tmp_path / "broken").status == 130
    assert cli("resume", tmp_path / "broken").status == 0
    assert results_of(tmp_path / "broken") == results_of(tmp_path / "whole")
