"""Aggregation rules that read single uploads, by staleness or delay: FedAsync, FedBuff and AFL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from learners.aggregation.means import ServerRate, round_like
from vnetsim.errors.bounds import Acts, Within
from vnetsim.learning.aggregation import NextModel, RoundUploads, Upload

ZETA = 0.9
"""Factor of a share for each second beyond the first, of training and of the upload; the paper's value of both."""
KNEE, SLOPE, EXPONENT = 4, 10.0, 0.5
"""Of the hinge (staleness at which it begins to fall, and how fast) and of the polynomial: the values of FedAsync's
experiments as in its ports; FedBuff uses the same polynomial."""
CHANGE, STATISTICS = "change.", "statistics."
COUNT, SCALE = "count", "scale"


@dataclass(frozen=True, kw_only=True)
class Staleness:
    """Base of rules that weigh a stale upload by s(tau).

    Args:
        staleness: s(tau): ``constant`` 1; ``hinge`` 1 up to 4 versions, then 1 / (10 (tau - 4) + 1); ``polynomial`` (1
            + tau)^-0.5.
    """

    staleness: Annotated[Literal["constant", "hinge", "polynomial"], Acts("round.max_staleness", unless=(0,))] = (
        "polynomial"
    )

    def staleness_weight(self, tau: int) -> float:
        """Return s(tau) in (0, 1] of a staleness ``tau`` >= 0 in versions (FedAsync, arXiv:1903.03934, section 5.2)."""
        if self.staleness == "hinge":
            return 1.0 if tau <= KNEE else 1.0 / (SLOPE * (tau - KNEE) + 1)
        return float((1 + tau) ** -EXPONENT) if self.staleness == "polynomial" else 1.0


def mixed_in(uploads: RoundUploads, share_of: Callable[[Upload], float]) -> NextModel:
    """Mix one or more uploads into the model, one after the other, each by ``share_of``, in [0, 1]; return the result.

    The result has only the uploads' tensors; ``shares``, of sum 1 or all 0, say how much of each upload is left.
    """
    model = dict(uploads.model)
    shares: list[float] = []
    for upload in uploads.uploads:
        share = share_of(upload)
        model |= interpolate(model, upload.state, share)
        shares = [*(earlier * (1 - share) for earlier in shares), share]
    sent = uploads.uploads[0].state
    return NextModel(state={name: model[name] for name in sent}, shares=normalise(shares))


