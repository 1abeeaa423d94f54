"""A bandit: silos that were successful and quick, and those that were tried seldom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from vnetsim.setting_checks import Within, check_bounds
from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.simulation.selection.draws import shuffled


class BanditSelection:
    """Takes the greatest upper confidence bound of a silo's reward, which is 1 for an upload at once and 0 for none.

    With the reward x of each of the silo's n_n participations so far, of length d, and t participations in all; those
    that were never tried go first, in random order::

        x = [committed] max(0, 1 - d / scale),  argmax_n mean(x) + c sqrt(ln t / n_n)
    """

    name = "bandit"
    source = "UCB1: Auer, Cesa-Bianchi, Fischer, Machine Learning 47 (2002); the reward is vnetsim's own"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Reward and confidence.

        Args:
            c: weight of the confidence bound, that of UCB1 the root of 2; 0 never tries again what failed.
            scale_s: an upload that took this long has no reward (s).
        """

        c: Annotated[float, Within(0, 1000, "", "rewards are at most 1")] = math.sqrt(2)
        scale_s: Annotated[float, Within(0.1, 1e7, "s", "bounds of round.deadline_s")] = 60.0

        def __post_init__(self) -> None:
            check_bounds("selection", self)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tried: dict[int, tuple[int, float]] = {}  # count and sum of rewards
        self._total = 0

    @classmethod
    def create(cls, settings: Settings) -> BanditSelection:
        """Return the policy with these settings."""
        return cls(settings)

    def bound(self, silo: int) -> float:
        """Return a silo's upper confidence bound."""
        if silo not in self._tried:
            return math.inf
        count, rewards = self._tried[silo]
        return rewards / count + self._settings.c * math.sqrt(math.log(self._total) / count)

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Return all, the greatest bound first; drawn among equals."""
        return sorted(shuffled(candidates, context.generator), key=lambda candidate: -self.bound(candidate.silo))

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Reward what was tried."""
        for record in records:
            if record.outcome != "not_selected":
                took_s = record.end_s - record.start_s
                reward = max(0.0, 1 - took_s / self._settings.scale_s) if record.outcome == "committed" else 0.0
                count, rewards = self._tried.get(record.silo, (0, 0.0))
                self._tried[record.silo] = count + 1, rewards + reward
                self._total += 1
