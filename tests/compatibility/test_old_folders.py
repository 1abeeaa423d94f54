"""Folders of the version before the packages were divided into sub-packages resume to the same bits.

``run.zip`` is a run of four rounds that was killed after two, and the tables of the same run uninterrupted
(``expected/``); ``comparison.zip`` a comparison of two cells that was killed when the first had finished.
What is simulated is compared exactly, and so is what is learnt where this machine computes the same bits as the one
that the folder comes from: where the run from its beginning gives the folder's first rounds. Elsewhere the last digits
differ, by which the nearest neighbour of one of 40 images may change, and what is learnt is compared roughly.

``earlier.zip`` is older: two runs of one setting, from before participants knew how many neighbours they had and before
learners had some of their present defaults; one finished, one killed. Such a run is read and replayed; to resume it
would go on with other settings than it began with, and is refused.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from vnetsim.cli.commands import main

FOLDER = Path(__file__).parent
TINY = {
    "data.train_images": "120",
    "data.test_images": "40",
    "silos.count": "6",
    "round.quorum": "2",
    "round.invited": "3",
    "learning.batch": "8",
    "learning.steps": "1",
    "rounds": "2",
    "learning.bank": "0",
    "gaussian.duration_s": "20",
    "traffic.repeat": "true",
}


def unpacked(name: str, into: Path) -> Path:
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(into)
    return into


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return int(stopped.value.code or 0)


def same_bits(run: Path, again: Path) -> bool:
    """Return whether this machine computes a folder's first rounds to the bits that stand there."""
    assert call("run", str(run / "experiment.toml"), "--device", "cpu", "--out", str(again)) == 0
    first = pl.read_parquet(run / "metrics.parquet")
    assert first.height > 0
    return pl.read_parquet(again / "metrics.parquet")[: first.height].equals(first)


def test_a_killed_run_resumes_to_the_tables_of_the_uninterrupted_one(tmp_path: Path) -> None:
    run = unpacked("run", tmp_path / "run")
    exact = same_bits(run, tmp_path / "again")
    expected = {file.stem: pl.read_parquet(file) for file in (run / "expected").iterdir()}
    assert call("resume", str(run)) == 0
    learnt = {"metrics": ["value"], "participations": ["loss"], "rounds": ["loss"], "windows": []}
    for table, rows in expected.items():
        ours = pl.read_parquet(run / f"{table}.parquet")
        assert ours.drop(learnt[table]).equals(rows.drop(learnt[table]))
        roughly = {} if exact else {"abs_tol": 0.2, "rel_tol": 0.05}
        assert_frame_equal(ours[learnt[table]], rows[learnt[table]], check_exact=exact, **roughly)


def test_a_killed_comparison_goes_on_with_its_cells(tmp_path: Path) -> None:
    folder = unpacked("comparison", tmp_path / "comparison")
    finished = next(
        cell for cell in (folder / "cells").iterdir() if '"finished"' in (cell / "manifest.json").read_text()
    )
    before = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in finished.glob("*.parquet")}
    assert len(before) == 6
    settings = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
    assert (
        call("compare", "gaussian", "--learners", "flsimco,fedavg", "--seeds", "0:1", *settings, "--out", str(folder))
        == 0
    )
    assert sorted(cell.name.partition("-")[0] for cell in (folder / "cells").iterdir()) == ["fedavg", "flsimco"]
    assert {name: hashlib.sha256((finished / name).read_bytes()).hexdigest() for name in before} == before
    assert (folder / "comparison.html").is_file()


def test_an_earlier_run_is_reported_and_replayed_and_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = unpacked("earlier", tmp_path / "earlier")
    finished, killed = folder / "finished", folder / "killed"
    for run in (finished, killed):
        assert call("report", str(run)) == 0
        assert (run / "report.html").is_file()
    again = tmp_path / "again"
    assert call("run", str(finished), "--rounds", "4", "--device", "cpu", "--out", str(again)) == 0
    windows = ["vehicle_id", "rsu_id", "enter_s", "exit_s"]
    recorded = pl.read_parquet(finished / "windows.parquet")[windows]
    assert pl.read_parquet(again / "windows.parquet")[windows].equals(recorded)
    before = {file: file.read_bytes() for file in sorted(killed.rglob("*")) if file.is_file()}
    capsys.readouterr()
    assert call("resume", str(killed)) == 2
    assert "round 0: " in (said := capsys.readouterr().err)
    assert "vnetsim itself changed. Start the run again" in said
    kept = ("checkpoint", "rounds.parquet", "metrics.parquet")
    for file, content in before.items():
        if file.relative_to(killed).parts[0] in kept:
            assert file.read_bytes() == content
