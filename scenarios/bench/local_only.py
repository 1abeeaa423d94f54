"""Local only, the lower bound of a benchmark's track: every silo trains a model of its own, and none is ever averaged.

Vehicles download and upload as the baseline's do, so that the same ones train at the same times; nobody uses what
arrives. What counts is the mean over the silos' models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vnetsim.learners.classification_fedavg import ClassificationFedAvg
from vnetsim.learners.fedavg import FedAvg
from vnetsim.learners.federated import FederatedLearner, Parts
from vnetsim.learners.local_training import LocalSteps
from vnetsim.learners.state.models import Models
from vnetsim.learners.state.rules import rule_of
from vnetsim.learners.state.server import Folded, Server
from vnetsim.learners.state.silos import SiloStates
from vnetsim.learners.steering_baselines import FedAvgSteering
from vnetsim.learners.tasks.classification import ACCURACY, ClassificationTask
from vnetsim.learners.tasks.contrastive import KNN_ACCURACY, ContrastiveTask
from vnetsim.learners.tasks.steering import RMSE, SteeringTask

from vnetsim.learning import AGGREGATOR, LearnerContext, Participant, Series, Update

State = Mapping[str, Any]


class Apart(Server):
    """Takes uploads; what a vehicle starts from is its silo's own model, whatever it downloaded."""

    silos: SiloStates

    def base(self, participant: Participant) -> State:
        """Return the silo's own model."""
        return self.silos[participant.silo].shared or self.models.initial

    def fold(self, updates: Sequence[Update], into: str = AGGREGATOR) -> Folded:
        """Keep each update for its silo alone; the mean, which nobody uses, is still measured."""
        for update in updates:
            self.silos.keep(update.participant.silo, shared=update.state)
        return super().fold(updates, into)

    def silo_figures(self, measure: Callable[[State], Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
        """Return the metrics of the silos' models."""
        return [measure(state.shared) for state in self.silos.trained.values()]


def alone(context: LearnerContext, settings: Any, task: Any, metric: Series) -> Parts:
    """Return local steps from the silo's own model, whose metric is ``NAME_silos``."""
    initial = task.initial_state()
    silos = SiloStates()
    models = Models(initial, max_staleness=context.max_staleness, aggregators=context.aggregators)
    parameters = [name for name, _ in task.network.named_parameters()]
    server = Apart(models, settings, rule_of(context), parameters=parameters, sent=task.sent)
    server.silos = silos
    caption = "Of the models of the silos that took part so far, none of which was ever mixed with another."
    of_silos = replace(metric, name=f"{metric.name}_silos", label="Silos, mean", caption=caption)
    return Parts(task=task, local=LocalSteps(task), server=server, silos=silos, series=(*task.series(), of_silos))


class _LocalOnly(FederatedLearner):
    """Made of a baseline, whose task and settings it has."""

    payload = "the model down, the model up, for nothing"
    paper = "lower bound of a benchmark: no model is averaged"
    takes_aggregation_rule = False


class LocalContrastive(_LocalOnly):
    """Every silo's own encoder."""

    name, task, Settings, defaults = "local-contrastive", FedAvg.task, FedAvg.Settings, FedAvg.defaults

    @staticmethod
    def parts(context: LearnerContext, settings: Any) -> Parts:
        """Return the contrastive task, alone."""
        return alone(context, settings, ContrastiveTask(context, settings), KNN_ACCURACY)


class LocalClassification(_LocalOnly):
    """Every silo's own classifier."""

    name, task = "local-classification", ClassificationFedAvg.task
    Settings, defaults = ClassificationFedAvg.Settings, ClassificationFedAvg.defaults

    @staticmethod
    def parts(context: LearnerContext, settings: Any) -> Parts:
        """Return the classification task, alone."""
        return alone(context, settings, ClassificationTask(context, settings), ACCURACY)


class LocalSteering(_LocalOnly):
    """Every silo's own steering network."""

    name, task = "local-steering", FedAvgSteering.task
    Settings, defaults = FedAvgSteering.Settings, FedAvgSteering.defaults

    @staticmethod
    def parts(context: LearnerContext, settings: Any) -> Parts:
        """Return the steering task, alone."""
        return alone(context, settings, SteeringTask(context, settings), RMSE)
