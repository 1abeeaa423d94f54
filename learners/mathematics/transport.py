"""Optimal transport between small sets, in batches: FedEFM's earth mover's similarity and its solvers.

``solve`` returns value and plan of min <c, x> over x >= 0 with given row and column sums, by POT's network simplex,
problem by problem on the host, or a batched interior-point method on the device of the costs, both in float64, without
gradients. Values agree to 1e-9 and, by a certificate, at worst to 1e-6. If several plans are optimal, each solver
always returns the same one, but not necessarily that of the other; FedEFM uses the value only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular
from torch.nn.functional import adaptive_avg_pool2d

from vnetsim.errors import RunError

Solver = Literal["auto", "pot", "interior-point"]
Problem = tuple[Tensor, Tensor, Tensor]
"""Costs and both marginals of transport problems."""
LARGEST_SIDE = 7
"""Dense features are pooled to at most this many rows and columns: 49 positions, as in FedEFM."""
FLOOR = 1e-3  # of DeepEMD's marginals

# of the interior-point method
GAP = 1e-10  # duality gap at which a problem is finished
LARGEST_GAP = 1e-6  # largest gap of a result, reached if features repeat; features of networks are float32
LOOK, LOOKS = 5, 12  # iterations between two checks whether all are finished, which wait for the device; such checks
PART_ENTRIES = {"cpu": 2**17, "cuda": 2**25}  # entries of the costs at a time: fits a CPU's cache, fills a GPU
SWEEPS = 8  # of Sinkhorn, for the start
EPSILON = 0.15  # entropy of the start in units of the mean cost; less gives a lower but badly centred start
NOISE = 1e-14  # rounding error of a cost
EXPONENT_RANGE = 30.0  # beyond exp(-30) the start's plan is badly centred for no gain
SMALLEST_SHARE = 1e-12  # given to a marginal of zero while iterating: the interior must not be empty
DAMPING = 1e-15  # relative, on the Laplacian's diagonal; times 100 whenever the factorisation fails
STEP = 0.99  # share of the way to the boundary, tending to 1 with the gap


@torch.no_grad()
def solve(cost: Tensor, a: Tensor, b: Tensor, solver: Solver = "auto") -> tuple[Tensor, Tensor]:
    """Return the values of transport problems, shape (...), and their plans, shape (..., n, m), in float64.

    Neither has a gradient. The value of a problem with an entry that is not finite is NaN.

    Args:
        cost: c >= 0 of the order of 1, shape (..., n, m); meant for n, m <= 64.
        a: row sums >= 0 of total 1, shape (..., n).
        b: column sums >= 0 of total 1, shape (..., m).
        solver: see ``resolve_solver``.

    Raises:
        RunError: a problem was not solved to the tolerance.
    """
    cost, a, b = cost.double(), a.double(), b.double()
    problems = cost.flatten(0, -3), a.flatten(0, -2), b.flatten(0, -2)
    plan, gap = _solve_by(*problems, resolve_solver(solver, cost.device))
    _require_solved(gap.tolist())
    return (problems[0] * plan).sum((1, 2)).view(cost.shape[:-2]), plan.view(cost.shape)


def resolve_solver(solver: Solver, device: torch.device) -> Solver:
    """Return ``solver``; for "auto" it is "pot" on a CPU where POT is installed, otherwise "interior-point"."""
    if solver != "auto":
        return solver
    return "pot" if device.type == "cpu" and find_spec("ot") else "interior-point"


def emd_problem(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return costs (..., n, m) and marginals (..., n), (..., m) of the problem of value 1 - EMD (FedEFM, Eq. 3).

    The costs are c_pq = 1 - cos(u_p, v_q), in float64; a feature of zero norm has cost 1. Shapes are (..., n, C) and
    (..., m, C). The paper does not give the marginals; see ``marginals``.
    """
    u, v = u.double(), v.double()
    return 1 - _scale_to_unit(u) @ _scale_to_unit(v).mT, marginals(u, v), marginals(v, u)


def dense_similarity(u: Tensor, v: Tensor, solver: Solver = "auto") -> Tensor:
    """Return the earth mover's similarity of two networks' dense features (FedEFM, Eq. 3), mean over the images.

    ``u`` are the features of one network, shape (N, C, H, W), ``v`` those of J networks for the same images, shape (J,
    N, C, H, W). The result is in [-1, 1], float64, shape (J,): 1 for equal features of every image, NaN if a feature is
    not finite. RunError as ``solve``.
    """
    cost, a, b = dense_problem(u, v)
    return 1 - solve(cost, a, b, solver)[0].mean(dim=1)


