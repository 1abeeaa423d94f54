"""The part of a round in which vehicles exchange with each other: who waits for it, who is in it, when it is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from vnetsim.learning import ModelKey
from vnetsim.simulation.exchange import ExchangePhase
from vnetsim.simulation.participation import Participation
from vnetsim.simulation.recorder import Recorder
from vnetsim.simulation.world import World


@dataclass(kw_only=True)
class RoundExchange:
    """The exchange of the open round, for which ``gathered`` wait; its owner opens and closes rounds."""

    world: World
    recorder: Recorder
    gathered: dict[Participation, None] = field(default_factory=dict)  # in order of arrival: it is an ordered set
    _members: dict[Participation, None] = field(default_factory=dict)  # as long as they are in flight
    _phase: ExchangePhase | None = None

    @property
    def under_way(self) -> bool:
        """Whether the round's exchange has begun."""
        return self._phase is not None

    @property
    def over(self) -> bool:
        """Whether it has begun, and all its members have come to an end."""
        return self._phase is not None and not self._members

    def begin(self, model: ModelKey) -> None:
        """Let those who are ready exchange, in the round that begins with a model."""
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
        """Take a member that leaves coverage out of the exchange; return whether it goes on and counts."""
        assert self._phase is not None
        peers = self._phase.leave(participation)
        if participation.needs_coverage:
            return False
        participation.proceed(peers)  # what it sent has arrived: it counts, with whom it completed
        return True

    def remove(self, participation: Participation) -> None:
        """Take note that a participation is over."""
        self.gathered.pop(participation, None)
        self._members.pop(participation, None)

    def stop(self) -> Callable[[Participation], None] | None:
        """End the exchange as the round closes; return what lets members that are still in it go on, if there was one.

        Members that are still in flight stay members until ``begin`` makes others.
        """
        phase, self._phase = self._phase, None
        if phase is None:
            return None
        phase.stop()
        return lambda participation: participation.proceed(phase.peers(participation))
