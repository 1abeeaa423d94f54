"""The default world: what becomes of those that a learner invites at the shipped intersection in ten minutes."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import vnetsim
from vnetsim.learning.kinds import LEARNERS

LINK = {"left_download", "left_training", "left_upload"}
NO_LINK = {"left_training", "left_exchange"}
"""Where vehicles exchange models with each other alone, nothing crosses an RSU's link."""


@pytest.fixture(scope="module")
def recording(scenarios, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "traffic"
    # a minute more than is run, so that nobody's window ends with the run
    vnetsim.mobility(scenarios / "intersection.sumocfg", traffic__end_s=660.0, out=folder, progress=False)
    return folder


# cdl: two networks and an exchange with neighbours. dsgd trains one, and neither downloads nor uploads: more commit.
WORLD = {"flsimco": (0.35, 0.75, LINK), "cdl": (0.35, 0.75, NO_LINK), "dsgd": (0.35, 0.90, NO_LINK)}


@pytest.mark.parametrize(
    "learner",
    ["flsimco", *(pytest.param(name, marks=pytest.mark.slow) for name in sorted({*LEARNERS.names()} - {"flsimco"}))],
)
def test_the_road_decides_who_commits(learner, recording, tmp_path):
    fewest, most, ways = WORLD.get(learner, (0.35, 0.75, LINK))
    run: Any = vnetsim.run(
        recording, learner=learner, timing_only=True, time_s=600, out=tmp_path / "run", progress=False
    )
    assert (run.manifest["ended_by"], run.manifest["time_s"]) == ("time", 600)
    invited = run.participations.filter(pl.col("outcome") != "not_selected")
    outcomes = invited["outcome"]
    commits = outcomes == "committed"
    assert fewest <= commits.mean() <= most
    assert outcomes.is_in(["stale", "deadline"]).mean() <= 0.1
    assert ways <= set(outcomes)
    key = ["vehicle_id", "rsu_id", "enter_s"]
    entered = invited.filter(commits).join(run.windows, on=key)["entry_speed_mps"]
    assert len(entered) == commits.sum()
    # SCAFFOLD moves twice the bytes, so more fast vehicles leave before the end
    assert (entered > 80 / 3.6).mean() >= (0.1 if learner.startswith("scaffold") else 0.2)
