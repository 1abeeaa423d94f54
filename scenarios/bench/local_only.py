"""Local only, the lower bound of a benchmark's track: every silo trains a model of its own, and nothing is sent.

A vehicle trains on when the RSU invites it, as with any learner; its silo keeps the result, whoever carries it next.
What counts is the mean over these models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vnetsim.learners.classification_fedavg import ClassificationFedAvg
from vnetsim.learners.fedavg import FedAvg
from vnetsim.learners.federated import FederatedLearner, Parts
from vnetsim.learners.local_training import LocalSteps
from vnetsim.learners.state.models import Models
from vnetsim.learners.state.silos import OwnModels, SiloState, SiloStates
from vnetsim.learners.steering_baselines import FedAvgSteering
from vnetsim.learners.tasks.classification import ACCURACY, ClassificationTask
from vnetsim.learners.tasks.contrastive import KNN_ACCURACY, ContrastiveTask
from vnetsim.learners.tasks.steering import RMSE, SteeringTask

from vnetsim.learning import LearnerContext, Series


def alone(context: LearnerContext, task: Any, metric: Series) -> Parts:
    """Return local steps from the silo's own model, whose metric is ``NAME_silos``; no server, no exchange."""
    initial = task.initial_state()
    silos = SiloStates(context.silos, SiloState(shared=initial))
    caption = "Of the models of the silos that took part so far, none of which was ever mixed with another."
    of_silos = replace(metric, name=f"{metric.name}_silos", label="Silos, mean", caption=caption)
    return Parts(
        task=task,
        local=LocalSteps(task),
        server=OwnModels(Models(initial, max_staleness=context.max_staleness), silos, mixing="before"),
        silos=silos,
        series=(*task.series(), of_silos),
    )


class _LocalOnly(FederatedLearner):
    """Made of a baseline, whose task and settings it has."""

    payload = "nothing"
    paper = "lower bound of a benchmark: no model leaves its silo"
    takes_aggregation_rule = False


class LocalContrastive(_LocalOnly):
    """Every silo's own encoder."""

    name, task, Settings, defaults = "local-contrastive", FedAvg.task, FedAvg.Settings, FedAvg.defaults

    @staticmethod
    def parts(context: LearnerContext, settings: Any) -> Parts:
        """Return the contrastive task, alone."""
        return alone(context, ContrastiveTask(context, settings), KNN_ACCURACY)


class LocalClassification(_LocalOnly):
    """Every silo's own classifier."""

    name, task = "local-classification", ClassificationFedAvg.task
    Settings, defaults = ClassificationFedAvg.Settings, ClassificationFedAvg.defaults

    @staticmethod
    def parts(context: LearnerContext, settings: Any) -> Parts:
        """Return the classification task, alone."""
        return alone(context, ClassificationTask(context, settings), ACCURACY)


class LocalSteering(_LocalOnly):
    """Every silo's own steering network."""

    name, task = "local-steering", FedAvgSteering.task
    Settings, defaults = FedAvgSteering.Settings, FedAvgSteering.defaults

    @staticmethod
    def parts(context: LearnerContext, settings: Any) -> Parts:
        """Return the steering task, alone."""
        return alone(context, SteeringTask(context, settings), RMSE)
