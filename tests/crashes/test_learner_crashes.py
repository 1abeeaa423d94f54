"""Every kill, power cut, full disk and failing disk at every change of a run with each learner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import LEARNERS, Command, run_of


@pytest.mark.slow
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_stop_at_every_change(learner: str, killed_everywhere: Callable[[Command], int], tmp_path: Path) -> None:
    assert killed_everywhere(run_of(learner, tmp_path)) > 100


@pytest.mark.slow
@pytest.mark.parametrize("learner", LEARNERS)
def test_an_error_at_every_change(
    learner: str, failed_everywhere: Callable[[str, Command], int], tmp_path: Path
) -> None:
    assert failed_everywhere("both", run_of(learner, tmp_path)) > 100
