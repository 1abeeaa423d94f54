"""From a nearly optimal interior iterate to a flow and potentials that prove each other optimal.

Every candidate is feasible by construction, the flow with its exact marginals and the potentials with slacks >= 0, so
the gap between their values bounds what either lacks. The candidates in turn: the iterate itself, rounded; the vertex
whose tree its large entries form, exact where the optimum is unique; and the simplex method.
"""

from __future__ import annotations

import torch
from torch import Tensor

from learners.transport import simplex as transport_simplex
from learners.transport.interior_point import grounded, laplacian

EXACT_GAP = 2e-15  # in units of total mass and largest cost
TYPICAL_GAP = 1e-11  # in units of total mass and median cost: enough where the value is near 0
RELATIVE_GAP = 4e-9  # in units of the value


def purify(cost: Tensor, a: Tensor, b: Tensor, plan: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return flow, row and column potentials of every problem, whose gap is within one of the three limits above.

    Args:
        cost: c >= 0, largest entry about 1 and a 0 in every row and column, shape (K, n, m), 2 <= n <= m.
        a: row sums >= 0 of total 1, shape (K, n).
        b: column sums >= 0 of total 1, shape (K, m).
        plan: nearly optimal flow, shape (K, n, m); overwritten.
        v: nearly optimal column potentials, shape (K, m).
    """
    flow = _rounded(plan, a, b)
    u, v = _tight(cost, v)
    value, gap = _gap(cost, a, b, flow, u, v)

    tree = flow > (cost - u[..., None]).sub_(v[:, None])  # complementary: one of the two is about 0
    rows = ((tree.sum((1, 2)) == a.shape[1] + b.shape[1] - 1) & (gap > EXACT_GAP)).nonzero()[:, 0]
    if len(rows):
        tree_cost, tree_a, tree_b = cost[rows], a[rows], b[rows]
        tree_flow, tree_v = _vertex(tree_cost, tree_a, tree_b, tree[rows])
        tree_u, tree_v = _tight(tree_cost, tree_v)
        tree_value, tree_gap = _gap(tree_cost, tree_a, tree_b, tree_flow, tree_u, tree_v)
        better = (tree_gap.abs() < gap[rows].abs()).nonzero()[:, 0]
        rows = rows[better]
        flow[rows], u[rows], v[rows] = tree_flow[better], tree_u[better], tree_v[better]
        value[rows], gap[rows] = tree_value[better], tree_gap[better]

    rows = (~(gap.abs() <= (RELATIVE_GAP * value).clamp_min(EXACT_GAP))).nonzero()[:, 0]
    if len(rows):
        rows = rows[~(gap[rows].abs() <= TYPICAL_GAP * cost[rows].flatten(1).median(dim=1).values)]
    for row in rows.tolist():
        guess = flow[row].nan_to_num(0).cpu().numpy()
        vertex, potential = transport_simplex.finish(
            cost[row].cpu().numpy(), a[row].cpu().numpy(), b[row].cpu().numpy(), guess
        )
        flow[row], v[row] = torch.from_numpy(vertex), torch.from_numpy(potential)
    if len(rows):
        u[rows], v[rows] = _tight(cost[rows], v[rows])
    return flow, u, v


def _gap(cost: Tensor, a: Tensor, b: Tensor, flow: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    value = (cost * flow).sum((1, 2))
    return value, value - (a * u).sum(1) - (b * v).sum(1)


def _tight(cost: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest feasible u for v, and then the largest v for u.

    As costs lie in [0, 1], a v more than 1 below the largest binds no u, and may be raised to keep its digits.
    """
    v = (v - v.amax(1, keepdim=True)).clamp_min_(-1)
    u = (cost - v[:, None]).amin(2)
    return u, (cost - u[..., None]).amin(1)


def _rounded(flow: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Give the flow its marginals to rounding: shrink rows, then columns, and spread what is missing as a product.

    Algorithm 2 of J. Altschuler, J. Weed, P. Rigollet, "Near-linear time approximation algorithms for optimal transport
    via Sinkhorn iteration", NeurIPS 2017.
    """
    tiny = torch.finfo(flow.dtype).tiny
    flow.mul_((a / flow.sum(2).clamp_min_(tiny)).clamp_max_(1)[..., None])
    flow.mul_((b / flow.sum(1).clamp_min_(tiny)).clamp_max_(1)[:, None])
    missing_a, missing_b = (a - flow.sum(2)).clamp_min_(0), (b - flow.sum(1)).clamp_min_(0)
    share = missing_b / missing_b.sum(1, keepdim=True).clamp_min_(tiny)
    return flow.addcmul_(missing_a[..., None], share[:, None])


def _vertex(cost: Tensor, a: Tensor, b: Tensor, tree: Tensor) -> tuple[Tensor, Tensor]:
    """Return flow and column potentials of spanning trees given as masks of n + m - 1 cells.

    The Laplacian of the tree gives both: D (p_i + q_j) with the marginals as its row and column sums is the flow, and
    D (u_i + v_j) with those of D c are the potentials. Cells that are no tree give no better gap, and are not used.
    """
    d = tree.to(cost.dtype)
    system = laplacian(d, grounded(a))
    p, q = system.solve(a, b)
    chosen = d * cost
    _, v = system.solve(chosen.sum(2), chosen.sum(1))
    flow = d.mul_(p[..., None] + q[:, None]).clamp_min_(0)
    return _rounded(flow, a, b), v
