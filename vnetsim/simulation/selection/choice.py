"""Between the rounds and a selection policy: asks it, and holds it to the candidates, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vnetsim.errors import RunError
from vnetsim.simulation.selection import Candidate, SelectionContext, SelectionPolicy
from vnetsim.simulation.selection.candidate import Known
from vnetsim.simulation.vehicle import OpenWindow


class Chooser:
    """Asks a selection policy.

    Args:
        policy: the policy.
        generator: its random stream.
    """

    def __init__(self, policy: SelectionPolicy, generator: np.random.Generator) -> None:
        self.policy = policy
        self.generator = generator

    def order(
        self, windows: Sequence[OpenWindow], free: int, context: SelectionContext, known: Known
    ) -> Iterator[OpenWindow]:
        """Yield the windows in the policy's order, as far as they are asked for.

        Raises:
            RunError: the policy failed, or returned what is no candidate, or one twice.
        """
        candidates = tuple(Candidate(window, known) for window in windows)
        left = {id(candidate): window for candidate, window in zip(candidates, windows, strict=True)}
        for candidate in self.policy.select(candidates, min(free, len(candidates)), context):
            window = left.pop(id(candidate), None)
            if window is None:
                what = candidate.vehicle_id if isinstance(candidate, Candidate) else repr(candidate)
                raise RunError(
                    f"selection policy '{self.policy.name}' returned {what} in round {context.round}, which is no "
                    "candidate or was returned before; it must return some of the candidates, each once."
                )
            yield window
