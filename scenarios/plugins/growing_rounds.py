"""A pace: rounds are small at first, while any update helps, and gather more uploads later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from vnetsim.experiment import RoundSettings
from vnetsim.setting_checks import Within, check_bounds
from vnetsim.simulation.pace import RoundState


class GrowingRounds:
    """Closes round r with its q_r-th upload, and invites as many beyond it as ``round.invited`` has beyond the quorum.

    One upload more every ``every`` rounds::

        q_r = min(round.quorum, 1 + floor(r / every))
    """

    name = "growing"
    source = "an example"
    exchange = False
    closed_by: ClassVar[Literal["quorum", "everyone"]] = "quorum"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """How fast rounds grow.

        Args:
            every: rounds until one upload more is gathered.
        """

        every: Annotated[int, Within(1, 1_000_000, "rounds", "no run has more rounds")] = 2

        def __post_init__(self) -> None:
            check_bounds("pace", self)

    def __init__(self, settings: Settings, rules: RoundSettings) -> None:
        self._every, self._rules = settings.every, rules

    @classmethod
    def create(cls, settings: Settings, round_settings: RoundSettings) -> GrowingRounds:
        """Make the pace of one run."""
        return cls(settings, round_settings)

    def _quorum(self, state: RoundState) -> int:
        return min(self._rules.quorum, 1 + state.round // self._every)

    def places(self, state: RoundState) -> int:
        """Return how many more may be invited now."""
        return self._quorum(state) + self._rules.invited - self._rules.quorum - state.in_flight

    def closes(self, state: RoundState) -> bool:
        """Return whether the uploads are there."""
        return state.committed >= self._quorum(state)

    def deadline_s(self, state: RoundState) -> float:  # noqa: ARG002
        """Return ``round.deadline_s``."""
        return self._rules.deadline_s
