"""FedCS: as many uploads as fit before the deadline, one after the other on a shared channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vnetsim.simulation.selection import Candidate, SelectionContext


@dataclass(frozen=True, kw_only=True)
class FedCsSelection:
    """Adds, again and again, whoever lengthens the round least, as long as the round ends before its deadline.

    Uploads take turns; S are those chosen, T_d(S) the longest of their downloads, Theta the time of training and
    uploads so far, T what is left of the round::

        x = argmax_n 1 / (T_d(S + n) - T_d(S) + t_up + max(0, t_train - Theta))
        Theta' = Theta + t_up + max(0, t_train - Theta);  taken if T_d(S + x) + Theta' <= T, else left out

    Each choice starts anew, with an empty S: what is in flight is not taken into account. Where one place is free, as
    whenever an upload has just made room, the choice is therefore that of `fastest`: the two differ only where several
    places are free at once, and in whom the deadline leaves out.
    """

    name: ClassVar[str] = "fedcs"
    source: ClassVar[str] = (
        "Nishio, Yonetani (2019): Client selection for federated learning, arXiv:1804.08333, Algorithm 3"
    )

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Iterator[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Yield one after the other who fits; drawn among equals."""
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
