"""Optimal transport between small sets, batched: the solver of FedEFM and its earth mover's similarity.

``solve`` returns flow, value and dual variables of min <c, x>, x >= 0, under given row and column sums;
``transport_value`` is the value with gradients; ``emd_similarity`` compares the dense features of two encoders
(FedEFM, Eq. 3; marginals of DeepEMD, Zhang et al., CVPR 2020). All compute in float64 on the device of their input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from learners import interior_point, transport_simplex
from vnetsim.errors import InputError, RunError

GAP_TOLERANCE = 1e-8  # relative; in practice about 1e-12
SIMPLEX_GAP = 1e-9  # above it the simplex method takes over, in units of total mass and spread of the costs
ROUNDING = 1e-15  # of the largest cost: costs that differ by less are equal
SMALLEST_SHARE = 1e-12  # of the total, given to a marginal of zero while iterating: the interior must not be empty
# entries of the cost solved together, and of those iterated at a time: on a CPU so few that the cache holds the work
CHUNK_ENTRIES = {"cpu": 2**21, "cuda": 2**25}
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
        if cost.numel() == 0:
            return _gather([], cost, a, b)
        size = _problems(cost, CHUNK_ENTRIES)
        chunks = zip(cost.split(size), a.split(size), b.split(size), strict=True)
        return _gather([_solve_chunk(*(part.double() for part in chunk)) for chunk in chunks], cost, a, b)


def transport_value(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the optimal values <c, x>, shape (B,), differentiable once in all arguments.

    By the envelope theorem d/dc = x and d/da, d/db are the dual variables. Where the optimum is not unique they are
    one of the subgradients. Arguments and errors are those of ``solve``.
    """
    value: Tensor = _TransportValue.apply(cost, a, b)  # type: ignore[no-untyped-call]
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
        raise InputError(f"features must have shapes (B, n, C) and (B, m, C), got {tuple(u.shape)} and {tuple(v.shape)}")
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
    @once_differentiable  # type: ignore[misc, no-untyped-call]
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
        "its cost is not finite": ~torch.isfinite(cost).all(2).all(1),
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


