"""Batched primal-dual interior-point method for the transport linear programme.

For each problem of a batch: min <c, x> over x >= 0 with row sums a and column sums b; its dual is
max <a, u> + <b, v> with slack s_ij = c_ij - u_i - v_j >= 0. Mehrotra's predictor-corrector (S. Mehrotra, "On the
implementation of a primal-dual interior point method", SIAM J. Optim. 2(4), 1992) needs in each iteration one
factorisation of A diag(x / s) A^T, which for transport is a weighted bipartite graph Laplacian: eliminating the column
potentials leaves a Laplacian on the rows alone, singular by the one redundant constraint, so one row is grounded.

Four things keep it short and exact. A few Sinkhorn sweeps give a start that is strictly inside and nearly centred: the
plan x = exp(-(c - u - v) / epsilon) belongs to slacks -epsilon log x > 0. The slacks stay dual feasible, so all
directions follow from the ratio t = -ds / s. The Laplacian's diagonal is summed from its off-diagonal entries instead
of subtracted, which keeps its digits when x / s spans the whole range of float64. The grounded row is the one of
largest marginal: grounding one of tiny marginal would leave the rest almost floating.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular

GAP = 2e-10  # sum x s, relative to the value, at which a problem is finished
SMALLEST_GAP = 1e-14  # for values near 0
MAX_ITERATIONS = 60
SWEEPS = 8  # of Sinkhorn, for the start
EPSILON = 0.15  # entropy of the start in units of the mean cost; less gives a lower but badly centred start
EXPONENT_RANGE = 30.0  # beyond exp(-30) the start's plan leaves the centre for no gain
DAMPING = 1e-15  # relative, on the Laplacian's diagonal; times 100 whenever the factorisation fails
MAX_DAMPING = 1e-8
STEP = 0.99  # share of the way to the boundary, tending to 1 with the gap
LEAVE_TOGETHER = 0.1  # share of finished problems that makes it worth to repack the others
REFILL = 0.75  # of a wave in work, at which further problems are started

Problems = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Problems that have left the iterations, still to be rounded to their exact marginals.

    Args:
        index: where each stands in the batch, shape (K,).
        plan: x, shape (K, n, m).
        potential: v, the dual variable of the columns, shape (K, m); u follows as u_i = min_j (c_ij - v_j).
        iterations: how many each took, shape (K,).
    """

    index: Tensor
    plan: Tensor
    potential: Tensor
    iterations: Tensor


def iterate(problems: Problems, index: Tensor, *, wave: int) -> Iterator[Finished]:
    """Run every problem to a relative duality gap of ``GAP`` and yield them in groups, the quick ones first.

    A finished problem leaves at once; when a quarter has left others take the places, so that the slowest hold up
    none and the work stays as large as the cache likes it.

    Args:
        problems: for the indices of some problems, their (c, a, b) in float64: c >= 0 with largest entry about 1 (or
            all 0), shape (K, n, m) with 2 <= n <= m; a, b > 0 of total 1, shapes (K, n) and (K, m).
        index: of all problems, shape (B,), B >= 1.
        wave: how many problems to iterate at a time.

    Yields:
        The iterates, at most one and a half waves together.
        A problem that cannot be finished comes with its last iterate, for the caller to judge.
    """
    done: list[Finished] = []
    begun = min(wave, len(index))
    active = _Active(index[:begun], *problems(index[:begun]))
    while active.count:
        gap = torch.mul(active.plan, active.slack, out=active.spare(0)).sum((1, 2))
        leaves = (gap <= active.goal(gap)) | (active.damping > MAX_DAMPING) | (active.age >= MAX_ITERATIONS)
        leaving = int(leaves.sum())
        if leaving <= LEAVE_TOGETHER * active.count and leaving < active.count:
            active.advance(gap, leaves)
            continue
        done.append(active.release(leaves.nonzero()[:, 0], (~leaves).nonzero()[:, 0]))
        if active.count == 0 or sum(len(part.index) for part in done) > wave / 2:
            yield Finished(**{name: torch.cat([getattr(part, name) for part in done]) for name in vars(done[0])})
            done = []
        if begun < len(index) and active.count <= REFILL * wave:
            more = index[begun : begun + wave - active.count]
            begun += len(more)
            active.admit(more, *problems(more))


