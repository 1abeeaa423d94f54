"""The tutorial of the documentation: its commands, exactly as they stand there, on a scenario without an RSU."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from vnetsim.storage.run_directory import RunDirectory

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
MY_SCENARIO = """\
<configuration>
    <input><net-file value="my.net.xml"/><route-files value="my.rou.xml"/></input>
    <time><end value="300"/></time>
</configuration>
"""


def tutorial() -> str:
    return TUTORIAL.read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    joined = tutorial().replace(" \\\n      ", " ")
    return [shlex.split(line) for line in re.findall(r"^    (vnetsim .*)$", joined, re.MULTILINE)]


def study_files() -> dict[str, str]:
    blocks = re.findall(r"^```toml\n(.*?)^```$", tutorial(), re.DOTALL | re.MULTILINE)
    return {re.match(r"# (\S+)\n", block)[1]: block for block in blocks}  # type: ignore[index]


@pytest.fixture
def mine(scenarios, tmp_path, monkeypatch) -> Path:
    """A folder with ``my.sumocfg``, its net and routes, and the tutorial's study file; the working directory."""
    for kind in ("net", "rou"):
        text = (scenarios / "intersection" / f"intersection.{kind}.xml").read_text(encoding="utf-8")
        (tmp_path / f"my.{kind}.xml").write_text(text, encoding="utf-8")
    (tmp_path / "my.sumocfg").write_text(MY_SCENARIO)
    for name, text in study_files().items():
        fewer = text.replace('\nseeds = "0:6"', '\nseeds = "0:1"')  # for time; a seed is run as it would be among six
        assert fewer != text
        (tmp_path / name).write_text(fewer)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def accuracy(run: Path) -> list[float]:
    metrics = RunDirectory(run).read("metrics").filter(name="accuracy").sort("round")
    return [float(value) for value in metrics["value"]]


@pytest.mark.slow
def test_the_commands_do_what_is_said_of_them(mine, cli):
    outputs = []
    for program, *arguments in commands():
        assert program == "vnetsim"
        done = cli(*arguments)
        assert done.status == 0, (arguments, done.err)
        outputs.append(done.out + done.err)
    mobility, run, looked, studied, report = outputs
    assert "took junction 'center'" in mobility, "the RSU that was taken is named"
    assert "Committed" in run
    assert report.count(".html") == 3
    for page in ("traffic/report", "first/report", "look/comparison", "study/comparison"):
        assert (mine / f"{page}.html").is_file()
    assert RunDirectory(mine / "first").read("rounds")["committed"].min() >= 2
    look, study = (json.loads((mine / name / "comparison.json").read_text()) for name in ("look", "study"))
    assert len(look["cells"]) == 2 * 2
    assert len(study["cells"]) == 2 * 2
    untrained, *trained = accuracy(mine / "first")
    assert trained[-1] > untrained + 0.08, "it learns something"
    for entry in study["cells"]:
        untrained, *trained = accuracy(mine / "study" / "cells" / entry["folder"])
        assert sum(trained[-3:]) / 3 > untrained + 0.04
    assert "take at least 6" in looked
    assert "  mixed \u2212 by direction" in studied, "the study's question is answered in the terminal"
    assert "mean of the last 3 evaluations" in studied
    assert studied.count("took junction") == 1
    assert {cell["condition"] for cell in study["cells"]} == {"mixed", "by direction"}


NOTEBOOK = Path(__file__).resolve().parents[2] / "scenarios" / "tutorial.ipynb"
RUN = """
import json, sys
space = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), space)
study, run = space["study"], space["run"]
commits = study.differences.filter(metric="commits")["verdict"].item()
accuracy = run.metrics.filter(name="accuracy").sort("round")["value"].tail(3).mean()
json.dump([commits, accuracy, len(space["model"].classes), str(space["page"].path)], sys.stdout)
"""


def test_the_notebook_runs_and_ends_above_chance(tmp_path):
    told = json.loads(NOTEBOOK.read_text())
    assert (told["nbformat"], told["nbformat_minor"]) == (4, 5)
    assert all(cell.get("outputs", []) == [] for cell in told["cells"])
    command = [sys.executable, "-c", RUN, str(NOTEBOOK)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdict, accuracy, classes, page = json.loads(done.stdout)
    assert verdict == "fedavg-classification"
    assert accuracy > 0.2
    assert classes == 10, "chance is as the notebook says"
    assert (tmp_path / page).is_file()
