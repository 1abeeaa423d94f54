"""What several rules do with tensors: everything in double precision, rounded to the tensor's own type at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from vnetsim.setting_checks import Within

StalenessFunction = Literal["constant", "hinge", "polynomial"]
HingeKnee = Annotated[int, Within(0, 10_000, "rounds", "bounds of round.max_staleness")]
HingeSlope = Annotated[float, Within(1, 1e6, "", "below 1 a stale upload would count more than a fresh one")]
Exponent = Annotated[float, Within(0, 100, "", "a greater one leaves nothing of what is stale")]


def staleness_weight(tau: int, function: StalenessFunction, *, knee: int, slope: float, exponent: float) -> float:
    """Return s(tau), in (0, 1].

    ``constant``: 1. ``hinge``: 1 up to the knee b, then 1 / (a (tau - b)) with the slope a.
    ``polynomial``: (1 + tau)^-exponent. Xie, Koyejo, Gupta (2019), arXiv:1903.03934, section 5.2, the hinge without
    the 1 that some write into its denominator.

    Args:
        tau: staleness in rounds, >= 0.
        function: which.
        knee: b of the hinge.
        slope: a of the hinge, >= 1.
        exponent: of the polynomial.
    """
    if function == "hinge":
        return 1.0 if tau <= knee else 1.0 / (slope * (tau - knee))
    return float((1 + tau) ** -exponent) if function == "polynomial" else 1.0


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
