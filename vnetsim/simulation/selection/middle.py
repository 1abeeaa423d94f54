"""In-edge selection of MIDDLE: the vehicles whose last updates were least similar to the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vnetsim.learning import SIMILARITY
from vnetsim.simulation.selection import Candidate, SelectionContext


@dataclass(frozen=True, kw_only=True)
class LeastSimilarSelection:
    """Takes the silos whose last update was least similar to the cloud's model: in-edge selection of MIDDLE.

    With w_n the uploaded model, and w_c the cloud's as it was then or, without a cloud, the model that the vehicle had
    downloaded, over the parameters::

        argmin_n U(w_c, w_n - w_c),  U(a, b) = max(0, cos(a, b))

    U of a silo without an update is 0: it would bring w_c itself, without a change. It goes first, with silos whose
    change was at right angles to w_c or against it. Equal ones come in random order. U stays until the silo's next
    update at the same aggregator, even if w_c changes in between.
    """

    name: ClassVar[str] = "least-similar"
    source: ClassVar[str] = (
        "MIDDLE: Zhang, Zheng, Wu, Li, Shao, Chen (2023), ICPP, 10.1145/3605573.3605643, where U(w_c, w_n - w_c) "
        "approximates U(w_c*, w_n - w_c), w_c* the optimum"
    )
    uses_losses: ClassVar[bool] = True
    figure: ClassVar[str] = SIMILARITY

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Return all candidates, the least similar first; silos without an update count as 0, ties are random."""
        return sorted(context.shuffled(candidates), key=lambda one: one.figures[-1][0] if one.figures else 0.0)
