"""Momentum contrast (He et al. 2020): a queue of keys, the loss against it, and the key encoder that trails."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, normalize

from learners.engines.optimizers import Optimizer
from learners.engines.programs import State, unprefixed

QUERY, KEY = "query.", "key."
KEYS, ROUNDS = "queue.keys", "queue.rounds"
INITIAL_ROUND = -1
"""The round that random keys, which no vehicle sent, are marked with."""


def random_queue(length: int, width: int, *, generator: np.random.Generator, device: torch.device) -> dict[str, Tensor]:
    """Return a queue of independent directions, uniform on the sphere, which no vehicle sent.

    A queue holds the keys of the most recent uploads, the oldest first: ``queue.keys``, L2-normalised, float32 of shape
    (length, width), and ``queue.rounds``, the round that each was enqueued in, int64 of shape (length,).
    """
    vectors = torch.from_numpy(generator.standard_normal((length, width)))
    keys = normalize(vectors, dim=1).to(device=device, dtype=torch.float32)
    return {KEYS: keys, ROUNDS: torch.full((length,), INITIAL_ROUND, device=device)}


def enqueued(queue: State, uploads: Sequence[Tensor], *, round_: int) -> dict[str, Tensor]:
    """Return a queue after ``uploads``, in their order; as many of the oldest keys fall out.

    Uploads longer than the queue lose their own oldest keys at once.

    Uploads are keys of shape (n, D), any n >= 0.
    """
    length, added = len(queue[KEYS]), sum(len(upload) for upload in uploads)
    rounds = torch.cat([queue[ROUNDS], queue[ROUNDS].new_full((added,), round_)])
    return {KEYS: torch.cat([queue[KEYS], *uploads])[-length:], ROUNDS: rounds[-length:]}


def queue_figures(queue: State, round_: int) -> dict[str, float]:
    """Return figures of a queue in round ``round_``.

    ``queue_keys`` is the number of keys that vehicles sent, ``queue_random`` the share of the others, ``queue_age``
    the mean age of the former: rounds since a key was enqueued, 0 in that round. Without one there is no age.
    """
    rounds = queue[ROUNDS]
    received = rounds[rounds != INITIAL_ROUND]
    figures = {"queue_keys": float(len(received)), "queue_random": 1 - len(received) / len(rounds)}
    if len(received):
        figures["queue_age"] = float((round_ - received).double().mean())
    return figures


def queue_info_nce(q: Tensor, k: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return InfoNCE with the negatives of a queue (He et al. 2020, Eq. 1), mean over the images.

    -log [ exp(q_i . k_i / t) / (exp(q_i . k_i / t) + sum_j exp(q_i . u_j / t)) ] = log(1 + exp m_i) with the margin
    m_i = logsumexp_j(q_i . u_j / t) - q_i . k_i / t, which keeps its digits when the positive dominates.

    Args:
        q: L2-normalised projections of the first views, shape (B, D).
        k: keys of the second views of the same images, shape (B, D).
        queue: the negatives u_j, shape (K, D), K >= 1.
        temperature: t > 0.
    """
    positive = (q * k).sum(dim=1)
    margin = (q @ queue.T / temperature).logsumexp(dim=1) - positive / temperature
    return -logsigmoid(-margin).mean()


def query_and_key(encoder: nn.Module) -> nn.ModuleDict:
    """Return copies of an encoder: the one that is trained, ``query``, and the one that trails it, ``key``.

    Like the trained encoder, the key encoder normalises with the statistics of its own batch, so its running statistics
    have no use. A query and its positive key are then normalised with statistics of the same images, by which they may
    be told from the queue's keys. MoCo shuffles the keys over several devices against that (section 3.3); with one
    batch on one device a shuffle changes nothing, and smaller groups would be needed, which are not formed here.
    """
    key = copy.deepcopy(encoder).requires_grad_(requires_grad=False)
    return nn.ModuleDict({"query": copy.deepcopy(encoder), "key": key})


class Trailing:
    """An optimizer of the query encoder, after each of whose steps the key encoder moves towards the model it left.

    theta_k <- m theta_k + (1 - m) theta_q (He et al. 2020, Eq. 2), parameters alone; the order is that of MoCo's
    algorithm.

    ``parameters`` are those of ``query_and_key``, ``momentum`` is m.
    """

    def __init__(self, optimizer: Optimizer, parameters: Mapping[str, Tensor], *, momentum: float) -> None:
        self._optimizer = optimizer
        self._query, self._key = unprefixed(QUERY, parameters), unprefixed(KEY, parameters)
        self._momentum = momentum

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients, then follow."""
        self._optimizer.step()
        for name, theta_k in self._key.items():
            theta_k.mul_(self._momentum).add_(self._query[name], alpha=1 - self._momentum)

    def state(self) -> dict[str, Tensor]:
        """Return the state of the query encoder's optimizer."""
        return self._optimizer.state()