class _Active:
    """The problems in work.

    All arrays of the size of the costs live in a few buffers for the whole solve: fresh memory for each of them in each
    iteration would cost more in page faults than the arithmetic.
    """

    def __init__(self, index: Tensor, cost: Tensor, a: Tensor, b: Tensor) -> None:
        self._buffers = [torch.empty_like(cost) for _ in range(6)]
        square = cost.new_empty(*a.shape, a.shape[1])
        self._square, self._factor = square, torch.empty_like(square)
        self._info = torch.empty_like(index, dtype=torch.int32)
        self.count = 0
        self.index, self.age, self.damping = index[:0], index[:0], a[:0, 0]
        self._row_potential, self._potential = a[:0], b[:0]
        self._a, self._b, self._ground = a[:0], b[:0], a[:0]
        self.admit(index, cost, a, b)

    @property
    def plan(self) -> Tensor:
        return self._buffers[0][: self.count]

    @property
    def slack(self) -> Tensor:
        return self._buffers[1][: self.count]

    def spare(self, number: int) -> Tensor:
        """Return one of four arrays of the shape of the plans, for intermediate results."""
        return self._buffers[2 + number][: self.count]

    def goal(self, gap: Tensor) -> Tensor:
        """Return the gap at which each problem is finished; its value is that of the dual and the gap."""
        value = gap + (self._a * self._row_potential).sum(1) + (self._b * self._potential).sum(1)
        return (GAP * value).clamp_(SMALLEST_GAP, GAP)

    def admit(self, index: Tensor, cost: Tensor, a: Tensor, b: Tensor) -> None:
        """Take in more problems, at the start that ``SWEEPS`` sweeps of Sinkhorn give."""
        rows = slice(self.count, self.count + len(index))
        self.count = rows.stop
        plan, slack = self.plan[rows], self.slack[rows]
        epsilon = (EPSILON * cost.mean((1, 2))).clamp_min_(torch.finfo(cost.dtype).tiny)[:, None]
        kernel = torch.mul(cost, -1 / epsilon[..., None], out=plan).clamp_min_(-EXPONENT_RANGE).exp_()
        q = torch.ones_like(b)
        p = torch.empty_like(a)
        for _ in range(SWEEPS):
            p = a / (kernel @ q[..., None])[..., 0]
            q = b / (kernel.mT @ p[..., None])[..., 0]
        kernel.mul_(p[..., None]).mul_(q[:, None])
        u, v = (
            epsilon * (p.log() - 0.01),
            epsilon * q.log(),
        )  # a plan entry near 1 has a slack near 0: move off a little
        torch.sub(cost, u[..., None], out=slack).sub_(v[:, None])
        self.index = torch.cat((self.index, index))
        self.age = torch.cat((self.age, torch.zeros_like(index)))
        self.damping = torch.cat((self.damping, torch.full_like(a[:, 0], DAMPING)))
        self._row_potential, self._potential = torch.cat((self._row_potential, u)), torch.cat((self._potential, v))
        self._a, self._b = torch.cat((self._a, a)), torch.cat((self._b, b))
        self._ground = torch.cat((self._ground, grounded(a)))

    def release(self, leaving: Tensor, staying: Tensor) -> Finished:
        """Hand out some problems and repack the others."""
        finished = Finished(
            index=self.index[leaving],
            plan=self.plan[leaving],
            potential=self._potential[leaving],
            iterations=self.age[leaving],
        )
        buffers = self._buffers
        for source, target in ((0, 3), (1, 4)):
            torch.index_select(buffers[source][: self.count], 0, staying, out=buffers[target][: len(staying)])
            buffers[source], buffers[target] = buffers[target], buffers[source]
        self.count = len(staying)
        self.index, self.age, self.damping = self.index[staying], self.age[staying], self.damping[staying]
        self._row_potential, self._potential = self._row_potential[staying], self._potential[staying]
        self._a, self._b, self._ground = self._a[staying], self._b[staying], self._ground[staying]
        return finished

    def advance(self, gap: Tensor, still: Tensor) -> None:
        """Take one predictor-corrector step, except where ``still``.

        With t = (du_i + dv_j) / s the step has ds = -s t and dx = push + x (t - 1), where push is 0 for the predictor
        and sigma mu / s + x t (t - 1) of the predictor's t for the corrector.
        """
        x, s, a, b = self.plan, self.slack, self._a, self._b
        inverse = torch.reciprocal(s, out=self.spare(0))
        system = laplacian(
            torch.mul(x, inverse, out=self.spare(1)),
            self._ground + self.damping[:, None],
            out=(self.spare(2), self._square[: self.count], self._factor[: self.count], self._info[: self.count]),
        )
        du, dv = system.solve(a, b)
        t = torch.add(du[..., None], dv[:, None], out=self.spare(1)).mul_(inverse)
        primal, dual = 1 / (1 - _least(t)).clamp_min_(1), 1 / _largest(t).clamp_min_(1)
        # <dx, ds> = 0 for feasible directions leaves of the predicted gap only what is linear in the steps
        predicted = gap * (1 - primal) + ((a * du).sum(1) + (b * dv).sum(1)) * (primal - dual)
        target = gap * (predicted / gap).clamp_(0, 1) ** 3 / (x.shape[1] * x.shape[2])

        push = torch.sub(t, 1, out=self.spare(3)).mul_(t).mul_(x).addcmul_(inverse, target[:, None, None])
        du, dv = system.solve(a - push.sum(2), b - push.sum(1))
        t = torch.add(du[..., None], dv[:, None], out=t).mul_(inverse)
        dx = push.sub_(x).addcmul_(x, t)
        low, high = _least(torch.div(dx, x, out=inverse)), _largest(t)
        reach = (1 - gap).clamp_min_(STEP)
        primal = torch.where(low < 0, reach / -low, 1).clamp_max_(1)
        dual = torch.where(high > 0, reach / high, 1).clamp_max_(1)

        failed = ((system.info != 0) | ~torch.isfinite(low + high)) & ~still
        stays = failed | still
        if stays.any():
            dx[stays], t[stays], du[stays], dv[stays] = 0, 0, 0, 0
            primal, dual = primal.nan_to_num_(0), dual.nan_to_num_(0)
            self.damping = torch.where(failed, 100 * self.damping, self.damping)  # and try again
        x.addcmul_(dx, primal[:, None, None])
        s.addcmul_(s, t.mul_(-dual[:, None, None]))
        self._row_potential.addcmul_(du, dual[:, None])
        self._potential.addcmul_(dv, dual[:, None])
        self.age += ~still


