"""Batched primal-dual interior-point method for the transport linear programme.

For each problem of a batch: min <c, x> over x >= 0 with row sums a and column sums b; its dual is
max <a, u> + <b, v> with slack s_ij = c_ij - u_i - v_j >= 0. Mehrotra's predictor-corrector (S. Mehrotra, "On the
implementation of a primal-dual interior point method", SIAM J. Optim. 2(4), 1992) needs in each iteration one
factorisation of A diag(x / s) A^T, which for transport is a weighted bipartite graph Laplacian: eliminating the column
potentials leaves a Laplacian on the rows alone, singular by the one redundant constraint, so its last row is dropped.

Three properties of transport keep it short. A few Sinkhorn sweeps give a start that is strictly inside and nearly
centred: the plan x = exp(-(c - u - v) / epsilon) belongs to slacks -epsilon log x > 0. The slacks stay dual feasible, so
all directions follow from the ratio t = -ds / s. And the Laplacian's diagonal is summed from its off-diagonal
entries instead of subtracted, which keeps its digits when x / s spans the whole range of float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GAP = 1e-10  # sum x s at which a problem is finished
MAX_ITERATIONS = 60
SWEEPS = 10  # of Sinkhorn, for the start
EPSILON = 0.15  # entropy of the start in units of the mean cost; less gives a lower but badly centred start
EXPONENT_RANGE = 30.0  # beyond exp(-30) the start's plan leaves the centre for no gain
DAMPING = 1e-15  # relative, on the Laplacian's diagonal; far below what the step lengths notice
MAX_DAMPING = 1e-8
STEP = 0.99  # share of the way to the boundary, tending to 1 with the gap


@dataclass(frozen=True, kw_only=True)
class Iterate:
    """What the iterations end with, still to be rounded to the exact marginals.

    Args:
        plan: x, shape (B, n, m).
        potential: v, the dual variable of the columns, shape (B, m); u follows as u_i = min_j (c_ij - v_j).
        iterations: how many each problem took, shape (B,).
    """

    plan: Tensor
    potential: Tensor
    iterations: Tensor


@dataclass(kw_only=True)
class _Active:
    """The problems that iterate at present; ``index`` says where each stands in the batch, ``age`` in iterations."""

    index: Tensor
    age: Tensor
    live: Tensor
    plan: Tensor
    slack: Tensor
    potential: Tensor
    a: Tensor
    b: Tensor
    ground: Tensor
    damping: Tensor

    def keep(self, rows: Tensor) -> None:
        """Drop all problems but these."""
        for name, value in vars(self).items():
            setattr(self, name, value.index_select(0, rows))

    def join(self, other: _Active) -> None:
        """Take in more problems."""
        for name, value in vars(self).items():
            setattr(self, name, torch.cat((value, getattr(other, name))))


def iterate(cost: Tensor, a: Tensor, b: Tensor, *, wave: int) -> Iterate:
    """Run every problem of the batch to a duality gap of ``GAP``.

    A finished problem is written out at once and leaves; when a quarter has left others take the places, so that
    the slowest problems hold up none and the work stays as large as the cache likes it.

    Args:
        cost: c >= 0 with largest entry about 1 (or all 0), float64, shape (B, n, m) with 2 <= n <= m.
        a: row sums > 0 of total 1, shape (B, n).
        b: column sums > 0 of total 1, shape (B, m).
        wave: how many problems to iterate at a time.

    Returns:
        The iterates. A problem that cannot be finished returns with its last one, for the caller to judge.
    """
    plan, potential = torch.empty_like(cost), torch.empty_like(b)
    iterations = torch.zeros(len(cost), dtype=torch.int64, device=cost.device)
    begun = min(wave, len(cost))
    active = _start(cost, a, b, slice(0, begun))
    while len(active.index):
        gap = (active.plan * active.slack).sum((1, 2))
        finished = active.live & ((gap <= GAP) | (active.damping > MAX_DAMPING) | (active.age >= MAX_ITERATIONS))
        if finished.any():
            rows = finished.nonzero()[:, 0]
            index = active.index[rows]
            plan[index] = active.plan[rows]
            potential[index] = active.potential[rows]
            iterations[index] = active.age[rows]
            active.live &= ~finished
            rows = active.live.nonzero()[:, 0]
            if len(rows) <= 0.9 * len(active.live):
                active.keep(rows)
                if begun < len(cost) and len(rows) <= 0.75 * wave:
                    more = slice(begun, min(begun + wave - len(rows), len(cost)))
                    active.join(_start(cost, a, b, more))
                    begun = more.stop
                continue
        _advance(active, gap)
    return Iterate(plan=plan, potential=potential, iterations=iterations)


def _start(cost: Tensor, a: Tensor, b: Tensor, rows: slice) -> _Active:
    """Return the start by ``SWEEPS`` sweeps of Sinkhorn, all of it strictly positive."""
    cost, a, b = cost[rows], a[rows], b[rows]
    epsilon = (EPSILON * cost.mean((1, 2))).clamp_min(torch.finfo(cost.dtype).tiny)[:, None]
    kernel = (cost / -epsilon[..., None]).clamp_min_(-EXPONENT_RANGE).exp_()
    q = torch.ones_like(b)
    p = torch.empty_like(a)
    for _ in range(SWEEPS):
        p = a / (kernel @ q[..., None])[..., 0]
        q = b / (p[:, None] @ kernel)[:, 0]
    u, v = epsilon * p.log(), epsilon * q.log()
    u -= 0.01 * epsilon  # a plan entry near 1 has a slack near 0
    return _Active(
        index=torch.arange(rows.start, rows.stop, device=cost.device),
        age=torch.zeros_like(a[:, 0], dtype=torch.int64),
        live=torch.ones_like(a[:, 0], dtype=torch.bool),
        plan=kernel.mul_(p[..., None]).mul_(q[:, None]),
        slack=cost - u[..., None] - v[:, None],
        potential=v,
        a=a,
        b=b,
        ground=torch.ones_like(a).scatter_(1, a.argmax(1, keepdim=True), 2),
        damping=torch.full_like(a[:, 0], DAMPING),
    )


def _advance(active: _Active, gap: Tensor) -> None:
    """Take one predictor-corrector step in place.

    With t = (du_i + dv_j) / s the step has ds = -s t and dx = x (e + t - 1), where e is 0 for the predictor and
    sigma mu / (x s) + t (t - 1) of the predictor's t for the corrector.
    """
    x, s, a, b = active.plan, active.slack, active.a, active.b
    system = _Laplacian(x / s, active.ground + active.damping[:, None])
    du, dv = system.solve(a, b)
    t = _ratio(du, dv, s)
    low, high = t.flatten(1).aminmax(dim=1)
    primal, dual = 1 / (1 - low).clamp_min(1), 1 / high.clamp_min(1)
    # <dx, ds> = 0 for feasible directions leaves of the predicted gap only what is linear in the steps
    predicted = gap * (1 - primal) + ((a * du).sum(1) + (b * dv).sum(1)) * (primal - dual)
    target = gap * (predicted / gap).clamp(0, 1) ** 3 / (x.shape[1] * x.shape[2])

    e = torch.div(target[:, None, None], x * s).addcmul_(t, t - 1)
    push = x * e
    du, dv = system.solve(a - push.sum(2), b - push.sum(1))
    t = _ratio(du, dv, s)
    e.add_(t).sub_(1)
    reach = torch.maximum(1 - gap, torch.full_like(gap, STEP))
    low, high = e.flatten(1).amin(1), t.flatten(1).amax(1)
    primal = torch.where(low < 0, reach / -low, 1).clamp_max(1)
    dual = torch.where(high > 0, reach / high, 1).clamp_max(1)

    failed = (system.info != 0) | ~torch.isfinite(low + high)
    if failed.any():  # keep these where they are, and try again with more damping
        e[failed], t[failed], dv[failed] = 0, 0, 0
        primal, dual = primal.nan_to_num(0), dual.nan_to_num(0)
        active.damping = torch.where(failed, 100 * active.damping, active.damping)
    x.addcmul_(x, e.mul_(primal[:, None, None]))
    s.addcmul_(s, t.mul_(-dual[:, None, None]))
    active.potential.addcmul_(dv, dual[:, None])
    active.age += 1


def _ratio(du: Tensor, dv: Tensor, s: Tensor) -> Tensor:
    return (du[..., None] + dv[:, None]).div_(s)


class _Laplacian:
    """The normal equations [diag(r) D; D^T diag(q)] [du; dv] = [f; g] with r, q the row and column sums of D > 0."""

    def __init__(self, d: Tensor, ground: Tensor) -> None:
        self._q = d.sum(1)
        self._share = d / self._q[:, None]
        rows = torch.bmm(d, self._share.mT).neg_()
        diagonal = rows.diagonal(dim1=1, dim2=2)
        diagonal.zero_()
        diagonal.copy_(rows.sum(2).mul_(ground).neg_())
        self._factor, self.info = torch.linalg.cholesky_ex(rows)

    def solve(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        reduced = f - (self._share @ g[..., None])[..., 0]
        du = torch.cholesky_solve(reduced[..., None], self._factor)[..., 0]
        return du, g / self._q - (du[:, None] @ self._share)[:, 0]
