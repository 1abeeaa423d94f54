"""A scale changes what is trained, and nothing of what is timed."""

from pathlib import Path
from typing import Any

import pytest

import vnetsim
from vnetsim.errors import InputError
from vnetsim.learning.kinds import LEARNERS


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("scale") / "traffic"
    vnetsim.mobility("gaussian", traffic__end_s=60.0, out=folder, progress=False)
    return folder


@pytest.mark.parametrize(
    "learner",
    ["fedefm", *(pytest.param(name, marks=pytest.mark.slow) for name in sorted({*LEARNERS.names()} - {"fedefm"}))],
)
def test_timing_is_the_same_at_both_scales(learner, recording, tmp_path):
    few = {"silos.count": 10, "data.train_images": 400, "data.test_images": 20}
    given: dict[str, Any] = {"learner": learner, "timing_only": True, "settings": few, "progress": False}
    laptop, paper = (vnetsim.run(recording, scale=to, out=tmp_path / to, **given) for to in ("laptop", "paper"))
    assert laptop.settings["learning"] != paper.settings["learning"]
    assert laptop.participations.filter(outcome="committed").height > 0
    assert laptop.participations.equals(paper.participations)


@pytest.mark.all_only
def test_what_a_user_sets_goes_before_the_scale(cli, tmp_path):
    given = ("--scale", "paper", "--timing-only", "--set", "learning.batch=32", "--out", tmp_path / "made")
    assert cli("run", "gaussian", *given, "--set", "traffic.end_s=5").status == 0
    again = vnetsim.run(tmp_path / "made", scale="paper", timing_only=True, out=tmp_path / "again", progress=False)
    for run in (vnetsim.load(tmp_path / "made"), again):
        learning, data = run.settings["learning"], run.settings["data"]
        assert (learning["encoder"], learning["batch"], learning["steps"]) == ("resnet18", 32, 2)
        assert data["train_images"] == 49_400
    (tmp_path / "study.toml").write_text('scenario = "gaussian"\nseeds = [0]\nsettings.traffic.end_s = 5\n')
    study = vnetsim.compare(tmp_path / "study.toml", timing_only=True, scale="paper", out=tmp_path / "study")
    (cell,) = study.runs.values()
    assert cell.settings["learning"]["batch"] == 512


def test_wrong_scales_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"--scale large: the learner flsimco has no such scale, but laptop, paper\."):
        vnetsim.run("gaussian", scale="large", out=tmp_path / "none")
    with pytest.raises(InputError, match="scale: an Experiment has all of its settings already"):
        vnetsim.run(vnetsim.Experiment("gaussian"), scale="paper", out=tmp_path / "none")