@dataclass(frozen=True, kw_only=True)
class Laplacian:
    """The system [diag(r) D; D^T diag(q)] [du; dv] = [f; g] with r, q the row and column sums of D > 0.

    Only differences of potentials matter: one row is grounded, which has the effect of dropping it.

    Args:
        share: D / q, shape (K, n, m).
        weight: 1 / q, shape (K, m).
        factor: lower Cholesky factor of the grounded Laplacian diag(r) - D diag(1 / q) D^T, shape (K, n, n).
        info: not 0 where the factorisation failed, shape (K,).
    """

    share: Tensor
    weight: Tensor
    factor: Tensor
    info: Tensor

    def solve(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return du, shape (K, n), and dv, shape (K, m), for right-hand sides of the same shapes and equal totals."""
        reduced = f[..., None] - self.share @ g[..., None]
        half = solve_triangular(self.factor, reduced, upper=False)
        du = solve_triangular(self.factor.mT, half, upper=True)[..., 0]
        return du, g * self.weight - (self.share.mT @ du[..., None])[..., 0]


def grounded(a: Tensor) -> Tensor:
    """Return factors on a Laplacian's diagonal, shape (K, n), that ground the row of largest marginal."""
    return torch.ones_like(a).scatter_(1, a.argmax(1, keepdim=True), 2)


def laplacian(d: Tensor, ground: Tensor, out: tuple[Tensor, Tensor, Tensor, Tensor] | None = None) -> Laplacian:
    """Factorise diag(r) - D diag(1 / q) D^T with r, q the row and column sums of D >= 0.

    Args:
        d: D, shape (K, n, m).
        ground: factors on the diagonal, 1 but for the grounded row, shape (K, n).
        out: memory for the result's share, for the matrix, for the factor and for its info.
    """
    K, n, _ = d.shape
    if out is None:
        square = d.new_empty(K, n, n)
        out = torch.empty_like(d), square, torch.empty_like(square), square.new_empty(K, dtype=torch.int32)
    weight = 1 / d.sum(1)
    share = torch.mul(d, weight[:, None], out=out[0])
    rows = torch.bmm(d, share.mT, out=out[1]).neg_()
    diagonal = rows.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    diagonal.copy_(rows.sum(2).mul_(ground).neg_())
    factor, info = cholesky_ex(rows, out=(out[2].mT, out[3]))  # LAPACK wants its columns contiguous
    return Laplacian(share=share, weight=weight, factor=factor, info=info)


def _least(values: Tensor) -> Tensor:
    return values.flatten(1).amin(1)


def _largest(values: Tensor) -> Tensor:
    return values.flatten(1).amax(1)
