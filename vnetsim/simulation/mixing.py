"""Averaging of the models of several aggregators: by a cloud above them, or among neighbours.

Aggregators report rounds that closed. The learner averages, at that instant or when a model has arrived over the
backhaul; the weights depend on who committed and on where the RSUs are, never on the models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from vnetsim.coverage.rsu import Rsu
from vnetsim.experiment import TopologySettings
from vnetsim.learner_facts import CLOUD
from vnetsim.learning import ModelKey
from vnetsim.simulation.aggregator import Aggregator
from vnetsim.simulation.log import Mixing, RoundHandler, RoundSummary, SimulationLog
from vnetsim.simulation.open_round import Outbox
from vnetsim.simulation.tasks import Activity, Deadline, Task
from vnetsim.simulation.topology import metropolis_hastings, neighbours
from vnetsim.simulation.world import World
from vnetsim.storage.rows import MergeRecord


@dataclass(kw_only=True)
class NoMixing:
    """Nobody mixes the aggregators' models."""

    world: World
    handler: RoundHandler
    log: SimulationLog
    outbox: Outbox
    aggregators: Mapping[str, Aggregator]

    @property
    def finished(self) -> bool:
        """Whether no average of models is still to come; always True here."""
        return True

    def handle_closed_round(self, summary: RoundSummary) -> None:
        """Called after every round of an aggregator: average models now or later; here nothing."""

    def average_at_traffic_end(self, time_s: float) -> None:
        """Called at the traffic's end (s), after all rounds were closed: make the last averages; here nothing."""

    def _model_bytes(self) -> int:
        """Return the size of a model (B): the download of a vehicle with silo 0."""
        return self.world.cost(0).download_bytes

    def _log_average(self, into: ModelKey, sources: Mapping[ModelKey, float], time_s: float, closed_by: str) -> None:
        """Log the average ``into``: a row of ``merges`` for each source, with its weight; set ``outbox.mixed``."""
        for source, weight in sources.items():
            self.log.merges.append(MergeRecord(time_s, *into, *source, weight, closed_by))
        self.outbox.mixed = True


@dataclass(kw_only=True)
class Cloud(NoMixing):
    """Averages the RSUs' models after every ``edge_rounds`` of their rounds; see ``TopologySettings``.

    From when an RSU sends its model until the cloud's model has come back, the RSU invites nobody. The cloud numbers
    its own rounds. An RSU's weight is the number of training samples that it has aggregated since the cloud last
    averaged its model (Zhang et al., ICPP 2023, their d-hat). Without any update the cloud keeps its model.
    """

    def __post_init__(self) -> None:
        self._rules = self.world.experiment.topology
        self._round = 0
        self._deadline = Deadline(self.world.env)
        self._samples = dict.fromkeys(self.aggregators, 0)
        self._newest = {name: ModelKey(name, 0) for name in self.aggregators}
        self._waiting: list[str] = []  # RSUs whose model has arrived in the open round, in order
        self._last: set[str] = set()  # RSUs whose last model has been averaged

    @property
    def finished(self) -> bool:
        """Whether the last model of every RSU has been averaged."""
        return len(self._last) == len(self.aggregators)

    def handle_closed_round(self, summary: RoundSummary) -> None:
        """Count the round's samples, and send the RSU's model to the cloud if ``summary.mixed``."""
        name = summary.aggregator
        self._samples[name] += summary.samples
        self._newest[name] = ModelKey(name, summary.round + 1)
        if summary.mixed:
            Task(self._send_to_cloud(name))

    def average_at_traffic_end(self, time_s: float) -> None:
        """Average all models at the end (s), without the backhaul, if any update came since the last average."""
        if any(self._samples.values()):
            self._average_rsus([*self.aggregators], "traffic_end", time_s)

    def _send_to_cloud(self, name: str) -> Activity:
        """Send an RSU's model to the cloud; the first to arrive sets the cloud round's deadline, the last closes it."""
        yield from self.world.backhaul.send(self._model_bytes(), name, None)
        self._waiting.append(name)
        if len(self._waiting) == len(self.aggregators) - len(self._last):
            self._close_cloud_round("everyone")
        elif len(self._waiting) == 1 and self._rules.cloud_deadline_s is not None:
            self._deadline.set(self._rules.cloud_deadline_s, partial(self._close_cloud_round, "deadline"))

    def _close_cloud_round(self, closed_by: Literal["everyone", "deadline"]) -> None:
        """Close the cloud's round: average the models that have arrived, and send the average to their RSUs."""
        self._deadline.cancel()
        names, self._waiting = self._waiting, []
        self._last.update(name for name in names if self.aggregators[name].finished)
        model = self._average_rsus(names, closed_by, self.world.env.now)
        for name in names:
            Task(self._send_to_rsu(name, model))

    def _average_rsus(self, names: Sequence[str], closed_by: str, time_s: float) -> ModelKey:
        """Average RSUs' models by samples into the cloud's next model, give it to these RSUs, and return its key."""
        self._round += 1
        model, before = ModelKey(CLOUD, self._round), ModelKey(CLOUD, self._round - 1)
        total = sum(self._samples[name] for name in names)
        sources = {self._newest[name]: self._samples[name] / total for name in names if self._samples[name]}
        sources = sources or {before: 1.0}
        self._samples.update(dict.fromkeys(names, 0))
        # The RSUs get the cloud's model now: when the copy arrives, the cloud's may have been deleted.
        means = [(model, sources), *((self._newest[name], {model: 1.0}) for name in names)]
        final = closed_by == "traffic_end" or self.finished
        needed = self.world.needed_models()
        mixing = Mixing(aggregator=CLOUD, round=self._round - 1, time_s=time_s, means=means, final=final, needed=needed)
        self.handler.mix(mixing)
        self._log_average(model, sources, time_s, closed_by)
        return model

    def _send_to_rsu(self, name: str, model: ModelKey) -> Activity:
        """Send the cloud's model to an RSU, log its arrival, and begin the RSU's held round unless it has finished."""
        yield from self.world.backhaul.send(self._model_bytes(), None, name)
        self._log_average(self._newest[name], {model: 1.0}, self.world.env.now, "arrival")
        if not self.aggregators[name].finished:
            self.aggregators[name].begin_held_round(reset=self._rules.reset == "in-flight")


