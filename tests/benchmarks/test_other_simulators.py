"""A round of 10 of 50 vehicles against Flower and pfl: same network, images and steps; prints, asserts nothing.

They want other versions of packages than vnetsim does, so each has an environment of its own, in which this repository
can be imported: ``pip install 'flwr[simulation]==1.41.0' --editable .`` and ``pip install 'pfl[pytorch]==0.6.0'
--editable .``. Then ``VNETSIM_FLOWER_PYTHON=flower/bin/python VNETSIM_PFL_PYTHON=pfl/bin/python pytest
tests/benchmarks/test_other_simulators.py --benchmark-only -s``.
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

FLOWER, PFL = (os.environ.get(f"VNETSIM_{name}_PYTHON", "") for name in ("FLOWER", "PFL"))
STEPS, BATCH, IMAGES = 8, 32, 64
ROUNDS, REPEATS = 6, 3
SIZES = [str(size) for size in (ROUNDS, STEPS, BATCH, IMAGES)]
OURS = f"""
import sys, time
clock = getattr(time, sys.argv[2])
began_s = clock()
import vnetsim
vnetsim.run(
    "gaussian", learner="fedavg-classification", rounds={ROUNDS}, device="cpu", evaluate_every={ROUNDS},
    out=sys.argv[1],
    settings={{
        "round.quorum": 10, "round.invited": 10, "silos.count": 50, "data.train_images": {50 * IMAGES},
        "data.test_images": 100, "learning.local_test": 1, "data.partition": "iid",
        "learning.steps": {STEPS}, "learning.batch": {BATCH},
        "radio.name": "constant", "radio.rate_bps": 1e9, "compute.median_flops": 1e12, "traffic.end_s": 600.0,
    }},
    on_round=lambda done, _: print("round", done, f"{{clock() - began_s:.3f}}", flush=True),
)
"""


def round_s(output: str) -> float:
    """Return the median of the seconds between the ends of the rounds that a process printed."""
    ends_s = [float(line.split()[2]) for line in output.splitlines() if line.startswith("round ")]
    assert len(ends_s) == ROUNDS, output
    return median(after - before for before, after in pairwise(ends_s))


def say(what: str, ours_s: float, other: str, theirs_s: float) -> None:
    print(f"{what}: vnetsim {ours_s:.2f} s, {other} {theirs_s:.2f} s, {theirs_s / ours_s:.2f} x", flush=True)


@pytest.mark.benchmark
@pytest.mark.skipif(not FLOWER, reason="VNETSIM_FLOWER_PYTHON names no Python with Flower")
def test_rounds_against_flower(benchmark: Any, tmp_path: Path) -> None:
    """On all cores, one after the other: Flower trains in processes of Ray."""
    theirs = [FLOWER, str(Path(__file__).with_name("flower_rounds.py")), *SIZES]

    def compare() -> None:
        for number in range(REPEATS):
            wholes_s, rounds_s = [], []
            for command in ([sys.executable, "-c", OURS, str(tmp_path / str(number)), "perf_counter"], theirs):
                begin_s = time.perf_counter()
                done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
                wholes_s.append(time.perf_counter() - begin_s)
                rounds_s.append(round_s(done.stdout))
            say("a round after the first", rounds_s[0], "Flower", rounds_s[1])
            say(f"{ROUNDS} rounds", wholes_s[0], "Flower", wholes_s[1])

    benchmark.pedantic(compare, rounds=1, iterations=1)


@pytest.mark.benchmark
@pytest.mark.skipif(not PFL, reason="VNETSIM_PFL_PYTHON names no Python with pfl-research")
def test_rounds_against_pfl(benchmark: Any, tmp_path: Path) -> None:
    """Processor time with one thread each, both at the same time: pfl-research trains in one process."""
    one_thread = {**os.environ, "VNETSIM_CORES": "1", "OMP_NUM_THREADS": "1"}
    theirs = [PFL, str(Path(__file__).with_name("pfl_rounds.py")), *SIZES]

    def compare() -> None:
        for number in range(REPEATS):
            commands = ([sys.executable, "-c", OURS, str(tmp_path / str(number)), "process_time"], theirs)
            both = [
                subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=one_thread)
                for command in commands
            ]
            ours_s, theirs_s = (round_s(process.communicate()[0]) for process in both)
            say("processor time of a round after the first", ours_s, "pfl", theirs_s)

    benchmark.pedantic(compare, rounds=1, iterations=1)
