"""FedBuff: the changes of K uploads are gathered, scaled by their staleness, and added to the model at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from learners.aggregation.steps import StalenessSettings, mixed, normalised, rounded
from vnetsim.learning.aggregation import NextModel, RoundUploads
from vnetsim.setting_checks import Within

CHANGE, STATISTICS = "change.", "statistics."
COUNT, SCALE = "count", "scale"


@dataclass(frozen=True, kw_only=True)
class FedBuffSettings(StalenessSettings):
    """Buffer and step.

    Args:
        learning_rate: the server's step, eta.
        buffer: uploads that are gathered before the model moves, K. 0: those of the round, that is ``round.quorum``
            of them unless the deadline closed it. Above 0 the buffer fills across rounds, and a round that fills it
            moves the model by all that is in it, the surplus included.
    """

    learning_rate: Annotated[
        float, Within(0, 1000, "", "a model is thrown away by a step a thousand times its own")
    ] = 1.0
    buffer: Annotated[int, Within(0, 100_000, "uploads", "bounds of round.quorum")] = 0


class FedBuff:
    """Adds the mean change of K uploads, each over the model that its vehicle downloaded.

    A round of ``round.quorum = K`` is the buffer; vehicles that are at work when it is full go on, with
    ``round.max_staleness`` above 0. With rounds of fewer uploads ``buffer`` gathers over several; tau
    counts the models since, of which a round that only fills the buffer makes none.

    The learner's weights p_n are those of the mean: with N uploads in a round each counts N p_n, so that equal
    weights count 1. Parameters alone are changed so. BatchNorm's statistics and counters, whose changes need not add
    up to anything (a variance could become negative), are mixed with the weighted mean of those uploaded, by the
    share min(1, eta mean s(tau)).
    """

    name: ClassVar[str] = "fedbuff"
    source: ClassVar[str] = (
        "Nguyen et al. (2022): Federated learning with buffered asynchronous aggregation, AISTATS, arXiv:2106.06639"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "w <- w + eta (1 / K) sum_n N p_n s(tau_n) Delta_n,  Delta_n = w_n - (the model n downloaded)",
        "s(tau) = 1  |  1 if tau <= b, else 1 / (a (tau - b) + 1)  |  (1 + tau)^-exponent",
    )
    needs_uploads: ClassVar[bool] = True
    Settings: ClassVar[type] = FedBuffSettings

    def __init__(self, settings: FedBuffSettings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: FedBuffSettings) -> FedBuff:
        """Return the rule with these settings."""
        return cls(settings)

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model moved by the buffer, or as it is while that is not full."""
        memory, model = dict(uploads.memory), uploads.model
        number = len(uploads.uploads)
        gathered = float(memory.get(COUNT, 0.0))
        scales = []
        for upload in uploads.uploads:
            count = number * upload.weight  # these sum to the number
            scales.append(count * self._settings.staleness_weight(upload.staleness))
            gathered += count
            for name, tensor in upload.state.items():
                value = tensor.to(torch.float64)
                if name in uploads.parameters:
                    _add(memory, CHANGE + name, scales[-1] * (value - upload.base[name].to(torch.float64)))
                else:  # a running mean, which leaves as they are what all share
                    mean = memory.get(STATISTICS + name, value)
                    memory[STATISTICS + name] = mean + count / gathered * (value - mean)
        _add(memory, SCALE, torch.tensor(sum(scales), dtype=torch.float64))
        memory[COUNT] = torch.tensor(gathered, dtype=torch.float64)
        shares = normalised(scales)
        if round(gathered) < self._settings.buffer:
            return NextModel(state={}, shares=shares, memory=memory)
        eta, state = self._settings.learning_rate, {}
        for name in uploads.uploads[0].state:
            if name in uploads.parameters:
                moved = model[name].to(torch.float64) + eta / gathered * memory[CHANGE + name]
                state[name] = rounded(moved, model[name])
        means = {name.removeprefix(STATISTICS): t for name, t in memory.items() if name.startswith(STATISTICS)}
        state |= mixed(model, means, min(1.0, eta * float(memory[SCALE]) / gathered))
        return NextModel(state=state, shares=shares)


def _add(memory: dict[str, Tensor], name: str, value: Tensor) -> None:
    memory[name] = memory[name] + value if name in memory else value