@dataclass(kw_only=True)
class Peers(NoMixing):
    """Averages each RSU's model with those of its neighbours after every ``edge_rounds`` of its rounds.

    An RSU waits for nobody: it takes the newest model that has arrived from each neighbour, or its own where none has,
    and sends the average to all neighbours. While one crosses the wire to a neighbour, only the newest waits.
    """

    weights: Mapping[str, Mapping[str, float]]  # from ``metropolis_hastings``

    def __post_init__(self) -> None:
        # by receiver, then by sender: the newest model that has arrived
        self._arrived: dict[str, dict[str, ModelKey]] = {name: {} for name in self.aggregators}
        self._under_way: list[ModelKey] = []
        self.world.needed.append(self._other_models)

    def handle_closed_round(self, summary: RoundSummary) -> None:
        """If ``summary.mixed``, average the RSU's model with those that have arrived; send neighbours the average."""
        if not summary.mixed:
            return
        name, now_s = summary.aggregator, self.world.env.now
        own, weights = ModelKey(name, summary.round + 1), self.weights[name]
        others = {model: weights[neighbour] for neighbour, model in self._arrived[name].items()}
        sources = {own: 1.0 - math.fsum(others.values()), **others}
        receivers = [neighbour for neighbour in weights if neighbour != name]
        self._under_way += [own] * len(receivers)
        needed, means = self.world.needed_models(), [(own, sources)]
        self.handler.mix(
            Mixing(aggregator=name, round=summary.round, time_s=now_s, means=means, final=summary.final, needed=needed)
        )
        self._log_average(own, sources, now_s, "round")
        for neighbour in receivers:
            Task(self._send_to_neighbour(own, neighbour))

    def _send_to_neighbour(self, model: ModelKey, neighbour: str) -> Activity:
        """Send a model to a neighbour, which keeps the newest of each RSU; a newer one may replace it on the way."""
        route = model.aggregator, neighbour
        arrived = yield from self.world.backhaul.send(self._model_bytes(), *route, newest_only=True)
        self._under_way.remove(model)
        before = self._arrived[neighbour].get(model.aggregator)
        if arrived and (before is None or before.version < model.version):
            self._arrived[neighbour][model.aggregator] = model

    def _other_models(self) -> tuple[ModelKey, ...]:
        """Return the models, arrived or under way, that RSUs may still average with theirs; each once."""
        arrived = (model for models in self._arrived.values() for model in models.values())
        return tuple(dict.fromkeys([*arrived, *self._under_way]))


def mixer_class(settings: TopologySettings, rsus: Sequence[Rsu]) -> Callable[..., NoMixing]:
    """Return a function that makes a mixer from the fields of ``NoMixing``; InputError if peers are not connected."""
    if settings.kind == "hierarchical":
        return Cloud
    if settings.kind == "peers":
        return partial(Peers, weights=metropolis_hastings(neighbours(settings, rsus)))
    return NoMixing
