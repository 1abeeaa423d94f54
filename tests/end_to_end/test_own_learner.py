"""A learner from outside: the documented example, and a run whose learner is a file."""

import re
from pathlib import Path

import pytest

from vnetsim.storage.run_directory import RunDirectory

FOLDER = Path(__file__).resolve().parents[2] / "scenarios"
EXAMPLE = FOLDER / "fedprox.py"
SCAFFOLD = FOLDER / "scaffold.py"


def test_the_document_quotes_the_first_example_as_it_is_and_links_the_second():
    text, page = EXAMPLE.read_text(), (FOLDER / "own_learner.md").read_text()
    (quoted, *_) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert quoted == text[text.index("@dataclass") :]
    assert "In 60 lines: [scaffold.py](scaffold.py)." in page
    assert all(file.read_text().count("\n") <= 60 for file in (EXAMPLE, SCAFFOLD))


@pytest.mark.slow
def test_a_new_learner_runs_and_is_scaffold(cli, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = cli("new", "learner", "Mine")
    assert (made.status, made.out.strip()) == (0, "Mine.py")
    assert "next: vnetsim run gaussian --learner Mine.py:Mine" in made.err
    assert "Mine.py: exists; take another name" in refused("new", "learner", "Mine")
    found = []
    few = ("--device", "cpu", "--rounds", "3", "--set", "round.quorum=2", "--set", "data.train_images=200")
    plain = (*few, "--set", "learning.momentum=0", "--set", "learning.steps=2", "--set", "learning.batch=4")
    for learner, folder in (("Mine.py:Mine", "mine"), ("scaffold-classification", "built-in")):
        done = cli("run", "gaussian", "--learner", learner, *plain, "--out", folder)
        assert (done.status, done.err) == (0, "")
        found.append([RunDirectory(Path(folder)).read(name) for name in ("participations", "metrics", "rounds")])
    assert all(mine.equals(built_in) for mine, built_in in zip(*found, strict=True))
    assert "without_state" in found[0][1]["name"].to_list()


@pytest.fixture
def mine(tmp_path) -> Path:
    """A learner's file in a folder of its own, beside an experiment that names it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "prox.py").write_text(EXAMPLE.read_text())
    (folder / "e.toml").write_text('scenario = "gaussian"\nlearner = "prox.py:FedProx"\n')
    return folder


@pytest.mark.slow
def test_a_file_that_an_experiment_names_is_recorded_replayed_and_resumed(
    mine, cli, refused, small, results_of, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert cli("run", mine / "e.toml", *small).status == 0
    run = next(Path("runs").iterdir())
    assert run.name == "gaussian-FedProx-seed0"
    assert 'learner = "prox.py:FedProx"' in (run / "experiment.toml").read_text()
    assert RunDirectory(run).manifest()["plugin_files"] == {"learner": str(mine / "prox.py")}
    assert list(RunDirectory(run).manifest()["inputs"]) == [str(mine / "prox.py")]

    # a replay, and a run that was killed at its end
    assert cli("run", run, "--trust", "--out", "again").status == 0
    first, again = results_of(run), results_of(Path("again"))
    assert {name for name in first if first[name] != again[name]} == {"experiment.toml"}
    manifest = RunDirectory(run).manifest()
    RunDirectory(run).write_json("manifest.json", manifest | {"status": "running"})
    assert cli("resume", run, "--trust").status == 0
    assert results_of(run) == first

    # another learner takes what both know; then the file changes
    assert cli("run", run, "--learner", "fedavg", "--out", "other").status == 0
    assert "mu" not in RunDirectory("other").manifest()["learner"]["settings"]
    RunDirectory(run).write_json("manifest.json", manifest | {"status": "running"})
    (mine / "prox.py").write_text(EXAMPLE.read_text() + "\n")
    assert f"{mine / 'prox.py'}: changed since the run started; if you mended it" in refused("resume", run)
    assert cli("resume", run, "--trust", "--accept-changed-plugin").status == 0
    assert results_of(run) == first
    changed = RunDirectory(run).manifest()
    assert changed["changed_plugins"] == manifest["inputs"] != changed["inputs"]
    assert "changed meanwhile" in (run / "report.html").read_text()
    RunDirectory(run).write_json("manifest.json", manifest | {"status": "running"})
    (mine / "prox.py").unlink()
    assert f"{mine / 'prox.py'}: changed or gone since the run started" in refused("resume", run)
    assert f"{mine / 'prox.py'}: no such file." in refused("run", run, "--trust", "--out", "gone")
