"""Time of a transport problem with both solvers and with HiGHS.

Run with ``pytest tests/benchmarks/test_transport_benchmarks.py --benchmark-only -s`` or as a script with the repository
and its ``tests/`` on PYTHONPATH. Prints, and asserts nothing about time.
"""

from __future__ import annotations

from typing import Any

import torch
from device_checks.transport_work import SIZES, highs_seconds, ours_seconds, pot_seconds, problems

from learners.mathematics.transport import solve

BATCHES = (1, 64, 512)


def measure(device: str) -> list[str]:
    """Return the lines of the table."""
    lines = [f"{device}, {torch.get_num_threads()} threads; microseconds per problem of n x n"]
    for n in SIZES:
        ours = "".join(f", in batches of {count} {1e6 * ours_seconds(n, count, device):.1f}" for count in BATCHES)
        pot_s = pot_seconds(n)
        pot = "is not installed" if pot_s is None else f"{1e6 * pot_s:.1f}"
        lines.append(f"n = {n}: HiGHS {1e6 * highs_seconds(n):.1f}, POT {pot}; interior point{ours}")
    return lines


def test_time_of_transport_problems(benchmark: Any, capsys: Any) -> None:
    benchmark.pedantic(solve, args=problems(16, 512, "cpu"), rounds=2, iterations=1, warmup_rounds=1)
    with capsys.disabled():
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            print("", *measure(device), sep="\n")


if __name__ == "__main__":
    for place in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        print(*measure(place), sep="\n")
