"""Growth: CPU time and memory of recordings, runs and their reports over their size. Prints; asserts nothing of them.

Run with ``pytest tests/benchmarks/test_growth_benchmarks.py --benchmark-only --timeout=0 -s``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

WALK = f"{Path(__file__).parents[1] / 'end_to_end' / 'walk_learners.py'}:Walk"
ARRIVALS_PER_S = 50.0
RECORD = """
import sys
from pathlib import Path
from vnetsim.display import progress_display
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.runs.traffic_recording import record_mobility
timed, model = TrafficSettings(repeat=False, end_s=float(sys.argv[1])), {"arrivals_per_s": float(sys.argv[2])}
experiment = Experiment(scenario="gaussian", source=model, traffic=timed)
with progress_display() as progress:
    record_mobility(experiment, Path(sys.argv[3]), command=["benchmark"], progress=progress)
"""
RUN = """
import sys
from pathlib import Path
from vnetsim.display import progress_display
from vnetsim.experiment import Experiment, RoundSettings
from vnetsim.runs.assembly import assemble
from vnetsim.runs.runner import start_run
experiment = Experiment(
    scenario="gaussian", learner=sys.argv[1], rounds=int(sys.argv[2]), device="cpu", evaluate_every=100,
    source={"arrivals_per_s": 1.0}, round=RoundSettings(invited=20, quorum=10),
)
with progress_display() as progress:
    start_run(assemble(experiment), Path(sys.argv[3]), command=["benchmark"], progress=progress)
"""
MANY_ROUNDS = """
import sys
from pathlib import Path
from vnetsim.display import progress_display
from vnetsim.experiment import Experiment, RoundSettings
from vnetsim.runs.assembly import assemble
from vnetsim.runs.runner import start_run
experiment = Experiment(
    scenario="gaussian", learner=sys.argv[1], rounds=int(sys.argv[2]), device="cpu", evaluate_every=1000,
    source={"arrivals_per_s": 5.0}, round=RoundSettings(invited=6, quorum=5),
    radio={"name": "constant"},
)
with progress_display() as progress:
    start_run(assemble(experiment), Path(sys.argv[3]), command=["benchmark"], progress=progress)
"""
REPORT = """
import sys
from pathlib import Path
from analysis.report.page import build_report
build_report(Path(sys.argv[1]))
"""


def used(code: str, *arguments: object) -> tuple[float, float]:
    """Return CPU time (s) and the most memory (MB) of a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


@pytest.mark.parametrize("windows", [10_000, 100_000, 1_000_000])
def test_a_recording_and_its_report(benchmark: Any, windows: int, tmp_path: Path) -> None:
    found: list[tuple[float, float]] = []

    def both() -> None:
        out = tmp_path / "run"
        found.append(used(RECORD, windows / ARRIVALS_PER_S, ARRIVALS_PER_S, out))
        found.append(used(REPORT, out))

    benchmark.pedantic(both, rounds=1, iterations=1)
    rows = pl.scan_parquet(tmp_path / "run" / "windows.parquet").select(pl.len()).collect().item()
    shown = ", ".join(
        f"{what} {cpu_s:.1f} s, {mb:.0f} MB" for what, (cpu_s, mb) in zip(("mobility", "report"), found, strict=True)
    )
    print(f"\n{rows} windows: {shown}")
    assert abs(rows - windows) < 0.05 * windows


@pytest.mark.parametrize("rounds", [100, 1_000, 10_000])
def test_a_run_and_its_report(benchmark: Any, rounds: int, tmp_path: Path) -> None:
    found: list[tuple[float, float]] = []

    def both() -> None:
        out = tmp_path / "run"
        found.append(used(RUN, WALK, rounds, out))
        found.append(used(REPORT, out))

    benchmark.pedantic(both, rounds=1, iterations=1)
    rows = pl.scan_parquet(tmp_path / "run" / "participations.parquet").select(pl.len()).collect().item()
    shown = ", ".join(
        f"{what} {cpu_s:.1f} s, {mb:.0f} MB" for what, (cpu_s, mb) in zip(("run", "report"), found, strict=True)
    )
    print(f"\n{rounds} rounds, {rows} participations: {shown}")
    assert rows >= 10 * rounds


def test_many_small_rounds(benchmark: Any, tmp_path: Path) -> None:
    """1e4 and 1e5 participations over a constant link, with nothing learnt; and how much more the tenfold takes."""
    found: dict[int, list[tuple[float, float]]] = {}

    def both() -> None:
        for rounds in (1_800, 18_000):
            out = tmp_path / str(rounds)
            used_by = [used(MANY_ROUNDS, WALK, rounds, out), used(REPORT, out)]
            rows = pl.scan_parquet(out / "participations.parquet").select(pl.len()).collect().item()
            found[rows] = used_by

    benchmark.pedantic(both, rounds=1, iterations=1)
    for rows, used_by in found.items():
        told = ", ".join(
            f"{what} {s:.1f} s, {mb:.0f} MB" for what, (s, mb) in zip(("run", "report"), used_by, strict=True)
        )
        print(f"\n{rows} participations: {told}")
    (few, small), (many, large) = found.items()
    growth = [f"{b[0] / a[0]:.1f}" for a, b in zip(small, large, strict=True)]
    print(f"{many / few:.1f} times the participations: run {growth[0]}, report {growth[1]} times the processor time")
