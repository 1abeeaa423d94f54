"""Progress in a notebook, in a pipe, and none."""

from __future__ import annotations

import io
import sys
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from vnetsim import display
from vnetsim.display import live_line


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


def test_in_a_pipe_notes_alone_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with display.progress_display() as progress:
        progress.stage("running")
        progress.note("taken")
    assert capsys.readouterr() == ("", "vnetsim: taken\n")
    with display.progress_display(True) as progress:
        progress.note("shown")
    assert "vnetsim: shown" in capsys.readouterr().err


@pytest.mark.parametrize("width", [80, 100])
def test_on_a_terminal_times_stand_in_one_line(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with live_line() as bar:
        bar.stage("8 of 24 cells\n  FLSimCo with a long name, Dirichlet 0.1, seed 12: round 3 of 20")
        bar.advance(time_s=123456.0, done=8.0, total=24)
        shown = io.StringIO()
        console = Console(file=shown, width=width)
        console.print(bar._progress.get_renderable())  # type: ignore[attr-defined]
    assert any("simulated 123,456 s 0:00:00 elapsed," in line for line in shown.getvalue().splitlines())
