"""A scale changes what is trained, and nothing of what is timed."""

from pathlib import Path
from typing import Any

import pytest

import vnetsim
from vnetsim.errors import InputError
from vnetsim.learning.kinds import LEARNERS

LEARNT = ("weight", "loss")
TRAINED: dict[str, dict[str, Any]] = {
    "fedco": {"learning.encoder": "small", "learning.linear_probe": "never", "data.train_images": 80},
    "cdl": {"data.train_images": 60, "data.image_px": 64},
}


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("scale") / "traffic"
    vnetsim.mobility("gaussian", traffic__end_s=60.0, out=folder, progress=False)
    return folder


def both(recording: Path, learner: str, folder: Path, **given: Any) -> tuple[vnetsim.Run, vnetsim.Run]:
    def run(scale: str) -> vnetsim.Run:
        return vnetsim.run(recording, learner=learner, scale=scale, out=folder / scale, progress=False, **given)

    return run("laptop"), run("paper")


@pytest.mark.parametrize(
    "learner",
    [
        "fedefm",
        *(pytest.param(name, marks=pytest.mark.slow) for name in sorted({*LEARNERS.names()} - {"fedefm"})),
    ],
)
def test_timing_is_the_same_at_both_scales(learner, recording, tmp_path):
    few = {"silos.count": 10, "data.train_images": 400, "data.test_images": 20}
    laptop, paper = both(recording, learner, tmp_path, timing_only=True, settings=few)
    assert laptop.settings["learning"] != paper.settings["learning"]
    assert laptop.participations.filter(outcome="committed").height > 0
    assert laptop.participations.equals(paper.participations)


@pytest.mark.slow
@pytest.mark.parametrize("learner", sorted(TRAINED))
def test_training_at_both_scales_has_the_same_participations(learner, recording, tmp_path):
    few = {"silos.count": 4, "data.test_images": 20, "device": "cpu", **TRAINED[learner]}
    laptop, paper = both(recording, learner, tmp_path, rounds=2, settings=few)
    committed = laptop.participations.filter(outcome="committed")
    assert committed["loss"].is_not_null().any()
    assert laptop.participations.drop(LEARNT).equals(paper.participations.drop(LEARNT))
    assert not laptop.participations["loss"].equals(paper.participations["loss"])


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
