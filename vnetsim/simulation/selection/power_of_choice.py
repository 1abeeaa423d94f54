"""Power of choice: the largest losses of a few who are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from vnetsim.errors.bounds import Within
from vnetsim.simulation.selection import Candidate, SelectionContext


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
        """Return those who were drawn, the largest loss first."""
        # a silo that does not tell its size, or has no image, counts as one image: it can be drawn
        sizes = [candidate.images or 1 for candidate in candidates]
        left = list(candidates)
        few: list[Candidate] = []
        while left and len(few) < max(free, self.drawn):
            index = context.drawn(sizes)
            del sizes[index]
            few.append(left.pop(index))
        return sorted(few, key=lambda candidate: -math.inf if candidate.loss is None else -candidate.loss)
