"""Between the rounds and a selection policy: asks it, and refuses nonsense by its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vnetsim.errors import RunError
from vnetsim.plugins import plugin_errors
from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext, SelectionPolicy
from vnetsim.simulation.selection.candidate import Known
from vnetsim.simulation.vehicle import OpenWindow

_END: Any = object()


class Chooser:
    """Asks a selection policy.

    Args:
        policy: the policy.
        generator: its random stream.
    """

    def __init__(self, policy: SelectionPolicy, generator: np.random.Generator) -> None:
        self._policy = policy
        self.generator = generator

    def order(
        self, windows: Sequence[OpenWindow], free: int, context: SelectionContext, known: Known
    ) -> Iterator[OpenWindow]:
        """Yield the windows in the policy's order, as far as they are asked for.

        Raises:
            RunError: the policy failed, or returned what is no candidate, or one twice.
        """
        when = f"in round {context.round}"
        candidates = tuple(Candidate(window, known) for window in windows)
        left = {id(candidate): window for candidate, window in zip(candidates, windows, strict=True)}
        with plugin_errors("selection policy", self._policy.name, when):
            chosen = iter(self._policy.select(candidates, min(free, len(candidates)), context))
        while True:
            with plugin_errors("selection policy", self._policy.name, when):
                candidate = next(chosen, _END)
            if candidate is _END:
                return
            window = left.pop(id(candidate), None)
            if window is None:
                what = candidate.vehicle_id if isinstance(candidate, Candidate) else repr(candidate)
                raise RunError(
                    f"selection policy '{self._policy.name}' returned {what} {when}, which is no candidate or was "
                    "returned before; it must return some of the candidates, each once."
                )
            yield window

    def after_round(self, records: Sequence[ParticipationRecord], round_index: int) -> None:
        """Let the policy learn.

        Raises:
            RunError: the policy failed.
        """
        with plugin_errors("selection policy", self._policy.name, f"after round {round_index}"):
            self._policy.after_round(records)
