"""Progress in a notebook, in a pipe, and none."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from vnetsim import display


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
