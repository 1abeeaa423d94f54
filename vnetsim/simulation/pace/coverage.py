"""Rounds of everyone in coverage."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar, Literal

from vnetsim.experiment import RoundSettings
from vnetsim.simulation.pace import RoundState


class CoveragePace:
    """Invites everyone until the first upload; closes when nobody is in flight any more, or at the deadline."""

    name = "coverage"
    source = "FLSimCo (arXiv:2408.00256): every vehicle in coverage downloads and takes part"
    exchange = False
    closed_by: ClassVar[Literal["quorum", "everyone"]] = "everyone"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """There are none besides ``round.deadline_s``."""

    def __init__(self, rules: RoundSettings) -> None:
        self._rules = rules

    @classmethod
    def create(cls, settings: Settings, round_settings: RoundSettings) -> CoveragePace:  # noqa: ARG003 - the protocol's
        """Make it."""
        return cls(round_settings)

    def places(self, state: RoundState) -> int:
        """Return room for all until somebody is done."""
        return 0 if state.committed else sys.maxsize

    def closes(self, state: RoundState) -> bool:
        """Return whether somebody committed and nobody is in flight."""
        return state.committed > 0 and state.in_flight == 0

    def deadline_s(self, state: RoundState) -> float:  # noqa: ARG002 - the protocol's argument
        """Return ``round.deadline_s``."""
        return self._rules.deadline_s
