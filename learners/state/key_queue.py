"""The roadside unit's queue of keys: first in, first out, of fixed length, never changed in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

INITIAL_ROUND = -1
"""The round that random keys, which no vehicle sent, are marked with."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyQueue:
    """Keys of the most recent uploads, the oldest first.

    Args:
        keys: L2-normalised, shape (K, D).
        rounds: the round that each was enqueued in, int64 of shape (K,); ``INITIAL_ROUND`` for the random keys that
            the queue starts with.
    """

    keys: Tensor
    rounds: Tensor

    @classmethod
    def random(cls, length: int, width: int, *, generator: np.random.Generator, device: torch.device) -> Self:
        """Return a queue of independent directions, uniform on the sphere: keys of shape (length, width), float32."""
        vectors = torch.from_numpy(generator.standard_normal((length, width)))
        keys = normalize(vectors, dim=1).to(device=device, dtype=torch.float32)
        return cls(keys=keys, rounds=torch.full((length,), INITIAL_ROUND, device=device))

    @classmethod
    def of_state(cls, state: Mapping[str, Tensor]) -> Self:
        """Return the queue that ``state`` describes; see there."""
        return cls(keys=state["queue.keys"], rounds=state["queue.rounds"])

    def state(self) -> dict[str, Tensor]:
        """Return the queue's tensors by name, ``queue.keys`` and ``queue.rounds``, not copied."""
        return {"queue.keys": self.keys, "queue.rounds": self.rounds}

    def enqueue(self, uploads: Sequence[Tensor], *, round_: int) -> Self:
        """Return the queue after ``uploads``, in their order; as many of the oldest keys fall out.

        Uploads longer than the queue lose their own oldest keys at once.

        Args:
            uploads: keys of shape (n, D), any n >= 0.
            round_: the round that they belong to.
        """
        length = len(self.keys)
        added = sum(len(upload) for upload in uploads)
        rounds = torch.cat([self.rounds, self.rounds.new_full((added,), round_)])
        return type(self)(keys=torch.cat([self.keys, *uploads])[-length:], rounds=rounds[-length:])

    def metrics(self, round_: int) -> dict[str, float]:
        """Return figures of the queue in round ``round_``.

        ``queue_keys`` is the number of keys that vehicles sent, ``queue_random`` the share of the others, ``queue_age``
        the mean age of the former: rounds since a key was enqueued, 0 in that round. Without one there is no age.
        """
        received = self.rounds[self.rounds != INITIAL_ROUND]
        metrics = {"queue_keys": float(len(received)), "queue_random": 1 - len(received) / len(self.rounds)}
        if len(received):
            metrics["queue_age"] = float((round_ - received).double().mean())
        return metrics
