"""An aggregator's open round, and what aggregators have to tell the event loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from vnetsim.learning import Participant
from vnetsim.simulation.log import RoundSummary
from vnetsim.simulation.vehicle import Vehicle


@dataclass(kw_only=True)
class Outbox:
    """What aggregators have to tell, until the event loop has read it.

    Args:
        idle: vehicles that are in no participation any more, or may be invited again.
        closed: rounds that have closed and are recorded.
        mixed: whether models of several aggregators were averaged.
    """

    idle: list[Vehicle] = field(default_factory=list)
    closed: list[RoundSummary] = field(default_factory=list)
    mixed: bool = False

    def __bool__(self) -> bool:
        return bool(self.idle or self.closed or self.mixed)

    def taken(self) -> Outbox:
        """Return what it holds, and hold nothing."""
        held = Outbox(idle=self.idle, closed=self.closed, mixed=self.mixed)
        self.idle, self.closed, self.mixed = [], [], False
        return held


@dataclass(slots=True, kw_only=True)
class OpenRound:
    """The round that is open.

    Args:
        index: from 0; -1 before the first.
        open_s: when it opened (s).
        close_s: when it closes at the latest (s).
        invited: participations invited in it.
        taken: silos that take part in it.
        committed: whose update counts, with the row of its record, in order of arrival.
        exchange_by: what began its exchange, where it has one.
        held: whether nobody is invited and it does not close, until a model has come back from the cloud.
    """

    index: int
    open_s: float
    close_s: float = math.inf
    invited: int = 0
    taken: set[int] = field(default_factory=set)
    committed: list[tuple[int, Participant]] = field(default_factory=list)
    exchange_by: Literal["quorum", "deadline"] = "quorum"
    held: bool = False
