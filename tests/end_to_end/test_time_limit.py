"""Runs and comparisons that end at a time limit: the same command again goes on to the bits of an uninterrupted one."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vnetsim
from vnetsim.storage.run_directory import RunDirectory

Cli = Callable[..., Any]

WALK = Path(__file__).with_name("walk_learners.py")
AT_ONCE = ("--time-limit", "1e-9")
"""A limit that has passed before the first round."""
RUN = ("run", "gaussian", "--learner", f"{WALK}:Walk", "--rounds", "3", "--set", "traffic.end_s=120")
COMPARE = ("compare", "gaussian", "--learners", f"{WALK}:Walk,{WALK}:Shifted", "--seeds", "0", "--rounds", "2")
COMPARE += ("--device", "cpu", "--set", "traffic.end_s=120")


def test_a_run_goes_on_round_by_round(cli, refused, results_of, tmp_path):
    assert cli(*RUN, "--out", tmp_path / "whole").status == 0
    folder = tmp_path / "run"
    call = (*RUN, *AT_ONCE, "--out", folder)
    for rounds in (1, 2):
        where = f"the time limit was reached after {rounds} of 3 rounds. Go on with the same command, or with"
        assert refused(*call, status=75) == f"vnetsim: {where}: vnetsim resume {folder} --trust\n"
        assert RunDirectory(folder).manifest()["status"] == "interrupted"
    assert "contains a run with other settings" in refused(*call, "--seed", "1")
    done = cli(*call)
    assert (done.status, RunDirectory(folder).manifest()["ended_by"]) == (0, "rounds"), "none is left after the last"
    assert results_of(folder) == results_of(tmp_path / "whole")
    again = cli(*call)
    assert (again.status, again.out.splitlines()[-1]) == (0, done.out.splitlines()[-1])
    assert "the run had already finished" in again.err


def test_resume_has_a_limit_too(toy, results_of, tmp_path):
    rounds: list[int] = []
    given: dict[str, Any] = {"learner": toy, "rounds": 3, "settings": {"traffic.end_s": 120, "round.quorum": 2}}
    whole = vnetsim.run("gaussian", **given, out=tmp_path / "whole")
    folder = tmp_path / "run"
    with pytest.raises(vnetsim.UnfinishedError, match="after 1 of 3 rounds"):
        vnetsim.run("gaussian", **given, out=folder, time_limit_s=1e-9, on_round=lambda done, _: rounds.append(done))
    assert rounds == [1]
    with pytest.raises(vnetsim.UnfinishedError, match="after 2 of 3 rounds"):
        vnetsim.resume(folder, learner=toy, time_limit_s=1e-9)
    vnetsim.run("gaussian", **given, out=folder, time_limit_s=3600, on_round=lambda done, _: rounds.append(done))
    assert rounds == [1, 1, 2, 3], "a continued run calls it for the rounds before as well"
    assert results_of(folder) == results_of(whole.path)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_comparison_goes_on(workers, cli, results_of, tmp_path):
    assert cli(*COMPARE, "--out", tmp_path / "whole").status == 0
    call = (*COMPARE, *AT_ONCE, "--workers", workers, "--out", tmp_path / "pieces")
    where = ["1 of 1 recordings of traffic", "0 of 2 cells", "1 of 2 cells", "1 of 2 cells"]
    for place in where:
        done = cli(*call)
        assert done.status == 75
        assert f"vnetsim: the time limit was reached after {place}. What is finished is kept. Go on with" in done.err
    assert cli(*call).status == 0
    for cell in (tmp_path / "whole" / "cells").iterdir():
        assert results_of(tmp_path / "pieces" / "cells" / cell.name) == results_of(cell)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((*RUN, "--time-limit", "0", "--out", "a"), "--time-limit: expected a number of seconds above 0, got 0.0."),
        ((*RUN, "--time-limit", "nan", "--out", "a"), "--time-limit: expected a number of seconds above 0, got nan."),
        ((*COMPARE, "--time-limit=-5"), "--time-limit: expected a number of seconds above 0, got -5.0."),
        (("resume", "a", "--time-limit", "0"), "--time-limit: expected a number of seconds above 0, got 0.0."),
        ((*RUN, *AT_ONCE), "--time-limit: name the folder with --out, so that the same command continues there."),
        ((*RUN, *AT_ONCE, "--out", "a", "--timing-only"), "--time-limit: with --timing-only nobody is trained"),
        ((*COMPARE, *AT_ONCE, "--engine", "ray"), "--time-limit: not with --engine ray."),
    ],
)
def test_limits_that_make_no_sense(command, message, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused(*command)
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_checkpoint_has_no_limit(refused, cli, tmp_path):
    recording = RunDirectory(cli_recording(cli, tmp_path))
    recording.write_json("manifest.json", recording.manifest() | {"status": "interrupted"})
    assert "has no training, so no round is saved" in refused("resume", recording.path, *AT_ONCE)


def cli_recording(cli: Cli, tmp_path: Path) -> Path:
    """Return a recording of the artificial traffic."""
    assert cli("mobility", "gaussian", "--set", "traffic.end_s=30", "--out", tmp_path / "traffic").status == 0
    return tmp_path / "traffic"


FCD = """<fcd-export>{}</fcd-export>""".format(
    "".join(
        f'<timestep time="{t}"><vehicle id="a" x="{10 * t}" y="0" speed="10" type="car" lane="e_0"/></timestep>'
        for t in range(61)
    )
)
MOVED = f"""
scenario = "trace.xml"
seeds = "0"
[settings]
rounds = 2
device = "cpu"
traffic.rsu = ["300,0:250"]
round = {{ quorum = 1, invited = 1 }}
[[arms]]
learner = "{WALK}:Walk"
[[arms]]
learner = "{WALK}:Shifted"
"""


def refuse(*_: object, **__: object) -> None:
    raise vnetsim.InputError("recorded anew")


def test_a_comparison_goes_on_elsewhere(cli, results_of, tmp_path, monkeypatch):
    """Study, scenario and results are carried elsewhere, as to a machine for minutes; of finished cells the tables."""

    def tables() -> dict[str, bytes]:
        results = {cell.name: results_of(cell) for cell in Path("out/cells").iterdir()}
        return {f"{cell}/{name}": one[name] for cell, one in results.items() for name in one if ".parquet" in name}

    here, there = tmp_path / "here", tmp_path / "there"
    (here / "study").mkdir(parents=True)
    (here / "study" / "trace.xml").write_text(FCD)
    (here / "study" / "study.toml").write_text(MOVED)
    call = ("compare", "study/study.toml", "--out", "out")
    monkeypatch.chdir(here)
    assert cli(*call).status == 0
    whole = tables()
    shutil.rmtree("out")
    for _ in range(3):
        assert cli(*call, *AT_ONCE).status == 75
    (finished,) = [one for one in Path("out/cells").iterdir() if RunDirectory(one).manifest()["status"] == "finished"]
    shutil.rmtree(finished / "checkpoint")
    (finished / "model.safetensors").unlink()
    shutil.move(here, there)
    monkeypatch.chdir(there)
    monkeypatch.setattr("vnetsim.study.traffic.record_mobility", refuse)  # there may be no SUMO
    assert cli(*call).status == 0
    assert tables() == whole
    Path("study/trace.xml").write_text(FCD + "\n")
    assert "recorded anew" in cli(*call).err, "the scenario is another one"
