"""A learner is composed of parts: a task, a local method, a server or silos with models of their own, an exchange.

A method is a class that names itself and returns its ``Parts``; it overrides nothing else. Most are
``federated_averaging`` with other weights or another loss:

    class Mine(FederatedLearner): name, task, paper, Settings = "mine", "contrastive", "Me (2025)", ContrastiveSettings

        @staticmethod
        def parts(context, settings):
            return federated_averaging(context, settings, ContrastiveTask(context, settings), weights=my_weights)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from learners.averaging import WeightSettings, averaging_server, refuse_several_servers
from learners.engines.programs import State
from learners.local_training import Local, LocalSteps, Start
from learners.mathematics.robust import AveragingSettings
from learners.mathematics.weights import equal_weights, squared_norm, weighted_mean
from learners.state.server import Server, WeightFunction
from learners.state.silos import SILO, OwnModels, SiloStates
from learners.tasks.description import payload_bytes
from learners.tasks.task import StepLoss, Task
from learners.transmission import Transmission, drop_memories
from vnetsim.errors import InputError
from vnetsim.learning import (
    AGGREGATOR,
    Aggregation,
    Cost,
    Description,
    Exchange,
    LearnerContext,
    ModelCost,
    ModelKey,
    Participant,
    Series,
    Update,
)

# own learners import the averaging server from here too
__all__ = [
    "WITHOUT_STATE",
    "FederatedLearner",
    "Parts",
    "WeightSettings",
    "averaging_server",
    "federated_averaging",
    "refuse_several_servers",
]

WITHOUT_STATE = Series(
    name="without_state",
    result=False,
    label="Trained without state",
    unit="%",
    caption="Share of the aggregated local trainings whose silo kept nothing from an earlier one. What a silo keeps "
    "acts from its second local training on, so near 100 % silo state hardly acts.",
)
"""For methods whose silos keep state; a learner declares it in ``Parts.series``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """The parts of a learner.

    Args:
        task: data, network and loss.
        local: local training of a vehicle.
        server: makes a model of the uploads: an RSU that averages, or neighbours that mix silos' own models.
        silos: what stays with the silos; by default nothing.
        series: the metrics, in the order of the report; by default the task's.
        exchange: what vehicles send each other; None for nothing.
        exchanged: the series of the value that each completed exchange reports; None for none.
        facts: further lines of the run's record, by title.
    """

    task: Task
    local: Local
    server: Server | OwnModels
    silos: SiloStates = field(default_factory=SiloStates)
    series: Sequence[Series] = ()
    exchange: Exchange | None = None
    exchanged: Series | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


