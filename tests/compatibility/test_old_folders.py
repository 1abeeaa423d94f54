"""Folders of the version before the packages were divided into sub-packages: they resume to the same bits.

``run.zip`` is a run of four rounds that was killed after two, and the tables of the same run uninterrupted
(``expected/``); ``comparison.zip`` a comparison of two cells that was killed when the first had finished.
What is simulated is compared exactly. What is learnt differs between processors in the last digits, by which the
nearest neighbour of one of 40 images may change: it is compared roughly.
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


def test_a_killed_run_resumes_to_the_tables_of_the_uninterrupted_one(tmp_path: Path) -> None:
    run = unpacked("run", tmp_path / "run")
    expected = {file.stem: pl.read_parquet(file) for file in (run / "expected").iterdir()}
    assert call("resume", str(run)) == 0
    learnt = {"metrics": ["value"], "participations": ["loss"], "rounds": ["loss"], "windows": []}
    for table, rows in expected.items():
        ours = pl.read_parquet(run / f"{table}.parquet")
        assert ours.drop(learnt[table]).equals(rows.drop(learnt[table]))
        assert_frame_equal(ours[learnt[table]], rows[learnt[table]], check_exact=False, abs_tol=0.2, rel_tol=0.05)


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