@dataclass(frozen=True, kw_only=True)
class FedAsync(Staleness):
    """Mixes the uploads into the model one after the other, in order of arrival.

    The published algorithm has rounds of one upload: ``round.quorum = 1``, ``round.invited`` vehicles at work at a
    time, ``round.max_staleness`` above 0. tau counts the model's versions since the vehicle downloaded it; a round
    makes one.

    All tensors are mixed alike, BatchNorm statistics included; counters are rounded. The learner's weights matter only
    in that an upload of weight 0 is left out.

    Args:
        mixing: share of a fresh upload in the model, alpha.
    """

    name, needs_uploads = "fedasync", True
    source = "Xie, Koyejo, Gupta (2019): Asynchronous federated optimization, arXiv:1903.03934"
    equations = (
        "w <- (1 - a) w + a w_n,  a = mixing s(tau_n), upload by upload",
        "s(tau) = 1  |  1 if tau <= 4, else 1 / (10 (tau - 4) + 1)  |  (1 + tau)^-0.5",
    )

    mixing: Annotated[float, Within(0, 1, "", "a share")] = 0.6

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model with all uploads mixed in by their staleness; no memory."""
        return mixed_in(uploads, lambda upload: self.mixing * self.staleness_weight(upload.staleness))


@dataclass(frozen=True, kw_only=True)
class AflDelay:
    """Mixes the uploads into the model one after the other, by the seconds that their vehicles took, not by rounds.

    The factors of the published expression, w <- gamma w + a w_n, do not add up to 1: it shrinks the parameters, or for
    delays below a second lets them grow. Here they are mixed, as by ``fedasync``; a share above 1 counts as 1.

    Args:
        mixing: share of an upload in the model if training and sending took one second each; 1 - gamma of the paper.
    """

    name, needs_uploads = "afl-delay", True
    source = (
        "Wu, Wang, Fan, Fan (2023): Deep reinforcement learning based vehicle selection for asynchronous federated "
        "learning enabled vehicular edge computing, arXiv:2304.02832; the mixing is vnetsim's"
    )
    equations = (
        "a = mixing b_l b_u,  b_l = 0.9^(train_s - 1),  b_u = 0.9^(upload_s - 1)",
        "w <- (1 - a) w + a w_n, upload by upload",
    )

    mixing: Annotated[float, Within(0, 1, "", "a share")] = 0.5

    def share(self, upload: Upload) -> float:
        """Return a of the equations, the upload's share in the model, at most 1."""
        delay = ZETA ** (upload.participant.train_s - 1) * ZETA ** (upload.participant.upload_s - 1)
        return min(float(self.mixing * delay), 1.0)

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model with all uploads mixed in by their delays; no memory."""
        return mixed_in(uploads, self.share)


@dataclass(frozen=True, kw_only=True)
class FedBuff(Staleness):
    """Adds the mean change of K uploads, each relative to the model that its vehicle downloaded.

    A round of ``round.quorum = K`` is the buffer; with ``round.max_staleness`` above 0, vehicles at work when it is
    full continue. With rounds of fewer uploads ``buffer`` collects over several; tau counts the models since the
    download, and a round that only fills the buffer makes none.

    The learner's weights p_n are those of the mean: with N uploads in a round each counts N p_n, so equal weights count
    1. This applies to parameters only. BatchNorm's statistics and counters are mixed with the weighted mean of the
    uploaded ones, by the share min(1, eta mean s(tau)), since adding changes could make a variance negative.

    Args:
        learning_rate: the server's step, eta.
        buffer: uploads that are collected before the model changes, K. 0: those of the round, which are
            ``round.quorum`` unless the deadline closed it. Above 0 the buffer fills across rounds, and the round that
            fills it changes the model by all uploads in it, including any surplus.
    """

    name, needs_uploads = "fedbuff", True
    source = (
        "Nguyen et al. (2022): Federated learning with buffered asynchronous aggregation, AISTATS, arXiv:2106.06639"
    )
    equations = (
        "w <- w + eta (1 / K) sum_n N p_n s(tau_n) Delta_n,  Delta_n = w_n - (the model n downloaded)",
        "s(tau) = 1  |  1 if tau <= 4, else 1 / (10 (tau - 4) + 1)  |  (1 + tau)^-0.5",
    )

    learning_rate: ServerRate = 1.0
    buffer: Annotated[int, Within(0, 100_000, "uploads", "bounds of round.quorum")] = 0

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the changed model and no memory, or, while the buffer fills, no tensors and the sums as memory."""
        memory, model = dict(uploads.memory), uploads.model
        number = len(uploads.uploads)
        gathered = float(memory.get(COUNT, 0.0))
        scales = []
        for upload in uploads.uploads:
            count = number * upload.weight  # these sum to the number of uploads
            scales.append(count * self.staleness_weight(upload.staleness))
            gathered += count
            for name, tensor in upload.state.items():
                value = tensor.to(torch.float64)
                if name in uploads.parameters:
                    _add(memory, CHANGE + name, scales[-1] * (value - upload.base[name].to(torch.float64)))
                else:  # a running mean, which does not change a value that all share
                    mean = memory.get(STATISTICS + name, value)
                    memory[STATISTICS + name] = mean + count / gathered * (value - mean)
        _add(memory, SCALE, torch.tensor(sum(scales), dtype=torch.float64))
        memory[COUNT] = torch.tensor(gathered, dtype=torch.float64)
        shares = normalise(scales)
        if round(gathered) < self.buffer:
            return NextModel(state={}, shares=shares, memory=memory)
        eta, state = self.learning_rate, {}
        for name in uploads.uploads[0].state:
            if name in uploads.parameters:
                moved = model[name].to(torch.float64) + eta / gathered * memory[CHANGE + name]
                state[name] = round_like(moved, model[name])
        means = {name.removeprefix(STATISTICS): t for name, t in memory.items() if name.startswith(STATISTICS)}
        state |= interpolate(model, means, min(1.0, eta * float(memory[SCALE]) / gathered))
        return NextModel(state=state, shares=shares)


def _add(memory: dict[str, Tensor], name: str, value: Tensor) -> None:
    """Set ``memory[name]`` to its sum with ``value``, or to ``value`` if it is missing."""
    memory[name] = memory[name] + value if name in memory else value


def interpolate(model: Mapping[str, Tensor], other: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return (1 - share) model + share other for the tensors of ``other``, share in [0, 1]; equal values keep bits."""
    result = {}
    for name, tensor in other.items():
        old = model[name].to(torch.float64)
        step = share * (tensor.to(torch.float64) - old)
        result[name] = round_like(torch.where(step == 0, old, old + step), model[name])
    return result


def normalise(values: Sequence[float]) -> list[float]:
    """Return values >= 0 divided by their sum; all 0 if the sum is 0."""
    total = sum(values)
    return [value / total if total > 0 else 0.0 for value in values]
