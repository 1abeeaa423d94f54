"""The tutorial of the README: its commands, exactly as they stand there, on a scenario without an RSU."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vnetsim.run_directory import RunDirectory

README = Path(__file__).parents[2] / "README.md"
TITLE = "From your own scenario to a comparison"
MY_SCENARIO = """\
<configuration>
    <input><net-file value="my.net.xml"/><route-files value="my.rou.xml"/></input>
    <time><end value="180"/></time>
</configuration>
"""


def section() -> str:
    found = re.search(rf"^## {TITLE}\n(.*?)^## ", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def commands() -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^    (vnetsim .*)$", section(), re.MULTILINE)]


def study_files() -> dict[str, str]:
    blocks = re.findall(r"^```toml\n(.*?)^```$", section(), re.DOTALL | re.MULTILINE)
    return {re.match(r"# (\S+)\n", block)[1]: block for block in blocks}  # type: ignore[index]


@pytest.fixture
def mine(scenarios: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ``my.sumocfg``, its net and routes, and the README's study file; the working directory."""
    for kind in ("net", "rou"):
        text = (scenarios / "intersection" / f"intersection.{kind}.xml").read_text(encoding="utf-8")
        (tmp_path / f"my.{kind}.xml").write_text(text, encoding="utf-8")
    (tmp_path / "my.sumocfg").write_text(MY_SCENARIO)
    for name, text in study_files().items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_five_commands_and_every_file_they_need() -> None:
    given = [word for command in commands() for word in command]
    assert len(commands()) == 5
    assert {word for word in given if word.endswith(".toml")} == set(study_files())
    assert {word for word in given if word.endswith(".sumocfg")} == {"my.sumocfg"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_do_what_is_said_of_them(mine: Path, cli: Callable[..., Any]) -> None:
    outputs = []
    for program, *arguments in commands():
        assert program == "vnetsim"
        done = cli(*arguments)
        assert done.status == 0, (arguments, done.err)
        outputs.append(done.out + done.err)
    mobility, run, *_, report = outputs
    assert "took junction 'center'" in mobility, "the RSU that was taken is named"
    assert "Committed" in run
    assert report.count(".html") == 3
    for page in ("traffic/report", "first/report", "look/comparison", "study/comparison"):
        assert (mine / f"{page}.html").is_file()
    assert RunDirectory(mine / "first").read("rounds")["committed"].min() >= 2
    look, study = (json.loads((mine / name / "comparison.json").read_text()) for name in ("look", "study"))
    assert len(look["cells"]) == 2 * 2
    assert len(study["cells"]) == 2 * 2 * 2
    assert len(study["traffic"]) == 2, "the traffic varies with the seed"
    assert {cell["condition"] for cell in study["cells"]} == {"mixed", "by direction"}
