"""Selection policies: random, or by entry, duration, slack, blur, age, round length or loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated, ClassVar

from vnetsim.errors.bounds import Within
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.simulation.selection.candidate import ExitPredictor
from vnetsim.storage.rows import ParticipationRecord


@dataclass(frozen=True, kw_only=True)
class RandomSelection:
    """Draws the next vehicle; all that wait are equally likely."""

    name: ClassVar[str] = "random"
    source: ClassVar[str] = (
        "McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017"
    )

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Iterator[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Yield all candidates in random order."""
        first = int(context.generator.integers(len(candidates)))
        yield candidates[first]  # often the only one needed, of hundreds
        left = [*candidates[:first], *candidates[first + 1 :]]
        while left:
            yield left.pop(int(context.generator.integers(len(left))))


@dataclass(frozen=True, kw_only=True)
class ArrivalSelection:
    """Takes the vehicle that entered coverage first, which has least time left."""

    name: ClassVar[str] = "arrival"
    source: ClassVar[str] = "first come, first served"

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's arguments
        """Return all candidates in the given order, that of entry into coverage."""
        return candidates


@dataclass(frozen=True, kw_only=True)
class FastestSelection:
    """Takes the smallest predicted duration first.

    The duration is that of download, training and upload with the whole airtime; equal ones come in random order::

        argmin_n T_n,  T_n = t_down + t_train + t_up

    Where one place is free, `fedcs` chooses the same vehicle as long as its participation ends before the deadline.
    """

    name: ClassVar[str] = "fastest"
    source: ClassVar[str] = "greedy on predicted durations, as FedCS (arXiv:1804.08333) without its shared channel"

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Return all candidates, the smallest predicted duration first; ties are random."""
        return sorted(context.shuffled(candidates), key=lambda candidate: candidate.duration_s)


@dataclass(frozen=True, kw_only=True)
class FedCsSelection:
    """Adds, again and again, whoever lengthens the round least, as long as the round ends before its deadline.

    Uploads take turns; S are those chosen, T_d(S) the longest of their downloads, Theta the time of training and
    uploads so far, T what is left of the round::

        x = argmax_n 1 / (T_d(S + n) - T_d(S) + t_up + max(0, t_train - Theta))
        Theta' = Theta + t_up + max(0, t_train - Theta);  taken if T_d(S + x) + Theta' <= T, else left out

    Each choice starts with an empty S and ignores participations in flight. If one place is free, as when an upload has
    just finished, the choice is therefore that of `fastest`. The two differ only if several places are free at once,
    and in the vehicles that the deadline excludes.
    """

    name: ClassVar[str] = "fedcs"
    source: ClassVar[str] = (
        "Nishio, Yonetani (2019): Client selection for federated learning, arXiv:1804.08333, Algorithm 3"
    )

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Iterator[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Yield whoever lengthens the round least, until one does not fit before the deadline; ties are random."""
        left_s = context.deadline_s - context.now_s
        download_s = elapsed_s = 0.0
        waiting = [(c.parts_s, c) for c in context.shuffled(candidates)]
        while waiting:
            costs = [
                max(down_s - download_s, 0.0) + up_s + max(0.0, train_s - elapsed_s)
                for (down_s, train_s, up_s), _ in waiting
            ]
            (down_s, train_s, up_s), chosen = waiting.pop(costs.index(min(costs)))
            longest_s, after_s = max(download_s, down_s), elapsed_s + up_s + max(0.0, train_s - elapsed_s)
            if longest_s + after_s > left_s:
                return  # it lengthens the round least: the others, which Algorithm 3 tries next, do not fit either
            download_s, elapsed_s = longest_s, after_s
            yield chosen


