"""Comparisons in parts: processes that share a folder, killed at random moments, give the bits of one process."""

import fcntl
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vnetsim.storage.run_directory import RunDirectory

ResultsOf = Callable[[Path], dict[str, bytes]]

WALK = Path(__file__).with_name("walk_learners.py")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "batch.md"
STUDY = f"""
scenario = "gaussian"
seeds = [0, 1]
settings = {{ rounds = 3, device = "cpu", traffic.end_s = 120 }}
[[arms]]
learner = "{WALK}:Walk"
[[arms]]
learner = "{WALK}:Shifted"
"""
COMMANDS = {
    "srun": 'exec "$@"',
    "scontrol": "touch again-${2#*_}",  # requeue JOB_TASK
    "vnetsim": f'export PYTHONPATH="{os.pathsep.join(sys.path)}"; exec "{sys.executable}" -m vnetsim "$@"',
}


@pytest.fixture
def where(tmp_path, monkeypatch) -> Path:
    """The working directory, with the study."""
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*options: str) -> tuple[str, ...]:
    return "compare", "study.toml", "--out", "runs/study", *options


def bits(folder: Path, results_of: ResultsOf) -> dict[str, dict[str, bytes]]:
    """Return the results of a comparison: tables, and files of its cells."""
    found = {cell.name: results_of(cell) for cell in (folder / "cells").iterdir()}
    return found | {"": {"values": (folder / "comparison.parquet").read_bytes()}}


def sbatch(where: Path, tasks: int, kills: int, draw: random.Random) -> int:
    """Run the job array of the documentation on this machine, with so many tasks; return how often one was killed.

    A task is killed, as when a node fails, after some more files are there; at most ``kills`` times. The first attempt
    of the first has a time limit that has passed before the first round.
    """
    script = re.search(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    for option in ("--requeue", "--signal=TERM@120", "--array=1-20"):
        assert f"#SBATCH {option} " in script
    (where / "job.sh").write_text(script.replace("13500", "$LIMIT"))
    (where / "bin").mkdir()
    for name, line in COMMANDS.items():
        (where / "bin" / name).write_text(f"#!/bin/bash\n{line}\n")
        (where / "bin" / name).chmod(0o755)

    def start(task: int, limit: str = "3600") -> subprocess.Popen[str]:
        given = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": f"{task}", "SLURM_ARRAY_TASK_COUNT": f"{tasks}"}
        path = f"{where / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, **given, "LIMIT": limit, "PATH": path, "OMP_NUM_THREADS": "1"}
        with (where / f"task-{task}.out").open("a") as file:
            return subprocess.Popen(
                ["bash", "job.sh"], cwd=where, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    def files() -> int:
        return sum(1 for _ in (where / "runs").rglob("*"))

    running = {task: start(task, *["1e-9"] * (task == 1)) for task in range(1, tasks + 1)}
    killed, wanted = 0, draw.randrange(1, 20)
    while running:
        time.sleep(0.02)
        if killed < kills and files() >= wanted:
            task = draw.choice(list(running))
            os.killpg(running[task].pid, signal.SIGKILL)
            running[task].wait()
            killed, wanted = killed + 1, files() + draw.randrange(1, 20)
            running[task] = start(task)
        for task, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[task]
            if (again := where / f"again-{task}").exists():
                assert process.returncode == 75
                again.unlink()
                running[task] = start(task)
            else:
                assert process.returncode == 0, (where / f"task-{task}.out").read_text()
    return killed


@pytest.mark.slow
def test_a_job_array_killed_at_random(cli, results_of, where, monkeypatch):
    assert cli("compare", "study.toml", "--out", "whole").status == 0
    whole, seed, kills = bits(where / "whole", results_of), 0, 20
    (where / "trouble").write_text("pause")
    monkeypatch.setenv("WALK_TROUBLE", str(where / "trouble"))
    while kills > 0:  # a study may be over sooner
        array = where / f"array {seed}"
        array.mkdir()
        (array / "study.toml").write_text(STUDY)
        kills -= sbatch(array, 3, kills, random.Random(seed))
        monkeypatch.chdir(array)
        done = cli(*call())
        assert (done.status, "missing" in done.err) == (0, False)
        assert bits(array / "runs" / "study", results_of) == whole
        record = RunDirectory(array / "runs" / "study").comparison_record()
        assert (len(record.traffic), len(record.cells), record.failed) == (1, 4, {})
        seed += 1


def test_what_is_missing_is_named(cli, where):
    done = cli(*call("--part", "2/2"))
    assert (done.status, done.out) == (0, "")
    assert "vnetsim: part 2/2 has finished; when all have, the same command without --part writes" in done.err
    cells = (where / "runs" / "study" / "cells").iterdir()
    assert sorted(one.name.rpartition("-")[0] for one in cells) == ["Shifted-seed0", "Walk-seed1"]
    rest = cli(*call())
    assert rest.status == 0
    assert "2 of 4 cells are missing and run now: (Walk, seed 0), (Shifted, seed 1)." in rest.err


def test_locks(cli, refused, where):
    """A part takes its cells and its turn; a call without ``--part`` takes the folder."""
    study = where / "runs" / "study"
    study.mkdir(parents=True)
    with (study / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "runs/study: another vnetsim process is writing there" in refused(*call("--part", "1/2"))
        fcntl.flock(file, fcntl.LOCK_SH)
        assert "runs/study: another vnetsim process is writing there" in refused(*call())
        late = cli(*call("--part", "1/2", "--time-limit", "1e-9"))
        assert (late.status, "after 1 of 1 recordings of traffic" in late.err) == (75, True)
        assert cli(*call("--part", "1/4")).status == 0
    (cell,) = (study / "cells").iterdir()
    manifest = RunDirectory(cell).manifest()
    RunDirectory(cell).write_json("manifest.json", manifest | {"status": "interrupted"})
    with (cell / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        busy = cli(*call("--part", "1/4"))
    assert (busy.status, "another process is running what is missing after 0 of 1 cells" in busy.err) == (75, True)


def test_traffic_that_another_part_records_is_awaited(cli, where):
    assert cli(*call("--part", "1/2", "--time-limit", "1e-9")).status == 75
    study = where / "runs" / "study"
    (recording,) = (one for one in (study / "traffic").iterdir() if one.is_dir())
    record = RunDirectory(study).comparison()
    RunDirectory(study).write_json("comparison.json", record | {"traffic": []})
    with (study / "traffic" / f".{recording.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        late = cli(*call("--part", "2/2", "--time-limit", "0.01"))
        assert (late.status, "after 0 of 1 recordings of traffic" in late.err) == (75, True)
    assert cli(*call("--part", "2/2")).status == 0, "the lock of a killed process is free"


def test_parts_keep_each_others_failures(cli, where):
    study = where / "runs" / "study"
    assert cli(*call("--part", "4/4")).status == 0
    record = RunDirectory(study).comparison()
    names = [cell["folder"] for cell in record["cells"]]
    RunDirectory(study).write_json("comparison.json", record | {"failed": dict.fromkeys(names, "died")})
    assert cli(*call("--part", "4/4")).status == 0
    assert set(RunDirectory(study).comparison_record().failed) == set(names[:3])


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3"])
def test_parts_that_are_none(text, refused, where):
    assert f"--part: expected K/N with K from 1 to N, such as 3/20, got '{text}'." in refused(*call(f"--part={text}"))
    assert not (where / "runs").exists()


def test_parts_are_not_of_a_cluster(refused, where):
    assert "--part: not with --engine ray" in refused(*call("--part", "1/2", "--engine", "ray"))
    assert not (where / "runs").exists()