def _problems(cost: Tensor, entries: dict[str, int]) -> int:
    """Return how many problems of the cost's size make up as many entries."""
    return max(1, entries.get(cost.device.type, entries["cuda"]) // (cost.shape[1] * cost.shape[2]))


def _gather(parts: list[Transport], cost: Tensor, a: Tensor, b: Tensor) -> Transport:
    """Join the chunks and return to the input's dtype."""
    if not parts:
        none = cost.new_zeros(0)
        return Transport(
            flow=torch.zeros_like(cost),
            value=none,
            dual_a=torch.zeros_like(a),
            dual_b=torch.zeros_like(b),
            iterations=none.long(),
            gap=none.double(),
        )
    return Transport(
        flow=torch.cat([part.flow for part in parts]).to(cost.dtype),
        value=torch.cat([part.value for part in parts]).to(cost.dtype),
        dual_a=torch.cat([part.dual_a for part in parts]).to(cost.dtype),
        dual_b=torch.cat([part.dual_b for part in parts]).to(cost.dtype),
        iterations=torch.cat([part.iterations for part in parts]),
        gap=torch.cat([part.gap for part in parts]),
    )


def _solve_chunk(cost: Tensor, a: Tensor, b: Tensor) -> Transport:
    """Solve problems of float64 that fit together into memory; the smaller side becomes the rows."""
    if cost.shape[1] > cost.shape[2]:
        swapped = _solve_chunk(cost.mT.contiguous(), b, a)
        return Transport(
            flow=swapped.flow.mT,
            value=swapped.value,
            dual_a=swapped.dual_b,
            dual_b=swapped.dual_a,
            iterations=swapped.iterations,
            gap=swapped.gap,
        )
    total = a.sum(1)
    b = b * (total / b.sum(1).masked_fill(total == 0, 1))[:, None]  # totals equal to the last digit
    # potentials taken out of the costs leave their minimum 0 in every row and column, and change no flow
    row = cost.amin(2)
    reduced = cost - row[..., None]
    column = reduced.amin(1)
    reduced -= column[:, None]
    spread = torch.maximum(reduced.amax((1, 2)), ROUNDING * cost.abs().amax((1, 2)))
    reduced /= spread.masked_fill(spread == 0, 1)[:, None, None]

    if cost.shape[1] == 1:
        flow, v = b[:, None].clone(), torch.zeros_like(b)
        iterations = torch.zeros(len(cost), dtype=torch.int64, device=cost.device)
    else:
        wave = _problems(cost, WAVE_ENTRIES)
        end = interior_point.iterate(reduced, _positive_shares(a), _positive_shares(b), wave=wave)
        flow, v, iterations = _rounded(end.plan.mul_(total[:, None, None]), a, b), end.potential, end.iterations
    u, v = _tight(reduced, v)
    gap = (reduced * flow).sum((1, 2)) - (a * u).sum(1) - (b * v).sum(1)
    open_ = (~(gap.abs() <= SIMPLEX_GAP * total)).nonzero()[:, 0]
    if len(open_):
        _finish(open_, reduced, a, b, flow, v)
        u, v = _tight(reduced, v)

    dual_a, dual_b = u.mul_(spread[:, None]).add_(row), v.mul_(spread[:, None]).add_(column)
    value = (cost * flow).sum((1, 2))
    side_a, side_b = (a * dual_a).sum(1), (b * dual_b).sum(1)
    unit = torch.maximum(value.abs(), total * spread)
    gap = (value - side_a - side_b) / unit.masked_fill(unit == 0, 1)
    if not (gap <= GAP_TOLERANCE).all():
        raise RunError(f"{int((~(gap <= GAP_TOLERANCE)).sum())} of {len(gap)} transport problems did not converge")
    shift = ((side_a - side_b) / (2 * total.masked_fill(total == 0, 1)))[:, None]
    return Transport(
        flow=flow,
        value=value,
        dual_a=dual_a.sub_(shift),
        dual_b=dual_b.add_(shift),
        iterations=iterations,
        gap=gap,
    )


def _tight(cost: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest feasible u for v, and then the largest v for u.

    As costs lie in [0, 1], a v more than 1 below the largest binds no u, and may be raised to keep its digits.
    """
    v = (v - v.amax(1, keepdim=True)).clamp_min(-1)
    u = (cost - v[:, None]).amin(2)
    return u, (cost - u[..., None]).amin(1)


def _finish(index: Tensor, cost: Tensor, a: Tensor, b: Tensor, flow: Tensor, v: Tensor) -> None:
    """Finish the few problems that the interior-point method left open by the simplex method, in place."""
    for problem in index.tolist():
        vertex, potential = transport_simplex.finish(
            *(part[problem].cpu().numpy() for part in (cost, a, b)), flow[problem].nan_to_num(0).cpu().numpy()
        )
        flow[problem] = torch.from_numpy(vertex)
        v[problem] = torch.from_numpy(potential)


def _positive_shares(marginal: Tensor) -> Tensor:
    """Scale to total 1 with no share below ``SMALLEST_SHARE``; an empty marginal becomes uniform."""
    total = marginal.sum(1, keepdim=True)
    shares = (marginal / total.masked_fill(total == 0, 1)).clamp_min(SMALLEST_SHARE)
    return shares / shares.sum(1, keepdim=True)


def _rounded(flow: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Give the flow its marginals to rounding: shrink rows, then columns, and spread what is missing as a product.

    J. Altschuler, J. Weed, P. Rigollet, "Near-linear time approximation algorithms for optimal transport", 2017, alg. 2.
    """
    tiny = torch.finfo(flow.dtype).tiny
    flow.mul_((a / flow.sum(2).clamp_min(tiny)).clamp_max(1)[..., None])
    flow.mul_((b / flow.sum(1).clamp_min(tiny)).clamp_max(1)[:, None])
    missing_a, missing_b = (a - flow.sum(2)).clamp_min(0), (b - flow.sum(1)).clamp_min(0)
    share = missing_b / missing_b.sum(1, keepdim=True).clamp_min(tiny)
    return flow.addcmul_(missing_a[..., None], share[:, None])
