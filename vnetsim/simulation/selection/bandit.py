"""A bandit: silos that were successful and quick, and those that were tried seldom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.storage.rows import ParticipationRecord

WEIGHT = math.sqrt(2)
"""Of the confidence bound: UCB1's."""
NO_REWARD_S = 60.0
"""An upload that took as long as a round lasts by default has no reward."""


@dataclass(kw_only=True)
class Tried:
    """What was tried so far: how often in all, and count and sum of rewards by silo."""

    total: int = 0
    rewards: dict[int, tuple[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BanditSelection:
    """Takes the greatest upper confidence bound of a silo's reward, which is 1 for an upload at once and 0 for none.

    With the reward x of each of the silo's n_n participations so far, of length d, and t participations in all; those
    that were never tried go first, in random order::

        x = [committed] max(0, 1 - d / 60 s),  argmax_n mean(x) + sqrt(2 ln t / n_n)
    """

    name: ClassVar[str] = "bandit"
    source: ClassVar[str] = "UCB1: Auer, Cesa-Bianchi, Fischer, Machine Learning 47 (2002); the reward is vnetsim's own"

    def begin(self) -> Tried:
        """Return what was tried so far."""
        return Tried()

    def bound(self, silo: int, tried: Tried) -> float:
        """Return a silo's upper confidence bound."""
        if silo not in tried.rewards:
            return math.inf
        count, rewards = tried.rewards[silo]
        return rewards / count + WEIGHT * math.sqrt(math.log(tried.total) / count)

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Return all, the greatest bound first; drawn among equals."""
        return sorted(context.shuffled(candidates), key=lambda candidate: -self.bound(candidate.silo, context.memory))

    def after_round(self, records: Sequence[ParticipationRecord], memory: Tried) -> None:
        """Reward what was tried."""
        for record in records:
            if record.outcome != "not_selected":
                took_s = record.end_s - record.start_s
                reward = max(0.0, 1 - took_s / NO_REWARD_S) if record.outcome == "committed" else 0.0
                count, rewards = memory.rewards.get(record.silo, (0, 0.0))
                memory.rewards[record.silo] = count + 1, rewards + reward
                memory.total += 1
