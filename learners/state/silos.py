"""State that stays with a silo's data when another vehicle carries it, and silos' own models that neighbours mix."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from learners.data.moving import to_device
from learners.engines.programs import State
from learners.mathematics.mixing import Matrix, half_received, metropolis_hastings, mix
from learners.mathematics.weights import equal_weights, squared_norm, weighted_mean
from learners.state.models import Models
from learners.state.server import Folded
from vnetsim.learning import AGGREGATOR, Participant, Peer, Update
from vnetsim.learning.mixing_weights import metropolis_hastings_row

SILO = "silo."  # prefix of the silos' tensors in a learner's state


@dataclass(frozen=True, kw_only=True, eq=False)
class SiloState:
    """One silo's tensors, on the CPU, never changed in place."""

    shared: State = field(default_factory=dict)  # its model, mixed with other silos'; empty if the model is the RSU's
    own: State = field(default_factory=dict)  # tensors that never leave the silo


class SiloStates:
    """The states of the silos that took part so far; ``own``: whether silos keep state between their trainings."""

    def __init__(self, *, own: bool = False) -> None:
        self.own = own
        self._states: dict[int, SiloState] = {}

    def __getitem__(self, silo: int) -> SiloState:
        """Return a silo's state; empty before it first took part."""
        return self._states.get(silo, SiloState())

    def keep(self, silo: int, **parts: State) -> None:
        """Replace ``shared``, ``own`` or both of a silo's state by the given tensors, which are not copied."""
        self._states[silo] = replace(self[silo], **parts)

    @property
    def trained(self) -> dict[int, SiloState]:
        """The states of the silos that took part so far, by silo, in ascending order."""
        return dict(sorted(self._states.items()))

    def state_dict(self) -> dict[str, Tensor]:
        """Return ``silo.I.shared.*`` and ``silo.I.own.*`` of each silo I: the tensors themselves, not copies."""
        return {
            f"{SILO}{silo}.{part}.{name}": tensor
            for silo, state in self.trained.items()
            for part in ("shared", "own")
            for name, tensor in getattr(state, part).items()
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace all states by those that ``state_dict`` returned."""
        parts: dict[int, dict[str, dict[str, Tensor]]] = {}
        for key, tensor in tensors.items():
            _, silo, part, name = key.split(".", 3)
            parts.setdefault(int(silo), {"shared": {}, "own": {}})[part][name] = tensor
        self._states = {silo: SiloState(**state) for silo, state in parts.items()}


class OwnModels:
    """The models of silos without a server, and how neighbours mix them.

    A silo that did not take part yet has theta^0, which is not mixed. The aggregator's model is the mean of the models
    of the silos that took part.

    ``mixing`` is ``before``: a vehicle mixes its peers' models with its silo's before it trains; ``after``: at the end
    of a round all its vehicles mix, with Metropolis-Hastings weights on the graph of completed exchanges; ``ring``: at
    the end of a round each vehicle mixes half of its own model with half of what it received. The tensors
    ``consensus_of`` are those whose distance from their mean is the metric ``consensus_distance``; without any there is
    no such metric.
    """

    def __init__(
        self,
        models: Models,
        silos: SiloStates,
        *,
        mixing: Literal["before", "after", "ring"],
        consensus_of: Collection[str] = (),
    ) -> None:
        self.models = models
        self._silos = silos
        self._mixing = mixing
        self._consensus_of = consensus_of
        self._measured: dict[int, tuple[State, Mapping[str, float]]] = {}

    def trained(self, participant: Peer) -> bool:
        """Return whether the silo of a vehicle took part before."""
        return bool(self._silos[participant.silo].shared)

    def carried(self, participant: Peer) -> State:
        """Return the model of a vehicle's silo, which it brings to its neighbours; theta^0 if it never took part."""
        return self._silos[participant.silo].shared or self.models.initial

    def base(self, participant: Participant) -> State:
        """Return the model that a vehicle starts from: its silo's, mixed with its peers' if ``mixing`` is ``before``.

        A silo that has not been trained yet neither mixes nor is mixed; its weight stays with the other vehicle.
        """
        own = self.carried(participant)
        peers = [peer for peer in participant.peers if self.trained(peer)]
        if self._mixing != "before" or not (peers and self.trained(participant)):
            return own
        neighbours = max(participant.neighbours, len(participant.peers))
        weights = metropolis_hastings_row(neighbours, [peer.neighbours for peer in peers])
        return weighted_mean([own, *(self.carried(peer) for peer in peers)], weights)

    def fold(self, updates: Sequence[Update], into: str = AGGREGATOR) -> Folded:  # noqa: ARG002 - silos have one model
        """Mix the updates' models, all at once, and store them as their silos' models; a silo's last update counts.

        With ``mixing`` ``before`` they are stored unmixed. The returned ``state`` is the mean of the silos' models,
        theta^0 if none took part yet. A peer without an update is left out of the graph; the weights still sum to 1.
        """
        shared: Sequence[State] = [to_device(update.state, torch.device("cpu")) for update in updates]
        exchanges: Mapping[tuple[str, str], float] = {}
        if updates and self._mixing != "before":
            matrix, exchanges = self._mixing_weights([update.participant for update in updates])
            shared = mix(shared, matrix)
        for update, state in zip(updates, shared, strict=True):
            self._silos.keep(update.participant.silo, shared=state)
        trained = [state.shared for state in self._silos.trained.values()]
        mean = weighted_mean(trained, equal_weights(len(trained))) if trained else self.models.initial
        distance = {"consensus_distance": self._distance(trained, mean)} if trained and self._consensus_of else {}
        return Folded(weights=equal_weights(len(updates)), state=mean, exchanges=exchanges, metrics=distance)

    def silo_figures(self, measure: Callable[[State], Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
        """Return ``measure`` of each silo's model, in ascending order; only changed models are measured again."""
        trained = self._silos.trained
        for silo, state in trained.items():
            if silo not in self._measured or self._measured[silo][0] is not state.shared:
                self._measured[silo] = (state.shared, measure(state.shared))
        return [self._measured[silo][1] for silo in trained]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the mean of the silos' models as ``Models`` saves it; ``SiloStates`` saves the silos' models."""
        return self.models.state_dict()

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the mean that ``state_dict`` returned; ``SiloStates`` restores the silos' models."""
        self.models.load_state_dict({AGGREGATOR: tensors})

    def _mixing_weights(self, participants: Sequence[Participant]) -> tuple[Matrix, dict[tuple[str, str], float]]:
        """Return the mixing matrix (row i: vehicle i's weights), and each exchange's weight by (sender, receiver)."""
        # the weight of an exchange is 0 if the sender has no update
        ids = [participant.vehicle_id for participant in participants]
        completed = [(i, peer.vehicle_id) for i, receiver in enumerate(participants) for peer in receiver.peers]
        received = np.zeros((len(ids), len(ids)), dtype=np.bool_)
        for i, sender in completed:
            if sender in ids:
                received[i, ids.index(sender)] = True
        matrix = half_received(received) if self._mixing == "ring" else metropolis_hastings(received & received.T)
        weights = {
            (sender, ids[i]): float(matrix[i, ids.index(sender)]) if sender in ids else 0.0 for i, sender in completed
        }
        return matrix, weights

    def _distance(self, trained: Sequence[State], mean: State) -> float:
        """Return sqrt(mean over silos of |theta_i - mean|^2) over the tensors ``consensus_of``."""
        squares = [squared_norm(state[name] - mean[name] for name in self._consensus_of) for state in trained]
        return math.sqrt(math.fsum(squares) / len(squares))
