"""Transport problems to be timed, and who else solves them: shared by the benchmarks and the check of a GPU.

The problems are cosine costs of random features with DeepEMD's marginals. All times are per problem, the best of a few
repetitions. HiGHS and POT take one problem after the other, so their time does not depend on the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import linprog
from torch import Tensor

from learners.mathematics.transport import marginals, solve

try:
    import ot  # type: ignore[import-untyped, import-not-found, unused-ignore]
except ImportError:
    ot = None

SIZES = (16, 25, 49)
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


def highs(cost: Tensor, a: Tensor, b: Tensor) -> list[float]:
    """Return the values that HiGHS finds, one problem after the other."""
    n = cost.shape[1]
    A = sp.vstack((sp.kron(sp.eye(n), np.ones((1, n))), sp.kron(np.ones((1, n)), sp.eye(n)))).tocsc()
    values = []
    for one, rows, columns in zip(cost.numpy(), a.numpy(), b.numpy(), strict=True):
        result = linprog(one.ravel(), A_eq=A, b_eq=np.concatenate((rows, columns)), method="highs")
        assert result.status == 0
        values.append(float(result.fun))
    return values


def highs_seconds(n: int, count: int = 6) -> float:
    case = problems(n, count, "cpu")
    return seconds(lambda: highs(*case), repetitions=2) / count


def pot_seconds(n: int, count: int = 64) -> float | None:
    if ot is None:
        return None
    cost, a, b = (part.numpy() for part in problems(n, count, "cpu"))
    return seconds(lambda: [ot.emd2(a[i], b[i], cost[i]) for i in range(count)], repetitions=3) / count


def ours_seconds(n: int, count: int, device: str) -> float:
    case = problems(n, count, device)
    solve(*(part[:8] for part in case), solver="interior-point")
    return (
        seconds(lambda: solve(*case, solver="interior-point"), repetitions=5 if n * n * count <= 2**18 else 2) / count
    )
