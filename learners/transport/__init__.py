"""Optimal transport between small sets, batched: the solver of FedEFM and its earth mover's similarity.

``solve`` returns flow, value and dual variables of min <c, x>, x >= 0, under given row and column sums;
``transport_value`` is the value with gradients; ``emd_similarity`` compares the dense features of two encoders
(FedEFM, Eq. 3; marginals of DeepEMD, Zhang et al., CVPR 2020). All compute in float64 on the device of their input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from learners.transport import interior_point
from learners.transport.interior_point import Finished
from learners.transport.purification import purify
from vnetsim.errors import InputError, RunError

GAP_TOLERANCE = 1e-8  # relative; what is left is 4e-9 at most and where the optimum is unique rounding
ROUNDING = 1e-14  # of the largest cost: what costs differ by less is noise
SMALLEST_SHARE = 1e-12  # of the total, given to a marginal of zero while iterating: the interior must not be empty
# entries of the costs iterated at a time: on a CPU so few that they stay near, on a GPU so many that it is full
WAVE_ENTRIES = {"cpu": 2**17, "cuda": 2**25}
FLOOR = 1e-3  # of DeepEMD's marginals


@dataclass(frozen=True, kw_only=True)
class Transport:
    """Optimal transport plans of a batch, in the dtype and on the device of the cost.

    Args:
        flow: x >= 0, shape (B, n, m); its row and column sums are the marginals.
        value: <c, x>, shape (B,).
        dual_a: d value / d a, shape (B, n). The duals are fixed up to moving a constant from one side to the other
            (the totals are tied); here both sides contribute half of the value.
        dual_b: d value / d b, shape (B, m).
        iterations: of the interior-point method, shape (B,).
        gap: duality gap relative to the larger of |value| and total mass times the spread of the costs,
            float64, shape (B,).
    """

    flow: Tensor
    value: Tensor
    dual_a: Tensor
    dual_b: Tensor
    iterations: Tensor
    gap: Tensor


def solve(cost: Tensor, a: Tensor, b: Tensor) -> Transport:
    """Solve a batch of transport problems; no gradient is recorded.

    Args:
        cost: c, shape (B, n, m), finite, of either sign and any scale; meant for n, m <= 64.
        a: row sums >= 0, shape (B, n).
        b: column sums >= 0, shape (B, m), of the same total as ``a`` to rounding in the given dtype.

    Raises:
        InputError: shapes, dtypes or devices do not fit, an entry is not finite, a marginal is negative, or the
            totals of a problem differ.
        RunError: a problem did not reach the tolerance.
    """
    with torch.no_grad():
        _check(cost, a, b)
        if cost.shape[1] <= cost.shape[2]:
            return _Batch(cost, a, b).solve()
        swapped = _Batch(cost.mT, b, a).solve()
        return replace(swapped, flow=swapped.flow.mT, dual_a=swapped.dual_b, dual_b=swapped.dual_a)


def transport_value(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the optimal values <c, x>, shape (B,), differentiable once in all arguments.

    By the envelope theorem d/dc = x and d/da, d/db are the dual variables. Where the optimum is not unique they are
    one of the subgradients. Arguments and errors are those of ``solve``.
    """
    value: Tensor = _TransportValue.apply(cost, a, b)
    return value


def emd_similarity(u: Tensor, v: Tensor, a: Tensor | None = None, b: Tensor | None = None) -> Tensor:
    """Return EMD = sum_pq (1 - c_pq) x_pq with c_pq = 1 - cos(u_p, v_q), in [-1, 1], shape (B,).

    Args:
        u: features at n positions, shape (B, n, C). A feature of zero norm has cost 1 and cosine gradient 0.
        v: features at m positions, shape (B, m, C).
        a: weights of the positions of ``u``, shape (B, n), of total 1; by default those of ``marginals``.
        b: weights of the positions of ``v``, shape (B, m); give both or neither.

    Raises:
        InputError: shapes do not fit, or features or weights are not finite.
    """
    if u.ndim != 3 or v.ndim != 3 or u.shape[0] != v.shape[0] or u.shape[2] != v.shape[2]:
        raise InputError(
            f"features must have shapes (B, n, C) and (B, m, C), got {tuple(u.shape)} and {tuple(v.shape)}"
        )
    if (a is None) != (b is None):
        raise InputError("weights must be given for both feature sets or for neither")
    if not (torch.isfinite(u).all() and torch.isfinite(v).all()):
        raise InputError("features for the transport similarity must be finite, got inf or NaN")
    wide_u, wide_v = u.double(), v.double()
    cost = 1 - _unit(wide_u) @ _unit(wide_v).mT
    if a is None or b is None:
        a, b = marginals(wide_u, wide_v), marginals(wide_v, wide_u)
    return (1 - transport_value(cost, a.double(), b.double())).to(u.dtype)


