"""SCAFFOLD: silos and server keep control variates, which take the drift of a silo's data out of its local steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from vnetsim.learners.federated import WITHOUT_STATE, FederatedLearner, Parts, averaging_server, refuse_several_servers
from vnetsim.learners.local_training import LocalSteps, Start
from vnetsim.learners.state.silos import SiloStates
from vnetsim.learners.tasks.classification import DEFAULTS, ClassificationSettings, ClassificationTask

from vnetsim.learning import LearnerContext, Update


@dataclass(frozen=True, kw_only=True)
class ScaffoldSettings(ClassificationSettings):
    """Settings of classification; without momentum, so that (x - y) / (K eta) is the mean gradient of K steps."""

    momentum: float = 0.0


class Scaffold(FederatedLearner):
    """Averaging with a control variate c at the server and one, c_i, in each silo."""

    name, task, Settings, defaults = "scaffold", "classification", ScaffoldSettings, DEFAULTS
    paper = "Karimireddy et al. (2020): Stochastic controlled averaging for federated learning, arXiv:1910.06378"
    payload = "the model and c down, the model and the change of c_i up"

    @staticmethod
    def parts(context: LearnerContext, settings: ScaffoldSettings) -> Parts:
        """Return classification, local steps corrected by c - c_i, and a server that averages and keeps c."""
        refuse_several_servers(context, "c")
        task, silos = ClassificationTask(context, settings), context.experiment.silos.count
        zero = {f"c.{name}": torch.zeros_like(tensor) for name, tensor in task.network.named_parameters()}

        def given(start: Start) -> dict[str, Tensor]:  # further tensors of every batch
            return {name: start.base[name] - c_i for name, c_i in (start.own or zero).items()}

        def loss(model: nn.Module, batch: dict[str, Tensor], base: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            found = task.loss(model, batch, base)
            correction = sum((batch[f"c.{name}"] * y).sum() for name, y in model.named_parameters())
            return found + correction, found  # the step descends the first; the run reports the second

        def after(start: Start, y: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            k_eta = start.participant.steps_of(settings.steps) * task.learning_rate(start.participant.passed)
            old, x = start.own or zero, start.base
            new = {c: old[c] - x[c] + (x[c[2:]] - y[c[2:]]) / k_eta for c in zero}
            return {f"change.{c}": new[c] - old[c] for c in zero}, new  # what is sent; what the silo keeps

        def next_c(state: dict[str, Tensor], updates: Sequence[Update], _version: int) -> dict[str, Tensor]:
            return {c: state[c] + sum(one.state[f"change.{c}"] for one in updates) / silos for c in zero}

        first = {**task.initial_state(), **zero}
        server = averaging_server(context, settings, task, first, not_of_model=("c.",), beside=next_c)
        local = LocalSteps(task, loss, given=given, after=after)
        series = (*task.series(), WITHOUT_STATE)
        return Parts(task=task, local=local, server=server, silos=SiloStates(own=True), series=series)
