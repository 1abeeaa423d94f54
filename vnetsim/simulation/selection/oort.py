"""Oort: silos with a large loss on fast vehicles, and a share of silos that were never tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from vnetsim.errors.bounds import Within
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.storage.rows import ParticipationRecord

CLIP = 0.95  # quantile of the statistical utilities above which they count the same
CUT_OFF = 0.95  # the paper's c: drawn are utilities of at least this share of the last that would get a place
STEP_PERCENT = 5.0  # step by which the pacer moves the percentile of durations (percentage points)
FLAT, SHARP = 0.1, 5.0
"""Relative changes of the achieved utility: up to ``FLAT`` the pacer allows more time, from ``SHARP`` on less."""
PERCENTILE = 30.0  # first percentile of the predicted durations; longer participations are penalised
PACER_ROUNDS = 20  # number of rounds between two moves of the percentile
EXPLORED, EXPLORED_DECAY, EXPLORED_LEAST = 0.9, 0.98, 0.2
"""Share of explored places in the first round, its factor per round, and its least value."""


@dataclass(kw_only=True)
class OortMemory:
    """State of the policy during one run."""

    percentile: float = PERCENTILE  # of the predicted durations; longer ones are penalised; the pacer moves it
    # images by vehicle, and whether it was exploited, until its participation ends
    invited: dict[str, tuple[int, bool]] = field(default_factory=dict)
    achieved: list[float] = field(default_factory=list)  # mean v of the exploited silos by round
    mean: float | None = None  # v over all silos of the last round in which any committed; None before the first
    # the v that a silo without a commit is taken to have, and the round, by silo
    failed: dict[int, tuple[float, int]] = field(default_factory=dict)

    def reported(self, candidate: Candidate) -> tuple[float, int] | None:
        """Return utility (images x mean loss) and round of the last upload of a candidate's silo; None if never tried.

        If the silo's last participation did not commit, the pair is that of ``failed``.
        """
        if candidate.silo in self.failed:
            return self.failed[candidate.silo]
        found = candidate.loss_and_round
        return None if found is None else (_images(candidate) * abs(found[0]), found[1])


@dataclass(frozen=True, kw_only=True)
class OortSelection:
    """Draws among the greatest utilities, statistical times systemic; a share of the places goes to untried silos.

    A silo of |B_n| images whose last upload, in round t_n (from 1), had the mean loss l_n has v_n = |B_n| l_n; t is the
    present round, T_n the predicted duration, and clip the .95 quantile of v over the candidates at the moment::

        U_n = (u_n + sqrt(0.1 ln t / t_n)) (T / T_n)^(alpha [T < T_n])
        u_n = (min(v_n, clip) - .999 min v) / (max v - .999 min v)

    Each place is explored with probability e = max(0.2, 0.9 * 0.98^(t-1)): drawn among silos never tried, p_n ~ 1 /
    T_n. The others are drawn, p_n ~ U_n, among utilities of at least .95 of the last that would get one of (1 - e) m of
    m free places. T is a percentile of the T_n, at first the 30th, which a pacer moves. Every 20 rounds it adds what
    exploited silos achieved, the mean v of each round, over the last 20 and over the 20 before: where these sums differ
    by at most a tenth of the earlier one the percentile rises by 5, where by five times it or more it falls by 5.

    Constants, scaling and pacer are those of the authors' code, the cut-off is the paper's. There are three differences
    from that code. An upload brings its mean loss in place of the root of the mean squared loss of its samples.
    Quantiles are over the vehicles that wait, not over all clients, because vehicles come and go. Places are filled
    whenever one is free. As in that code, a silo whose participation does not commit gets the round's mean v.

    Args:
        alpha: exponent of the penalty.
    """

    name: ClassVar[str] = "oort"
    source: ClassVar[str] = (
        "Lai, Zhu, Madhyastha, Chowdhury (2021): Oort, OSDI, Algorithm 1; arXiv:2010.06081; constants and pacer of its "
        "code, github.com/SymbioticLab/Oort and FedScale"
    )
    uses_losses: ClassVar[bool] = True

    alpha: Annotated[float, Within(0, 100, "", "a greater one leaves nothing of what is slower")] = 2.0

    def begin(self) -> OortMemory:
        """Return the state before the first round."""
        return OortMemory()

    def utilities(
        self, known: Sequence[Candidate], preferred_s: float, round_index: int, memory: OortMemory
    ) -> list[float]:
        """Return the utility of each of ``known``, in order: at least one candidate, all of silos that were tried.

        A utility is lowered if the candidate's predicted duration is above ``preferred_s`` (s).
        """
        reports = [memory.reported(candidate) or (0.0, 0) for candidate in known]
        values = [value for value, _ in reports]
        ordered = sorted(values)
        clip, low = ordered[_quantile_index(len(ordered), CLIP)], 0.999 * ordered[0]
        span = max(ordered[-1] - low, 1e-4)
        temporal = 0.1 * math.log(1 + round_index)
        result = []
        for candidate, value, (_, reported) in zip(known, values, reports, strict=True):
            utility = (min(value, clip) - low) / span + math.sqrt(temporal / (1 + reported))
            if (duration_s := candidate.duration_s) > preferred_s:
                utility *= (preferred_s / duration_s) ** self.alpha
            result.append(utility)
        return result

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Iterator[Candidate]:
        """Yield all candidates one by one, drawn among untried silos or great utilities; record each in the memory."""
        known: list[Candidate] = []
        fresh: list[Candidate] = []
        for candidate in context.shuffled(candidates):
            (fresh if context.memory.reported(candidate) is None else known).append(candidate)
        share = max(EXPLORED_LEAST, EXPLORED * EXPLORED_DECAY**context.round)
        speeds = [1 / candidate.duration_s for candidate in fresh]
        ranked: list[tuple[float, Candidate]] = []
        while fresh or known or ranked:
            if fresh and (not (known or ranked) or context.generator.random() < share):
                index = context.drawn(speeds)
                del speeds[index]
                chosen = fresh.pop(index)
                context.memory.invited[chosen.vehicle_id] = _images(chosen), False
                yield chosen
                continue
            if known:  # most choices are over before
                durations_s = [candidate.duration_s for candidate in candidates]
                preferred_s = percentile_s(durations_s, context.memory.percentile)
                utilities = self.utilities(known, preferred_s, context.round, context.memory)
                ranked = sorted(zip(utilities, known, strict=True), key=lambda pair: -pair[0])
                known = []
            last = min(math.ceil((1 - share) * free), len(ranked)) or 1
            pool = [utility for utility, _ in ranked if utility >= CUT_OFF * ranked[last - 1][0]]
            _, chosen = ranked.pop(context.drawn(pool))
            context.memory.invited[chosen.vehicle_id] = _images(chosen), True
            yield chosen

    def after_round(self, records: Sequence[ParticipationRecord], memory: OortMemory) -> None:
        """Record in ``memory`` what the updates achieved; every 20 rounds the pacer moves the percentile."""
        values: list[tuple[float, bool]] = []
        failed = []
        for record in records:
            if record.outcome == "not_selected" or record.vehicle_id not in memory.invited:
                continue
            images, exploited = memory.invited.pop(record.vehicle_id)
            if record.outcome == "committed" and record.loss is not None:
                values.append((images * abs(record.loss), exploited))
                memory.failed.pop(record.silo, None)
            else:
                failed.append(record.silo)
        if values:
            memory.mean = math.fsum(value for value, _ in values) / len(values)
        if memory.mean is not None:
            memory.failed |= dict.fromkeys(failed, (memory.mean, len(memory.achieved)))
        gains = [value for value, exploited in values if exploited]
        memory.achieved.append(math.fsum(gains) / len(gains) if gains else 0.0)
        if len(memory.achieved) < 2 * PACER_ROUNDS or len(memory.achieved) % PACER_ROUNDS:
            return
        earlier, last = memory.achieved[-2 * PACER_ROUNDS : -PACER_ROUNDS], memory.achieved[-PACER_ROUNDS:]
        before, now = math.fsum(earlier), math.fsum(last)
        if abs(now - before) <= FLAT * before:
            memory.percentile = min(100.0, memory.percentile + STEP_PERCENT)
        elif abs(now - before) >= SHARP * before:
            memory.percentile = max(STEP_PERCENT, memory.percentile - STEP_PERCENT)


def percentile_s(durations_s: Sequence[float], percentile: float) -> float:
    """Return a percentile of durations (s; at least one), its rank rounded down; infinite for 100 and above."""
    if percentile >= 100:
        return math.inf
    return sorted(durations_s)[_quantile_index(len(durations_s), percentile / 100)]


def _images(candidate: Candidate) -> int:
    """Return the number of images in a candidate's silo; 1 if the number is 0 or not reported."""
    return candidate.images or 1


def _quantile_index(count: int, share: float) -> int:
    """Return the index of the quantile ``share`` of ``count`` sorted values, rounded down as in the authors' code."""
    return min(int(count * share), count - 1)
