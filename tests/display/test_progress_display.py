"""Progress in a notebook, in a pipe, and none."""

import sys
from types import ModuleType
from typing import Any

from vnetsim import display


def test_progress_in_a_notebook_is_a_bar_that_leaves_the_notes(monkeypatch, capsys):
    monkeypatch.setattr(display, "SHOW_EVERY_S", 0.0)
    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = type("Shell", (), {"kernel": object()})
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with display.progress_display() as progress:
        progress.stage("running")
        progress.note("RSU & co")
        progress.advance(time_s=12.0, done=1, total=4)
    out, error = capsys.readouterr()
    shown = [line.rpartition("\r")[2] for line in error.split("\n")]
    assert out == ""
    assert "running, 0 s elapsed" in error
    assert "\r" + "\u2588" * 5 + "\u2591" * 15 + " running, 25% done" in error
    assert shown == ["vnetsim: RSU & co", ""]


def test_in_a_pipe_notes_alone_are_told(capsys):
    with display.progress_display() as progress:
        progress.stage("running")
        progress.note("taken")
    assert capsys.readouterr() == ("", "vnetsim: taken\n")
    with display.progress_display(True) as progress:
        progress.note("shown")
    assert "vnetsim: shown" in capsys.readouterr().err
