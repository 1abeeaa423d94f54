"""CDL's baselines: local steps on the steering error, without the divergence of two networks.

With the topologies ``contact``, ``ring`` and ``complete`` no RSU averages: every silo has a model of its own, which
stays with its data. In each round vehicles train their silos' models for some local steps, exchange them with the
neighbours they reach, and mix, all at once. With ``star`` they train the RSU's model, and the RSU averages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from learners.averaging import WeightSettings, averaging_server
from learners.federated import FederatedLearner, Parts
from learners.local_training import Local, LocalSteps
from learners.state.models import Models
from learners.state.rules import refuse_what_needs_averaging
from learners.state.server import Server
from learners.state.silos import OwnModels, SiloStates
from learners.tasks.description import payload_bytes
from learners.tasks.steering import GLOBAL_SERIES, MIXING_WEIGHT, SILO_SERIES, SteeringSettings, SteeringTask
from vnetsim.learning import Exchange, LearnerContext, Series, Update

STEERING_DEFAULTS: Mapping[str, object] = {"data.name": "road", "silos.count": 11, "round.distinct_silos": True}
"""Experiment settings of the steering learners; 11 silos as in the published runs on the network Gaia."""

STEERING_SCALES: Mapping[str, Mapping[str, object]] = {
    "paper": {"learning.steps": 1, "learning.lr": 1e-3, "learning.dropout": 0.5, "data.image_px": 200}
}
"""CDL's published training, which its baselines share; its batch and weight decay are the defaults."""


def steering_parts(
    context: LearnerContext,
    settings: Any,
    task: SteeringTask,
    local: Local,
    *,
    name: str,
    topology: str,
    own: bool = False,
    series: Sequence[Series] = (),
    facts: Mapping[str, str] | None = None,
) -> Parts:
    """Return the parts of a method on the steering task: with ``star`` an RSU averages, otherwise neighbours mix.

    ``own``: silos keep state, besides an optimizer's, between trainings; ``series`` and ``facts``: further ones;
    ``name``: the learner's, for messages. Without ``star`` InputError for an aggregation rule or several aggregators.
    """
    star, ring, first = topology == "star", topology == "ring", task.initial_state()
    if not star:
        refuse_what_needs_averaging(context, name, f"exchange.topology: {topology}")
    silos = SiloStates(own=own or settings.optimizer == "adam-kept")
    parameters = [name for name, _ in task.network.named_parameters()]
    server: Server | OwnModels
    if star:
        by_images = getattr(settings, "weights", "equal") == "images"
        how = f"the RSU averages with {'weights n_k / n, by frames' if by_images else 'equal weights'}"
        server = averaging_server(context, settings, task, first)
    else:
        how = "Metropolis-Hastings weights on the graph of the exchanges that completed both ways"
        if ring:
            how = "(I + P) / 2 on the directed ring; a vehicle that received nothing keeps its model"
        # the mean of the silos' models is the result of the run
        models = Models(first, max_staleness=0)
        server = OwnModels(models, silos, mixing="ring" if ring else "after", consensus_of=parameters)
    exchange = Exchange(before_training=False, mutual=not ring, send_bytes=payload_bytes(first))
    return Parts(
        task=task,
        local=local,
        server=server,
        silos=silos,
        series=(*(GLOBAL_SERIES if star else SILO_SERIES), *series),
        exchange=None if star else exchange,
        exchanged=None if star else MIXING_WEIGHT,
        facts={"Mixing": how, **(facts or {})},
    )


def mean_metrics(updates: Sequence[Update], series: Sequence[Series] = ()) -> dict[str, float]:
    """Return the means of ``loss`` and of ``series``, each over the updates that have it; {} without updates."""
    rows = [{"loss": update.loss, **update.metrics} for update in updates]
    found = {name: [row[name] for row in rows if name in row] for name in ("loss", *(one.name for one in series))}
    return {name: math.fsum(values) / len(values) for name, values in found.items() if values}


def plain_steering(context: LearnerContext, settings: SteeringSettings, name: str, topology: str) -> Parts:
    """Return the parts of a method that only steps on the steering error; see ``steering_parts``."""
    task = SteeringTask(context, settings)
    return steering_parts(context, settings, task, LocalSteps(task, figures=mean_metrics), name=name, topology=topology)


class DecentralisedSgd(FederatedLearner):
    """Every silo trains its own model; neighbours mix theirs. This is CDL without divergence and second network."""

    name, task, Settings = "dsgd", "steering", SteeringSettings
    paper = (
        "Lian et al. (2017): Can decentralized algorithms outperform centralized algorithms? A case study for "
        "decentralized parallel stochastic gradient descent, arXiv:1705.09056; as baseline of CDL"
    )
    payload = "the model to every neighbour; under the topology star the model down and up"
    equations = (
        "u local steps of Adam on the steering error of theta_i",
        "theta_i <- sum_j A_ij theta_j over the neighbours whose exchange completed, all at once",
        "A_ij = 1 / (1 + max(d_i, d_j)), A_ii = 1 - sum_j A_ij  (Metropolis-Hastings; d: number of neighbours)",
    )
    defaults, scales = STEERING_DEFAULTS, STEERING_SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: SteeringSettings) -> Parts:
        """Return local steps on silos' own models that neighbours mix, or with ``star`` an RSU that averages."""
        return plain_steering(context, settings, DecentralisedSgd.name, context.experiment.exchange.topology)


@dataclass(frozen=True, kw_only=True)
class SteeringAveragingSettings(WeightSettings, SteeringSettings):
    """Local training on road frames, weights of the uploads, averaging and evaluation."""


class FedAvgSteering(FederatedLearner):
    """The RSU sends its model and averages the uploads by their silos' frames, whatever the topology."""

    name, task, Settings = "fedavg-steering", "steering", SteeringAveragingSettings
    paper = (
        "McMahan et al. (2017): Communication-efficient learning of deep networks from decentralized data; "
        "as baseline of CDL"
    )
    payload = "the model down and up"
    equations = (
        "theta_n <- u local steps of Adam on the steering error from theta",
        "theta <- sum_k n_k / n theta_k at the RSU, n_k frames in silo k, n = sum_k n_k  (McMahan et al., Algorithm 1)",
        "with learning.weights = equal: theta <- (1 / N) sum_k theta_k",
    )
    defaults, scales = STEERING_DEFAULTS, STEERING_SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: SteeringAveragingSettings) -> Parts:
        """Return local steps on the steering error, and an RSU that averages."""
        return plain_steering(context, settings, FedAvgSteering.name, "star")
