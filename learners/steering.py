"""Federated steering among vehicles: everything that CDL and its baselines have in common.

Without an RSU that averages (topology ``contact``, ``ring``, ``complete``) every silo has a model of its own, which
stays with its data when the vehicle has left. Per round, the vehicles that take part train their silos' models for some
local steps, exchange them with the neighbours they reach, and mix what they received, all at once. Under ``star`` they
train the RSU's model, and the RSU averages.

A method is a subclass that names itself and gives ``job`` and ``visited``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.aggregation import equal_weights, weighted_mean
from learners.global_model import GlobalModel, State
from learners.mixing import Matrix, half_received, metropolis_hastings, mix
from learners.robust import combine, used_weights
from learners.silo_states import SiloState, SiloStates
from learners.steering_settings import GLOBAL_SERIES, MIXING_WEIGHT, SILO_SERIES, SteeringSettings
from learners.steering_task import Errors, SteeringTask
from learners.task import payload_bytes
from learners.training import Job, Trained
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

BESIDE = "sub."
"""Prefix of what a method sends besides the network that steers."""

STEERING_DEFAULTS: Mapping[str, object] = {
    "data.name": "road",
    "silos.count": 11,
    "round.distinct_silos": True,
}
"""Experiment settings of the steering learners; 11 silos as in the published runs on the network Gaia."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Visited:
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


