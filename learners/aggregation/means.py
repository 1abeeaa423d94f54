"""Aggregation rules that need only the mean of a round's uploads: synchronous averaging, FedAvgM and FedAdam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from vnetsim.errors.bounds import Within
from vnetsim.learning.aggregation import NextModel, RoundUploads

ServerRate = Annotated[float, Within(0, 1000, "", "a model is thrown away by a step a thousand times its own")]
FIRST, SECOND = "first.", "second."
BETA1, BETA2 = 0.9, 0.99  # decays of FedAdam's mean change and of its square, as in all experiments of the paper


@dataclass(frozen=True, kw_only=True)
class Sync:
    """The weighted mean of the round's uploads becomes the model; ``learning.aggregation`` can make it a median.

    Stale uploads count like fresh ones. Statistics and counters are averaged like parameters.
    """

    name, needs_uploads = "sync", False
    source = "McMahan et al. (2017): Communication-efficient learning of deep networks from decentralized data, AISTATS"
    equations = ("w <- sum_n p_n w_n, p_n the learner's weights",)

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the weighted mean of the uploads, their weights as shares, and no memory."""
        return NextModel(state=uploads.mean(), shares=[upload.weight for upload in uploads.uploads])


@dataclass(frozen=True, kw_only=True)
class FedAvgM:
    """Server momentum on the pseudo-gradient, which is the model minus the mean of the uploads, as of ``sync``.

    Momentum applies to parameters only; statistics and counters of BatchNorm are averaged. A round without an upload
    leaves model and momentum as they are.

    Args:
        learning_rate: the server's step, eta.
        momentum: beta; 0 with a step of 1 is ``sync``.
    """

    name, needs_uploads = "fedavgm", False
    source = (
        "Hsu, Qi, Brown (2019): Measuring the effects of non-identical data distribution for federated visual "
        "classification, arXiv:1909.06335; with a server step as in Reddi et al. (2021), arXiv:2003.00295"
    )
    equations = ("Delta = w - sum_n p_n w_n, p_n the learner's weights", "v <- beta v + Delta,  w <- w - eta v")

    learning_rate: ServerRate = 1.0
    momentum: Annotated[float, Within(0, 0.9999, "", "at 1 no step is ever forgotten")] = 0.9

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model after the server's step, other tensors as the uploads' mean; memory: the velocity v."""
        state, memory = dict(uploads.mean()), {}
        for name in sorted(uploads.parameters & state.keys()):
            old = uploads.model[name].to(torch.float64)
            velocity = old - state[name].to(torch.float64)
            if name in uploads.memory:
                velocity = self.momentum * uploads.memory[name] + velocity
            memory[name] = velocity
            state[name] = round_like(old - self.learning_rate * velocity, uploads.model[name])
        return NextModel(state=state, shares=[upload.weight for upload in uploads.uploads], memory=memory)


@dataclass(frozen=True, kw_only=True)
class FedAdam:
    """Adam on the pseudo-gradient, which is the model minus the mean of the uploads; without Adam's bias correction.

    The mean is that of ``sync``. Moments are of parameters only; statistics and counters of BatchNorm are averaged. A
    round without an upload leaves model and moments as they are.

    Args:
        learning_rate: the server's step, eta: about how far a parameter moves in a round.
        tau: adaptivity: far smaller changes are all scaled by the same factor, far larger ones to about 1.
    """

    name, needs_uploads = "fedadam", False
    source = "Reddi et al. (2021): Adaptive federated optimization, ICLR, arXiv:2003.00295, Algorithm 2"
    equations = (
        "Delta = w - sum_n p_n w_n, p_n the learner's weights",
        "m <- 0.9 m + 0.1 Delta,  v <- 0.99 v + 0.01 Delta^2;  m = 0, v = tau^2 before the first",
        "w <- w - eta m / (sqrt(v) + tau)",
    )

    learning_rate: ServerRate = 0.01
    tau: Annotated[float, Within(1e-12, 1000, "", "above 0, for it divides")] = 1e-3

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model after the server's step, other tensors as the uploads' mean; memory: the moments m and v."""
        state, memory = dict(uploads.mean()), {}
        for name in sorted(uploads.parameters & state.keys()):
            old = uploads.model[name].to(torch.float64)
            delta = old - state[name].to(torch.float64)
            first = uploads.memory.get(FIRST + name, torch.zeros_like(delta))
            second = uploads.memory.get(SECOND + name, torch.full_like(delta, self.tau**2))
            first = BETA1 * first + (1 - BETA1) * delta
            second = BETA2 * second + (1 - BETA2) * delta.square()
            memory[FIRST + name], memory[SECOND + name] = first, second
            moved = old - self.learning_rate * first / (second.sqrt() + self.tau)
            state[name] = round_like(moved, uploads.model[name])
        return NextModel(state=state, shares=[upload.weight for upload in uploads.uploads], memory=memory)


def round_like(value: Tensor, like: Tensor) -> Tensor:
    """Return ``value`` in the type of ``like``; for an integer type rounded to the nearest, halves to even."""
    return (value if like.is_floating_point() else value.round()).to(like.dtype)
