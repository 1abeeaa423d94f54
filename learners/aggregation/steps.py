"""What several rules do with tensors: everything in double precision, rounded to the tensor's own type at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from vnetsim.errors.bounds import Within

ServerRate = Annotated[float, Within(0, 1000, "", "a model is thrown away by a step a thousand times its own")]


@dataclass(frozen=True, kw_only=True)
class Staleness:
    """Base of rules by which a stale upload counts s(tau).

    Args:
        staleness: s(tau): ``constant`` 1; ``hinge`` 1 up to ``hinge_knee``, then
            1 / (``hinge_slope`` (tau - knee) + 1); ``polynomial`` (1 + tau)^-``exponent``.
        hinge_knee: staleness up to which an upload counts in full, b (versions of the server's model).
        hinge_slope: how fast it counts less beyond, a.
        exponent: of the polynomial.
    """

    staleness: Literal["constant", "hinge", "polynomial"] = "polynomial"
    hinge_knee: Annotated[int, Within(0, 10_000, "versions", "bounds of round.max_staleness")] = 4
    hinge_slope: Annotated[float, Within(0, 1e6, "", "below 0 a stale upload would count more than a fresh one")] = 10.0
    exponent: Annotated[float, Within(0, 100, "", "a greater one leaves nothing of what is stale")] = 0.5

    def staleness_weight(self, tau: int) -> float:
        """Return s(tau), in (0, 1], of an upload whose base is ``tau`` >= 0 versions old.

        Xie, Koyejo, Gupta (2019), arXiv:1903.03934, section 5.2; the defaults are those of its experiments, as ports
        of it have them.
        """
        if self.staleness == "hinge":
            return 1.0 if tau <= self.hinge_knee else 1.0 / (self.hinge_slope * (tau - self.hinge_knee) + 1)
        return float((1 + tau) ** -self.exponent) if self.staleness == "polynomial" else 1.0


def rounded(value: Tensor, like: Tensor) -> Tensor:
    """Return a tensor in the type of another one; whole numbers get the nearest."""
    return (value if like.is_floating_point() else value.round()).to(like.dtype)


def mixed(model: Mapping[str, Tensor], other: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return (1 - share) model + share other, for the tensors of ``other``; equal values stay as they are, to the bit.

    Args:
        model: with at least the names of ``other``.
        other: tensors by name.
        share: in [0, 1].
    """
    result = {}
    for name, tensor in other.items():
        old = model[name].to(torch.float64)
        step = share * (tensor.to(torch.float64) - old)
        result[name] = rounded(torch.where(step == 0, old, old + step), model[name])
    return result


def normalised(values: Sequence[float]) -> list[float]:
    """Return values >= 0 over their sum; all 0 where that is 0."""
    total = sum(values)
    return [value / total if total > 0 else 0.0 for value in values]
