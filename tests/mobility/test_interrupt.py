"""Ctrl-C while SUMO runs beside this process: nothing hangs and nothing is left behind."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

START = """
import signal
from vnetsim.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
"""What a shell starts in the background is deaf to Ctrl-C; this hears it wherever the tests run."""
SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "sumo" in line]


@pytest.mark.slow
@pytest.mark.parametrize("later_s", [0.5, 0.81, 1.13])
def test_ctrl_c_while_sumo_steps(later_s: float, tmp_path: Path) -> None:
    folder = tmp_path / "scenario"
    shutil.copytree(SCENARIOS, folder)
    config = folder / "expressway.sumocfg"
    finer = re.sub('step-length value="[0-9.]+"', 'step-length value="0.01"', config.read_text())  # takes minutes
    assert 'step-length value="0.01"' in finer
    config.write_text(finer)
    command = [sys.executable, "-c", START, "mobility", config, "--out", tmp_path / "traffic"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "traffic" / "manifest.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(later_s)
        sumo = children(process.pid)
        assert sumo
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert told.endswith("vnetsim: interrupted.\n")
    assert not any(Path(f"/proc/{pid}").exists() for pid in sumo)
    assert (tmp_path / "traffic" / "windows.parquet").exists()
