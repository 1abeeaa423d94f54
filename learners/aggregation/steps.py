"""What several rules do with tensors: everything in double precision, rounded to the tensor's own type at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from vnetsim.errors.bounds import Within

KNEE, SLOPE, EXPONENT = 4, 10.0, 0.5
"""Of the hinge (versions of the server's model; how fast an upload counts less beyond) and of the polynomial: the
values of FedAsync's experiments, as ports of it have them; FedBuff's are those of the polynomial too."""
ServerRate = Annotated[float, Within(0, 1000, "", "a model is thrown away by a step a thousand times its own")]


@dataclass(frozen=True, kw_only=True)
class Staleness:
    """Base of rules by which a stale upload counts s(tau).

    Args:
        staleness: s(tau): ``constant`` 1; ``hinge`` 1 up to 4 versions, then 1 / (10 (tau - 4) + 1); ``polynomial``
            (1 + tau)^-0.5.
    """

    staleness: Literal["constant", "hinge", "polynomial"] = "polynomial"

    def staleness_weight(self, tau: int) -> float:
        """Return s(tau), in (0, 1], of an upload whose base is ``tau`` >= 0 versions old.

        Xie, Koyejo, Gupta (2019), arXiv:1903.03934, section 5.2.
        """
        if self.staleness == "hinge":
            return 1.0 if tau <= KNEE else 1.0 / (SLOPE * (tau - KNEE) + 1)
        return float((1 + tau) ** -EXPONENT) if self.staleness == "polynomial" else 1.0


def rounded(value: Tensor, like: Tensor) -> Tensor:
    """Return a tensor in the type of another one; whole numbers get the nearest."""
    return (value if like.is_floating_point() else value.round()).to(like.dtype)


def mixed(model: Mapping[str, Tensor], other: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return (1 - share) model + share other, for the tensors of ``other``; equal values stay as they are, to the bit.

    ``model`` has at least the names of ``other``; ``share`` is in [0, 1].
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
