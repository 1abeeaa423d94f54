"""Weights of averages among neighbours: vehicles that exchange models, or RSUs with ``topology.kind = "peers"``."""

from __future__ import annotations

import math
from collections.abc import Sequence


def metropolis_hastings_row(degree: int, of_neighbours: Sequence[int]) -> list[float]:
    """Return one node's Metropolis-Hastings weights: its own model's, then its neighbours', in their order.

    A_ij = 1 / (1 + max(d_i, d_j)) for neighbours of degrees d, and A_ii the rest to 1. The rows of an undirected graph
    make a symmetric matrix whose rows and columns sum to 1 (Xiao, Boyd and Kim, J. Parallel Distrib. Comput. 67, 2007).
    ``degree`` is at least the length of ``of_neighbours``; a neighbour left out adds to the own weight.
    """
    shares = [1 / (1 + max(degree, other)) for other in of_neighbours]
    return [1 - math.fsum(shares), *shares]