class SteeringLearner(ABC):
    """Vehicles, their silos and the RSU; implements ``vnetsim.learning.Learner`` but for the names and the visit.

    Class attributes besides the protocol's: ``networks_trained``, how many networks a frame passes; ``own_series``,
    what ``visit`` reports beyond the common series; ``always_star``, whether the RSU averages whatever the topology.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.
    """

    name: ClassVar[str]
    task: ClassVar[str] = "steering"
    paper: ClassVar[str]
    Settings: ClassVar[type]
    payload: ClassVar[str]
    equations: ClassVar[tuple[str, ...]]
    defaults: ClassVar[Mapping[str, object]] = STEERING_DEFAULTS

    networks_trained: ClassVar[int] = 1
    own_series: ClassVar[tuple[Series, ...]] = ()
    always_star: ClassVar[bool] = False

    def __init__(self, context: LearnerContext, settings: SteeringSettings) -> None:
        self._settings = settings
        self._task = SteeringTask(context, settings)
        self._star = star = self.always_star or context.exchange.topology == "star"
        self._ring = context.exchange.topology == "ring"
        # under star the RSU's model, otherwise the mean of the silos': what a run hands over in the end
        self._model = GlobalModel(self._first_sent(), max_staleness=context.max_staleness if star else 0)
        self._first = self._model.current
        self._silos = SiloStates(context.silos)
        self._constant = self._task.constant_errors()
        self._measured: dict[int, tuple[State, Errors]] = {}

    @abstractmethod
    def job(self, participant: Participant, base: State, own: State) -> Job:
        """Return the training of the model ``base`` by a participant; the states given stay as they are.

        Args:
            participant: who.
            base: the silo's model, or the RSU's under ``star``; names as in ``Visited.sent``.
            own: what the silo's last visit left in ``Visited.own``, on the CPU; empty before the first.
        """

    @abstractmethod
    def visited(self, trained: Trained, own: State) -> Visited:
        """Return the result of a visit, given what training made of its job, and ``own`` as before it."""

    @abstractmethod
    def _own_template(self) -> State:
        """Return names, shapes and types of all that a silo may own."""

    def _first_sent(self) -> State:
        """Return theta^0 as a vehicle would send it."""
        return self._task.initial_state()

    def _facts(self) -> Mapping[str, str]:
        """Return lines for the record."""
        return {}

    @classmethod
    @final
    def create(cls, context: LearnerContext, settings: Any) -> Self:
        """Build the learner; see ``vnetsim.learning.Learner``."""
        return cls(context, settings)

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
        return (*(GLOBAL_SERIES if self._star else SILO_SERIES), *self.own_series)

    @final
    def cost(self, silo: int) -> Cost:
        """Return the model's bytes over the links it takes, and the work of all steps, forward and backward."""
        model = payload_bytes(self._first)
        return Cost(
            download_bytes=model if self._star else 0,
            upload_bytes=model if self._star else 0,
            work_flop=self._task.training_flop(self._task.images_per_visit(silo) * self.networks_trained),
            exchange=None if self._star else Exchange(before_training=False, mutual=not self._ring, send_bytes=model),
        )

    @final
    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from its silo's model; see ``vnetsim.learning.Learner``.

        Under ``star`` that is the RSU's model of its ``base_round``. Two vehicles that carry one silo both start from
        what the round found; ``aggregate`` keeps what the later one of the list made of it.
        """
        jobs = [self._job(participant) for participant in participants]
        trained = self._task.engine.train(jobs)
        return [self._update(*one) for one in zip(participants, jobs, trained, strict=True)]

    @final
    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Mix or average the finite updates, all from the same snapshot, and end the round.

        A peer whose update is not among them is left out: the graph is that of the others, and weights sum to 1.
        """
        finite = [update for update in updates if update.finite]
        metrics = _means([{"loss": update.loss, **update.metrics} for update in finite], self.series())
        states = [update.state for update in finite]
        exchanges: dict[tuple[str, str], float] = {}
        mixed: Sequence[State] = [{}] * len(finite)
        model = self._model.current
        if self._star and finite:
            model = combine(states, used_weights(equal_weights(len(finite)), self._settings), model, self._settings)
        elif finite:
            weights = self._weights([update.participant for update in finite])
            exchanges = _told(weights, [update.participant for update in finite])
            mixed = mix(states, weights)
        for update, shared in zip(finite, mixed, strict=True):
            self._silos[update.participant.silo] = SiloState(shared=shared, own=update.kept)
        if not self._star and finite:
            shared_states = [state.shared for state in self._silos.visited.values()]
            model = weighted_mean(shared_states, equal_weights(len(shared_states)))
        self._model.advance(model)
        if not self._star and self._silos.visited:
            metrics["consensus_distance"] = self._consensus_distance()
        return Aggregation(
            weights=[1 / len(finite) if update.finite else 0.0 for update in updates],
            metrics=metrics,
            exchanges=exchanges,
        )

    @final
    def evaluate(self, *, final: bool) -> Mapping[str, float]:  # noqa: ARG002  all of it is due every time
        """Return the errors of the average model, of the silos' own models, and of the constant predictor."""
        average = self._task.errors(_steering(self._model.current))
        metrics = {
            "rmse": average.rmse,
            "mae": average.mae,
            "rmse_constant": self._constant.rmse,
            "mae_constant": self._constant.mae,
        }
        if not self._star and self._silos.visited:
            measured = [self._errors_of(silo, state.shared) for silo, state in self._silos.visited.items()]
            rmses = [errors.rmse for errors in measured]
            metrics |= {
                "rmse_silos": math.fsum(rmses) / len(rmses),
                "rmse_best": min(rmses),
                "rmse_worst": max(rmses),
                "mae_silos": math.fsum(errors.mae for errors in measured) / len(measured),
            }
        return metrics

    @final
    def state_dict(self) -> dict[str, Any]:
        """Return the average model or the RSU's under ``model.*``, the silos' states, and the round."""
        return {**self._model.state_dict(), **self._silos.state_dict()}

    @final
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        of_silos = {name: tensor for name, tensor in state.items() if name.startswith("silo.")}
        self._model.load_state_dict({name: tensor for name, tensor in state.items() if name not in of_silos})
        template = SiloState(shared={} if self._star else self._first, own=self._own_template())
        self._silos.load_state_dict(of_silos, template)

    @final
    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return test frames blurred with each kernel length, shape (len(kernels_px), count, H, W, C)."""
        return self._task.sample_images(kernels_px, count)

    def _job(self, participant: Participant) -> Job:
        silo = self._silos[participant.silo]
        base = self._model.at(participant.base_round) if self._star else (silo.shared or self._first)
        return self.job(participant, base, silo.own)

    def _update(self, participant: Participant, job: Job, trained: Trained) -> Update:
        visited = self.visited(trained, self._silos[participant.silo].own)
        return Update(
            participant=participant,
            state=visited.sent,
            loss=visited.loss,
            finite=trained.finite,
            metrics={"kernel_px": job.visit.kernel_px, **visited.metrics},
            kept=visited.own,
        )

    def _weights(self, participants: Sequence[Participant]) -> Matrix:
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
        mean = self._model.current
        squares = [
            math.fsum(float((state.shared[name] - mean[name]).to(torch.float64).square().sum()) for name in names)
            for state in self._silos.visited.values()
        ]
        return math.sqrt(math.fsum(squares) / len(squares))

    def _errors_of(self, silo: int, shared: State) -> Errors:
        """Return the errors of a silo's model, measured anew only when it is another one."""
        if silo not in self._measured or self._measured[silo][0] is not shared:
            self._measured[silo] = (shared, self._task.errors(_steering(shared)))
        return self._measured[silo][1]


def _steering(state: State) -> dict[str, Tensor]:
    """Return the network that steers, without what a method sends besides it."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(BESIDE)}


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
