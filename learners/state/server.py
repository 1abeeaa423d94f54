"""The roadside unit that averages: the models of the rounds, and what the uploads of a round make of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from learners.aggregation.means import Sync
from learners.mathematics.aggregation import Weights
from learners.mathematics.robust import AveragingSettings, clipped, combine, used_weights
from learners.state.global_model import GlobalModel, State, misfit
from learners.state.rules import MEMORY, misfit_rule, shares_of
from vnetsim.learning import Participant, Update
from vnetsim.learning.aggregation import AggregationRule, RoundUploads, Upload

Weigh = Callable[[Sequence[Participant]], Weights]
VERSIONS = "versions"


class Server(GlobalModel):
    """The global models by round, and the weighted mean that ends a round: what all learners do alike that average.

    Args:
        initial: theta^0; kept, not copied.
        max_staleness: see ``GlobalModel``.
        settings: how uploads become one model.
        weigh: gives the weight of every participant: summing to 1, or all 0 to keep the global model.
        not_of_model: see ``GlobalModel``.
        rule: what makes the uploads of a round one model; None for the weighted mean.
        parameters: names of the tensors that are trained, as the uploads have them; a rule asks.

    Raises:
        InputError: the rule reads single uploads, and the settings want a median or a trimmed mean of them.

    Attributes:
        averaged: updates that were averaged as they came, by participant, and their mean; see ``state.streaming``.
    """

    def __init__(
        self,
        initial: State,
        *,
        max_staleness: int,
        settings: AveragingSettings,
        weigh: Weigh,
        not_of_model: tuple[str, ...] = (),
        rule: AggregationRule | None = None,
        parameters: Collection[str] = (),
    ) -> None:
        super().__init__(initial, max_staleness=max_staleness, not_of_model=not_of_model)
        self._settings = settings
        self._weigh = weigh
        self._rule: AggregationRule = rule or Sync()
        self._parameters = frozenset(parameters)
        self._memory: Mapping[str, Tensor] = {}
        if self._rule.needs_uploads and settings.aggregation != "mean":
            raise misfit_rule(self._rule, settings)
        self.averaged: tuple[Sequence[Participant], State] = [], {}
        # how often the model had changed when a round began: a round that only fills a buffer makes no new one
        self._versions = {0: 0}
        self._changes = False

    def fold(
        self, updates: Sequence[Update], uploads: Sequence[Mapping[str, Tensor]] | None = None
    ) -> tuple[Weights, State]:
        """Return the weights of a round's updates, and the next model; the round is not advanced.

        Tensors that no upload has stay as they are. Without an upload of positive weight the model does.

        Args:
            updates: the updates.
            uploads: the part of each that is averaged; its whole state without.

        Raises:
            ValueError: some were averaged as they came, and these are not all of those.
            RunError: the aggregation rule failed, or returned what is no model.
        """
        weights = used_weights(self._weigh([update.participant for update in updates]), self._settings)
        self._changes = False
        if not weights.any():
            return weights, self.current
        states = [update.state for update in updates] if uploads is None else list(uploads)
        streamed = uploads is None and not all(states)
        of, mean = self.averaged
        if streamed and [update.participant for update in updates] != of:
            raise ValueError("updates that were averaged as they came can only be aggregated all together")
        sent = mean if streamed else states[0]
        counted = [place for place, weight in enumerate(weights) if weight > 0]
        for place in () if streamed else counted:
            states[place] = clipped(states[place], self.base(updates[place].participant), self._settings)
        given = RoundUploads(
            model=self.current,
            uploads=[self._upload(updates[place], states[place], float(weights[place])) for place in counted],
            parameters=self._parameters & sent.keys(),
            memory=self._memory,
            mean=lambda: mean if streamed else combine(states, weights, self._settings),
        )
        made = self._rule.aggregate(given)
        shares = shares_of(made, given, sent, name=self._rule.name, when=f"in round {self.round}")
        self._memory, self._changes = dict(made.memory), bool(made.state)
        used = np.zeros(len(updates))
        used[counted] = shares
        return used, {**self.current, **made.state}

    def advance(self, state: State) -> None:
        """End the round; see ``GlobalModel``."""
        version = self._versions[self.round] + self._changes
        super().advance(state)
        self._versions = {round_: self._versions.get(round_, version) for round_ in self.rounds}

    def state_dict(self) -> dict[str, Tensor]:
        """Return what ``GlobalModel`` does, its ``versions``, and under ``aggregation.*`` what the rule remembers."""
        memory = {f"{MEMORY}{name}": tensor.to("cpu", copy=True) for name, tensor in self._memory.items()}
        versions = torch.tensor([self._versions[round_] for round_ in self.rounds])
        return {**super().state_dict(), VERSIONS: versions, **memory}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned; see ``GlobalModel``."""
        memory = {name: tensor for name, tensor in tensors.items() if name.startswith(MEMORY)}
        models = {name: tensor for name, tensor in tensors.items() if name not in memory and name != VERSIONS}
        super().load_state_dict(models)
        versions = tensors.get(VERSIONS)
        if versions is None or versions.shape != (len(self.rounds),):
            raise misfit(VERSIONS)
        self._versions = dict(zip(self.rounds, versions.tolist(), strict=True))
        device = next(iter(self.current.values())).device
        self._memory = {name.removeprefix(MEMORY): tensor.to(device, copy=True) for name, tensor in memory.items()}

    def _upload(self, update: Update, state: State, weight: float) -> Upload:
        who = update.participant
        return Upload(
            state=state,
            base=self.base(who),
            weight=weight,
            staleness=self._versions[self.round] - self._versions[who.base.version],
            download_s=who.download_s,
            train_s=who.train_s,
            upload_s=who.upload_s,
        )

    def base(self, participant: Participant) -> State:
        """Return the model that a participant downloaded: where its own training starts."""
        return self.at(participant.base.version)

    def sent(self, participant: Participant) -> State:
        """Return the model that a participant brings to its neighbours: the one that it downloaded."""
        return self.base(participant)

    def trained(self, participant: Participant) -> bool:
        """Return whether the model that a participant downloaded has been trained."""
        return participant.base.version > 0


def mean_loss(updates: Sequence[Update]) -> dict[str, float]:
    """Return ``loss``, the mean over a round's updates; nothing where there is none."""
    return {"loss": sum(update.loss for update in updates) / len(updates)} if updates else {}
