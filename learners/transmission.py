"""Between local training and averaging: hostile vehicles change what they send, and codecs round what is sent.

With the codec ``float32`` both ways and no hostile vehicle, models and updates pass unchanged, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from learners.data.moving import to_device
from learners.engines.programs import State, add_prefix, remove_prefix
from learners.state.rules import NOT_FINITE, describe_bad_tensor
from vnetsim.errors import InputError, NotFiniteError, RunError
from vnetsim.learning import LearnerContext, Participant, Update
from vnetsim.learning.codecs import CODECS, Sent
from vnetsim.learning.conduct import CONDUCTS, Hostile, HostileRound, Sends, is_hostile
from vnetsim.plugins import Kind, place_of, plugin_errors

CODEC, CONDUCT = "codec.", "conduct."  # prefixes of the memories of codec and conduct in a silo's state


class Transmission:
    """The codecs of a run, and the conduct of its hostile vehicles; InputError if several RSUs aggregate one training.

    ``names`` are the tensors that are encoded: all that are sent, without BatchNorm's statistics and counters.
    """

    def __init__(self, context: LearnerContext, names: Collection[str]) -> None:
        self._codec, self._download, self._conduct = context.codec, context.download_codec, context.conduct
        self._names, self._streams = frozenset(names), context.streams
        self._hostile = context.experiment.hostile
        if context.joint:
            raise InputError(
                "handover.policy: with 'multi' several RSUs aggregate one training, and a codec or a conduct would "
                f"change it for each; take another policy, or leave {CODECS.key} and {CONDUCTS.key} out."
            )

    def decode_download(self, participant: Participant, model: State, download: object = "model") -> State:
        """Return what a vehicle decodes of a model that it downloads; the model itself without a codec of downloads.

        ``download`` names it: of several downloads by one vehicle in a round, each has its own random draws.
        """
        if self._download is None:
            return model
        sent = {name: model[name] for name in model if name in self._names}
        return {**model, **self._apply_codec(self._download, sent, {}, participant, "download", download).tensors}

    def encode_updates(
        self,
        updates: Sequence[Update],
        *,
        known: Callable[[Participant], State],
        own: Callable[[Participant], State],
        model_alone: bool,
    ) -> list[Update]:
        """Return all updates of a round as the server decodes them, in order; those that are not finite unchanged.

        A decoded change is added to the model that ``known`` returns, the downloaded one before its codec. Memories of
        codec and conduct are read from the silo's tensors that ``own`` returns, and added to ``Update.kept``. Tensors
        beside the model pass unchanged, or raise RunError if ``model_alone``. RunError also if a plug-in breaks its
        protocol, NotFiniteError if it sends values that are not finite.
        """
        fine = {place: update for place, update in enumerate(updates) if update.finite}
        models = {place: known(one.participant) for place, one in fine.items()}
        for place, one in fine.items() if model_alone else ():
            if besides := sorted(one.state.keys() - models[place].keys()):
                raise RunError(
                    f"{CODECS.key}, {CONDUCTS.key}: the learner sends '{besides[0]}' besides the model, which would "
                    "pass unchanged; leave codecs and conducts out (a learner says so by takes_codec = False)."
                )
        changes = {
            place: self._encoded_change(one.state, self.decode_download(one.participant, models[place]))
            for place, one in fine.items()
        }
        kept = {place: own(one.participant) for place, one in fine.items()}
        others = self._hostile_changes(updates, changes, kept)
        result, newest = list(updates), dict[int, State]()
        for place in fine:
            hostile, update, before = place in others, updates[place], kept[place]
            change, memory = others.get(place, (changes[place], remove_prefix(CONDUCT, before)))
            memories = add_prefix(CONDUCT, memory)
            if self._codec is not None:
                # the silo's error is sent once, by the first of its vehicles in the round
                silo = update.participant.silo
                past = to_device(newest.get(silo, remove_prefix(CODEC, before)), _device_of(change))
                found = self._apply_codec(self._codec, change, past, update.participant, "upload")
                newest[silo] = found.memory
                change, memories = found.tensors, memories | add_prefix(CODEC, found.memory)
            if memories:
                memories = to_device(memories, torch.device("cpu"))
                update = replace(update, kept={**(update.kept or drop_memories(before)), **memories})
            if hostile or self._codec or self._download:
                # a conduct that makes up its change has trained nothing, so its statistics are the downloaded ones
                made_up = hostile and not self._conduct.flips_labels
                model = to_device(models[place], _device_of(change))
                state = {name: model.get(name, one) if made_up else one for name, one in update.state.items()}
                state |= {name: (model[name] + one).to(one.dtype) for name, one in change.items()}
                update = replace(update, state=state)
            result[place] = update
        return result

    def _encoded_change(self, state: State, base: State) -> dict[str, Tensor]:
        """Return the change, ``state`` minus ``base``, of the tensors to be encoded, on the device of ``state``."""
        return {name: tensor - base[name].to(tensor.device) for name, tensor in state.items() if name in self._names}

    def _hostile_changes(
        self, updates: Sequence[Update], changes: Mapping[int, State], kept: Mapping[int, State]
    ) -> dict[int, tuple[State, State]]:
        """Return the conduct's change and memory for each hostile update, by place; RunError if they are invalid."""
        ids = {place: updates[place].participant.vehicle_id for place in changes if self._conduct is not None}
        places = [place for place, one in ids.items() if is_hostile(one, self._hostile, self._streams)]
        if not places:
            return {}
        who = [updates[place].participant for place in places]
        given = HostileRound(
            hostile=[
                Hostile(
                    vehicle_id=one.vehicle_id,
                    change=changes[place],
                    memory=to_device(remove_prefix(CONDUCT, kept[place]), _device_of(changes[place])),
                    draws=self._draws(one, "conduct"),
                )
                for place, one in zip(places, who, strict=True)
            ],
            honest=[change for place, change in changes.items() if place not in places],
        )
        with plugin_errors(CONDUCTS.name, self._conduct.name, f"in send in round {who[0].round}"):
            sent = list(self._conduct.send(given))
        if len(sent) != len(places) or not all(isinstance(one, Sends) for one in sent):
            problem = f"it returned {len(sent)} results for {len(places)} vehicles, expected a Sends each"
            raise _make_error(CONDUCTS, self._conduct, who[0], problem)
        for place, one, participant in zip(places, sent, who, strict=True):
            _check_result(CONDUCTS, self._conduct, participant, one.change, changes[place], one.memory)
        return {place: (one.change, one.memory) for place, one in zip(places, sent, strict=True)}

    def _apply_codec(self, codec: Any, tensors: State, memory: State, who: Participant, *names: object) -> Sent:
        """Return what a codec sends of tensors; RunError if it is invalid. Draws depend on ``names`` and vehicle."""
        with plugin_errors(CODECS.name, codec.name, f"in send in round {who.round} at vehicle '{who.vehicle_id}'"):
            sent: Sent = codec.send(tensors, memory, self._draws(who, "codec", *names))
        if not isinstance(sent, Sent):
            raise _make_error(CODECS, codec, who, f"it returned {sent!r:.80}, expected a Sent")
        _check_result(CODECS, codec, who, sent.tensors, tensors, sent.memory)
        return sent

    def _draws(self, who: Participant, *names: object) -> torch.Generator:
        """Return a CPU generator seeded by ``names``, the vehicle, and the round or model from which it started."""
        return torch.Generator().manual_seed(self._streams.integer(*names, *who.started, who.vehicle_id))