@dataclass(frozen=True, kw_only=True)
class FeasibleSelection:
    """Takes only vehicles that are predicted to be covered long enough, ordered by slack.

    R_n is the predicted rest of the window, a the number of transfers that share the airtime of the vehicle's RSU now;
    k invitations add k transfers::

        T_n = t_train + (a + k) (t_down + t_up),  slack_n = R_n - T_n (1 + margin) >= 0

    k is the number of free places or, if fewer vehicles have enough time, the largest k for which k vehicles do. The
    least slack goes first, because the others can still wait.

    Args:
        margin: share by which the rest of the window must exceed the participation, for what was predicted wrong.
        predictor: how the rest of the window is predicted: `straight` on at the present speed; the `oracle` knows
            the exit, where paths are known beforehand; `history`, the mean dwell of earlier windows from the same
            approach.
    """

    name: ClassVar[str] = "feasible"
    source: ClassVar[str] = "a rule of vnetsim's own"

    margin: Annotated[float, Within(0, 1000, "", "no window lasts for a thousand participations")] = 0.2
    predictor: ExitPredictor = "straight"

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:
        """Return only candidates with enough time, maybe none, the least slack first; ties are random."""
        waiting = [(candidate.remaining_s(self.predictor), candidate) for candidate in context.shuffled(candidates)]
        for begun in range(free, 0, -1):
            able = self._able(waiting, begun)
            if len(able) >= begun:
                return able if begun == free else able[:begun]  # more have the time, but not all at once
        return []

    def _able(self, waiting: Sequence[tuple[float, Candidate]], begun: int) -> list[Candidate]:
        """Return who has time if ``begun`` begin now, least slack first; ``waiting`` has (rest (s), candidate)."""
        factor, able = 1 + self.margin, []
        for remaining_s, candidate in waiting:
            if remaining_s < factor * candidate.train_s:  # rates cost time, and not even the training fits
                continue
            download_s, train_s, upload_s = candidate.parts_s
            took_s = train_s + (candidate.transfers + begun) * (download_s + upload_s)
            if (slack_s := remaining_s - factor * took_s) >= 0:
                able.append((slack_s, candidate))
        return [candidate for _, candidate in sorted(able, key=itemgetter(0))]


@dataclass(frozen=True, kw_only=True)
class SharpestSelection:
    """Takes the lowest blur level first: motion blurs its images least.

    With L_n the blur level of the speed that the vehicle reports; equal ones in random order::

        argmin_n L_n
    """

    name: ClassVar[str] = "sharpest"
    source: ClassVar[str] = "a rule of vnetsim's own, on the blur level of FLSimCo (arXiv:2408.00256)"

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Return all candidates, the lowest blur level first; ties are random."""
        return sorted(context.shuffled(candidates), key=lambda candidate: candidate.level_px)


@dataclass(frozen=True, kw_only=True)
class AgeSelection:
    """Takes the silo first whose last update lies furthest back.

    In round r, with r_n the last round that took an update of the silo, -1 before the first; equal ones, such as
    all silos that never took part, come in random order::

        argmax_n a_n,  a_n = r - r_n
    """

    name: ClassVar[str] = "age"
    source: ClassVar[str] = "a rule of vnetsim's own: longest absent first"

    def begin(self) -> dict[int, int]:
        """Return an empty memory, which will have the last round that took an update, by silo."""
        return {}

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Return all candidates, those of the longest absent silos first; ties are random."""
        return sorted(context.shuffled(candidates), key=lambda candidate: context.memory.get(candidate.silo, -1))

    def after_round(self, records: Sequence[ParticipationRecord], memory: dict[int, int]) -> None:
        """Set in ``memory`` the round of each silo whose update was aggregated."""
        memory.update({record.silo: record.round for record in records if record.outcome == "committed"})


@dataclass(frozen=True, kw_only=True)
class PowerOfChoiceSelection:
    """Draws some by the size of their data, and takes those of the largest loss.

    The variant rpow-d: a silo's loss is the one that came with its last upload, infinite before the first, so that
    asking costs nothing. With m free places and |B_n| images::

        d' = max(m, drawn) without replacement, p_n = |B_n| / sum_k |B_k|; of these the m largest l_n

    Among equal losses, such as those of silos without one, who was drawn first goes first.

    Args:
        drawn: candidates drawn for each choice; as many as there are free places where those are more.
    """

    name: ClassVar[str] = "power-of-choice"
    source: ClassVar[str] = "Cho, Wang, Joshi (2020): Client selection in federated learning, arXiv:2010.01243"
    uses_losses: ClassVar[bool] = True

    drawn: Annotated[int, Within(1, 100_000, "vehicles", "no more are in coverage")] = 6

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:
        """Draw max(``free``, ``drawn``) by data size; return those without a loss first, then the largest losses."""
        # a silo of unknown size, or without images, counts as one image, so that it can be drawn
        sizes = [candidate.images or 1 for candidate in candidates]
        left = list(candidates)
        few: list[Candidate] = []
        while left and len(few) < max(free, self.drawn):
            index = context.drawn(sizes)
            del sizes[index]
            few.append(left.pop(index))
        return sorted(few, key=lambda candidate: -math.inf if candidate.loss is None else -candidate.loss)
