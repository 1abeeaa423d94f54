"""Exact optimal transport for many small problems at once: ``from vnetsim.transport import emd``.

The solver is FedEFM's, which needs thousands of such problems per round.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from vnetsim.errors import InputError, one_line
from vnetsim.own_packages import claim

claim("learners")

from learners.mathematics.transport import Solver, solve  # noqa: E402 - after claim, or it may be a folder of the user's

__all__ = ["Solver", "emd"]
_SAME = 1e-6
"""Largest relative difference of the totals of ``a`` and ``b``; in float32 sums differ by 1e-7."""


@torch.no_grad()
def emd(
    a: Tensor | ArrayLike, b: Tensor | ArrayLike, cost: Tensor | ArrayLike, *, solver: Solver = "auto"
) -> tuple[Tensor, Tensor]:
    """Return the values of optimal transport problems and their plans, both in float64 on the device of ``cost``.

    A plan is a matrix x >= 0 with row sums ``a`` and column sums ``b`` that minimises the value, the sum of cost * x.
    Leading dimensions are batches and broadcast: one ``cost`` may serve many ``a`` and ``b``.

    There is no regularisation. A value is at most 1e-6 times the range of its costs and its total above the optimum,
    usually 1e-9; the interior-point method checks this by the duality gap. Made for up to 64 rows and columns, and for
    thousands of problems. The result has no gradient; the gradient of a value with respect to ``cost`` is its plan.

    Args:
        a: masses >= 0 of the rows, shape (..., n); like ``b`` and ``cost`` a tensor, an array or nested lists.
        b: masses >= 0 of the columns, shape (..., m), with the totals of ``a``, which must be above 0.
        cost: finite costs, also negative ones, shape (..., n, m).
        solver: ``interior-point`` solves all problems together on the device; ``pot`` solves one after the other with
            POT's network simplex on the CPU. ``auto`` takes ``pot`` on a CPU where POT is installed.

    Returns:
        values, shape (...), and plans, shape (..., n, m).

    Raises:
        InputError: an argument is no array of numbers or no solver, shapes do not fit, a mass is negative, a number is
            not finite, or totals differ or are 0.
        RunError: a problem was not solved to this accuracy.

    Example:
        >>> values, plans = emd([[0.5, 0.5], [1.0, 0.0]], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
        >>> values.tolist()
        [0.25, 0.75]
    """
    if solver not in get_args(Solver):
        raise InputError(f"emd: solver: must be one of {', '.join(get_args(Solver))}, got {solver!r}.")
    if solver == "pot" and not find_spec("ot"):
        raise InputError("emd: solver: pot needs the Python package POT, which is not installed; take auto.")
    cost = _to_tensor("cost", cost)
    a, b = _to_tensor("a", a).to(cost.device), _to_tensor("b", b).to(cost.device)
    shapes = tuple(a.shape), tuple(b.shape), tuple(cost.shape)
    scalar = min(cost.dim() - 1, a.dim(), b.dim()) < 1
    if scalar or cost.shape[-2:] != (a.shape[-1], b.shape[-1]) or 0 in cost.shape[-2:]:
        raise InputError(
            f"emd: expected shapes (..., n), (..., m) and (..., n, m), got {shapes[0]}, {shapes[1]} and {shapes[2]}."
        )
    try:
        batch = np.broadcast_shapes(a.shape[:-1], b.shape[:-1], cost.shape[:-2])
    except ValueError:
        raise InputError(f"emd: the leading dimensions of shapes {shapes} do not broadcast.") from None
    rows, columns = (one.expand(*batch, -1).reshape(-1, one.shape[-1]) for one in (a, b))
    costs = cost.expand(*batch, -1, -1).reshape(-1, *cost.shape[-2:])
    total, other = rows.sum(1), columns.sum(1)
    least = costs.amin((1, 2))
    spread = costs.amax((1, 2)) - least
    finite = spread.isfinite().all() & total.isfinite().all() & other.isfinite().all()
    if not finite or (rows < 0).any() or (columns < 0).any():
        raise InputError("emd: masses must be finite and 0 or more, costs finite; also their totals and ranges.")
    if not (total > 0).all() or not ((total - other).abs() <= _SAME * total).all():
        raise InputError(
            "emd: the masses of the rows and of the columns of a problem must have the same total, above 0."
        )
    spread = spread.clamp_min(torch.finfo(torch.float64).tiny)
    _, plans = solve(
        (costs - least[:, None, None]) / spread[:, None, None], rows / total[:, None], columns / other[:, None], solver
    )
    plans = plans * total[:, None, None]
    return (costs * plans).sum((1, 2)).view(batch), plans.view(*batch, *cost.shape[-2:])


def _to_tensor(name: str, given: Tensor | ArrayLike) -> Tensor:
    """Return the argument called ``name`` as a tensor in float64; InputError if it is no array of numbers."""
    try:
        return given.double() if isinstance(given, Tensor) else torch.from_numpy(np.array(given, dtype=np.float64))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"emd: {name}: no array of numbers: {one_line(error).rstrip('.')}.") from None
