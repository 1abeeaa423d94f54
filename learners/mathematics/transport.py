"""Optimal transport between small sets: the earth mover's similarity of FedEFM, solved by POT's network simplex."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from learners.data.moving import moved
from vnetsim.errors import RunError

FLOOR = 1e-3  # of DeepEMD's marginals


def earth_movers_distance(u: Tensor, v: Tensor) -> Tensor:
    """Return sum_pq c_pq x_pq of two sets of features, 1 - EMD of FedEFM's Eq. 3, in [0, 2], float64, shape (...).

    The costs are c_pq = 1 - cos(u_p, v_q); a feature of zero norm has cost 1. The marginals of the optimal plan x,
    which the paper does not give, are ``marginals``. NaN where a feature is not finite. No gradient flows through it.

    Args:
        u: features at n positions, shape (..., n, C).
        v: features at m positions, shape (..., m, C).

    Raises:
        RunError: a problem was not solved.
    """
    u, v = u.detach().double(), v.detach().double()
    return least_cost(1 - _unit(u) @ _unit(v).mT, marginals(u, v), marginals(v, u))


def least_cost(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return min <c, x> over plans x >= 0 with given row and column sums, float64, shape (...), on the costs' device.

    The problems go to the host and are solved there one after the other, also those that ``torch.func.vmap`` stacks.

    Args:
        cost: c, shape (..., n, m).
        a: row sums >= 0 of total 1, shape (..., n).
        b: column sums >= 0 of total 1, shape (..., m).

    Raises:
        RunError: a problem was not solved.
    """
    value: Tensor = _LeastCost.apply(cost, a, b)
    return value


def marginals(u: Tensor, v: Tensor) -> Tensor:
    """Return DeepEMD's weights of the positions of ``u``: relu(u_p . mean_q v_q) + 1e-3, scaled to total 1.

    Positions that resemble the other set's mean feature count more; when none does all count alike (Zhang et al., CVPR
    2020).

    Args:
        u: shape (..., n, C).
        v: shape (..., m, C).
    """
    weight = (u @ v.mean(dim=-2)[..., None])[..., 0].relu() + FLOOR
    return weight / weight.sum(dim=-1, keepdim=True)


def _unit(features: Tensor) -> Tensor:
    """Scale every feature to length 1, and those of length 0 to 0."""
    largest = features.abs().amax(dim=-1, keepdim=True)
    zero = largest == 0
    scaled = features / largest.masked_fill(zero, 1)  # squares neither overflow nor vanish
    return scaled / scaled.square().sum(dim=-1, keepdim=True).masked_fill(zero, 1).sqrt()


class _LeastCost(torch.autograd.Function):
    """A function that ``torch.func.vmap`` does not look into."""

    @staticmethod
    def forward(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
        import ot  # noqa: PLC0415 - a second to load, and only for methods that transport

        given = {"a": a.double().flatten(0, -2), "b": b.double().flatten(0, -2), "c": cost.double().flatten(0, -3)}
        rows, columns, costs = moved(given, torch.device("cpu")).values()
        plans = torch.full(costs.shape, torch.nan, dtype=torch.float64)
        finite = (costs.sum((1, 2)) + rows.sum(1) + columns.sum(1)).isfinite()
        for i in finite.nonzero().flatten().tolist():
            plan, log = ot.emd(*(part[i].numpy() for part in (rows, columns, costs)), numItermax=1_000_000, log=True)
            if log["warning"]:
                raise RunError(f"POT did not solve a transport problem: {log['warning']}")
            plans[i] = torch.from_numpy(plan)
        value = (costs * plans).sum((1, 2)).view(cost.shape[:-2])
        return moved({"value": value}, cost.device)["value"]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004 - its signature
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        tensors = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(inputs, in_dims, strict=True)
        ]
        return least_cost(*tensors), 0
