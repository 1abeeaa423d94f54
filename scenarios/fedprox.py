"""FedProx: local training with a proximal term that keeps it near the downloaded model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn
from vnetsim.learners.federated import FederatedLearner, Parts, federated_averaging
from vnetsim.learners.tasks.contrastive import ContrastiveSettings, ContrastiveTask

from vnetsim.errors.bounds import Within
from vnetsim.learning import LearnerContext


@dataclass(frozen=True, kw_only=True)
class FedProxSettings(ContrastiveSettings):
    """Settings of contrastive learning, and of the proximal term.

    Args:
        mu: strength of the proximal term; 0 for FedAvg.
    """

    mu: Annotated[float, Within(0, 1e6, "", "a model held harder does not move")] = 0.01


class FedProx(FederatedLearner):
    """FedAvg with a proximal term in the local loss, here on FLSimCo's contrastive task."""

    name, task, Settings = "fedprox", "contrastive", FedProxSettings
    paper = "Li et al. (2020): Federated optimization in heterogeneous networks, arXiv:1812.06127"
    equations = (
        "loss of a step: h(theta; theta^r) = F(theta) + mu / 2 |theta - theta^r|^2  (Eq. 2)",
        "average: theta^(r+1) = 1 / N sum_n theta_n  (Algorithm 2)",
    )

    @staticmethod
    def parts(context: LearnerContext, settings: FedProxSettings) -> Parts:
        """Return federated averaging on the contrastive task with F(theta) and the proximal term."""
        task = ContrastiveTask(context, settings)

        def loss(model: nn.Module, batch: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> Tensor:
            distance = sum((theta - base[name]).square().sum() for name, theta in model.named_parameters())
            return task.loss(model, batch, base) + settings.mu / 2 * distance

        return federated_averaging(context, settings, task, loss=loss)
