"""Ctrl-C, or an end of the session, while SUMO runs beside this process: nothing hangs and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

START = """
import signal
from vnetsim.__main__ import main
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
"""What a shell starts in the background is deaf to Ctrl-C; this hears it wherever the tests run."""
SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "sumo" in line]


def cpu_s(pid: int) -> float:
    """Return the processor time that a process took so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status(run: Path) -> str | None:
    manifest = run / "manifest.json"
    return str(json.loads(manifest.read_text())["status"]) if manifest.exists() else None


@contextlib.contextmanager
def started(traffic: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield a recording of traffic in a folder, once it runs, and the id of its SUMO; both are killed at the end."""
    command = [sys.executable, "-c", START, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    sumo = 0
    try:
        while status(traffic) != "running":
            assert process.poll() is None
            time.sleep(0.02)
        (sumo,) = children(process.pid)
        yield process, sumo
    finally:
        process.kill()
        process.communicate()
        if sumo and Path(f"/proc/{sumo}").exists():
            os.kill(sumo, signal.SIGKILL)


def interrupted(pressed: signal.Signals, after_s: float, traffic: Path, *options: str) -> None:
    """Interrupt a recording of traffic in this folder, and check what is left.

    ``after_s`` is processor time of SUMO since its network was loaded: it steps then, however busy the machine.
    """
    with started(traffic, *options) as (process, sumo):
        loaded_s = cpu_s(sumo)
        while cpu_s(sumo) < loaded_s + after_s:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(pressed)
        told = process.communicate(timeout=60)[1]
        assert not Path(f"/proc/{sumo}").exists()
    assert process.returncode == 130
    go_on = re.escape(f"Go on with: vnetsim resume {shlex.quote(str(traffic))}")
    assert re.fullmatch(rf"vnetsim: interrupted at [0-9.]+ s of the traffic\. {go_on}\n", told)
    assert status(traffic) == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize(("pressed", "after_s"), [(signal.SIGINT, 0.1), (signal.SIGTERM, 0.31), (signal.SIGHUP, 0.53)])
def test_a_signal_while_sumo_steps(pressed, after_s, tmp_path):
    folder = tmp_path / "scenario"
    shutil.copytree(SCENARIOS, folder)
    config = folder / "expressway.sumocfg"
    finer = re.sub('step-length value="[0-9.]+"', 'step-length value="0.01"', config.read_text())  # takes minutes
    assert 'step-length value="0.01"' in finer
    config.write_text(finer)
    traffic = tmp_path / "traffic"
    interrupted(pressed, after_s, traffic, "mobility", str(config), "--out", str(traffic))
    interrupted(pressed, after_s, traffic, "resume", str(traffic))


@pytest.mark.parametrize(
    "pressed", [(signal.SIGINT,), pytest.param((signal.SIGINT, signal.SIGTERM), marks=pytest.mark.all_only)]
)
def test_signals_while_sumo_does_not_answer(pressed, tmp_path):
    """A stopped SUMO sends nothing, and this process waits for it in one system call."""
    traffic = tmp_path / "traffic"
    options = ("mobility", str(SCENARIOS / "intersection.sumocfg"), "--out", str(traffic))
    with started(traffic, *options) as (process, sumo):
        os.kill(sumo, signal.SIGSTOP)
        worked_s = -1.0
        while cpu_s(process.pid) != worked_s:
            worked_s = cpu_s(process.pid)
            time.sleep(0.5)
        for one in pressed:
            process.send_signal(one)
            time.sleep(0.1)
        told = process.communicate(timeout=30)[1]
    assert process.returncode in {130, -signal.SIGTERM}  # the second may come when Python is about to end
    assert re.fullmatch(r"vnetsim: interrupted at [0-9.]+ s of the traffic\. Go on with: vnetsim resume .*\n", told)
