"""FedProx: local training that is held near the model it started from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn
from vnetsim.learners.contrastive import ContrastiveLearner
from vnetsim.learners.mathematics.aggregation import Weights, equal_weights
from vnetsim.learners.state.global_model import State
from vnetsim.learners.tasks.contrastive_settings import ContrastiveSettings

from vnetsim.learning import LearnerContext, Participant
from vnetsim.setting_checks import Within


@dataclass(frozen=True, kw_only=True)
class FedProxSettings(ContrastiveSettings):
    """Those of contrastive learning, and the proximal term.

    Args:
        mu: strength of the proximal term; 0 for FedAvg.
    """

    mu: Annotated[float, Within(0, 1e6, "", "a model held harder does not move")] = 0.01


class FedProx(ContrastiveLearner):
    """FedAvg with a proximal term in the local loss, here on FLSimCo's contrastive task."""

    name = "fedprox"
    paper = "Li et al. (2020): Federated optimization in heterogeneous networks, arXiv:1812.06127"
    equations = (
        "loss of a step: h(theta; theta^r) = F(theta) + mu / 2 |theta - theta^r|^2  (Eq. 2)",
        "average: theta^(r+1) = 1 / N sum_n theta_n  (Algorithm 2)",
    )
    Settings = FedProxSettings

    def __init__(self, context: LearnerContext, settings: FedProxSettings) -> None:
        super().__init__(context, settings)
        self._mu = settings.mu

    def weights(self, participants: Sequence[Participant]) -> Weights:
        """Return 1 / N for each of the N participants."""
        return equal_weights(len(participants))

    def loss(self, model: nn.Module, first: Tensor, second: Tensor, base: State) -> Tensor:
        """Return F(theta) and the proximal term; ``base`` is theta^r, as the vehicle downloaded it."""
        distance = sum((theta - base[name]).square().sum() for name, theta in model.named_parameters())
        return super().loss(model, first, second, base) + self._mu / 2 * distance
