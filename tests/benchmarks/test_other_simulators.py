"""Rounds of 10 of 50 vehicles beside Flower and pfl-research: same network, images and steps; prints, asserts nothing.

They want other versions of packages than vnetsim does, so each has an environment of its own, in which this repository
can be imported: ``pip install 'flwr[simulation]==1.41.0' --editable .`` and ``pip install 'pfl[pytorch]==0.6.0'
--editable .``. Then ``VNETSIM_FLOWER_PYTHON=flower/bin/python VNETSIM_PFL_PYTHON=pfl/bin/python pytest
tests/benchmarks/test_other_simulators.py --benchmark-only -s``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import pytest

OTHERS = {name: os.environ.get(f"VNETSIM_{name.upper()}_PYTHON", "") for name in ("flower", "pfl")}
STEPS, BATCH, IMAGES = 8, 32, 64
ROUNDS, REPEATS = 6, 3
SIZES = [str(size) for size in (ROUNDS, STEPS, BATCH, IMAGES)]
LOOK_EVERY_S = 1.0
MARK = "VNETSIM_BENCHMARK"
OURS = f"""
import sys
from vnetsim.process import prepare_process
prepare_process()  # as the command does
import vnetsim
vnetsim.run(
    "gaussian", learner="fedavg-classification", rounds={ROUNDS}, device="cpu", evaluate_every={ROUNDS},
    out=sys.argv[1],
    settings={{
        "round.quorum": 10, "round.invited": 10, "silos.count": 50, "data.train_images": {50 * IMAGES},
        "data.test_images": 100, "learning.local_test": 1, "data.partition": "iid", "blur.threshold_kmh": 1000.0,
        "learning.steps": {STEPS}, "learning.batch": {BATCH},
        "radio.name": "constant", "radio.rate_bps": 1e9, "compute.median_flops": 1e12, "traffic.end_s": 600.0,
    }},
    on_round=lambda done, _: print("round", done, flush=True),
)
"""


class Watched:
    """A process with one thread that prints ``round ...`` after each round, and all processes that it starts.

    Attributes:
        ends_s: processor seconds of all of them at the end of each round.
        total_s: the same at the last look before the end.
        peak_bytes: most memory at the end of a round, shared pages divided among those that share them.
    """

    def __init__(self, command: list[str], folder: Path) -> None:
        self._mark = uuid4().hex
        self._seconds: dict[int, float] = {}
        self._lock = threading.Lock()
        self.ends_s: list[float] = []
        self.total_s, self.peak_bytes = 0.0, 0
        one_thread = {"VNETSIM_CORES": "1", "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0", MARK: self._mark}
        self._process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **one_thread}, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def wait(self) -> None:
        """Wait for the end of the process."""
        self._reader.join()
        assert self._process.wait() == 0
        assert len(self.ends_s) == ROUNDS

    @property
    def round_s(self) -> float:
        """The median of a round after the first (processor seconds)."""
        return median(after - before for before, after in pairwise(self.ends_s))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("round "):
                self.ends_s.append(self._look(memory=True))

    def _watch(self) -> None:
        while self._process.poll() is None:
            self.total_s = self._look()
            threading.Event().wait(LOOK_EVERY_S)

    def _look(self, *, memory: bool = False) -> float:
        """Return the processor seconds of all processes so far, of ended ones those at the last look."""
        used_bytes = 0
        with self._lock:
            for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda one: int(one.name)):
                with suppress(OSError):  # ended, or another user's
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    number, parent = int(folder.name), int(fields[1])
                    # Ray's workers overwrite their environment, but their parents are known
                    known = number in self._seconds or parent in self._seconds
                    if known or f"{MARK}={self._mark}".encode() in (folder / "environ").read_bytes():
                        self._seconds[number] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                        if memory:
                            rows = (folder / "smaps_rollup").read_text().splitlines()
                            used_bytes += sum(1024 * int(row.split()[1]) for row in rows if row.startswith("Pss:"))
            self.peak_bytes = max(self.peak_bytes, used_bytes)
            return sum(self._seconds.values())


@pytest.mark.benchmark
@pytest.mark.parametrize("name", ["flower", "pfl"])
def test_rounds_beside(benchmark: Any, tmp_path: Path, name: str) -> None:
    """Processor time with one thread each, both at the same time."""
    if not OTHERS[name]:
        pytest.skip(f"VNETSIM_{name.upper()}_PYTHON names no Python with {name}")
    theirs = [OTHERS[name], str(Path(__file__).with_name(f"{name}_rounds.py")), *SIZES]

    def compare() -> None:
        for number in range(REPEATS):
            ours = [sys.executable, "-c", OURS, str(tmp_path / str(number))]
            both = [Watched(command, tmp_path) for command in (ours, theirs)]
            for one in both:
                one.wait()
            for what, mine, other in (
                ("a round after the first", *(one.round_s for one in both)),
                (f"{ROUNDS} rounds with the start", *(one.total_s for one in both)),
            ):
                print(f"{what}: vnetsim {mine:.2f} s, {name} {other:.2f} s of processor time, {other / mine:.2f} x")
            print(f"memory: vnetsim {both[0].peak_bytes / 1e6:.0f} MB, {name} {both[1].peak_bytes / 1e6:.0f} MB")

    benchmark.pedantic(compare, rounds=1, iterations=1)
