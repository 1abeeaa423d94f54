"""Throughput of the batched transport solver against HiGHS, POT in a loop and batched Sinkhorn.

Run with ``pytest tests/benchmarks/test_transport_benchmarks.py --benchmark-only -s`` or, where there is no pytest, as a
script with the repository on PYTHONPATH; ``--quick`` leaves out all but the smallest size. POT is optional
(``pip install "POT==0.9.6.post1"``). Prints ratios, and asserts nothing about time.

The problems are cosine costs of random features with DeepEMD's marginals. All times are per problem, the best of a few
repetitions. HiGHS and POT take one problem after the other, so their time does not depend on the batch.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import linprog
from torch import Tensor

from learners.transport import marginals, solve

try:
    import ot  # type: ignore[import-untyped, import-not-found, unused-ignore]
except ImportError:
    ot = None

SIZES = (16, 25, 49)
BATCHES = (1, 16, 256, 4096)
SINKHORN_ERROR = 1e-3  # relative; at the solver's own 1e-9 its entropy would have to be below what float64 resolves
SINKHORN_SWEEPS = 20_000

Problems = tuple[Tensor, Tensor, Tensor]


def problems(n: int, count: int, device: str) -> Problems:
    generator = torch.Generator().manual_seed(n)
    u, v = (torch.randn(count, n, 64, generator=generator, dtype=torch.float64).to(device) for _ in range(2))
    cost = 1 - torch.nn.functional.normalize(u, dim=2) @ torch.nn.functional.normalize(v, dim=2).mT
    return cost, marginals(u, v), marginals(v, u)


def seconds(run: Callable[[], object], *, repetitions: int) -> float:
    best = float("inf")
    for _ in range(repetitions):
        start = time.perf_counter()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def highs_seconds(n: int, count: int = 6) -> float:
    cost, a, b = (part.numpy() for part in problems(n, count, "cpu"))
    A = sp.vstack((sp.kron(sp.eye(n), np.ones((1, n))), sp.kron(np.ones((1, n)), sp.eye(n)))).tocsc()

    def run() -> None:
        for index in range(count):
            sums = np.concatenate((a[index], b[index]))
            assert linprog(cost[index].ravel(), A_eq=A, b_eq=sums, method="highs").status == 0

    return seconds(run, repetitions=2) / count


def pot_seconds(n: int, count: int = 64) -> float | None:
    if ot is None:
        return None
    cost, a, b = (part.numpy() for part in problems(n, count, "cpu"))
    return seconds(lambda: [ot.emd2(a[i], b[i], cost[i]) for i in range(count)], repetitions=3) / count


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


def ours_seconds(n: int, count: int, device: str) -> float:
    case = problems(n, count, device)
    solve(*(part[:8] for part in case))
    return seconds(lambda: solve(*case), repetitions=5 if n * n * count <= 2**18 else 2) / count


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
