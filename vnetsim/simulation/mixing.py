"""Averaging of the models of several aggregators: by a cloud above them, or among neighbours.

Aggregators report rounds that closed. The learner averages, at that instant or when a model has arrived over the
backhaul; the weights depend on who committed and on where the RSUs are, never on the models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
        """Whether no average is still to come."""
        return True

    def close_round(self, summary: RoundSummary) -> None:
        """Handle a round that has closed: averages may follow, now or later; here none."""

    def end_of_traffic(self, time_s: float) -> None:
        """Make the last averages at a time (s), after all aggregators have closed their last rounds; here none."""

    def _model_bytes(self) -> int:
        """Return the size of a model (B), which is what a vehicle downloads."""
        return self.world.cost(0).download_bytes

    def _mix(self, mixing: Mixing) -> None:
        """Let the learner average models, and report to it the models that are still needed."""
        self.handler.mix(replace(mixing, needed=self.world.needed_models()))

    def _record(self, into: ModelKey, sources: Mapping[ModelKey, float], time_s: float, closed_by: str) -> None:
        """Add a row to ``merges`` for each averaged model, with its weight in ``sources``, and set ``outbox.mixed``."""
        for source, weight in sources.items():
            self.log.merges.append(MergeRecord(time_s, *into, *source, weight, closed_by))
        self.outbox.mixed = True


@dataclass(kw_only=True)
class Cloud(NoMixing):
    """Averages the RSUs' models after every ``edge_rounds`` of their rounds; see ``TopologySettings``.

    An RSU invites nobody from when it sends its model until the cloud's model has come back.

    The cloud numbers its own rounds. An RSU's weight is the number of training samples that it has aggregated since
    the cloud last averaged its model (Zhang et al., ICPP 2023, their d-hat). If nobody has committed anything, the
    cloud keeps its model.
    """

    def __post_init__(self) -> None:
        self._rules = self.world.experiment.topology
        self._round = 0
        self._deadline = Deadline(self.world.env)
        self._samples = dict.fromkeys(self.aggregators, 0)
        self._newest = {name: ModelKey(name, 0) for name in self.aggregators}
        self._here: list[str] = []  # RSUs whose model has arrived, in order
        self._last: set[str] = set()  # RSUs whose last model has been averaged

    @property
    def finished(self) -> bool:
        """Whether the last model of every RSU has been averaged."""
        return len(self._last) == len(self.aggregators)

    def close_round(self, summary: RoundSummary) -> None:
        """Count the samples, and send the RSU's model to the cloud if it is due."""
        name = summary.aggregator
        self._samples[name] += summary.samples
        self._newest[name] = ModelKey(name, summary.round + 1)
        if summary.mixed:
            Task(self._to_cloud(name))

    def end_of_traffic(self, time_s: float) -> None:
        """Average all models, without waiting for the backhaul, if any update was aggregated since the last average."""
        if any(self._samples.values()):
            self._average([*self.aggregators], "traffic_end", time_s)

    def _to_cloud(self, name: str) -> Activity:
        """Send an RSU's model to the cloud; the last one expected, or a deadline, closes the cloud's round."""
        yield from self.world.backhaul.send(self._model_bytes(), name, None)
        self._here.append(name)
        if len(self._here) == len(self.aggregators) - len(self._last):
            self._close("everyone")
        elif len(self._here) == 1 and self._rules.cloud_deadline_s is not None:
            self._deadline.set(self._rules.cloud_deadline_s, partial(self._close, "deadline"))

    def _close(self, closed_by: Literal["everyone", "deadline"]) -> None:
        """Close the cloud's round: average the models that have arrived, and send the average to their RSUs."""
        self._deadline.cancel()
        here, self._here = self._here, []
        self._last.update(name for name in here if self.aggregators[name].finished)
        model = self._average(here, closed_by, self.world.env.now)
        for name in here:
            Task(self._from_cloud(name, model))

    def _average(self, names: Sequence[str], closed_by: str, time_s: float) -> ModelKey:
        """Average RSUs' models by samples into the cloud's next model, and replace theirs by it; return its key."""
        self._round += 1
        model, before = ModelKey(CLOUD, self._round), ModelKey(CLOUD, self._round - 1)
        total = sum(self._samples[name] for name in names)
        sources = {self._newest[name]: self._samples[name] / total for name in names if self._samples[name]}
        sources = sources or {before: 1.0}
        self._samples.update(dict.fromkeys(names, 0))
        # An RSU that waits no longer needs its own model. It is given the cloud's now: when the copy arrives, the
        # cloud's may have been deleted.
        means = [(model, sources), *((self._newest[name], {model: 1.0}) for name in names)]
        final = closed_by == "traffic_end" or self.finished
        self._mix(Mixing(aggregator=CLOUD, round=self._round - 1, time_s=time_s, means=means, final=final))
        self._record(model, sources, time_s, closed_by)
        return model

    def _from_cloud(self, name: str, model: ModelKey) -> Activity:
        """Send the cloud's model to an RSU, which then begins its next round unless it has finished."""
        yield from self.world.backhaul.send(self._model_bytes(), None, name)
        self._record(self._newest[name], {model: 1.0}, self.world.env.now, "arrival")
        if not self.aggregators[name].finished:
            self.aggregators[name].resume(reset=self._rules.reset == "in-flight")


