"""A conduct: lazy vehicles send only a part of what they learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vnetsim.errors.bounds import Share
from vnetsim.learning.conduct import HostileRound, Sends


@dataclass(frozen=True, kw_only=True)
class HalfHearted:
    """Sends a part of every change.

    Args:
        part: how much of it, in [0, 1].
    """

    name = "half-hearted"
    source = "an example"
    equations = ("sent: part D",)
    flips_labels = False

    part: Share = 0.5

    def send(self, given: HostileRound) -> Sequence[Sends]:
        """Return that part of the change of each hostile vehicle."""
        return [Sends(change={name: self.part * one for name, one in v.change.items()}) for v in given.hostile]
