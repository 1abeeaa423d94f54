"""What the roadside unit does with the uploads of a round: weights, and the weighted mean of the models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Weights = NDArray[np.float64]


def equal_weights(count: int) -> Weights:
    """Return ``count`` weights 1 / count (FedAvg over silos of equal size); empty for none."""
    return np.full(count, 1.0 / count) if count else np.empty(0)


def blur_weights(levels_px: Sequence[float]) -> Weights:
    """Return FLSimCo's aggregation weights w_n = (S - L_n) / ((N - 1) S), Eq. 11, with S = sum of L.

    A common factor of all levels cancels, so the camera matters only where it differs between vehicles. Every
    weight lies in [0, 1 / (N - 1)]. One vehicle, or none that blurs (S = 0), gives 0 / 0: the weights are equal.

    Levels L_n are finite and at least 0.
    """
    count, total = len(levels_px), math.fsum(levels_px)
    if count < 2 or total == 0:
        return equal_weights(count)
    # S - L_n as the exactly rounded sum of the others: no cancellation, and the order of the vehicles is immaterial
    others = [math.fsum((*levels_px[:n], *levels_px[n + 1 :])) for n in range(count)]
    return np.asarray(others) / ((count - 1) * total)


def discard_weights(speeds_mps: Sequence[float], *, limit_mps: float) -> Weights:
    """Return equal weights over the vehicles at or below ``limit_mps`` and 0 for the others (FLSimCo's baseline).

    With every vehicle above the limit all weights are 0: the global model is kept.
    """
    kept = np.asarray(speeds_mps, dtype=np.float64) <= limit_mps
    weights: Weights = kept / kept.sum() if kept.any() else np.zeros(len(kept))
    return weights


def weighted_mean(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float] | Weights) -> dict[str, Tensor]:
    """Return the weighted mean of model states, BatchNorm statistics and counters included.

    It is computed as a running mean in float64, m <- m + (w_n / W_n)(x_n - m) with W_n the sum of the weights so far:
    identical models come back bit for bit, whatever the weights. Another order of the states changes the result by no
    more than the rounding of float64, which the final rounding to float32 hides but for rare ties. Integer tensors get
    the mean rounded to the nearest.

    Args:
        states: tensors by name, the same names and shapes in each.
        weights: one weight >= 0 per state, at least one positive; they are normalised to 1. States of weight 0 are
            not read.

    Raises:
        ValueError: when names or numbers do not fit together, or no weight is positive.
    """
    mean = RunningMean()
    for state, weight in zip(states, weights, strict=True):
        mean.add(state, float(weight))
    if not any(weight > 0 for weight in weights):
        raise ValueError("no state has a positive weight")
    return mean.result()


def squared_norm(tensors: Iterable[Tensor]) -> float:
    """Return the sum of squares of all tensors' values, in float64."""
    return math.fsum(float(tensor.to(torch.float64).square().sum()) for tensor in tensors)


class RunningMean:
    """``weighted_mean`` of states that come one after the other, to the same bits; it holds one model in float64.

    All tensors of a type are one row to it: a model takes a few operations in all, where each tensor would take some.
    """

    def __init__(self) -> None:
        self._shapes: dict[str, torch.Size] = {}
        self._names: dict[torch.dtype, list[str]] = {}
        self._means: dict[torch.dtype, Tensor] = {}
        self._total = 0.0

    def add(self, state: Mapping[str, Tensor], weight: float) -> None:
        """Take the next state in; one of weight 0 is not read.

        Raises:
            ValueError: it has other tensors than the first, or its weight is negative or not finite.
        """
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"weights must be finite and at least 0, got {weight}")
        if weight == 0:
            return
        tensors = dict(state)
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if self._total == 0:
            self._shapes = shapes
            for name, tensor in tensors.items():
                self._names.setdefault(tensor.dtype, []).append(name)
        elif shapes != self._shapes:
            differing = {name for name, _ in shapes.items() ^ self._shapes.items()}
            raise ValueError(f"states differ in their tensors: {sorted(differing)}")
        self._total += weight
        for dtype, names in self._names.items():
            row = torch.cat([tensors[name].reshape(-1) for name in names])
            mean = self._means.get(dtype)
            self._means[dtype] = row.double() if mean is None else _moved(mean, row, weight / self._total)

    def result(self) -> dict[str, Tensor]:
        """Return the mean; nothing where no state had a positive weight."""
        found: dict[str, Tensor] = {}
        for dtype, names in self._names.items():
            row = (self._means[dtype] if dtype.is_floating_point else self._means[dtype].round()).to(dtype)
            shapes = [self._shapes[name] for name in names]
            parts = torch.split(row, [shape.numel() for shape in shapes])
            found |= {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return {name: found[name] for name in self._shapes}


def _moved(mean: Tensor, row: Tensor, share: float) -> Tensor:
    # torch.where keeps the sign of a zero that all models share
    step = (row - mean) * share
    return torch.where(step == 0, mean, mean + step)
