"""Oort: silos of great loss on fast vehicles, and a share of such as were never tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from vnetsim.setting_checks import Within, check_bounds
from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.simulation.selection.draws import drawn, quantile


class OortSelection:
    """Takes the greatest utility, statistical times systemic; a share of the places goes to silos without a loss.

    |B_n| images, l_n the mean loss of the last upload and t_n its round (from 1), t the present round, T_n the
    predicted duration, T the preferred one; clip is the ``clip`` quantile of |B_n| |l_n| over the candidates::

        U_n = ( min(|B_n| |l_n|, clip) + sqrt(0.1 ln t / t_n) ) (T / T_n)^(alpha [T < T_n])

    Oort takes the root of the mean squared loss of a silo's samples; an upload brings their mean, which stands for it.
    A place is explored with probability max(explored_least, explored explored_decay^(t-1)): drawn among silos without
    a loss, p_n ~ 1 / T_n. Other places go to the greatest U_n. Oort draws among the greatest, and its pacer adapts T;
    its authors' code besides scales clipped utilities to [0, 1] over the candidates before the root is added, which
    then weighs more.
    """

    name = "oort"
    source = "Lai, Zhu, Madhyastha, Chowdhury (2021): Oort, OSDI, Algorithm 1; arXiv:2010.06081"
    uses_losses = True

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Utility and exploration.

        Args:
            preferred_s: duration of a participation, T, above which it is penalised (s).
            alpha: exponent of the penalty.
            clip: quantile above which statistical utilities count the same.
            explored: share of places explored in the first round.
            explored_decay: by which that share is multiplied each round.
            explored_least: below which it does not fall.
        """

        preferred_s: Annotated[float, Within(0.1, 1e7, "s", "bounds of round.deadline_s")] = 20.0
        alpha: Annotated[float, Within(0, 100, "", "a greater one leaves nothing of what is slower")] = 2.0
        clip: Annotated[float, Within(0, 1, "", "a quantile")] = 0.98
        explored: Annotated[float, Within(0, 1, "", "a share")] = 0.9
        explored_decay: Annotated[float, Within(0, 1, "", "a share")] = 0.95
        explored_least: Annotated[float, Within(0, 1, "", "a share")] = 0.2

        def __post_init__(self) -> None:
            check_bounds("selection", self)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: Settings) -> OortSelection:
        """Make it."""
        return cls(settings)

    def utilities(
        self, known: Sequence[Candidate], losses: Sequence[tuple[float, int]], round_index: int
    ) -> list[float]:
        """Return U_n of candidates that have a loss, given ``loss_and_round`` of each, in a round counted from 0."""
        utilities = [(candidate.images or 1) * abs(loss) for candidate, (loss, _) in zip(known, losses, strict=True)]
        most, preferred_s = quantile(utilities, self._settings.clip), self._settings.preferred_s
        temporal, alpha = 0.1 * math.log(1 + round_index), self._settings.alpha
        result = []
        for candidate, statistical, (_, reported) in zip(known, utilities, losses, strict=True):
            utility = min(statistical, most) + math.sqrt(temporal / (1 + reported))
            if (duration_s := candidate.duration_s) > preferred_s:
                utility *= (preferred_s / duration_s) ** alpha
            result.append(utility)
        return result

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Iterator[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Yield one after the other, explored or of the greatest utility; in order of entry among equals."""
        known: list[Candidate] = []
        fresh: list[Candidate] = []
        losses: list[tuple[float, int]] = []
        for candidate in candidates:
            if (told := candidate.loss_and_round) is None:
                fresh.append(candidate)
            else:
                known.append(candidate)
                losses.append(told)
        speeds: list[float] = []
        decayed = self._settings.explored * self._settings.explored_decay**context.round
        share = max(self._settings.explored_least, decayed)
        left = len(known)
        ranked: Iterator[int] = iter(())
        while left or fresh:
            if fresh and (not left or context.generator.random() < share):
                speeds = speeds or [1 / candidate.duration_s for candidate in fresh]
                index = drawn(speeds, context.generator)
                del speeds[index]
                yield fresh.pop(index)
                continue
            if left == len(known):  # most choices are over before
                utilities = self.utilities(known, losses, context.round)
                ranked = iter(sorted(range(left), key=utilities.__getitem__, reverse=True))
            left -= 1
            yield known[next(ranked)]

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Learn nothing: a candidate's loss is what was recorded."""
