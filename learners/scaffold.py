"""SCAFFOLD (see ``PAPER``): control variates of silos and server take the drift of a silo's data out of its steps.

A silo whose vehicle never returns never uses its control variate: the metric ``without_state`` says how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from learners.averaging import averaging_server, refuse_several_servers
from learners.classification_fedavg import ClassificationAveragingSettings
from learners.engines.programs import State, Tensors, remove_prefix
from learners.fedavg import DUAL_TEMPERATURE, FedAvgSettings
from learners.federated import WITHOUT_STATE, FederatedLearner, Parts
from learners.local_training import LocalSteps, Start
from learners.mathematics.weights import count_gradients
from learners.state.silos import SiloStates
from learners.steering_baselines import STEERING_DEFAULTS, STEERING_SCALES, SteeringAveragingSettings
from learners.tasks.classification import DEFAULTS, SCALES, ClassificationTask
from learners.tasks.contrastive import CONTRASTIVE_SCALES, ContrastiveTask
from learners.tasks.steering import SteeringTask
from learners.tasks.task import Task
from vnetsim.errors.bounds import TRAINS
from vnetsim.learning import LearnerContext, Update

PAPER = "Karimireddy et al. (2020): SCAFFOLD: Stochastic controlled averaging for federated learning, arXiv:1910.06378"
PAYLOAD = "the model and the server's control variate down, the model and the change of the silo's up: twice the model"
EQUATIONS = (
    "local step: y_i <- y_i - eta (g_i(y_i) - c_i + c)  (Eq. 3), from y_i = x; momentum acts on the bracket",
    "silo: c_i^+ = c_i - c + (x - y_i) / (a eta)  (Eq. 4, option II), a = K for K steps without momentum",
    "a with momentum rho: [K - rho (1 - rho^K) / (1 - rho)] / (1 - rho), so that c_i^+ is a mean of gradients (ours)",
    "server: x <- mean of y_i, c <- c + 1/N sum_(i in S) (c_i^+ - c_i), N silos  (Eq. 5, eta_g = 1)",
)
CONTROL = "control."
"""Prefix of c in the server's model, of c_i in a silo, and, with ``CHANGE`` before it, of c_i^+ - c_i in an upload."""
CHANGE = "change."


def controlled_averaging(context: LearnerContext, settings: Any, task: Task) -> Parts:
    """Return averaging with control variates on a task whose optimizer is SGD; InputError for several aggregators.

    ``aggregation`` and ``clip_norm`` act on the models, not on the control variates.
    """
    refuse_several_servers(context, "the server's control variate")
    first, silos = task.initial_state(), context.experiment.silos.count
    momentum = getattr(settings, "momentum", 0.0)
    names = [name for name, _ in task.network.named_parameters()]
    zero = {CONTROL + name: torch.zeros_like(first[name]) for name in names}

    def loss(model: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensor]:
        """Return the task's loss plus <c - c_i, y>, which adds c - c_i to the gradient, and the task's, to report."""
        found = task.loss(model, batch, base)
        drift = [(batch[CONTROL + name] * y).sum() for name, y in model.named_parameters()]
        return found + torch.stack(drift).sum(), found

    def given(start: Start) -> Tensors:
        """Return c - c_i, with c_i = 0 before the silo's first training."""
        return {name: start.base[name] - c_i for name, c_i in (start.own or zero).items()}

    def after(start: Start, y: State) -> tuple[State, State]:
        """Return c_i^+ - c_i to send, and c_i^+ to keep."""
        who, own = start.participant, start.own or zero
        a_eta = task.learning_rate(who.passed) * count_gradients(who.steps_of(settings.steps), momentum)
        new = {
            CONTROL + name: own[CONTROL + name] - start.base[CONTROL + name] + (start.base[name] - y[name]) / a_eta
            for name in names
        }
        return {CHANGE + name: new[name] - own[name] for name in new}, new

    def next_control(state: State, updates: Sequence[Update], version: int) -> State:  # noqa: ARG001
        """Return the next c: c + 1/N sum (c_i^+ - c_i), over the silos' last updates of the round."""
        last = {update.participant.silo: update for update in updates}.values()  # whose c_i the silos keep
        changes = [remove_prefix(CHANGE, update.state) for update in last]
        return {name: state[name] + sum(one[name] for one in changes) / silos for name in zero}

    server = averaging_server(context, settings, task, {**first, **zero}, not_of_model=(CONTROL,), beside=next_control)
    local = LocalSteps(task, loss, given=given, after=after)
    series = (*task.series(), WITHOUT_STATE)
    return Parts(task=task, local=local, server=server, silos=SiloStates(own=True), series=series)


class Scaffold(FederatedLearner):
    """SCAFFOLD on FLSimCo's contrastive task."""

    name, task, paper, payload, Settings = "scaffold", "contrastive", PAPER, PAYLOAD, FedAvgSettings
    equations, scales = (*DUAL_TEMPERATURE, *EQUATIONS), CONTRASTIVE_SCALES
    takes_codec = False

    @staticmethod
    def parts(context: LearnerContext, settings: FedAvgSettings) -> Parts:
        """Return averaging with control variates on the contrastive task."""
        return controlled_averaging(context, settings, ContrastiveTask(context, settings))


@dataclass(frozen=True, kw_only=True)
class ScaffoldClassificationSettings(ClassificationAveragingSettings):
    """Settings of classification and of the average.

    Args:
        weights: ``equal``: 1 / N, as in the paper; ``images``: n_k / n. Control variates always count equally.
    """

    weights: Annotated[Literal["images", "equal"], TRAINS] = "equal"


class ScaffoldClassification(FederatedLearner):
    """SCAFFOLD on labelled images."""

    name, task, payload, Settings = "scaffold-classification", "classification", PAYLOAD, ScaffoldClassificationSettings
    paper, equations, defaults, scales = PAPER, EQUATIONS, DEFAULTS, SCALES
    takes_codec = False

    @staticmethod
    def parts(context: LearnerContext, settings: ScaffoldClassificationSettings) -> Parts:
        """Return averaging with control variates on the classification task."""
        return controlled_averaging(context, settings, ClassificationTask(context, settings))


@dataclass(frozen=True, kw_only=True)
class ScaffoldSteeringSettings(SteeringAveragingSettings):
    """Settings of steering and of the average.

    Args:
        optimizer: ``sgd``, without momentum, alone: control variates are means of gradients, which steps of Adam are
            not.
        lr: learning rate; the default is larger than that of Adam's steps.
        weights: ``equal``: 1 / N, as in the paper; ``images``: n_k / n. Control variates always count equally.
    """

    optimizer: Annotated[Literal["sgd"], TRAINS] = "sgd"
    lr: float = 0.01
    weights: Annotated[Literal["images", "equal"], TRAINS] = "equal"


class ScaffoldSteering(FederatedLearner):
    """SCAFFOLD on steering angles, whatever the topology."""

    name, task, payload, Settings = "scaffold-steering", "steering", PAYLOAD, ScaffoldSteeringSettings
    paper, equations, defaults, scales = PAPER, EQUATIONS, STEERING_DEFAULTS, STEERING_SCALES
    takes_codec = False

    @staticmethod
    def parts(context: LearnerContext, settings: ScaffoldSteeringSettings) -> Parts:
        """Return averaging with control variates on the steering task."""
        return controlled_averaging(context, settings, SteeringTask(context, settings))