@dataclass(kw_only=True)
class Peers(NoMixing):
    """Averages each RSU's model with those of its neighbours after every ``edge_rounds`` of its rounds.

    An RSU waits for nobody: it takes the newest model that has arrived from each neighbour, or its own where none has,
    and sends the average to all neighbours. While one crosses the wire to a neighbour, only the newest waits.
    """

    # each RSU's weights for itself and its neighbours, by their ids; see ``metropolis_hastings``
    weights: Mapping[str, Mapping[str, float]]

    def __post_init__(self) -> None:
        # by receiver, then by sender: the newest model that has arrived
        self._heard: dict[str, dict[str, ModelKey]] = {name: {} for name in self.aggregators}
        self._under_way: list[ModelKey] = []
        self.world.needed.append(self._needed_models)

    def close_round(self, summary: RoundSummary) -> None:
        """Average with the models that have arrived, and send the average; nothing if ``summary.mixed`` is False."""
        if not summary.mixed:
            return
        name, now_s = summary.aggregator, self.world.env.now
        own, weights = ModelKey(name, summary.round + 1), self.weights[name]
        others = {model: weights[neighbour] for neighbour, model in self._heard[name].items()}
        sources = {own: 1.0 - math.fsum(others.values()), **others}
        receivers = [neighbour for neighbour in weights if neighbour != name]
        self._under_way += [own] * len(receivers)
        self._mix(
            Mixing(aggregator=name, round=summary.round, time_s=now_s, means=[(own, sources)], final=summary.final)
        )
        self._record(own, sources, now_s, "round")
        for neighbour in receivers:
            Task(self._send(own, neighbour))

    def _send(self, model: ModelKey, neighbour: str) -> Activity:
        """Send an RSU's model to a neighbour, which keeps the newest; while it waits, a newer one may replace it."""
        arrived = yield from self.world.backhaul.send(
            self._model_bytes(), model.aggregator, neighbour, newest_only=True
        )
        self._under_way.remove(model)
        before = self._heard[neighbour].get(model.aggregator)
        if arrived and (before is None or before.version < model.version):
            self._heard[neighbour][model.aggregator] = model

    def _needed_models(self) -> tuple[ModelKey, ...]:
        """Return the models of other RSUs that may still be averaged."""
        heard = (model for models in self._heard.values() for model in models.values())
        return tuple(dict.fromkeys([*heard, *self._under_way]))


def mixer_class(settings: TopologySettings, rsus: Sequence[Rsu]) -> Callable[..., NoMixing]:
    """Return the class that mixes models in a topology; it takes the arguments of ``NoMixing``.

    Raises:
        InputError: some RSUs are not connected to the others.
    """
    if settings.kind == "hierarchical":
        return Cloud
    if settings.kind == "peers":
        return partial(Peers, weights=metropolis_hastings(neighbours(settings, rsus)))
    return NoMixing