@torch.no_grad()
def dense_similarities(problems: Sequence[Problem], solver: Solver = "auto") -> list[list[float]]:
    """Return the ``dense_similarity`` of each of one or more ``dense_problem`` results, solved as one batch.

    One list a problem, one number a network. The device is waited for once after the solver's own waits. RunError as
    ``solve``.
    """
    cost, a, b = (torch.cat([part.flatten(0, 1) for part in parts]) for parts in zip(*problems, strict=True))
    shapes = [(len(one), one.shape[1]) for one, _, _ in problems]
    plan, gap = _solve_by(cost, a, b, resolve_solver(solver, cost.device))
    values = (cost * plan).sum((1, 2)).split([networks * images for networks, images in shapes])  # type: ignore[no-untyped-call]
    similarities = [1 - value.view(shape).mean(dim=1) for value, shape in zip(values, shapes, strict=True)]
    numbers = torch.cat([*similarities, gap]).tolist()
    _require_solved(numbers[-len(gap) :])
    found = iter(numbers)
    return [[next(found) for _ in one] for one in similarities]


def dense_problem(u: Tensor, v: Tensor) -> Problem:
    """Return the problems of ``dense_similarity(u, v)``: costs (J, N, n, n), two marginals (J, N, n), n <= 49."""
    there = _pool_positions(v.flatten(0, 1))
    return emd_problem(_pool_positions(u).expand(len(v), -1, -1, -1), there.view(*v.shape[:2], *there.shape[1:]))


def _pool_positions(dense: Tensor) -> Tensor:
    """Return dense features (N, C, H, W), pooled to at most 7 x 7, by position in float64, shape (N, n, C), n <= 49."""
    height, width = (min(side, LARGEST_SIDE) for side in dense.shape[2:])
    return adaptive_avg_pool2d(dense.double(), (height, width)).flatten(2).mT


def marginals(u: Tensor, v: Tensor) -> Tensor:
    """Return DeepEMD's weights of the positions of ``u``: relu(u_p . mean_q v_q) + 1e-3, scaled to total 1.

    If no position is similar to the other set's mean, all weights are equal (Zhang et al., CVPR 2020). ``u`` has the
    shape (..., n, C), ``v``, the other set, (..., m, C), and the result (..., n).
    """
    weight = (u @ v.mean(dim=-2)[..., None])[..., 0].relu() + FLOOR
    return weight / weight.sum(dim=-1, keepdim=True)


def _scale_to_unit(features: Tensor) -> Tensor:
    """Return every feature scaled to length 1; features of length 0 stay 0."""
    largest = features.abs().amax(dim=-1, keepdim=True)
    zero = largest == 0
    scaled = features / largest.masked_fill(zero, 1)  # squares neither overflow nor vanish
    return scaled / scaled.square().sum(dim=-1, keepdim=True).masked_fill(zero, 1).sqrt()


def _solve_by(cost: Tensor, a: Tensor, b: Tensor, solver: Solver) -> tuple[Tensor, Tensor]:
    """Return plans, shape (K, n, m), and duality gaps, shape (K,), 0 with ``pot``; the gaps are not checked."""
    if solver == "pot":
        return _solve_by_pot(cost, a, b), cost.new_zeros(len(cost))
    return _solve_by_interior_point(cost, a, b)


def _require_solved(gaps: Sequence[float]) -> None:
    """Raise RunError if a duality gap is above LARGEST_GAP; NaN passes."""
    unsolved = [gap for gap in gaps if gap > LARGEST_GAP]
    if unsolved:
        raise RunError(
            f"{len(unsolved)} of {len(gaps)} transport problems were not solved (largest duality gap "
            f"{max(unsolved):.1e}); the solver pot may solve them (FedEFM: learning.solver=pot)."
        )