def drop_memories(own: State) -> dict[str, Tensor]:
    """Return a silo's kept tensors without the memories of codec and conduct."""
    return {name: tensor for name, tensor in own.items() if not name.startswith((CODEC, CONDUCT))}


def _device_of(tensors: State) -> torch.device:
    """Return the device of the first of one or more tensors."""
    return next(iter(tensors.values())).device


def _check_result(kind: Kind, plugin: Any, who: Participant, made: State, given: State, memory: State) -> None:
    """Raise RunError unless ``made`` has ``given``'s names, shapes, types; NotFiniteError for NaN or inf in either."""
    if not isinstance(made, Mapping) or made.keys() != given.keys():
        names = ", ".join(sorted(set(made) ^ given.keys()))[:80] if isinstance(made, Mapping) else repr(made)[:80]
        raise _make_error(kind, plugin, who, f"it returned other tensors than it was given: {names}")
    named = {f"'{name}'": tensor for name, tensor in made.items()}
    named |= {f"'{name}' of its memory": tensor for name, tensor in memory.items()}
    if problem := describe_bad_tensor(named, {f"'{name}'": tensor for name, tensor in given.items()}):
        error = NotFiniteError if problem.endswith(NOT_FINITE) else RunError
        raise _make_error(kind, plugin, who, problem, error)


def _make_error(kind: Kind, plugin: Any, who: Participant, problem: str, error: type[RunError] = RunError) -> RunError:
    """Return, not raise, the error that says how a plug-in broke its protocol at a vehicle."""
    where = f"in send in round {who.round} at vehicle '{who.vehicle_id}'"
    return error(f"{kind.name} '{plugin.name}' failed {where}: {problem}.{place_of(getattr(plugin, 'send', None))}")
