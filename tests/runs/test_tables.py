"""The tables of a run while it goes on: what is written after a round, and what a stop leaves."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from vnetsim.display import progress_display
from vnetsim.experiment import Experiment, RoundSettings
from vnetsim.runs import tables
from vnetsim.runs.assembly import assemble
from vnetsim.runs.runner import resume_run, start_run
from vnetsim.runs.tables import RunTables
from vnetsim.simulation.log import SimulationLog
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
        round=RoundSettings(quorum=2),
    )
    with progress_display() as progress:
        start_run(assemble(experiment), folder, command=["vnetsim"], progress=progress)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("stopped", [KeyboardInterrupt, Killed])
def test_what_waits_is_neither_lost_nor_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: type[BaseException]
) -> None:
    play(tmp_path / "whole")
    monkeypatch.setattr(tables, "ALWAYS_SAVED_ROWS", -1)
    monkeypatch.setattr(tables, "SAVING_SHARE", 1e-12)
    append, calls = RunTables.append, []

    def stop(self: RunTables, log: SimulationLog, metrics: Sequence[object], *, last: bool = False) -> None:
        append(self, log, metrics, last=last)  # type: ignore[arg-type]
        calls.append(len(log.rounds))
        if len(calls) == 4:
            raise stopped

    save = RunTables.save
    if stopped is Killed:  # nobody saves then
        monkeypatch.setattr(RunTables, "save", lambda _: None)
    monkeypatch.setattr(RunTables, "append", stop)
    with pytest.raises(stopped):
        play(tmp_path / "stopped")
    pieces = RunDirectory(tmp_path / "stopped").names("rounds")
    rows = [pl.read_parquet(tmp_path / "stopped" / piece).height for piece in pieces]
    assert rows == ([4] if stopped is KeyboardInterrupt else [])
    monkeypatch.setattr(RunTables, "append", append)
    monkeypatch.setattr(RunTables, "save", save)
    with progress_display() as progress:
        resume_run(tmp_path / "stopped", command=["vnetsim"], progress=progress, trust=True)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")
