"""The averaging roadside unit: aggregates the uploads of a round into an aggregator's next model."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from learners.engines.programs import State
from learners.mathematics.mixing import similarity
from learners.mathematics.robust import AveragingSettings, clip, combine, used_weights, weigh_by_distance
from learners.mathematics.weights import Weights, equal_weights, squared_norm, weighted_mean
from learners.state.models import Models, add_aggregator, split_by_aggregator
from learners.state.privacy import PrivateMean
from learners.state.rules import MEMORY, shares_of
from vnetsim.errors import InputError, RunError
from vnetsim.learner_facts import CLOUD
from vnetsim.learning import AGGREGATOR, GRADIENT_NORM, SIMILARITY, ModelKey, Participant, Update
from vnetsim.learning.aggregation import AGGREGATIONS, AggregationRule, RoundUploads, Upload
from vnetsim.plugins import place_of, plugin_errors

WeightFunction = Callable[[Sequence[Participant]], Weights]
"""Returns the weight of every participant of a round: they sum to 1, or all are 0 to keep the model."""
VERSIONS = "versions"


def weigh_equally(participants: Sequence[Participant]) -> Weights:
    """Return the weight 1 / N for each of the N participants; empty for none."""
    return equal_weights(len(participants))


@dataclass(frozen=True, kw_only=True, eq=False)
class Folded:
    """The result of aggregating a round's updates.

    Args:
        weights: weight of each update in the model, in the order of the updates.
        state: the next version of the model.
        exchanges: value of each completed exchange, by the vehicle ids of sender and receiver.
        metrics: metrics of the round by name.
    """

    weights: Weights
    state: State
    exchanges: Mapping[tuple[str, str], float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


class Server:
    """Weights, robust mean and aggregation rule, common to all learners that average at an RSU.

    Args:
        models: the models that vehicles start from.
        settings: clipping, and mean or median.
        rule: makes one model of the uploads of a round.
        weigh: returns the weights of the uploads.
        parameters: names of the trained tensors in the uploads; rules need them.
        sent: returns the part of a model that is sent over the radio link.
        figure: SIMILARITY or GRADIENT_NORM, if a selection policy asks for it of every upload; empty for none.
        travel: returns learning rate times local steps of a participant, for ``GRADIENT_NORM``.
        beside: returns the next values of tensors that are not averaged, from the next state (these tensors still with
            their present values), the updates and the version; called without updates only for their names. None if all
            are averaged.
        step: returns how far the model goes towards the mean of the uploads; 1 takes the mean, more goes beyond it.
        private: replaces the mean by a private one; None does not.

    Attributes:
        averaged: participants whose updates were averaged on arrival, in order, and their mean; ([], {}) if none.
        needs_uploads: whether each upload is needed by itself, so that none may be averaged on arrival.

    Raises:
        InputError: the rule reads single uploads, and the settings want a robust or private mean of them; or the policy
            asks for an unknown figure.
    """

    def __init__(
        self,
        models: Models,
        settings: AveragingSettings,
        rule: AggregationRule,
        *,
        weigh: WeightFunction = weigh_equally,
        parameters: Collection[str] = (),
        sent: Callable[[State], Mapping[str, Tensor]] = dict,
        figure: str = "",
        travel: Callable[[Participant], float] = lambda _: 1.0,
        beside: Callable[[State, Sequence[Update], int], State] | None = None,
        step: Callable[[Sequence[Participant]], float] = lambda _: 1.0,
        private: PrivateMean | None = None,
    ) -> None:
        if rule.needs_uploads and private is not None:
            raise InputError(
                f"learning.dp: noise is added to a mean, and aggregation.name = '{rule.name}' takes uploads one by "
                "one; leave learning.dp out, or aggregation.name at 'sync', 'fedavgm' or 'fedadam'."
            )
        if rule.needs_uploads and settings.aggregation != "mean":
            raise InputError(
                f"learning.aggregation: '{settings.aggregation}' makes one model of a round's uploads, and "
                f"aggregation.name = '{rule.name}' takes them one by one; leave it at 'mean', or aggregation.name at "
                "'sync'."
            )
        if figure not in ("", SIMILARITY, GRADIENT_NORM):
            raise InputError(
                f"selection.name: its policy asks for '{figure}' of every update, which no learner reports."
            )
        self.models, self.settings, self.rule = models, settings, rule
        self.weigh, self.sent = weigh, sent
        self.figure, self._travel = figure, travel
        self._parameters = frozenset(parameters)
        self._beside, self._step, self._private = beside, step, private
        self._memory: dict[str, Mapping[str, Tensor]] = {name: {} for name in models.aggregators}
        self.averaged: tuple[Sequence[Participant], State] = [], {}
        self.needs_uploads = rule.needs_uploads or private is not None
        # how often a model had changed at each version; a round that only fills a buffer does not change it
        self._changes: dict[str, list[int]] = {name: [0] for name in models.aggregators}
        self._saved: dict[str, dict[str, Tensor]] = {}

    def base(self, participant: Participant) -> State:
        """Return the model that a participant starts from: the one it downloaded, or the mean of ``handover.bases``.

        In the mean, tensors of ``beside`` are those of the downloaded one. KeyError if a model is no longer kept.
        """
        first = self.models[participant.base]
        bases = participant.handover.bases
        return {**first, **self._average_models(bases, equal_weights(len(bases)))} if bases else first

    def carried(self, participant: Participant) -> State:
        """Return the model that a participant brings to its neighbours: the one that it starts from."""
        return self.base(participant)

    def trained(self, participant: Participant) -> bool:
        """Return whether the model that a participant downloaded has ever been trained."""
        key = participant.base
        return key.version > 0 or self._changes[key.aggregator][0] > 0

    def figure_of(self, participant: Participant, state: State) -> float | None:
        """Return the number by which the selection policy rates an upload; None if it asks for none.

        SIMILARITY is the similarity of a model's parameters and the change from that model to the upload; the model is
        the participant's base, or the cloud's newest if there is a cloud. GRADIENT_NORM is the norm of the change from
        the base, over the participant's ``travel``.
        """
        if not self.figure:
            return None
        near = self.base(participant)
        if self.figure == SIMILARITY and CLOUD in self.models.aggregators:
            near = self.models.newest(CLOUD)
        names = sorted(self._parameters & state.keys())
        change = {name: state[name].double() - near[name].double() for name in names}
        if self.figure == SIMILARITY:
            return similarity(near, change, names)
        return math.sqrt(squared_norm(change.values())) / self._travel(participant)

    def divided(self, participants: Sequence[Participant]) -> tuple[Weights, float]:
        """Return weights, each over its participant's ``chance``, scaled to the sum 1 or all 0, and the step's length.

        The length is how far the model goes towards the mean, 1 for all the way: ``step`` times the sum before scaling,
        which is 1 if all chances are. RunError if a chance is not 1, and the uploads are not averaged by weight.
        """
        weights, chances = self.weigh(participants), np.array([one.chance for one in participants])
        if (chances == 1).all():
            return weights, self._step(participants)
        if self.rule.needs_uploads or self.settings.aggregation != "mean" or self._private is not None:
            raise RunError(
                "selection.name: its policy has updates weigh 1 / q, which takes a weighted mean of them: leave "
                "learning.dp out, learning.aggregation at 'mean', aggregation.name at 'sync', 'fedavgm' or 'fedadam'."
            )
        weights = weights / chances
        total = float(weights.sum())
        return weights / total if total > 0 else weights, total * self._step(participants)

    def silo_figures(self, _measure: Callable[[State], Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
        """Return []: silos have no models of their own."""
        return []

    def fold(self, updates: Sequence[Update], into: str = AGGREGATOR) -> Folded:
        """Return the version that follows an aggregator's newest model, which is not changed; the caller stores it.

        Tensors of an update that the model lacks are not averaged. Tensors that no upload has, and the whole model if
        no upload has a positive weight, keep their values. Call it once a round: it stores the rule's memory.

        Raises:
            ValueError: these are not all updates that were averaged on arrival, or a tensor of ``beside`` does not fit.
            RunError: the aggregation rule failed, or returned no valid model; or as ``divided``.
        """
        version, present = self.models.versions(into)[-1], self.models.newest(into)
        weights, total = self.divided([update.participant for update in updates])
        weights = used_weights(weights, self.settings)
        state, changed = dict(present), False
        if weights.any():
            weights, made = self._apply_rule(updates, weights, total, present, into)
            state, changed = {**present, **made}, bool(made)
        if self._beside is not None:
            state |= self._call_beside(state, updates, version)
        self._changes[into].append(self._changes[into][version] + changed)
        self._saved.pop(into, None)
        return Folded(weights=weights, state=state)

    def _call_beside(self, state: State, updates: Sequence[Update], version: int) -> State:
        """Call ``beside`` and return its tensors; ValueError for one that the state lacks or has in another shape."""
        assert self._beside is not None
        made = self._beside(state, updates, version)
        for name, tensor in made.items():
            if name not in state or tensor.shape != state[name].shape:
                there = f"one of shape {tuple(state[name].shape)}" if name in state else "no such tensor"
                raise ValueError(
                    f"beside returned '{name}' of shape {tuple(tensor.shape)}, and the server's first state has {there}"
                    f".{place_of(self._beside)}"
                )
        return made

    def merge(self, sources: Mapping[ModelKey, float], into: ModelKey) -> None:
        """Store as ``into``, an aggregator's newest or next model, the mean of ``sources`` by weights that sum to 1."""
        present = self.models.newest(into.aggregator)
        used = {key: weight for key, weight in sources.items() if weight > 0}
        self.models.put({**present, **self._average_models([*used], [*used.values()])}, into)
        # a merged version counts as one change
        changes = self._changes[into.aggregator][: into.version]
        self._changes[into.aggregator] = [*changes, (changes[-1] if changes else 0) + 1]
        self._saved.pop(into.aggregator, None)

    def _average_models(self, keys: Sequence[ModelKey], weights: Sequence[float] | Weights) -> State:
        """Return the weighted mean of stored models, without tensors of ``beside``; a single model is not copied."""
        first = self.models[keys[0]]
        own = self._beside(first, (), keys[0].version).keys() if self._beside is not None else ()
        states = [{name: t for name, t in self.models[key].items() if name not in own} for key in keys]
        # a single model is not copied: after a cloud's round many share it
        return states[0] if len(states) == 1 else weighted_mean(states, weights)

    def _apply_rule(
        self, updates: Sequence[Update], weights: Weights, total: float, present: State, into: str
    ) -> tuple[Weights, Mapping[str, Tensor]]:
        """Call the rule and store its memory; return the weights to record, and the changed tensors ({} for none)."""
        newest = ModelKey(into, self.models.versions(into)[-1])
        streamed = not all(update.state for update in updates)
        # beyond the mean an upload counts by its change: the difference of an older base to the model would be enlarged
        as_changes = self._step([update.participant for update in updates]) != 1
        participants, mean = self.averaged
        if streamed and [update.participant for update in updates] != participants:
            raise ValueError("updates that were averaged as they came can only be aggregated all together")
        states: list[State] = [{name: t for name, t in one.state.items() if name in present} for one in updates]
        counted = [place for place, weight in enumerate(weights) if weight > 0]
        bases = {place: self.base(updates[place].participant) for place in counted}
        for place in () if streamed else counted:
            states[place] = clip(states[place], bases[place], self.settings)
            who = updates[place].participant
            if (as_changes or who.handover.carried == "change") and (who.base != newest or who.handover.bases):
                states[place] = self._add_change(states[place], bases[place], present)
                bases[place] = present
        if not streamed:
            weights = weigh_by_distance(states, weights, self.settings)
            counted = [place for place in counted if weights[place] > 0]
        sent = mean if streamed else states[0]

        def average() -> State:
            """Return the mean of the uploads: made on arrival, private, or by the settings."""
            if streamed:
                return mean
            if self._private is None:
                return combine(states, weights, self.settings)
            return self._private.mean(
                [states[place] for place in counted], [bases[place] for place in counted], present, newest
            )

        given = RoundUploads(
            model=present,
            uploads=[
                self._make_upload(updates[place].participant, states[place], bases[place], float(weights[place]), into)
                for place in counted
            ],
            parameters=self._parameters & sent.keys(),
            memory=self._memory[into],
            mean=lambda: self._scale_step(average(), total, present),
        )
        when = f"in round {newest.version}"
        with plugin_errors(AGGREGATIONS.name, self.rule.name, f"in aggregate {when}"):
            made = self.rule.aggregate(given)
            shares = shares_of(made, given, sent, name=self.rule.name, when=when)
        self._memory[into] = dict(made.memory)
        used = np.zeros(len(updates))
        used[counted] = shares
        return used, made.state

    def _scale_step(self, mean: State, total: float, present: State) -> dict[str, Tensor]:
        """Return the present parameters moved by ``total`` of the way to ``mean``; other tensors are ``mean``'s."""
        if total == 1:
            return dict(mean)
        moved = {
            name: torch.lerp(present[name].double(), mean[name].double(), total).to(mean[name].dtype)
            for name in self._parameters & mean.keys()
        }
        return {**mean, **moved}

    def _add_change(self, state: State, base: State, present: State) -> State:
        """Return ``present``'s tensors of ``state``'s names, parameters plus the change from ``base`` to ``state``."""
        return {
            name: (present[name].double() + (tensor.double() - base[name].double())).to(tensor.dtype)
            if name in self._parameters
            else present[name]
            for name, tensor in state.items()
        }

    def _make_upload(self, who: Participant, state: State, base: State, weight: float, into: str) -> Upload:
        """Return an upload for the rule; ValueError if its staleness, in changes of ``into``'s model, is not known."""
        changes = self._changes[into]
        since = who.base.version if who.base.aggregator == into else who.handover.counted_from
        if since is None:
            raise ValueError(f"vehicle '{who.vehicle_id}' began at '{who.base.aggregator}', and lacks counted_from")
        staleness = changes[-1] - changes[since]
        return Upload(state=state, base=base, weight=weight, staleness=staleness, participant=who)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the models, their numbers of changes as ``versions``, and the rule's memory as ``aggregation.*``."""
        for aggregator in self._changes.keys() - self._saved.keys():
            own = {VERSIONS: torch.tensor(self._changes[aggregator])}
            own |= {MEMORY + name: one.to("cpu", copy=True) for name, one in self._memory[aggregator].items()}
            self._saved[aggregator] = {add_aggregator(name, aggregator): tensor for name, tensor in own.items()}
        own = {name: tensor for aggregator in self._changes for name, tensor in self._saved[aggregator].items()}
        return {**self.models.state_dict(), **own}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned; KeyError for a missing tensor, ValueError for another model's."""
        device = next(iter(self.models.initial.values())).device
        of_models = split_by_aggregator(tensors, self.models.aggregators)
        for aggregator, own in of_models.items():
            self._changes[aggregator] = own.pop(VERSIONS).tolist()
            memory = {name: own.pop(name) for name in [*own] if name.startswith(MEMORY)}
            self._memory[aggregator] = {
                name.removeprefix(MEMORY): tensor.to(device, copy=True) for name, tensor in memory.items()
            }
        self.models.load_state_dict(of_models)
        self._saved = {}
