"""Silos with a model of their own, and no server: what they send, mix, and are worth together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from learners.data.moving import moved
from learners.mathematics.aggregation import Weights, equal_weights, weighted_mean
from learners.mathematics.mixing import metropolis_hastings_row
from learners.state.global_model import State
from learners.state.silo_states import SiloState, SiloStates
from vnetsim.learning import Participant, Peer, Update


class OwnModels:
    """The models of the silos that took part so far; the others have theta^0, which is mixed with nobody's.

    Args:
        initial: theta^0; kept, not copied.
        silos: number of silos.
    """

    def __init__(self, initial: State, *, silos: int) -> None:
        self._initial = initial
        self._silos = SiloStates(silos, lambda: SiloState(shared=initial))
        self._measured: dict[int, tuple[State, float]] = {}

    def trained(self, participant: Participant | Peer) -> bool:
        """Return whether a vehicle's silo took part before."""
        return bool(self._silos[participant.silo].shared)

    def sent(self, participant: Participant | Peer) -> State:
        """Return the model that a silo's vehicle brings to its hosts."""
        return self._silos[participant.silo].shared or self._initial

    def base(self, participant: Participant) -> State:
        """Return what a vehicle makes of its silo's model and those of its peers, before it trains.

        A silo that has not been trained yet neither mixes nor is mixed: its share stays with the other vehicle.
        """
        own = self.sent(participant)
        peers = [peer for peer in participant.peers if self.trained(peer)]
        if not (peers and self.trained(participant)):
            return own
        neighbours = max(participant.neighbours, len(participant.peers))
        weights = metropolis_hastings_row(neighbours, [peer.neighbours for peer in peers])
        return weighted_mean([own, *(self.sent(peer) for peer in peers)], weights)

    def fold(self, updates: Sequence[Update]) -> tuple[Weights, State]:
        """Take what updates made of their silos' models, of two of one silo the later one.

        Returns:
            Equal weights, for the record, and the mean of the silos' models.
        """
        for update in updates:
            shared = moved(update.state, torch.device("cpu"))
            self._silos[update.participant.silo] = SiloState(shared=shared)
        return equal_weights(len(updates)), self.average()

    def average(self) -> State:
        """Return the mean of the silos' models; theta^0 before any took part."""
        states = [state.shared for state in self._silos.trained.values()]
        return weighted_mean(states, equal_weights(len(states))) if states else self._initial

    def accuracies(self, accuracy: Callable[[State], float]) -> dict[str, float]:
        """Return the accuracy of the silos' models: mean, best and worst; nothing before any took part.

        A model is measured anew only when it is another one.
        """
        trained = self._silos.trained
        for silo, state in trained.items():
            if silo not in self._measured or self._measured[silo][0] is not state.shared:
                self._measured[silo] = (state.shared, accuracy(state.shared))
        values = [self._measured[silo][1] for silo in trained]
        if not values:
            return {}
        return {
            "accuracy_silos": math.fsum(values) / len(values),
            "accuracy_best": max(values),
            "accuracy_worst": min(values),
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return ``silo.I.shared.*``; see ``SiloStates``."""
        return self._silos.state_dict()

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            InputError: when the tensors are not of this learner.
        """
        self._silos.load_state_dict(tensors)
