"""A selection policy: silos that came to the model least often go first, if their vehicle has the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from vnetsim.setting_checks import Within, check_bounds
from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext


class LeastServed:
    """Orders by the uploads that came from the silo so far; leaves out who is predicted to leave too early.

    A candidate n may be chosen when the predicted rest of its window R_n lasts for its predicted participation T_n::

        R_n >= (1 + margin) T_n
    """

    name = "least-served"
    source = "an example"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """When a vehicle has the time.

        Args:
            margin: share by which the rest of the window must be longer than the participation.
        """

        margin: Annotated[float, Within(0, 10, "", "a window eleven times as long is no matter of time")] = 0.2

        def __post_init__(self) -> None:
            check_bounds("selection", self)

    def __init__(self, settings: Settings) -> None:
        self._margin = settings.margin
        self._served: Counter[int] = Counter()

    @classmethod
    def create(cls, settings: Settings) -> LeastServed:
        """Make the policy of one run."""
        return cls(settings)

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002
        """Return who has the time, the least served first; drawn among equals, as all are at first."""
        able = [c for c in candidates if c.remaining_s("straight") >= (1 + self._margin) * c.duration_s]
        return sorted(able, key=lambda candidate: (self._served[candidate.silo], context.generator.random()))

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Count the uploads."""
        self._served.update(record.silo for record in records if record.outcome == "committed")
