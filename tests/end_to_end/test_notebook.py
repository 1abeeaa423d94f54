"""The tutorial as a notebook, and progress in one. A notebook is JSON: its cells are run without Jupyter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from vnetsim import display

NOTEBOOK = Path(__file__).resolve().parents[2] / "scenarios" / "tutorial.ipynb"
RUN = """
import json, sys
space = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), space)
print(space["study"].differences.height, space["page"].path, len(space["run"].windows))
"""


def test_the_tutorial_runs_and_holds_no_output(tmp_path: Path) -> None:
    told = json.loads(NOTEBOOK.read_text())
    assert (told["nbformat"], told["nbformat_minor"]) == (4, 5)
    assert all(cell.get("outputs", []) == [] for cell in told["cells"])
    command = [sys.executable, "-c", RUN, str(NOTEBOOK)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    differences, page, windows = done.stdout.split()
    assert int(differences) > 0
    assert int(windows) > 0
    assert (tmp_path / page).is_file()


class Handle:
    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(content["text/html"])


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Handle:
    """A kernel that looks like Jupyter's, and what it shows."""
    made = Handle()
    ipython: Any = ModuleType("IPython")
    shown: Any = ModuleType("IPython.display")
    ipython.get_ipython = type("Shell", (), {"kernel": object()})
    shown.display = lambda *_, **__: made
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return made


def test_progress_in_a_notebook_is_a_line_that_leaves_the_notes(
    handle: Handle, capsys: pytest.CaptureFixture[str]
) -> None:
    with display.progress_display() as progress:
        progress.stage("running <b>")
        progress.note("RSU & co")
        progress.advance(time_s=12.0, done=1, total=4)
    assert "running &lt;b&gt;" in handle.shown[0]
    assert handle.shown[-1] == "RSU &amp; co"
    assert capsys.readouterr() == ("", "")


def test_no_progress_is_no_word(handle: Handle, capsys: pytest.CaptureFixture[str]) -> None:
    with display.progress_display(False) as progress:
        progress.stage("running")
        progress.note("taken")
        progress.advance(time_s=1.0, done=1, total=None)
    assert handle.shown == []
    assert capsys.readouterr() == ("", "")


def test_in_a_pipe_notes_alone_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with display.progress_display() as progress:
        progress.stage("running")
        progress.note("taken")
    assert capsys.readouterr() == ("", "vnetsim: taken\n")
    with display.progress_display(True) as progress:
        progress.note("shown")
    assert "vnetsim: shown" in capsys.readouterr().err
