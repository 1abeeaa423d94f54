"""Mixing matrices of decentralised averaging.

Row i of a matrix A has the weights of vehicle i: theta_i <- sum_j A_ij theta_j, for all vehicles at once. Rows sum to
1. If the columns do as well, mixing keeps the mean of all models.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.mathematics.weights import weighted_mean
from vnetsim.learning.device import read

Matrix = NDArray[np.float64]
Graph = NDArray[np.bool_]
"""``received[i, j]``: vehicle i has vehicle j's model. Shape (N, N); the diagonal does not count."""


def metropolis_hastings(received: Graph) -> Matrix:
    """Return Metropolis-Hastings weights on an undirected graph (Xiao and Boyd 2004): doubly stochastic, symmetric.

    A_ij = 1 / (1 + max(d_i, d_j)) between neighbours, d the number of neighbours, and A_ii the rest to 1: 1 for a
    vehicle without neighbour; 1 / N everywhere on the complete graph. ``received`` is symmetric, shape (N, N).
    """
    received = received & ~np.eye(len(received), dtype=np.bool_)
    degrees = received.sum(axis=1)
    weights = np.where(received, 1 / (1 + np.maximum.outer(degrees, degrees)), 0.0)
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights


def half_received(received: Graph) -> Matrix:
    """Return the matrix by which each vehicle keeps half of its model and takes half from the received models.

    Row i has 1/2 at i and shares the other half equally among the columns j with ``received[i, j]``, shape (N, N).
    On a directed ring this is (I + P) / 2, doubly stochastic, P the permutation to the previous vehicle; its second
    largest eigenvalue has the modulus cos(pi / N). A vehicle that received nothing keeps its model; then columns do not
    sum to 1, and the mean of the models changes.
    """
    received = received & ~np.eye(len(received), dtype=np.bool_)
    count = received.sum(axis=1, keepdims=True)
    weights: Matrix = received / (2 * np.maximum(count, 1))
    np.fill_diagonal(weights, np.where(count[:, 0] > 0, 0.5, 1.0))
    return weights


def mix(states: Sequence[Mapping[str, Tensor]], weights: Matrix) -> list[dict[str, Tensor]]:
    """Return one model for each row i of ``weights``: the ``weighted_mean`` of ``states`` with the weights of row i."""
    return [weighted_mean(states, row) for row in weights]


def similarity(a: Mapping[str, Tensor], b: Mapping[str, Tensor], names: Collection[str]) -> float:
    """Return U = max(0, cos(a, b)) of two models over the tensors ``names``; 0 if one of them is 0.

    Waits for the device once. Used by MIDDLE (Zhang, Zheng, Wu, Li, Shao, Chen 2023, ICPP, 10.1145/3605573.3605643).
    """
    pairs = [(a[name].to(torch.float64), b[name].to(torch.float64)) for name in names]
    sums = read([(one * other).sum() for x, y in pairs for one, other in ((x, y), (x, x), (y, y))])
    product, of_a, of_b = (math.fsum(sums[i::3]) for i in range(3))
    return max(0.0, product / math.sqrt(of_a * of_b)) if of_a > 0 and of_b > 0 else 0.0


def mix_on_board(
    own: Mapping[str, Tensor], other: Mapping[str, Tensor], parameters: Collection[str]
) -> dict[str, Tensor]:
    """Return (w + u w_n) / (1 + u) with u = U(w_n, w): the vehicle's model w_n mixed with that of the RSU it enters.

    ``own`` is w_n, with at least the names of ``other``, and ``other`` is w, whose names the result has. U is taken
    over the tensors ``parameters``; names that ``other`` lacks are ignored. Identical models come back bit for bit; if
    the cosine is not above 0, the result is w. BatchNorm's statistics are mixed likewise, counters rounded.
    """
    shared = [name for name in parameters if name in other]
    mine = {name: own[name] for name in other}
    return weighted_mean([other, mine], [1.0, similarity(mine, other, shared)])
