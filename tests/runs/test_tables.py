"""The tables of a run while it goes on: what is written after a round, and what a stop leaves."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_runs import interrupted_at

from vnetsim.display import progress_display
from vnetsim.experiment import CostSettings, Experiment, RoundSettings
from vnetsim.runs import session
from vnetsim.runs.assembly import assemble
from vnetsim.runs.checkpoint import Checkpoint, TrainingHistory
from vnetsim.runs.round_handler import Training
from vnetsim.runs.runner import resume_run, start_run
from vnetsim.storage.run_directory import RunDirectory

WALK = f"{Path(__file__).parents[1] / 'end_to_end' / 'walk_learners.py'}:Walk"


def contents(folder: Path) -> dict[str, bytes]:
    names = ["windows", "participations", "metrics", "rounds"]
    return {name: (folder / f"{name}.parquet").read_bytes() for name in names}


def play(folder: Path) -> None:
    experiment = Experiment(
        scenario="gaussian",
        learner=WALK,
        rounds=6,
        device="cpu",
        source={"arrivals_per_s": 1.0},
        round=RoundSettings(quorum=2, invited=8, max_staleness=0),
        cost=CostSettings(model="trained"),
    )
    with progress_display() as progress:
        start_run(assemble(experiment), folder, command=["vnetsim"], progress=progress)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("stopped", [KeyboardInterrupt, Killed])
def test_what_waits_is_neither_lost_nor_another(tmp_path, monkeypatch, stopped):
    """Rounds that were not saved yet, when the fifth is trained; whoever is killed saves nothing any more."""
    play(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(session, "SAFE_EVERY_S", math.inf)
        if stopped is Killed:
            patch.setattr(session.Session, "close", lambda *_: None)
        with interrupted_at(Training, "close_round", 4, stopped), pytest.raises(stopped):
            play(tmp_path / "stopped")
    run = RunDirectory(tmp_path / "stopped")
    rows = [pl.read_parquet(run.path / piece).height for piece in run.names("rounds")]
    progress, _ = Checkpoint(run).load()
    assert (rows, len(progress.rounds)) == (([4], 4) if stopped is KeyboardInterrupt else ([], 0))
    with progress_display() as display:
        resume_run(run.path, command=["vnetsim"], progress=display, trust=True)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def test_rounds_that_close_quickly_are_saved_together(tmp_path, monkeypatch):
    """At most so often, and at the end."""
    saved = []
    save = Checkpoint.save

    def counted(self: Checkpoint, progress: TrainingHistory, state: Mapping[str, Any]) -> None:
        saved.append(len(progress.rounds))
        save(self, progress, state)

    monkeypatch.setattr(Checkpoint, "save", counted)
    for every_s in (math.inf, 0.0):
        monkeypatch.setattr(session, "SAFE_EVERY_S", every_s)
        play(tmp_path / str(every_s))
    assert saved == [0, 6, 0, 1, 2, 3, 4, 5, 6]
    assert contents(tmp_path / "inf") == contents(tmp_path / "0.0")
