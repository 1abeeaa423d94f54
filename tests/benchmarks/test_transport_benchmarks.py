"""Throughput of the batched transport solver against HiGHS, POT in a loop and batched Sinkhorn.

Run with ``pytest tests/benchmarks/test_transport_benchmarks.py --benchmark-only -s`` or, where there is no pytest, as a
script with the repository and its ``tests/`` on PYTHONPATH; ``--quick`` leaves out all but the smallest size. POT is
optional (``pip install "POT==0.9.6.post1"``). Prints ratios, and asserts nothing about time.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import Any

import torch
from device_checks.transport_work import SIZES, highs_seconds, ot, ours_seconds, pot_seconds, problems

from learners.transport import solve

BATCHES = (1, 16, 256, 4096)
SINKHORN_ERROR = 1e-3  # relative; at the solver's own 1e-9 its entropy would have to be below what float64 resolves
SINKHORN_SWEEPS = 20_000


def sinkhorn_seconds(n: int, device: str, count: int = 64) -> tuple[float, float]:
    """Return seconds per problem until the mean error is ``SINKHORN_ERROR``, or at the limit, and the error then.

    In the logarithmic domain, the entropy halved whenever the plan has nearly its marginals (epsilon scaling); the time
    to look at the error is not counted.
    """
    cost, a, b = problems(n, count, device)
    exact = solve(cost, a, b).value
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    epsilon, elapsed, error = float(cost.mean()), 0.0, float("inf")
    for _ in range(0, SINKHORN_SWEEPS, 20):
        start = time.perf_counter()
        for _ in range(20):
            f = epsilon * (a.log() - ((g[:, None] - cost) / epsilon).logsumexp(2))
            g = epsilon * (b.log() - ((f[..., None] - cost) / epsilon).logsumexp(1))
        plan = ((f[..., None] + g[:, None] - cost) / epsilon).exp()
        off = float((plan.sum(2) - a).abs().sum(1).mean())  # waits for the device
        elapsed += time.perf_counter() - start
        error = float((((plan * cost).sum((1, 2)) - exact).abs() / exact).mean()) + off
        if error <= SINKHORN_ERROR:
            break
        if off <= SINKHORN_ERROR / 2:
            epsilon /= 2
    return elapsed / count, error


def measure(sizes: tuple[int, ...], device: str) -> list[str]:
    """Return the lines of the table."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    lines = [
        f"{device} ({name}), {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "microseconds per problem; a ratio is the other's time over ours",
        f"{'n':>3} {'B':>5} {'ours':>9} {'HiGHS':>9} {'ratio':>7} {'POT':>9} {'ratio':>7} {'Sinkhorn':>9} {'ratio':>7}",
    ]
    if ot is None:
        lines.append('POT is skipped: it is not installed (pip install "POT==0.9.6.post1")')
    for n in sizes:
        highs, pot = highs_seconds(n), pot_seconds(n)
        sinkhorn, error = sinkhorn_seconds(n, device)
        for count in BATCHES:
            ours = ours_seconds(n, count, device)
            other = f"{1e6 * pot:9.1f} {pot / ours:7.2f}" if pot else f"{'-':>9} {'-':>7}"
            lines.append(
                f"{n:>3} {count:>5} {1e6 * ours:9.1f} {1e6 * highs:9.1f} {highs / ours:7.1f} {other} "
                f"{1e6 * sinkhorn:9.1f} {sinkhorn / ours:7.2f}"
            )
        lines.append(f"    Sinkhorn on 64 problems to a relative error of {error:.1e}; ours at most 4e-9")
    return lines


def test_throughput_of_the_transport_solver(benchmark: Any, capsys: Any) -> None:
    case = problems(16, 1024, "cpu")
    result = benchmark.pedantic(solve, args=case, rounds=2, iterations=1, warmup_rounds=1)
    assert (result.gap < 1e-8).all()
    with capsys.disabled():
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            print("", *measure(SIZES, device), sep="\n")


if __name__ == "__main__":
    for place in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        print(*measure(SIZES[:1] if "--quick" in sys.argv else SIZES, place), sep="\n")