class FederatedLearner(ABC):
    """A learner made of parts; its methods follow ``vnetsim.learning.Learner``. A subclass defines ``parts``."""

    name: ClassVar[str]
    task: ClassVar[str]
    paper: ClassVar[str]
    Settings: ClassVar[type]
    payload: ClassVar[str] = "the model down, the model up"
    takes_aggregation_rule: ClassVar[bool] = True
    takes_codec: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, object]] = {}
    scales: ClassVar[Mapping[str, Mapping[str, object]]] = {}

    def __init_subclass__(cls) -> None:
        """Raise TypeError for a method ``loss`` or ``weights``, which would silently have no effect."""
        for name in ("loss", "weights"):
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__}.{name} would never be called; hand it to the parts that 'parts' returns"
                )

    @staticmethod
    @abstractmethod
    def parts(context: LearnerContext, settings: Any) -> Parts:
        """Return the parts of the learner; InputError if data and settings do not fit."""

    @final
    def __init__(self, parts: Parts, transmission: Transmission | None = None) -> None:
        self._task, self._local, self._server, self._silos = parts.task, parts.local, parts.server, parts.silos
        self._models = parts.server.models
        self._parts = parts
        self._transmission = transmission

    @classmethod
    @final
    def create(cls, context: LearnerContext, settings: Any) -> Self:
        """Build the learner; InputError if it does not fit data, privacy, codecs, conduct, selection or handover."""
        parts = cls.parts(context, settings)
        made = cls(parts, cls._create_transmission(context, parts))
        if context.figure and not isinstance(made._server, Server):
            raise InputError(
                f"selection.name: its policy chooses by the '{context.figure}' of updates to an RSU that averages, and "
                f"neighbours of {cls.name} mix their models; take another policy."
            )
        private = isinstance(settings, AveragingSettings) and settings.dp.clip > 0  # users' own settings may lack it
        if private and (parts.exchange or context.figure or not isinstance(made._server, Server)):
            raise InputError(
                f"learning.dp: only an RSU's mean is private, and vehicles of {cls.name} send each other models or "
                "the selection policy looks at updates; leave one of them out."
            )
        if private and context.experiment.silos.by == "place":
            raise InputError(
                "learning.dp: with silos.by = 'place' a vehicle also trains on images of silos that it had before, "
                "whose uses would not be counted; leave one of them out."
            )
        if context.joint and made._silos.own:
            raise InputError(
                f"handover.policy: with 'multi' several RSUs aggregate one training, and silos of {cls.name} keep a "
                "part of it for their next one, which would change with each; take another policy, or a setting with "
                "which they keep nothing."
            )
        return made

    @final
    def describe(self) -> Description:
        """Return network, data distribution and facts for the run's record."""
        return replace(self._task.describe(self._parts.facts), exchange=self._parts.exchanged)

    @final
    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``, by default the task's."""
        return self._parts.series or self._task.series()

    def cost(self, silo: int) -> Cost:
        """Return the cost of local training and exchange, plus the model's bytes each way if an RSU averages.

        A method that sends something else overrides this, in multiples of the returned ``model.bytes``: where the
        experiment's ``cost.model`` names another model, they are scaled to its bytes.
        """
        local = self._local.cost(silo)
        model = payload_bytes(self._server.sent(self._models.initial)) if isinstance(self._server, Server) else 0
        return replace(
            local,
            download_bytes=local.download_bytes + model,
            upload_bytes=local.upload_bytes + model,
            exchange=self._parts.exchange,
            model=ModelCost(
                bytes=payload_bytes(self._task.network.state_dict()),
                image_flop=self._task.flop,
                images=self._task.images_per_training(silo),
                other_download_bytes=local.download_bytes,
                other_upload_bytes=local.upload_bytes,
            ),
        )

    @final
    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from its ``base``; return the updates as the server decodes them, in order.

        Hostile vehicles' changes are already replaced. Two vehicles with one silo both start from the silo's state at
        the start of the round. Finite updates get the ``figure`` that the selection policy asks for, if any.
        """
        updates: Sequence[Update] = self._local.train([self._start(participant) for participant in participants])
        if self._transmission is not None:
            updates = self._transmission.encode_updates(
                updates,
                known=self._server.base,
                own=lambda who: self._silos[who.silo].own,
                # keys of FedCo keep their bytes; tensors of ``LocalSteps.after`` are charged as a copy of the model
                model_alone=isinstance(self._local, LocalSteps),
            )
        if not isinstance(self._server, Server) or not self._server.figure:
            return updates
        return [
            replace(one, figure=self._server.figure_of(one.participant, one.state)) if one.state and one.finite else one
            for one in updates
        ]

    @final
    def aggregate(self, updates: Sequence[Update], into: str = AGGREGATOR) -> Aggregation:
        """Aggregate the updates into the aggregator's next version; see ``vnetsim.learning.Learner``.

        Stores the new model, and each ``Update.kept`` as its silo's state; the last update of a silo counts. Metrics
        that ``series`` does not declare are dropped. ValueError if an update has ``kept``, and ``Parts.silos`` keeps
        none; otherwise errors as ``Server.fold``.
        """
        version = self._models.versions(into)[-1]
        folded = self._server.fold(updates, into)
        self._models.add(folded.state, into)
        figures = {
            **self._task.round_learning_rate(version, [update.participant for update in updates]),
            **self._local.figures(updates, folded, version),
            **folded.metrics,
        }
        if updates:
            begun = [not self._silos[update.participant.silo].own for update in updates]
            figures[WITHOUT_STATE.name] = sum(begun) / len(begun)
        for update in updates:
            if update.kept:
                if not self._silos.own and drop_memories(update.kept):
                    raise ValueError("a silo keeps tensors: pass silos=SiloStates(own=True) to Parts")
                self._silos.keep(update.participant.silo, own=update.kept)
        exchanges = {
            (update.participant.vehicle_id, peer): value
            for update in updates
            for peer, value in update.exchanges.items()
        }
        exchanges |= folded.exchanges
        return Aggregation(weights=folded.weights.tolist(), metrics=self._only_declared(figures), exchanges=exchanges)

    @final
    def keep(self, models: Collection[ModelKey]) -> None:
        """Set the models that are kept however old, until the next call; see ``vnetsim.learning.KeepsModels``."""
        self._models.needed = frozenset(models)

    @final
    def merge(self, sources: Mapping[ModelKey, float], into: ModelKey) -> None:
        """Store as ``into``, an aggregator's newest or next model, the mean of ``sources`` by weights that sum to 1."""
        assert isinstance(self._server, Server)  # silos with their own models are refused several aggregators
        self._server.merge(sources, into)

    @final
    def spread(self, aggregators: Sequence[str]) -> float:
        """Return the mean distance of aggregators' newest parameters from their mean, over that mean's norm."""
        states = [self._models.newest(name) for name in aggregators]
        mean = weighted_mean(states, equal_weights(len(states)))
        names = [name for name, _ in self._task.network.named_parameters()]
        norm = math.sqrt(squared_norm(mean[name] for name in names))
        distances = [math.sqrt(squared_norm(state[name] - mean[name] for name in names)) for state in states]
        return math.fsum(distances) / len(distances) / norm if any(distances) else 0.0

    @final
    def evaluate(self, *, final: bool, aggregator: str = AGGREGATOR) -> Mapping[str, float]:
        """Return the task's metrics of an aggregator's newest model, and of the silos' own models if there are any.

        For the silos' models a metric NAME has the mean NAME_silos, NAME_best and NAME_worst. ``final`` adds the task's
        expensive metrics. Metrics that ``series`` does not declare are left out.
        """
        network = self._task.network.state_dict().keys()

        def measure(state: State) -> Mapping[str, float]:
            """Return the task's metrics of a model, by its tensors of the network."""
            return self._task.evaluate({name: state[name] for name in network}, final=final)

        figures = dict(measure(self._models.newest(aggregator)))
        of_silos = self._server.silo_figures(measure)
        for name in list(figures) if of_silos else ():
            values = [one[name] for one in of_silos]
            low, high = min(values), max(values)
            best, worst = (low, high) if self._task.lower_is_better else (high, low)
            mean = math.fsum(values) / len(values)
            figures |= {f"{name}_silos": mean, f"{name}_best": best, f"{name}_worst": worst}
        return self._only_declared(figures)

    @final
    def state_dict(self) -> dict[str, Any]:
        """Return the models, and the state of server and silos; random draws follow from seed, round and vehicle."""
        return {**self._server.state_dict(), **self._silos.state_dict()}

    @final
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; KeyError for missing tensors, ValueError for another learner's."""
        silos = {name: tensor for name, tensor in state.items() if name.startswith(SILO)}
        # 0.1.0 kept measured times of its engines
        rest = {name: tensor for name, tensor in state.items() if not name.startswith((SILO, "engine."))}
        self._server.load_state_dict(rest)
        self._silos.load_state_dict(silos)

    @final
    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return ``count`` test images with each blur length (px), shape (len(kernels_px), count, H, W, C)."""
        return self._task.sample_images(kernels_px, count)

    def _start(self, participant: Participant) -> Start:
        """Return a participant's start: decoded base, its silo's kept tensors ({} at first), decoded models to mix."""
        base, own = self._server.base(participant), self._silos[participant.silo].own
        mixed = [(share, self._models[key]) for share, key in participant.handover.mixed]
        if self._transmission is not None:
            decode = self._transmission.decode_download
            base, own = decode(participant, base), drop_memories(own)
            mixed = [(share, decode(participant, model, place)) for place, (share, model) in enumerate(mixed)]
        return Start(participant=participant, base=base, own=own, mixed=mixed)

    @classmethod
    def _create_transmission(cls, context: LearnerContext, parts: Parts) -> Transmission | None:
        """Return codecs and conduct, and set ``needs_uploads``; None without any. InputError if no RSU averages."""
        if not any((context.codec, context.download_codec, context.conduct)):
            return None
        server = parts.server
        if not isinstance(server, Server):
            raise InputError(
                "codec.name, download_codec and conduct.name are for an RSU that averages, and neighbours of "
                f"{cls.name} mix their models; leave them out."
            )
        statistics = {name for name, _ in parts.task.network.named_buffers()}
        sent = server.sent(parts.server.models.initial)
        names = {name for name, tensor in sent.items() if tensor.is_floating_point() and name not in statistics}
        server.needs_uploads = True
        return Transmission(context, names)

    def _only_declared(self, figures: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics that ``series`` declares, without the others."""
        declared = {series.name for series in self.series()}
        return {name: value for name, value in figures.items() if name in declared}


def federated_averaging(
    context: LearnerContext,
    settings: Any,
    task: Task,
    *,
    weights: WeightFunction | None = None,
    loss: StepLoss | None = None,
    facts: Mapping[str, str] | None = None,
) -> Parts:
    """Return the parts of federated averaging (McMahan et al. 2017, Algorithm 1): local steps, and an RSU's mean.

    ``weights`` returns the weight of each upload: they sum to 1, or all are 0 to keep the model; by default see
    ``weights_of``. ``loss`` is that of a local step, by default the task's; ``facts`` are lines of the run's record, by
    title. Errors as ``averaging_server``.
    """
    server = averaging_server(context, settings, task, task.initial_state(), weights=weights)
    return Parts(task=task, local=LocalSteps(task, loss, server=server), server=server, facts=facts or {})
