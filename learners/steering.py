"""Federated steering among vehicles: everything that CDL and its baselines have in common.

Without an RSU that averages (topology ``contact``, ``ring``, ``complete``) every silo has a model of its own, which
stays with its data when the vehicle has left. Per round, the vehicles that take part train their silos' models for some
local steps, exchange them with the neighbours they reach, and mix what they received, all at once. Under ``star`` they
train the RSU's model, and the RSU averages.

A method is a subclass that names itself and gives ``job`` and ``local_result``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from learners.engines.programs import Trained, TrainingJob, on_host
from learners.frame import TaskLearner, require_hook_is_used
from learners.mathematics.aggregation import Weights, equal_weights, weighted_mean
from learners.mathematics.mixing import Matrix, half_received, metropolis_hastings, mix
from learners.state.global_model import State
from learners.state.rules import needs_averaging, rule_of
from learners.state.server import Server
from learners.state.silo_states import SiloState, SiloStates
from learners.tasks.steering import Errors, SteeringTask
from learners.tasks.steering_settings import GLOBAL_SERIES, MIXING_WEIGHT, SILO_SERIES, SteeringSettings
from learners.tasks.task import payload_bytes
from vnetsim.learning import (
    Aggregation,
    Cost,
    Description,
    Exchange,
    LearnerContext,
    Participant,
    Series,
    Update,
)
from vnetsim.learning.aggregation import SYNC

SUB_PREFIX = "sub."
"""Prefix of what a method sends besides the network that steers."""

STEERING_DEFAULTS: Mapping[str, object] = {
    "data.name": "road",
    "silos.count": 11,
    "round.distinct_silos": True,
}
"""Experiment settings of the steering learners; 11 silos as in the published runs on the network Gaia."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalResult:
    """Result of a silo's local training.

    Args:
        sent: the model, as it goes to others; names of the steering network's tensors, and more under ``sub.*``.
        own: what stays with the silo.
        loss: mean error of the steering angle over the steps.
        metrics: further figures, by series.
    """

    sent: State
    own: State
    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)


