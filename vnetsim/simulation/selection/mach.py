"""MACH: vehicles with large gradients are drawn more often, and each update weighs less accordingly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from vnetsim.errors.bounds import Within
from vnetsim.learning import GRADIENT_NORM
from vnetsim.simulation.selection import Candidate, SelectionContext


@dataclass(frozen=True, kw_only=True)
class MachSelection:
    """Draws by the norm of gradients, and makes up for it: every update weighs 1 / q, q its chance to be drawn.

    Of N vehicles that wait, K places are drawn so that exactly K are taken, vehicle n with probability q_n; its update
    gets the learner's weight p_n, times the mean chance K / N over its own::

        q_n = min(1, lambda G_n),  sum_n q_n = K
        w <- w + sum_n p_n (K / N) / q_n (w_n - w)

    With equal p_n, and if all that are drawn upload, the expectation is the mean over all N. The weights sum to 1 only
    in expectation; in a round, the remainder to 1 (possibly negative) is the weight of the present w. For BatchNorm's
    statistics and in the record they are scaled to the sum 1.

    G_n is the upper confidence bound of a silo's gradient norms g since its RSU last had a model from the cloud (since
    the beginning without one): n_n updates of t of all who wait. A norm is |w_n - w_base| / (learning rate x steps)::

        G_n = mean(g) + exploration * max(g) * sqrt(2 ln t / n_n)

    A silo without an update has the greatest G_n of all that wait. The paper's confidence term could not be read, and
    UCB1's is used. Its transfer function, which smooths q at first, could not be read either and is left out.

    Args:
        exploration: of the confidence term; 0 takes the mean alone.
    """

    name: ClassVar[str] = "mach"
    source: ClassVar[str] = (
        "MACH (2024), ICDCS, 656-667; UCB1: Auer, Cesa-Bianchi, Fischer, Machine Learning 47 (2002); without MACH's "
        "transfer function (its Eq. 17)"
    )
    uses_losses: ClassVar[bool] = True
    figure: ClassVar[str] = GRADIENT_NORM

    exploration: Annotated[float, Within(0, 100, "", "all chances are equal far below")] = 1.0

    def bounds(self, candidates: Sequence[Candidate], since: int) -> NDArray[np.float64]:
        """Return each candidate's upper confidence bound of gradient norms, from updates of rounds ``since`` and later.

        A silo without an update gets the greatest bound. All are 1 if no norm is above 0.
        """
        norms = [[norm for norm, round_index in one.figures if round_index >= since] for one in candidates]
        if not any(map(sum, norms)):
            return np.ones(len(norms))
        width = self.exploration * max(map(max, filter(None, norms)))
        term = 2 * math.log(sum(map(len, norms)))
        found = [math.fsum(own) / len(own) + width * math.sqrt(term / len(own)) if own else -math.inf for own in norms]
        return np.where(np.isinf(found), max(found), found)

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Iterator[Candidate]:
        """Yield ``free`` candidates by systematic sampling; before each, write its chance to ``context.chances``."""
        waiting = context.shuffled(candidates)
        chances = inclusion(self.bounds(waiting, context.cloud_round), free)
        ends = np.cumsum(chances)
        ends[-1] = free  # the sum without rounding errors
        hits = np.searchsorted(ends, context.generator.random() + np.arange(free), side="right")
        for place in dict.fromkeys(np.minimum(hits, len(waiting) - 1).tolist()):
            context.chances[waiting[place].vehicle_id] = float(chances[place])
            yield waiting[place]


def inclusion(sizes: NDArray[np.float64], places: int) -> NDArray[np.float64]:
    """Return inclusion probabilities that sum to ``places``, in proportion to ``sizes`` (>= 0) but each at most 1.

    What exceeds 1 is shared among the others in proportion, or equally if their sizes are 0. With places for all, each
    is 1.
    """
    chances = np.ones(len(sizes))
    is_open = np.full(len(sizes), places < len(sizes))
    while is_open.any():
        own = sizes[is_open] if sizes[is_open].any() else np.ones(np.count_nonzero(is_open))
        chances[is_open] = (places - np.count_nonzero(~is_open)) * own / own.sum()
        above = chances > 1
        if not above.any():
            break
        chances[above], is_open[above] = 1.0, False
    return chances
