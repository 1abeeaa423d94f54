"""Every kill, power cut, full disk and failing disk at every change of a comparison, and of its page."""

import shutil
from pathlib import Path

import pytest
from commands import Command, comparison

from analysis.comparison.page import build_comparison
from vnetsim.study.workers import run_here


@pytest.mark.slow
def test_a_stop_at_every_change(engine, killed_everywhere):
    assert killed_everywhere(comparison((run_here, run_here), engine)) > 200


@pytest.mark.slow
def test_an_error_at_every_change(engine, failed_everywhere):
    assert failed_everywhere("both", comparison((run_here, run_here), engine)) > 200


@pytest.fixture
def page(engine, tmp_path) -> Command:
    """The page of a comparison that lies there."""
    made = tmp_path / "made"
    comparison((run_here, run_here), engine).start(made)

    def start(folder: Path) -> None:
        shutil.copytree(made, folder)
        build_comparison(folder)

    return Command(start=start, again=build_comparison)


@pytest.mark.slow
def test_a_stop_at_every_change_of_the_page(page, killed_everywhere):
    assert killed_everywhere(page) > 20


@pytest.mark.slow
def test_an_error_at_every_change_of_the_page(page, failed_everywhere):
    assert failed_everywhere("both", page) > 20
