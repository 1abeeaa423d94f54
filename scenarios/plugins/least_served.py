"""A selection policy: silos that came to the model least often go first, if their vehicle has the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from vnetsim.errors.bounds import Within
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.storage.rows import ParticipationRecord


@dataclass(frozen=True, kw_only=True)
class LeastServed:
    """Orders by the uploads that came from the silo so far; leaves out who is predicted to leave too early.

    A candidate n may be chosen when the predicted rest of its window R_n lasts for its predicted participation T_n::

        R_n >= (1 + margin) T_n

    Args:
        margin: share by which the rest of the window must be longer than the participation.
    """

    name = "least-served"
    source = "an example"

    margin: Annotated[float, Within(0, 10, "", "a window eleven times as long is no matter of time")] = 0.2

    def begin(self) -> Counter[int]:
        """Return the number of uploads by silo, which is empty at first."""
        return Counter()

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002
        """Return the vehicles with enough time, the least served first; equals are in random order."""
        able = [
            c for c in context.shuffled(candidates) if c.remaining_s("straight") >= (1 + self.margin) * c.duration_s
        ]
        return sorted(able, key=lambda candidate: context.memory[candidate.silo])

    def after_round(self, records: Sequence[ParticipationRecord], memory: Counter[int]) -> None:
        """Count the uploads."""
        memory.update(record.silo for record in records if record.outcome == "committed")
