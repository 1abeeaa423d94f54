"""Every kill, power cut, full disk and failing disk at every change: recordings, runs, reports, each learner."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import LEARNERS, MOBILITY, RUN, Command, run_of

from analysis.report import page
from analysis.report.page import build_report

Killed = Callable[[Command], int]
Failed = Callable[[str, Command], int]
COMMANDS = {"mobility": (MOBILITY, 30), "run": (RUN, 100)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_stop_at_every_change(name: str, killed_everywhere: Killed) -> None:
    command, least = COMMANDS[name]
    assert killed_everywhere(command) > least


@pytest.mark.slow
@pytest.mark.parametrize("how", ["full", "error"])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_error_at_every_change(name: str, how: str, failed_everywhere: Failed) -> None:
    command, least = COMMANDS[name]
    assert failed_everywhere(how, command) > least


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The report of a run that lies there; its figures are drawn once."""
    made = tmp_path / "made"
    RUN.start(made)
    drawn = page.sections(page.load(made))
    monkeypatch.setattr(page, "sections", lambda _: drawn)

    def start(folder: Path) -> None:
        shutil.copytree(made, folder)
        build_report(folder)

    return Command(start=start, again=build_report)


def test_a_stop_at_every_change_of_a_report(report: Command, killed_everywhere: Killed) -> None:
    assert killed_everywhere(report) > 20


@pytest.mark.parametrize("how", ["full", "error"])
def test_an_error_at_every_change_of_a_report(report: Command, how: str, failed_everywhere: Failed) -> None:
    assert failed_everywhere(how, report) > 20


@pytest.mark.slow
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_stop_at_every_change_of_a_learner(learner: str, killed_everywhere: Killed, tmp_path: Path) -> None:
    assert killed_everywhere(run_of(learner, tmp_path)) > 100


@pytest.mark.slow
@pytest.mark.parametrize("learner", LEARNERS)
def test_an_error_at_every_change_of_a_learner(learner: str, failed_everywhere: Failed, tmp_path: Path) -> None:
    assert failed_everywhere("both", run_of(learner, tmp_path)) > 100
