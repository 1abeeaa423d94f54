"""Aggregation at the roadside unit: weights of the uploads of a round, and the weighted mean of their models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vnetsim.learning.device import read

Weights = NDArray[np.float64]


def equal_weights(count: int) -> Weights:
    """Return ``count`` weights 1 / count (FedAvg over silos of equal size); empty for none."""
    return np.full(count, 1.0 / count) if count else np.empty(0)


def image_weights(images: Sequence[int]) -> Weights:
    """Return FedAvg's weights n_k / n, given each silo's number of images, at least 1; empty for none."""
    return np.array(images, dtype=np.float64) / sum(images) if images else np.empty(0)


def count_gradients(steps: int, momentum: float) -> float:
    """Return FedNova's |a|_1: by how many gradients SGD with momentum moves in ``steps`` steps of a constant gradient.

    [tau - rho (1 - rho^tau) / (1 - rho)] / (1 - rho) for tau steps and momentum rho in [0, 1) (Wang et al. 2020);
    without momentum the number of steps.
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def blur_weights(levels_px: Sequence[float]) -> Weights:
    """Return FLSimCo's aggregation weights w_n = (S - L_n) / ((N - 1) S), Eq. 11, with S = sum of L.

    ``levels_px`` are finite and at least 0. A common factor cancels, so the camera matters only where it differs
    between vehicles. Weights are in [0, 1 / (N - 1)], and equal where Eq. 11 gives 0 / 0: N = 1 or S = 0.
    """
    count, total = len(levels_px), math.fsum(levels_px)
    if count < 2 or total == 0:
        return equal_weights(count)
    # S - L_n as the exactly rounded sum of the others: no cancellation, and independent of the vehicles' order
    others = [math.fsum((*levels_px[:n], *levels_px[n + 1 :])) for n in range(count)]
    return np.asarray(others) / ((count - 1) * total)


def discard_weights(speeds_mps: Sequence[float], *, limit_mps: float) -> Weights:
    """Return FLSimCo's baseline: equal weights up to ``limit_mps``, 0 for faster vehicles; all 0 if all are faster."""
    kept = np.asarray(speeds_mps, dtype=np.float64) <= limit_mps
    return np.asarray(kept / max(kept.sum(), 1))


def weighted_mean(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float] | Weights) -> dict[str, Tensor]:
    """Return the weighted mean of model states, including BatchNorm statistics and counters.

    It is a running mean in float64, m <- m + (w_n / W_n)(x_n - m) with W_n the sum of the weights so far, so identical
    models come back bit for bit with any weights; the order of the states changes only float64's rounding. Integer
    tensors are rounded. Weights need not sum to 1; states of weight 0 are not read.

    ValueError if names, shapes or counts differ, a weight is negative or not finite, or no weight is positive.
    """
    mean = RunningMean()
    for state, weight in zip(states, weights, strict=True):
        mean.add(state, float(weight))
    if not any(weight > 0 for weight in weights):
        raise ValueError("no state has a positive weight")
    return mean.result()


def squared_norm(tensors: Iterable[Tensor]) -> float:
    """Return the sum of squares of all tensors' values, computed in float64; waits for the device once."""
    return math.fsum(read([tensor.to(torch.float64).square().sum() for tensor in tensors]))


class RunningMean:
    """``weighted_mean`` of states that arrive one after the other, with the same bits; stores one model in float64.

    Tensors of one type are concatenated, so a model takes a few operations in all.
    """

    def __init__(self) -> None:
        self._shapes: dict[str, torch.Size] = {}
        self._names: dict[torch.dtype, list[str]] = {}
        self._means: dict[torch.dtype, Tensor] = {}
        self._total = 0.0

    def add(self, state: Mapping[str, Tensor], weight: float) -> None:
        """Add the next state; a state of weight 0 is not read.

        ValueError if its tensors differ from the first state's, or its weight is negative or not finite.
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
            if dtype not in self._means:
                self._means[dtype] = row.double()
                continue
            mean = self._means[dtype]
            step = (row - mean) * (weight / self._total)
            # torch.where keeps the sign of a zero that all models share
            self._means[dtype] = torch.where(step == 0, mean, mean + step)

    def result(self) -> dict[str, Tensor]:
        """Return the mean of the states so far, in their types; empty if none had a positive weight."""
        found: dict[str, Tensor] = {}
        for dtype, names in self._names.items():
            row = (self._means[dtype] if dtype.is_floating_point else self._means[dtype].round()).to(dtype)
            shapes = [self._shapes[name] for name in names]
            parts = torch.split(row, [shape.numel() for shape in shapes])
            found |= {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return {name: found[name] for name in self._shapes}