def marginals(u: Tensor, v: Tensor) -> Tensor:
    """Return DeepEMD's weights of the positions of ``u``: relu(u_p . mean_q v_q) + 1e-3, scaled to total 1.

    Positions that resemble the other set's mean feature count more; when none does all count alike.

    Args:
        u: shape (B, n, C).
        v: shape (B, m, C).
    """
    weight = (u @ v.mean(dim=1)[..., None])[..., 0].relu() + FLOOR
    return weight / weight.sum(dim=1, keepdim=True)


def _unit(features: Tensor) -> Tensor:
    """Scale every feature to length 1, and those of length 0 to 0 with gradient 0."""
    largest = features.detach().abs().amax(dim=2, keepdim=True)
    zero = largest == 0
    scaled = features / largest.masked_fill(zero, 1)  # squares neither overflow nor vanish
    return scaled / scaled.square().sum(dim=2, keepdim=True).masked_fill(zero, 1).sqrt()


class _TransportValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
        transport = solve(cost, a, b)
        ctx.save_for_backward(transport.flow, transport.dual_a, transport.dual_b)
        return transport.value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flow, dual_a, dual_b = ctx.saved_tensors
        return grad[:, None, None] * flow, grad[:, None] * dual_a, grad[:, None] * dual_b


def _check(cost: Tensor, a: Tensor, b: Tensor) -> None:
    """Refuse what has no solution, with the first offending problem named."""
    shapes = f"cost {tuple(cost.shape)}, a {tuple(a.shape)}, b {tuple(b.shape)}"
    if cost.ndim != 3 or a.shape != cost.shape[:2] or b.shape != (cost.shape[0], cost.shape[2]):
        raise InputError(f"a transport problem needs shapes (B, n, m), (B, n) and (B, m), got {shapes}")
    if 0 in cost.shape[1:]:
        raise InputError(f"a transport problem needs at least one row and one column, got {shapes}")
    if not (cost.dtype == a.dtype == b.dtype and cost.dtype.is_floating_point):
        raise InputError(f"costs and marginals must share one floating dtype, got {cost.dtype}, {a.dtype}, {b.dtype}")
    if not cost.device == a.device == b.device:
        raise InputError(f"costs and marginals must share one device, got {cost.device}, {a.device}, {b.device}")
    total_a, total_b = a.double().sum(1), b.double().sum(1)
    largest = torch.maximum(total_a, total_b)
    tolerance = max(64 * torch.finfo(cost.dtype).eps, 1e-10)
    faults = {
        "its cost, or the spread of it, is not finite": ~torch.isfinite(cost.amax((1, 2)) - cost.amin((1, 2))),
        "a marginal is negative or not finite": ~((a >= 0).all(1) & (b >= 0).all(1) & torch.isfinite(largest)),
        "its marginals have unequal totals": (total_a - total_b).abs() > tolerance * largest,
    }
    if not torch.stack(list(faults.values())).any():
        return
    for fault, where in faults.items():
        if where.any():
            index = int(where.nonzero()[0])
            raise InputError(
                f"transport problem {index} of {len(cost)}: {fault} "
                f"(total of a {float(total_a[index])!r}, total of b {float(total_b[index])!r})"
            )