def _solve_by_pot(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return plans by POT's network simplex on the host, NaN for non-finite input; RunError if one is not solved."""
    import ot  # noqa: PLC0415 - a second to load, and only for methods that transport

    plan = torch.full(cost.shape, torch.nan, dtype=torch.float64)
    finite = (cost.sum((1, 2)) + a.sum(1) + b.sum(1)).isfinite().tolist()
    host = [part.cpu().numpy() for part in (a, b, cost)]
    for i in range(len(cost)):
        if finite[i]:
            one, log = ot.emd(*(part[i] for part in host), numItermax=1_000_000, log=True)
            if log["warning"]:
                raise RunError(f"POT did not solve a transport problem: {log['warning']}")
            plan[i] = torch.from_numpy(one)
    return plan.to(cost.device)


def _solve_by_interior_point(cost: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return plans and duality gaps by the interior-point method, in batches; a plan is NaN for non-finite input."""
    if not len(cost):
        return cost, cost.new_zeros(0)
    part = max(1, PART_ENTRIES.get(cost.device.type, PART_ENTRIES["cuda"]) // cost[0].numel())
    parts = [_solve_part(*some) for some in zip(*(torch.split(one, part) for one in (cost, a, b)), strict=True)]
    plans, gaps = zip(*parts, strict=True)
    return torch.cat(plans), torch.cat(gaps)


def _solve_part(cost: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return what ``_solve_by_interior_point`` returns, for one batch of at least one problem."""
    finite = (cost.sum((1, 2)) + a.sum(1) + b.sum(1)).isfinite()[:, None]
    cost, a, b = cost.where(finite[..., None], 1), a.where(finite, 1 / a.shape[1]), b.where(finite, 1 / b.shape[1])
    plan, v = _iterate(cost, *(share.clamp_min(SMALLEST_SHARE) for share in (a, b)))
    plan = _with_marginals(plan, a, b)
    u = (cost - v[:, None]).amin(2)
    v = (cost - u[..., None]).amin(1)
    gap = (cost * plan).sum((1, 2)) - (a * u).sum(1) - (b * v).sum(1)
    return plan.where(finite[..., None], torch.nan), gap


def _iterate(cost: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return nearly optimal plans x, (K, n, m), and column potentials v, (K, m), for positive marginals of sum 1."""
    # The dual problem is max <a, u> + <b, v> with slack s_ij = c_ij - u_i - v_j >= 0. Each iteration (S. Mehrotra, "On
    # the implementation of a primal-dual interior point method", SIAM J. Optim. 2(4), 1992) needs one factorisation of
    # A diag(x / s) A^T, which for transport is the Laplacian of a weighted bipartite graph. All problems take the same
    # steps, and a finished one no longer changes. So the device is waited for only every few iterations, and no
    # problem depends on the others.
    #
    # A few Sinkhorn sweeps give a start that is strictly inside and nearly centred: the plan x = exp(-(c - u - v) /
    # epsilon) belongs to slacks -epsilon log x > 0. The slacks stay dual feasible, so all directions follow from the
    # ratio t = -ds / s.
    #
    # cost is c in [0, 1], shape (K, n, m); row sums a, shape (K, n), and column sums b, shape (K, m), are > 0 with
    # total 1.
    epsilon = (EPSILON * cost.mean((1, 2))).clamp_min(NOISE)[:, None]
    kernel = (-cost / epsilon[..., None]).clamp_min(-EXPONENT_RANGE).exp()
    q = torch.ones_like(b)
    for _ in range(SWEEPS):
        p = a / (kernel @ q[..., None])[..., 0]
        q = b / (kernel.mT @ p[..., None])[..., 0]
    x = kernel * p[..., None] * q[:, None]
    v = epsilon * q.log()
    # a plan entry near 1 has a slack near 0: move off a little
    s = cost - (epsilon * (p.log() - 0.01))[..., None] - v[:, None]
    ground = _ground_factors(a)
    damping = torch.full_like(a[:, :1], DAMPING)
    look = LOOK if cost.device.type == "cpu" else 4 * LOOK  # iterations cost a device less than a wait
    for iteration in range(LOOK * LOOKS):
        gap = (x * s).sum((1, 2))
        active = gap > GAP
        if iteration % look == look - 1 and not active.any():
            break
        solved, info = _laplacian(x / s, ground + damping)
        du, dv = solved(a, b)
        t = (du[..., None] + dv[:, None]) / s
        primal, dual = 1 / (1 - t.amin((1, 2))).clamp_min(1), 1 / t.amax((1, 2)).clamp_min(1)
        # <dx, ds> = 0 for feasible directions leaves of the predicted gap only what is linear in the steps
        predicted = gap * (1 - primal) + ((a * du).sum(1) + (b * dv).sum(1)) * (primal - dual)
        target = gap * (predicted / gap).clamp(0, 1) ** 3 / cost[0].numel()
        push = x * t * (t - 1) + target[:, None, None] / s
        du, dv = solved(a - push.sum(2), b - push.sum(1))
        t = (du[..., None] + dv[:, None]) / s
        dx = push - x + x * t
        low, high = (dx / x).amin((1, 2)), t.amax((1, 2))
        reach = (1 - gap).clamp_min(STEP)
        primal, dual = reach / (-low).clamp_min(reach), reach / high.clamp_min(reach)
        failed = (info != 0) | ~(low + high).isfinite()
        damping = torch.where((failed & active)[:, None], 100 * damping, damping)  # and try again
        moves = (active & ~failed)[:, None, None]
        x = torch.where(moves, x + primal[:, None, None] * dx, x)
        s = torch.where(moves, s - dual[:, None, None] * (s * t), s)
        v = torch.where(moves[..., 0], v + dual[:, None] * dv, v)
    return x, v


def _laplacian(d: Tensor, ground: Tensor) -> tuple[Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], Tensor]:
    """Return a solver of [diag(r) d; d^T diag(q)] [du; dv] = [f; g], r, q the sums of d, and info (K,): 0 if valid."""
    # r, q are the row and column sums of D > 0, shape (K, n, m); the right-hand sides f, g have equal totals and shapes
    # (K, n) and (K, m); ground, shape (K, n), has factors on the diagonal, 1 except for the grounded row.
    #
    # Eliminating the column potentials leaves diag(r) - D diag(1 / q) D^T on the rows, singular by the one redundant
    # constraint. Only differences of potentials matter: one row is grounded, which has the effect of dropping it. The
    # diagonal is summed from the other entries of its row instead of subtracted, which keeps its digits when x / s
    # spans the whole range of float64.
    weight = 1 / d.sum(1)
    share = d * weight[:, None]
    rows = -(d @ share.mT)
    rows.diagonal(dim1=1, dim2=2).zero_()
    alone = d.shape[1] == 1  # a single row is the grounded one
    rows.diagonal(dim1=1, dim2=2).copy_(torch.ones_like(ground) if alone else -rows.sum(2) * ground)
    factor, info = cholesky_ex(rows)

    def solved(f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return du, (K, n), and dv, (K, m)."""
        half = solve_triangular(factor, f[..., None] - share @ g[..., None], upper=False)
        du = solve_triangular(factor.mT, half, upper=True)[..., 0]
        return du, g * weight - (share.mT @ du[..., None])[..., 0]

    return solved, info


def _ground_factors(a: Tensor) -> Tensor:
    """Return the factors ``ground`` that make ``_laplacian`` invertible: 2 for the row of largest marginal, else 1."""
    return torch.ones_like(a).scatter(1, a.argmax(1, keepdim=True), 2)


def _with_marginals(plan: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return new plans, slightly changed so that their marginals are exact up to rounding; entries stay >= 0."""
    # The iterations lose up to 1e-5 of the marginals if parts of them add up to nearly the same total. Most of it is
    # added where the plan is large, by factors 1 + p_i + q_j, which hardly changes the cost. The rest: shrink rows,
    # then columns, and spread what is missing as a product (algorithm 2 of J. Altschuler, J. Weed, P. Rigollet,
    # "Near-linear time approximation algorithms for optimal transport via Sinkhorn iteration", NeurIPS 2017).
    solved, info = _laplacian(plan, _ground_factors(a))
    p, q = solved(a - plan.sum(2), b - plan.sum(1))
    nearer = plan * (1 + p[..., None] + q[:, None]).clamp_min(0)
    plan = torch.where(((info == 0) & nearer.sum((1, 2)).isfinite())[:, None, None], nearer, plan)
    tiny = torch.finfo(plan.dtype).tiny
    plan = plan * (a / plan.sum(2).clamp_min(tiny)).clamp_max(1)[..., None]
    plan = plan * (b / plan.sum(1).clamp_min(tiny)).clamp_max(1)[:, None]
    missing_a, missing_b = (a - plan.sum(2)).clamp_min(0), (b - plan.sum(1)).clamp_min(0)
    share = missing_b / missing_b.sum(1, keepdim=True).clamp_min(tiny)
    return plan + missing_a[..., None] * share[:, None]
