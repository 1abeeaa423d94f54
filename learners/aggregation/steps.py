"""What several rules do with tensors: everything in double precision, rounded to the tensor's own type at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vnetsim.setting_checks import check_bounds

HINGE_KNEE, HINGE_SLOPE = 4, 10.0
"""Versions up to which an upload counts in full, and how fast it counts less beyond: b and a of the experiments."""
EXPONENT = 0.5
"""Of the polynomial, also from the experiments."""


@dataclass(frozen=True, kw_only=True)
class StalenessSettings:
    """How much a stale upload counts, s(tau).

    Args:
        staleness: s(tau): ``constant`` 1; ``hinge`` 1 up to a tau of 4, then 1 / (10 (tau - 4) + 1); ``polynomial``
            1 / sqrt(1 + tau).
    """

    staleness: Literal["constant", "hinge", "polynomial"] = "polynomial"

    def __post_init__(self) -> None:
        """Refuse values outside their bounds."""
        check_bounds("aggregation", self)

    def staleness_weight(self, tau: int) -> float:
        """Return s(tau), in (0, 1], of an upload whose base is ``tau`` >= 0 versions old.

        Xie, Koyejo, Gupta (2019), arXiv:1903.03934, section 5.2; the constants are those of its experiments, as
        ports of it have them.
        """
        if self.staleness == "hinge":
            return 1.0 if tau <= HINGE_KNEE else 1.0 / (HINGE_SLOPE * (tau - HINGE_KNEE) + 1)
        return float((1 + tau) ** -EXPONENT) if self.staleness == "polynomial" else 1.0


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
