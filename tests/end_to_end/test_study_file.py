"""A study file from the command line: run whole, gone on with, in its sizes, on one schedule, refused."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from small_runs import install

from vnetsim.learning import Cost

LEARNT = ("weight", "loss")  # columns of the participations that the learner fills

STUDY = """
title = "Steps at random"
notes = ["assumption: nothing is learnt"]
scenario = "gaussian"
seeds = "0:3"
traffic_seeds = [0, 1]

[settings]
rounds = 3
device = "cpu"
traffic.end_s = 120

[[arms]]
name = "light"
learner = "toy"

[[arms]]
learner = "heavy"

[[conditions]]
name = "few"
settings.round = { quorum = 2, invited = 3 }

[[conditions]]
name = "many"

[grid]
learning.factor = [1, 2]

[[skip]]
arm = "heavy factor=2"
condition = "few"
reason = "too heavy"

[sizes.small]
[sizes.smaller]
seeds = "0:1"
"""


@dataclass(frozen=True, kw_only=True)
class HeavySettings:
    """How much longer it trains."""

    factor: int = 1


@pytest.fixture
def study(toy, monkeypatch, tmp_path) -> Path:
    """A study file in the working directory, of the toy and of ``heavy``, which sends and computes more."""

    class Heavy(toy):
        name: ClassVar[str] = "heavy"
        Settings: ClassVar[type] = HeavySettings

        @classmethod
        def create(cls, context: Any, settings: Any) -> Any:
            made = cls(context, toy.Settings())
            made.factor = settings.factor
            return made

        def cost(self, silo: int) -> Cost:
            plain = super().cost(silo)
            return replace(plain, upload_bytes=9_000_000, work_flop=self.factor * 3 * plain.work_flop)

    install(monkeypatch, toy, Heavy)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "steps.toml"
    path.write_text(STUDY)
    return path


def record_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "comparison.json").read_text())
    return found


def timings(folder: Path, seed: int, condition: str) -> list[pl.DataFrame]:
    """Return who did what when in the cells of all arms."""
    cells = [cell for cell in record_of(folder)["cells"] if (cell["seed"], cell["condition"]) == (seed, condition)]
    return [
        pl.read_parquet(folder / "cells" / cell["folder"] / "participations.parquet").drop(LEARNT) for cell in cells
    ]


@pytest.mark.slow
def test_a_study_in_its_default_folder(study, cli):
    done = cli("compare", "steps.toml", status=0)
    assert done.out.splitlines()[-1] == "comparison: runs/steps-small/comparison.html"
    record = record_of(Path("runs/steps-small"))
    assert (record["title"], record["notes"][0]) == ("Steps at random", "assumption: nothing is learnt")
    assert record["skipped"] == [{"arm": "heavy factor=2", "condition": "few", "reason": "too heavy"}]
    assert [(cell["condition"], cell["arm"]) for cell in record["cells"]] == 3 * [
        *(("few", "light"), ("few", "heavy factor=1")),
        *(("many", "light"), ("many", "heavy factor=1"), ("many", "heavy factor=2")),
    ]
    first, second = (entry["folder"] for entry in record["traffic"])
    assert [cell["traffic"] for cell in record["cells"]] == [*5 * [first], *5 * [second], *5 * [first]]
    assert len(list(Path("runs/steps-small/traffic").iterdir())) == 2
    ours, theirs, _ = timings(Path("runs/steps-small"), 0, "many")
    assert not ours.equals(theirs), "what is sent decides who commits"
    before = {path: path.stat().st_mtime_ns for path in Path("runs/steps-small/cells").glob("*/manifest.json")}
    study.write_text(STUDY.replace('seeds = "0:3"', 'seeds = "0:4"', 1))
    assert cli("compare", "steps.toml").status == 0
    after = {path: path.stat().st_mtime_ns for path in Path("runs/steps-small/cells").glob("*/manifest.json")}
    assert before.items() <= after.items(), "only what is missing is run"
    assert len(after) == len(before) + 5


@pytest.mark.parametrize("schedule", [pytest.param("light", marks=pytest.mark.all_only), "heavy factor=2"])
@pytest.mark.usefixtures("study")
def test_an_equal_schedule(schedule, cli, tmp_path):
    done = cli("compare", "steps.toml", "--size", "smaller", "--equal-schedule", schedule, "--out", tmp_path / "all")
    assert done.status == 0, done.err
    arms = timings(tmp_path / "all", 0, "many")
    assert len(arms) == 3
    assert arms[0].height > 0
    assert arms[0].equals(arms[1])
    assert arms[0].equals(arms[2])
    assert f"payload and work of every participation are those of {schedule}" in record_of(tmp_path / "all")["notes"][1]


@pytest.mark.usefixtures("study")
def test_nothing_is_begun_on_wrong_input(refused):
    message = "steps.toml (size small): 505 cells (3 arms, 2 conditions, 101 seeds, less 101 left out): add --yes"
    assert message in refused("compare", "steps.toml", "--seeds", "0:101")
    assert "steps.toml: a study, not an experiment; run it with vnetsim compare" in refused("run", "steps.toml")
    assert not Path("runs").exists()


def test_how_many_evaluations_are_averaged_is_on_record(study, cli, tmp_path):
    given = ("compare", "steps.toml", "--size", "smaller", "--out", tmp_path / "all")
    study.write_text("last_evaluations = 2\n" + STUDY)
    cli(*given, status=0)
    record = record_of(tmp_path / "all")
    assert (record["last_evaluations"], record["last_evaluations_before"]) == (2, [])
    study.write_text("last_evaluations = 3\n" + STUDY)
    assert "an earlier call said 2" in cli(*given).err
    record = record_of(tmp_path / "all")
    assert (record["last_evaluations"], record["last_evaluations_before"]) == (3, [2])


CAMERAS = """
scenario = "gaussian"
seeds = "0:1"
[settings]
learner = "flsimco"
rounds = 2
device = "cpu"
silos.count = 10
data = { train_images = 200, test_images = 50 }
learning = { steps = 1, linear_probe = "never" }
traffic.end_s = 60
"""


@pytest.mark.parametrize(
    ("arms", "option", "factor", "words"),
    [
        pytest.param(
            '[[arms]]\nname = "short"\n[[arms]]\nname = "long"\nsettings.camera.exposure_s = 0.04\n',
            (),
            4.0,
            "Only the camera differs between arms.",
            marks=pytest.mark.all_only,
        ),
        ("", ("--sharp-control",), 1.0, "Sharp camera: the same run with no image blurred"),
    ],
    ids=["two cameras", "sharp control"],
)
@pytest.mark.all_only
def test_arms_that_differ_in_blur_have_the_same_participations(arms, option, factor, words, cli, tmp_path):
    (tmp_path / "blur.toml").write_text(CAMERAS + arms)
    cli("compare", tmp_path / "blur.toml", *option, "--out", tmp_path / "made", status=0)
    record = record_of(tmp_path / "made")
    assert len(record["traffic"]) == 1
    first, second = (
        pl.read_parquet(tmp_path / "made" / "cells" / cell["folder"] / "participations.parquet")
        for cell in record["cells"]
    )
    assert first.filter(outcome="committed").height > 3
    assert first.drop("level_px", "weight", "loss").equals(second.drop("level_px", "weight", "loss"))
    assert (factor * first["level_px"]).to_list() == pytest.approx(second["level_px"].to_list())
    assert first["weight"].drop_nulls().to_list() == pytest.approx(second["weight"].drop_nulls().to_list())
    assert first["loss"].drop_nulls().to_list() != second["loss"].drop_nulls().to_list(), "their images differ"
    assert words in (tmp_path / "made" / "comparison.html").read_text()


def test_one_trained_arm_is_compared_over_conditions(study, cli, tmp_path):
    study.write_text(
        'scenario = "gaussian"\nseeds = "0:6"\n[settings]\nlearner = "toy"\nrounds = 2\ndevice = "cpu"\n'
        'traffic.end_s = 60\n[[conditions]]\nname = "few"\nsettings.round.quorum = 2\n[[conditions]]\nname = "many"\n'
    )
    cli("compare", study, "--out", tmp_path / "made", status=0)
    differences = pl.read_parquet(tmp_path / "made" / "comparison_differences.parquet")
    assert differences.select("compared", "within", "metric", "seeds").rows() == [("conditions", "toy", "distance", 6)]
    page = (tmp_path / "made" / "comparison.html").read_text()
    assert "few \u2212 many" in page
    assert "What differs between the conditions: round.quorum." in page
    assert "there is nothing to compare" not in page
