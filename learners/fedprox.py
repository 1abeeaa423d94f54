"""FedProx: a proximal term keeps local training near the downloaded model.

Li et al. (2020), Federated optimization in heterogeneous networks, arXiv:1812.06127. With mu = 0 it is FedAvg, bit for
bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn

from learners.classification_fedavg import ClassificationAveragingSettings
from learners.engines.programs import Tensors
from learners.fedavg import DUAL_TEMPERATURE, FedAvgSettings
from learners.federated import FederatedLearner, Parts, federated_averaging
from learners.local_training import LocalSteps
from learners.steering_baselines import (
    STEERING_DEFAULTS,
    STEERING_SCALES,
    SteeringAveragingSettings,
    mean_metrics,
    steering_parts,
)
from learners.tasks.classification import DEFAULTS, SCALES, ClassificationTask
from learners.tasks.contrastive import CONTRASTIVE_SCALES, ContrastiveTask
from learners.tasks.steering import SteeringTask
from learners.tasks.task import StepLoss, Task
from vnetsim.errors.bounds import TRAINS, Within
from vnetsim.learning import LearnerContext

PAPER = "Li et al. (2020): Federated optimization in heterogeneous networks, arXiv:1812.06127"
EQUATIONS = (
    "loss of a step: h(theta; theta^r) = F(theta) + mu / 2 |theta - theta^r|^2  (Eq. 2); the run reports F alone",
    "average: theta^(r+1) = sum_k n_k / n theta_k, or 1 / N sum_k theta_k  (learning.weights), as FedAvg",
)


@dataclass(frozen=True, kw_only=True)
class ProximalSettings:
    """The proximal term.

    Args:
        mu: strength of the proximal term; 0 for FedAvg. The paper chooses among 0.001, 0.01, 0.1 and 1.
    """

    mu: Annotated[float, Within(0, 1e6, "", "a model held harder does not move"), TRAINS] = 0.01


def proximal(task: Task, mu: float) -> StepLoss:
    """Return a loss function that returns the task's loss plus mu / 2 |theta - theta^r|^2, and the task's to report."""

    def loss(model: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensor]:
        """Return the losses to minimise and to report; ``base`` is theta^r, the downloaded model."""
        found = task.loss(model, batch, base)
        distance = sum((theta - base[name]).square().sum() for name, theta in model.named_parameters())
        return found + mu / 2 * distance, found

    return loss


@dataclass(frozen=True, kw_only=True)
class FedProxSettings(ProximalSettings, FedAvgSettings):
    """Settings of contrastive learning, of the average, and of the proximal term."""


class FedProx(FederatedLearner):
    """FedAvg on FLSimCo's contrastive task with a proximal term in the local loss."""

    name, task, paper, Settings = "fedprox", "contrastive", PAPER, FedProxSettings
    equations, scales = (*DUAL_TEMPERATURE, *EQUATIONS), CONTRASTIVE_SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: FedProxSettings) -> Parts:
        """Return federated averaging on the contrastive task, with the proximal term."""
        task = ContrastiveTask(context, settings)
        return federated_averaging(context, settings, task, loss=proximal(task, settings.mu))


@dataclass(frozen=True, kw_only=True)
class FedProxClassificationSettings(ProximalSettings, ClassificationAveragingSettings):
    """Settings of classification, of the average, and of the proximal term."""


class FedProxClassification(FederatedLearner):
    """FedAvg on labelled images with a proximal term in the local loss."""

    name, task, paper, Settings = "fedprox-classification", "classification", PAPER, FedProxClassificationSettings
    equations, defaults, scales = EQUATIONS, DEFAULTS, SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: FedProxClassificationSettings) -> Parts:
        """Return federated averaging on the classification task, with the proximal term."""
        task = ClassificationTask(context, settings)
        return federated_averaging(context, settings, task, loss=proximal(task, settings.mu))


@dataclass(frozen=True, kw_only=True)
class FedProxSteeringSettings(ProximalSettings, SteeringAveragingSettings):
    """Settings of steering, of the average, and of the proximal term."""


class FedProxSteering(FederatedLearner):
    """FedAvg on steering angles with a proximal term in the local loss, whatever the topology."""

    name, task, paper, Settings = "fedprox-steering", "steering", PAPER, FedProxSteeringSettings
    equations, defaults, scales = EQUATIONS, STEERING_DEFAULTS, STEERING_SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: FedProxSteeringSettings) -> Parts:
        """Return local steps on the steering error with the proximal term, and an RSU that averages."""
        task = SteeringTask(context, settings)
        local = LocalSteps(task, proximal(task, settings.mu), figures=mean_metrics)
        return steering_parts(context, settings, task, local, name=FedProxSteering.name, topology="star")
