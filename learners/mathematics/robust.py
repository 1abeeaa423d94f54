"""Robust averaging: limits how far a few broken or hostile uploads can change the model.

A learner that averages has ``AveragingSettings`` in its settings, calls ``clip`` on every upload, and ``combine``
instead of ``learners.mathematics.weights.weighted_mean``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from learners.mathematics.weights import Weights, squared_norm, weighted_mean
from vnetsim.errors.bounds import TRAINS, Acts, Within, check_bounds, require

NEAREST, STEPS, SETTLED = 1e-6, 100, 1e-6
"""Of the geometric median: the distance that smooths it, as in the paper; the most iterations; and the largest change
of a weight at which they end. The authors' code takes 4 or 5 iterations from the mean, too few for uploads far away."""
KRUM = ("krum", "multi-krum")
CHUNK = 2**22
"""How many numbers a robust rule sorts at a time, over all uploads: 16 MB in single precision."""


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """Differential privacy of the published models, by clipped changes and Gaussian noise at the RSU.

    Args:
        clip: S, the largest norm of an upload's change that counts, over all floating-point tensors; 0 for no privacy.
        noise_multiplier: z: to the sum of a round's changes noise of the deviation z S is added; 0 adds none.
    """

    clip: Annotated[float, Within(0, 1e12, "", "no model that learns is further from another"), TRAINS] = 0.0
    noise_multiplier: Annotated[float, Within(0, 1e6, "", "a model of nothing but noise"), TRAINS] = 0.0


@dataclass(frozen=True, kw_only=True)
class AveragingSettings:
    """How the RSU averages the uploads.

    Args:
        aggregation: ``mean`` is the weighted mean of the method. All others give uploads the same weight, except those
            that the method gives weight 0, which are left out. ``median`` and ``trimmed-mean`` are taken for each
            coordinate. ``krum`` takes the upload that is nearest to its neighbours, ``multi-krum`` the mean of all but
            the f that are furthest from theirs. ``geometric-median`` has the least sum of distances to the uploads.
        trim: share of the uploads that may be hostile, f of n, in [0, 0.5). ``trimmed-mean`` cuts so many at each end
            of every coordinate. f is rounded up, so any share above 0 is at least one; with few uploads it is lowered
            so that the trimmed mean keeps one upload, and Krum has n >= 2 f + 3.
        clip_norm: before averaging, and before any aggregation rule, an upload is moved towards the model that its
            vehicle downloaded until their distance (Euclidean norm over all floating-point tensors) is at most this; 0
            clips nothing.
        dp: differential privacy, ``{ clip = 1.0, noise_multiplier = 1.0 }``. Each upload of positive weight then
            counts 1 / ``round.quorum``, even if more or fewer came.
    """

    aggregation: Annotated[
        Literal["mean", "median", "trimmed-mean", "krum", "multi-krum", "geometric-median"], TRAINS
    ] = "mean"
    trim: Annotated[
        float,
        Within(0, 0.49, "", "of both ends, so half would leave nothing"),
        TRAINS,
        Acts("learning.aggregation", ("trimmed-mean", *KRUM)),
    ] = 0.1
    clip_norm: Annotated[float, Within(0, 1e12, "", "no model that learns is further from another"), TRAINS] = 0.0
    dp: PrivacySettings = PrivacySettings()

    def __post_init__(self) -> None:
        """Raise InputError, which names the key, for a value out of its bounds or a ``dp`` that does not fit."""
        check_bounds("learning", self)
        require(
            self.dp.clip > 0 or self.dp.noise_multiplier == 0,
            "learning.dp: noise_multiplier is in units of clip, the largest change that counts: set learning.dp.clip.",
        )
        require(
            self.dp.clip == 0 or self.aggregation == "mean",
            f"learning.dp: noise is for a mean, not for a {self.aggregation} (learning.aggregation); leave one out.",
        )


def used_weights(weights: Weights, settings: AveragingSettings) -> Weights:
    """Return the weights that the rule begins with; ``weigh_by_distance`` makes the final ones of them.

    With ``mean`` they are unchanged; robust rules and ``dp`` give all positive weights the same share. If all are 0,
    they stay 0.
    """
    if settings.aggregation == "mean" and settings.dp.clip == 0:
        return weights
    used = weights > 0
    return np.asarray(used / max(used.sum(), 1))


def weigh_by_distance(states: Sequence[Mapping[str, Tensor]], weights: Weights, settings: AveragingSettings) -> Weights:
    """Return the weights of the uploads by their distances; unchanged for rules that do not use distances.

    Distances are Euclidean, over all floating-point tensors. The order of the uploads changes no more than rounding.
    ``weights`` are those of ``used_weights``; uploads of weight 0 keep it.

    ``krum`` (Blanchard et al. 2017) scores each of n uploads by the sum of squared distances to its n - f - 2 nearest,
    f = ``trim`` n rounded up, and takes the lowest score; ``multi-krum`` takes the n - f lowest. Equal scores count
    alike, so of three uploads ``krum`` is the mean of the two nearest. With n < 2 f + 3 f is lowered to (n - 3) / 2,
    and fewer than three uploads count equally.

    ``geometric-median`` (RFA, Pillutla et al. 2022) has weights proportional to 1 / max(1e-6, distance to the median),
    by Weiszfeld's iteration from the coordinate-wise median, all uploads counting alike.
    """
    places = np.flatnonzero(weights).tolist()
    used = [states[place] for place in places]
    if len(used) < 3 or settings.aggregation not in {*KRUM, "geometric-median"}:
        return weights
    found = _krum(used, settings) if settings.aggregation in KRUM else _geometric_median(used)
    spread = np.zeros(len(weights))
    spread[places] = found / found.sum()
    return spread