class _Batch:
    """A batch with no more rows than columns, which goes to the solver and comes back in groups."""

    def __init__(self, cost: Tensor, a: Tensor, b: Tensor) -> None:
        self._cost, self._a, self._b = cost, a, b
        count = len(cost)
        self._result = Transport(
            flow=torch.empty_like(cost, memory_format=torch.contiguous_format),
            value=cost.new_empty(count),
            dual_a=torch.empty_like(a),
            dual_b=torch.empty_like(b),
            iterations=torch.empty(count, dtype=torch.int64, device=cost.device),
            gap=torch.empty(count, dtype=torch.float64, device=cost.device),
        )

    def solve(self) -> Transport:
        count, n, m = self._cost.shape
        wave = max(1, WAVE_ENTRIES.get(self._cost.device.type, WAVE_ENTRIES["cuda"]) // (n * m))
        index = torch.arange(count, device=self._cost.device)
        if n == 1:
            for rows in torch.split(index, wave) if count else ():
                b = _Standard.of(self._cost[rows], self._a[rows], self._b[rows]).b
                self._store(Finished(index=rows, plan=b[:, None], potential=0 * b, iterations=0 * rows))
        elif count:
            for finished in interior_point.iterate(self._interior, index, wave=wave):
                self._store(finished)
        return self._result

    def _interior(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the problems as the interior-point method wants them: no marginal is 0."""
        problem = _Standard.of(self._cost[rows], self._a[rows], self._b[rows])
        return problem.cost, _positive(problem.a), _positive(problem.b)

    def _store(self, end: Finished) -> None:
        """Purify the iterates and store them in the input's units."""
        rows, result = end.index, self._result
        problem = _Standard.of(self._cost[rows], self._a[rows], self._b[rows])
        cost, a, b = problem.cost, problem.a, problem.b
        flow, u, v = purify(cost, a, b, end.plan, end.potential)
        flow *= problem.total[:, None, None]
        u, v = u * problem.unit[:, None] + problem.row, v * problem.unit[:, None] + problem.column
        side_a, side_b = (a * u).sum(1), (b * v).sum(1)
        shift = (side_a - side_b)[:, None] / 2
        value = (self._cost[rows].double() * flow).sum((1, 2))
        scale = torch.maximum(value.abs(), problem.total * problem.unit)
        gap = (value - problem.total * (side_a + side_b)) / scale.masked_fill(scale == 0, 1)
        wrong = ~(gap.abs() <= GAP_TOLERANCE)
        if wrong.any():
            raise RunError(
                f"{int(wrong.sum())} of {len(self._cost)} transport problems did not converge, first problem "
                f"{int(rows[wrong][0])}"
            )
        result.flow[rows] = flow.to(result.flow.dtype)
        result.value[rows] = value.to(result.value.dtype)
        result.dual_a[rows] = (u - shift).to(result.dual_a.dtype)
        result.dual_b[rows] = (v + shift).to(result.dual_b.dtype)
        result.iterations[rows] = end.iterations
        result.gap[rows] = gap


@dataclass(frozen=True, kw_only=True)
class _Standard:
    """Problems in float64, scaled to total mass 1 and to costs in [0, 1] with a 0 in every row and column.

    Taking potentials out of the costs changes no flow: c_ij = unit * cost_ij + row_i + column_j.
    """

    cost: Tensor
    a: Tensor
    b: Tensor
    total: Tensor
    unit: Tensor
    row: Tensor
    column: Tensor

    @classmethod
    def of(cls, cost: Tensor, a: Tensor, b: Tensor) -> _Standard:
        cost, a, b = cost.double(), a.double(), b.double()
        total = a.sum(1)
        largest = torch.maximum(cost.amax((1, 2)), -cost.amin((1, 2)))
        row = cost.amin(2)
        cost = cost - row[..., None]
        column = cost.amin(1)
        cost -= column[:, None]
        unit = torch.maximum(cost.amax((1, 2)), ROUNDING * largest)
        cost /= unit.masked_fill(unit == 0, 1)[:, None, None]
        return cls(cost=cost, a=_shares(a), b=_shares(b), total=total, unit=unit, row=row, column=column)


def _shares(marginal: Tensor) -> Tensor:
    """Scale to total 1; an empty marginal becomes uniform."""
    total = marginal.sum(1, keepdim=True)
    return torch.where(total > 0, marginal / total.masked_fill(total == 0, 1), 1 / marginal.shape[1])


def _positive(shares: Tensor) -> Tensor:
    """Raise shares to ``SMALLEST_SHARE`` at least, the total still 1."""
    shares = shares.clamp_min(SMALLEST_SHARE)
    return shares / shares.sum(1, keepdim=True)