class SteeringLearner(TaskLearner):
    """Vehicles, their silos and the RSU; implements ``vnetsim.learning.Learner`` but for names and local training.

    Class attributes besides the protocol's: ``networks_trained``, how many networks a frame passes; ``always_star``,
    whether the RSU averages whatever the topology.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.
    """

    task: ClassVar[str] = "steering"
    payload: ClassVar[str]
    equations: ClassVar[tuple[str, ...]]
    defaults: ClassVar[Mapping[str, object]] = STEERING_DEFAULTS

    takes_aggregation_rule: ClassVar[bool] = True
    networks_trained: ClassVar[int] = 1
    always_star: ClassVar[bool] = False

    _task: SteeringTask
    _global: Server
    _silos: SiloStates

    def __init__(self, context: LearnerContext, settings: SteeringSettings) -> None:
        self._settings = settings
        self._task = SteeringTask(context, settings)
        self._star = star = self.always_star or context.exchange.topology == "star"
        self._ring = context.exchange.topology == "ring"
        if not star and context.rule != SYNC:
            raise needs_averaging(context.rule, self.name, f"exchange.topology: {context.exchange.topology}")
        # under star the RSU's model, otherwise the mean of the silos': what a run hands over in the end
        self._global = Server(
            self._first_sent(),
            max_staleness=context.max_staleness if star else 0,
            settings=settings,
            weigh=self.weights,
            rule=rule_of(context),
            parameters=[
                f"{prefix}{name}" for prefix in ("", SUB_PREFIX) for name, _ in self._task.network.named_parameters()
            ],
        )
        self._first = self._global.current
        self._silos = SiloStates(
            context.silos, lambda: SiloState(shared={} if star else self._first, own=self._own_template())
        )
        if not star:
            setting = f"exchange.topology: {context.exchange.topology}"
            require_hook_is_used(self, SteeringLearner, "weights", setting, "neighbours mix by weights of their own")
        self._constant = self._task.constant_errors()
        self._measured: dict[int, tuple[State, Errors]] = {}

    def weights(self, participants: Sequence[Participant]) -> Weights:
        """Return what each upload counts where the RSU averages, summing to 1, or all 0 to keep its model.

        1 / N for each of the N participants, unless a method says otherwise. Neighbours that mix have weights that
        follow from their graph: there a method's own are refused.
        """
        return equal_weights(len(participants))

    @abstractmethod
    def job(self, participant: Participant, base: State, own: State) -> TrainingJob:
        """Return the training of the model ``base`` by a participant; the states given stay as they are.

        Args:
            participant: who.
            base: the silo's model, or the RSU's under ``star``; names as in ``LocalResult.sent``.
            own: what the silo's last local training left in ``LocalResult.own``, on the CPU; empty before the first.
        """

    @abstractmethod
    def local_result(self, trained: Trained, own: State) -> LocalResult:
        """Return the result of a local training, given what training made of its job, and ``own`` as before it.

        The states of ``trained`` are in this machine's memory.
        """

    @abstractmethod
    def _own_template(self) -> State:
        """Return names, shapes and types of all that a silo may own."""

    def measured(self, jobs: Sequence[TrainingJob]) -> Sequence[Mapping[str, float]]:
        """Return figures of the jobs before they are trained, by series; what is measured changes no training."""
        return [{}] * len(jobs)

    def own_series(self) -> tuple[Series, ...]:
        """Return what ``local_result`` and ``measured`` report beyond the common series."""
        return ()

    def _first_sent(self) -> State:
        """Return theta^0 as a vehicle would send it."""
        return self._task.initial_state()

    def _facts(self) -> Mapping[str, str]:
        """Return lines for the record."""
        return {}

    @final
    def describe(self) -> Description:
        """Return network, data distribution and what else the record says."""
        if self._star:
            how = "the RSU averages with equal weights"
        elif self._ring:
            how = "(I + P) / 2 on the directed ring; a vehicle that received nothing keeps its model"
        else:
            how = "Metropolis-Hastings weights on the graph of the exchanges that completed both ways"
        facts = {"Mixing": how, **self._facts()}
        return replace(self._task.describe(facts), exchange=None if self._star else MIXING_WEIGHT)

    @final
    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``."""
        return (*(GLOBAL_SERIES if self._star else SILO_SERIES), *self.own_series())

    @final
    def cost(self, silo: int) -> Cost:
        """Return the model's bytes over the links it takes, and the work of all steps, forward and backward."""
        model = payload_bytes(self._first)
        return Cost(
            download_bytes=model if self._star else 0,
            upload_bytes=model if self._star else 0,
            work_flop=self._task.training_flop(self._task.images_per_training(silo) * self.networks_trained),
            exchange=None if self._star else Exchange(before_training=False, mutual=not self._ring, send_bytes=model),
            steps=self._task.steps,
        )

    @final
    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from its silo's model; see ``vnetsim.learning.Learner``.

        Under ``star`` that is the RSU's model, its ``base``. Two vehicles that carry one silo both start from
        what the round found; ``aggregate`` keeps what the later one of the list made of it.
        """
        jobs = [self._job(participant) for participant in participants]
        measured = self.measured(jobs)
        trained = map(on_host, self._task.engine.train(jobs))
        return [self._upload(*one) for one in zip(participants, jobs, trained, measured, strict=True)]

    @final
    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Mix or average the updates, all from the same snapshot, and end the round.

        A peer whose update is not among them is left out: the graph is that of the others, and weights sum to 1.
        """
        metrics = _means([{"loss": update.loss, **update.metrics} for update in updates], self.series())
        exchanges: dict[tuple[str, str], float] = {}
        mixed: Sequence[State] = [{}] * len(updates)
        model, weights = self._global.current, equal_weights(len(updates))
        if self._star:
            weights, model = self._global.fold(updates)
        elif updates:
            matrix = self._mixing([update.participant for update in updates])
            exchanges = _told(matrix, [update.participant for update in updates])
            mixed = mix([update.state for update in updates], matrix)
        for update, shared in zip(updates, mixed, strict=True):
            self._silos[update.participant.silo] = SiloState(shared=shared, own=update.kept)
        if not self._star and updates:
            shared_states = [state.shared for state in self._silos.trained.values()]
            model = weighted_mean(shared_states, equal_weights(len(shared_states)))
        self._global.advance(model)
        if not self._star and self._silos.trained:
            metrics["consensus_distance"] = self._consensus_distance()
        return Aggregation(weights=weights.tolist(), metrics=metrics, exchanges=exchanges)

    @final
    def evaluate(self, *, final: bool) -> Mapping[str, float]:  # noqa: ARG002  all of it is due every time
        """Return the errors of the average model, of the silos' own models, and of the constant predictor."""
        average = self._task.errors(_steering(self._global.current))
        metrics = {
            "rmse": average.rmse,
            "mae": average.mae,
            "rmse_constant": self._constant.rmse,
            "mae_constant": self._constant.mae,
        }
        if not self._star and self._silos.trained:
            measured = [self._errors_of(silo, state.shared) for silo, state in self._silos.trained.items()]
            rmses = [errors.rmse for errors in measured]
            metrics |= {
                "rmse_silos": math.fsum(rmses) / len(rmses),
                "rmse_best": min(rmses),
                "rmse_worst": max(rmses),
                "mae_silos": math.fsum(errors.mae for errors in measured) / len(measured),
            }
        return metrics

    def _job(self, participant: Participant) -> TrainingJob:
        silo = self._silos[participant.silo]
        base = self._global.base(participant) if self._star else (silo.shared or self._first)
        return self.job(participant, base, silo.own)

    def _upload(
        self, participant: Participant, job: TrainingJob, trained: Trained, measured: Mapping[str, float]
    ) -> Update:
        result = self.local_result(trained, self._silos[participant.silo].own)
        update = self._update(participant, job, trained)
        metrics = {**update.metrics, **result.metrics, **measured}
        return replace(update, state=result.sent, loss=result.loss, metrics=metrics, kept=result.own)

    def _mixing(self, participants: Sequence[Participant]) -> Matrix:
        """Return the mixing matrix of the participants: row i says what i makes of its own and its peers' models."""
        position = {participant.vehicle_id: i for i, participant in enumerate(participants)}
        received = np.zeros((len(participants), len(participants)), dtype=np.bool_)
        for i, participant in enumerate(participants):
            for peer in participant.peers:
                if peer.vehicle_id in position:
                    received[i, position[peer.vehicle_id]] = True
        return half_received(received) if self._ring else metropolis_hastings(received & received.T)

    def _consensus_distance(self) -> float:
        """Return sqrt(mean over silos of |theta_i - mean|^2), parameters of the steering network alone."""
        names = [name for name, _ in self._task.network.named_parameters()]
        mean = self._global.current
        squares = [
            math.fsum(float((state.shared[name] - mean[name]).to(torch.float64).square().sum()) for name in names)
            for state in self._silos.trained.values()
        ]
        return math.sqrt(math.fsum(squares) / len(squares))

    def _errors_of(self, silo: int, shared: State) -> Errors:
        """Return the errors of a silo's model, measured anew only when it is another one."""
        if silo not in self._measured or self._measured[silo][0] is not shared:
            self._measured[silo] = (shared, self._task.errors(_steering(shared)))
        return self._measured[silo][1]


def _steering(state: State) -> dict[str, Tensor]:
    """Return the network that steers, without what a method sends besides it."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(SUB_PREFIX)}


def _means(rows: Sequence[Mapping[str, float]], series: Sequence[Series]) -> dict[str, float]:
    """Return the mean of each declared figure over the rows that have it."""
    found = {one.name: [row[one.name] for row in rows if one.name in row] for one in series}
    return {name: math.fsum(values) / len(values) for name, values in found.items() if values}


def _told(weights: Matrix, participants: Sequence[Participant]) -> dict[tuple[str, str], float]:
    """Return the weight of every exchange that completed, by sender and receiver; 0 when the sender was left out."""
    position = {participant.vehicle_id: i for i, participant in enumerate(participants)}
    return {
        (peer.vehicle_id, receiver.vehicle_id): (
            float(weights[i, position[peer.vehicle_id]]) if peer.vehicle_id in position else 0.0
        )
        for i, receiver in enumerate(participants)
        for peer in receiver.peers
    }
