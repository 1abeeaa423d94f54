"""A crash of libsumo takes the program along: its parent tells it in one line, and is else not to be noticed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vnetsim.launch import may_load_libsumo

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "scenarios" / "intersection.sumocfg"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
AT_STEP = """
import ctypes, os, sys, libsumo
from itertools import count
from vnetsim.launch import main
true, number = libsumo.simulationStep, count()
def step():
    if next(number) == 40:
        print(os.getpid(), flush=True)
        {what}
    return true()
libsumo.simulationStep = step
main()
"""
CRASH = AT_STEP.format(what="ctypes.string_at(0)")
# in short sleeps: a signal that arrives just before a sleep begins does not end it
WAIT = AT_STEP.format(what="import time; [time.sleep(0.1) for _ in range(600)]")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the parent is for Linux")


def started(code: str, out: Path) -> subprocess.Popen[str]:
    arguments = ["mobility", str(SCENARIO), "--backend", "libsumo", "--no-report", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        text=True,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_a_crash_within_the_process_is_one_line(tmp_path: Path) -> None:
    program = started(CRASH, tmp_path / "out")
    err = program.communicate(timeout=120)[1].splitlines()
    assert program.returncode == 1
    told = [line for line in err if "crashed" in line]
    assert len(told) == 1, err
    assert told[0].startswith(f"vnetsim: {SCENARIO}: SUMO crashed within this process")
    assert "intersection.net.xml" in told[0]
    assert all(line.startswith("vnetsim: ") for line in err), err
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes())["status"] == "running"


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, 130), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_signals_reach_the_program(tmp_path: Path, sent: signal.Signals, status: int) -> None:
    program = started(WAIT, tmp_path / "out")
    assert program.stdout is not None
    child = int(program.stdout.readline())
    assert child != program.pid
    program.send_signal(sent)
    err = program.communicate(timeout=60)[1]
    assert program.returncode == status
    if sent != signal.SIGKILL:
        assert "interrupted at" in err
        assert "crashed" not in err
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}/stat").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_who_gets_a_parent(tmp_path: Path) -> None:
    assert may_load_libsumo(["run", "x.sumocfg", "--backend=libsumo"])
    assert not may_load_libsumo(["run", str(SCENARIO), "--out", str(tmp_path), "a\0b"])
    (tmp_path / "experiment.toml").write_text('[traffic]\nbackend = "libsumo"\n')
    assert may_load_libsumo(["resume", str(tmp_path)])
    assert may_load_libsumo(["run", str(tmp_path / "experiment.toml")])