def _krum(states: Sequence[Mapping[str, Tensor]], settings: AveragingSettings) -> Weights:
    """Return 1 for the uploads that Krum or multi-Krum takes, 0 for the others; for three uploads or more."""
    count = len(states)
    hostile = min(math.ceil(settings.trim * count - 1e-9), (count - 3) // 2)
    squares = np.zeros((count, count))
    for one in range(count):
        for other in range(one):
            squares[one, other] = squares[other, one] = _squared_distance(states[one], states[other])
    nearest = np.sort(squares, axis=1)[:, 1 : count - hostile - 1]  # without its own distance 0
    scores = np.array([math.fsum(row) for row in nearest])
    taken = 1 if settings.aggregation == "krum" else count - hostile
    return np.asarray(scores <= np.sort(scores)[taken - 1], dtype=np.float64)


def _geometric_median(states: Sequence[Mapping[str, Tensor]]) -> Weights:
    """Return the weights, of sum 1, with which the mean of the uploads is their smoothed geometric median."""
    cut = (len(states) - 1) // 2
    centre = {name: _middle_mean([state[name] for state in states], cut) for name in states[0]}
    weights: Weights = np.zeros(len(states))
    for _ in range(STEPS):
        before = weights
        distances = np.sqrt([_squared_distance(state, centre) for state in states])
        weights = 1 / np.maximum(NEAREST, distances)
        weights /= weights.sum()
        if np.abs(weights - before).max() <= SETTLED:
            break
        centre = _weighted_by_distance(states, weights)
    return weights


def _weighted_by_distance(states: Sequence[Mapping[str, Tensor]], weights: Weights) -> dict[str, Tensor]:
    """Return the ``weighted_mean``, largest weights first: a far upload at the start would cost digits of near ones."""
    order = np.argsort(-weights, kind="stable")
    return weighted_mean([states[place] for place in order], weights[order])


def _squared_distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Return the squared Euclidean distance of two states over all floating-point tensors."""
    return squared_norm(one[name].double() - other[name] for name in one if one[name].is_floating_point())


def combine(
    states: Sequence[Mapping[str, Tensor]], weights: Sequence[float] | Weights, settings: AveragingSettings
) -> dict[str, Tensor]:
    """Return one model of the uploads' states; identical states come back bit for bit with every rule.

    ``median`` (for an even number the mean of the two middle values) and ``trimmed-mean`` are taken for each coordinate
    (Yin et al. 2018, Definitions 1 and 2) over the uploads of positive weight. With them less than half of the uploads,
    or than the trimmed share, can move no coordinate beyond the range of the others, and the order of the uploads does
    not change a bit. All other rules are the mean weighted by ``weights``, which are those of ``weigh_by_distance``.

    All tensors are treated alike, BatchNorm statistics included; a running variance stays at least 0. Integer tensors
    get the rounded result.

    ValueError if no weight is positive, and as ``weighted_mean``.
    """
    if settings.aggregation == "mean":
        return weighted_mean(states, weights)
    if settings.aggregation not in {"median", "trimmed-mean"}:
        return _weighted_by_distance(states, np.asarray(weights))
    used = [state for state, weight in zip(states, weights, strict=True) if weight > 0]
    if not used:
        raise ValueError("no state has a positive weight")
    cut = (len(used) - 1) // 2
    if settings.aggregation == "trimmed-mean":
        cut = min(math.ceil(settings.trim * len(used) - 1e-9), cut)  # 0.07 * 100 is a little above 7
    return {name: _middle_mean([state[name] for state in used], cut) for name in used[0]}


def clip(state: Mapping[str, Tensor], base: Mapping[str, Tensor], settings: AveragingSettings) -> Mapping[str, Tensor]:
    """Return the upload, moved towards ``base`` until their distance is at most ``clip_norm``; 0 clips nothing.

    So it can change a mean by at most its weight times ``clip_norm``. Integer tensors do not change; with a distance of
    NaN nothing does. ``base``, the model that the vehicle started from, has at least the same names.
    """
    trained = [name for name, tensor in state.items() if tensor.is_floating_point()]
    if settings.clip_norm == 0 or not trained:
        return state
    squares = [(state[name].to(torch.float64) - base[name]).square().sum() for name in trained]
    distance = torch.stack(squares).sum().sqrt()
    beyond = distance > settings.clip_norm  # False for NaN
    if distance.device.type == "cpu" and not beyond:  # a GPU would be waited for
        return state
    share = torch.full_like(distance, settings.clip_norm) / distance  # a number over a tensor has other bits

    def move_towards(centre: Tensor, tensor: Tensor) -> Tensor:
        """Return ``tensor`` at the share of its way from ``centre``, unchanged if not beyond the norm."""
        centre = centre.to(torch.float64)
        return (centre + share * (tensor - centre)).to(tensor.dtype).where(beyond, tensor)

    return {**state, **{name: move_towards(base[name], state[name]) for name in trained}}


def _middle_mean(tensors: Sequence[Tensor], cut: int) -> Tensor:
    """Return each coordinate's mean without its ``cut`` lowest and ``cut`` highest values, rounded for integers."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    pieces, length = [], CHUNK // len(flat) or 1
    for start in range(0, max(len(flat[0]), 1), length):
        piece = torch.stack([values[start : start + length] for values in flat])
        middle = piece.sort(dim=0).values[cut : len(flat) - cut].to(torch.float64)
        low = middle[0]
        step = (middle - low).mean(dim=0)
        # a value that all share does not change, not even a negative zero
        pieces.append(torch.where(step == 0, low, low + step))
    mean = torch.cat(pieces).reshape(tensors[0].shape)
    return (mean if tensors[0].is_floating_point() else mean.round()).to(tensors[0].dtype)
