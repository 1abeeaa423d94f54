"""FedAvgM: momentum at the RSU on the mean change of a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from learners.aggregation.steps import rounded
from vnetsim.learning.aggregation import NextModel, RoundUploads
from vnetsim.setting_checks import Within, check_bounds


@dataclass(frozen=True, kw_only=True)
class FedAvgMSettings:
    """Step and momentum.

    Args:
        learning_rate: the server's step, eta.
        momentum: beta; 0 with a step of 1 is ``sync``.
    """

    learning_rate: Annotated[
        float, Within(0, 1000, "", "a model is thrown away by a step a thousand times its own")
    ] = 1.0
    momentum: Annotated[float, Within(0, 0.9999, "", "at 1 no step is ever forgotten")] = 0.9

    def __post_init__(self) -> None:
        """Refuse values outside their bounds."""
        check_bounds("aggregation", self)


class FedAvgM:
    """Descends the pseudo-gradient, the model less the mean of the uploads, with momentum.

    The mean is that of ``sync``: weighed by the learner, over stale uploads too. Momentum is of parameters alone;
    statistics and counters of BatchNorm are averaged. A round without an upload leaves model and momentum as they are.
    """

    name: ClassVar[str] = "fedavgm"
    source: ClassVar[str] = (
        "Hsu, Qi, Brown (2019): Measuring the effects of non-identical data distribution for federated visual "
        "classification, arXiv:1909.06335; with a server step as in Reddi et al. (2021), arXiv:2003.00295"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "Delta = w - sum_n p_n w_n, p_n the learner's weights",
        "v <- beta v + Delta,  w <- w - eta v",
    )
    needs_uploads: ClassVar[bool] = False
    Settings: ClassVar[type] = FedAvgMSettings

    def __init__(self, settings: FedAvgMSettings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: FedAvgMSettings) -> FedAvgM:
        """Return the rule with these settings."""
        return cls(settings)

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model after a step of the server."""
        state, memory = dict(uploads.mean()), {}
        for name in sorted(uploads.parameters & state.keys()):
            old = uploads.model[name].to(torch.float64)
            velocity = old - state[name].to(torch.float64)
            if name in uploads.memory:
                velocity = self._settings.momentum * uploads.memory[name] + velocity
            memory[name] = velocity
            state[name] = rounded(old - self._settings.learning_rate * velocity, uploads.model[name])
        return NextModel(state=state, shares=[upload.weight for upload in uploads.uploads], memory=memory)
