"""A round of 10 of 50 vehicles against Flower's simulation: same network, images and steps; prints, asserts nothing.

Flower wants other versions than vnetsim does, so it has an environment of its own, with this repository to be found:
``VNETSIM_FLOWER_PYTHON=flower/bin/python pytest tests/benchmarks/test_flower_benchmark.py --benchmark-only -s`` after
``pip install 'flwr[simulation]==1.41.0' --editable .`` there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

FLOWER = os.environ.get("VNETSIM_FLOWER_PYTHON", "")
STEPS, BATCH, IMAGES = 8, 32, 64
ROUNDS, REPEATS = 6, 3
OURS = f"""
import sys, time
began_s = time.perf_counter()
import vnetsim
vnetsim.run(
    "gaussian", learner="fedavg-classification", rounds={ROUNDS}, device="cpu", evaluate_every={ROUNDS},
    out=sys.argv[1],
    settings={{
        "round.quorum": 10, "round.invited": 10, "silos.count": 50, "data.train_images": {50 * IMAGES},
        "data.test_images": 100, "data.partition": "iid", "learning.steps": {STEPS}, "learning.batch": {BATCH},
        "radio.name": "constant", "radio.rate_bps": 1e9, "compute.median_flops": 1e12, "traffic.end_s": 600.0,
    }},
    on_round=lambda done, _: print("round", done, f"{{time.perf_counter() - began_s:.3f}}", flush=True),
)
"""


def played(command: list[str], folder: Path) -> tuple[float, list[float]]:
    """Return the seconds of a command from its start to its end, and those between the ends of its rounds."""
    begin_s = time.perf_counter()
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    whole_s = time.perf_counter() - begin_s
    ends_s = [float(line.split()[2]) for line in done.stdout.splitlines() if line.startswith("round ")]
    assert len(ends_s) == ROUNDS, done.stdout
    return whole_s, [after - before for before, after in pairwise(ends_s)]


@pytest.mark.benchmark
@pytest.mark.skipif(not FLOWER, reason="VNETSIM_FLOWER_PYTHON names no Python with Flower")
def test_rounds_against_flower(benchmark: Any, tmp_path: Path) -> None:
    theirs = [FLOWER, str(Path(__file__).with_name("flower_rounds.py")), *map(str, (ROUNDS, STEPS, BATCH, IMAGES))]

    def compare() -> None:
        wholes, rounds = [], []
        for number in range(REPEATS):
            ours = [sys.executable, "-c", OURS, str(tmp_path / str(number))]
            pair = [played(command, tmp_path) for command in (ours, theirs)]
            wholes.append([whole_s for whole_s, _ in pair])
            rounds.append([median(between_s) for _, between_s in pair])
            for what, seconds in (("a round after the first", rounds[-1]), (f"{ROUNDS} rounds", wholes[-1])):
                print(
                    f"{what}: vnetsim {seconds[0]:.2f} s, Flower {seconds[1]:.2f} s, {seconds[1] / seconds[0]:.2f} x",
                    flush=True,
                )

    benchmark.pedantic(compare, rounds=1, iterations=1)
