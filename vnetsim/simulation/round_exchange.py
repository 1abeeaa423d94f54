"""The part of a round in which vehicles exchange with each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from vnetsim.learning import ModelKey
from vnetsim.simulation.exchange import ExchangePhase
from vnetsim.simulation.participation import Participation
from vnetsim.simulation.recorder import Recorder
from vnetsim.simulation.world import World


@dataclass(kw_only=True)
class RoundExchange:
    """The exchange of the open round; ``gathered`` are the participations that wait for it, in order of arrival."""

    world: World
    recorder: Recorder
    gathered: dict[Participation, None] = field(default_factory=dict)  # an ordered set
    _members: dict[Participation, None] = field(default_factory=dict)  # those in flight
    _phase: ExchangePhase | None = None
    _opened_by: Literal["quorum", "deadline"] = "quorum"

    @property
    def under_way(self) -> bool:
        """Whether the round's exchange has begun."""
        return self._phase is not None

    @property
    def closed_by(self) -> Literal["quorum", "deadline"] | None:
        """What began the exchange, once all participations in it have ended; None before."""
        return None if self._phase is None or self._members else self._opened_by

    def begin(self, model: ModelKey, opened_by: Literal["quorum", "deadline"]) -> None:
        """Begin the exchange of ``gathered`` (at least one), in the round that began with ``model``."""
        self._opened_by = opened_by
        self._members, self.gathered = self.gathered, {}
        plan = next(iter(self._members)).invitation.cost.exchange
        assert plan is not None
        self._phase = ExchangePhase(
            world=self.world,
            plan=plan,
            members=tuple(self._members),
            round_index=model.version,
            on_ended=partial(self.recorder.record_exchange, model=model),
            on_done=Participation.proceed,
        )
        for participation in self._members:
            participation.begin_exchange(self._phase.neighbours(participation))
        self._phase.begin()

    def leave(self, participation: Participation) -> bool:
        """Cut the exchanges of a member that leaves coverage; return whether it goes on, needing no coverage."""
        assert self._phase is not None
        peers = self._phase.leave(participation)
        if participation.needs_coverage:
            return False
        participation.proceed(peers)  # it has nothing left to send
        return True

    def remove(self, participation: Participation) -> None:
        """Forget a participation that has ended, whether it waited or was a member, or neither."""
        self.gathered.pop(participation, None)
        self._members.pop(participation, None)

    def stop(self) -> Callable[[Participation], None] | None:
        """End the exchange as the round closes.

        Returns:
            a function that lets a member go on that was still in the exchange; None if no exchange was under way.
        """
        phase, self._phase = self._phase, None
        if phase is None:
            return None
        phase.stop()
        return lambda participation: participation.proceed(phase.peers(participation))
