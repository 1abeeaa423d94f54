"""What a user waits for: the help, and the default main job. Prints; asserts nothing about time.

Run with ``pytest tests/benchmarks/test_command_benchmarks.py --benchmark-only -s``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]


def _timed(*words: object) -> float:
    """Return the wall time of a command (s)."""
    start_s = time.perf_counter()
    subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=900)
    return time.perf_counter() - start_s


def test_help_against_an_empty_python(benchmark: Any) -> None:
    seconds: list[tuple[float, float]] = []

    def both() -> None:
        python = _timed(sys.executable, "-c", "pass")
        seconds.append((_timed(sys.executable, "-m", "vnetsim", "--help"), python))

    benchmark.pedantic(both, rounds=5, iterations=1)
    ours, python = (min(pair[side] for pair in seconds) for side in (0, 1))
    benchmark.extra_info.update(help_s=ours, python_s=python)
    print(f"\nvnetsim --help {ours:.2f} s, an empty Python {python:.2f} s")
    assert seconds


def test_main_job_against_its_training(benchmark: Any, tmp_path: Path) -> None:
    runs = count()
    seconds: list[tuple[float, dict[str, float]]] = []

    def main_job() -> None:
        out = tmp_path / f"out{next(runs)}"
        scenario = ROOT / "scenarios" / "intersection.sumocfg"
        wall_s = _timed(sys.executable, "-m", "vnetsim", "run", scenario, "--out", out)
        seconds.append((wall_s, json.loads((out / "manifest.json").read_text())["wall_s"]))

    benchmark.pedantic(main_job, rounds=1, iterations=1)
    wall_s, stages = min(seconds)
    stages["start and report"] = wall_s - sum(stages.values())
    learning = sum(stages[stage] for stage in ("training", "evaluation", "first evaluation"))
    others = wall_s - stages["traffic"] - learning
    shares = ", ".join(f"{stage} {100 * value / wall_s:.0f} %" for stage, value in stages.items())
    benchmark.extra_info.update(wall_s=wall_s, **stages)
    print(f"\nmain job {wall_s:.1f} s on {torch.get_num_threads()} threads: {shares}")
    print(
        f"outside training and SUMO {100 * (1 - (stages['training'] + stages['traffic']) / wall_s):.0f} %, "
        f"outside these and evaluation {100 * others / wall_s:.0f} %"
    )
    assert seconds
