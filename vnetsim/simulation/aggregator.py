"""An aggregator's rounds: who is invited, whose update counts, when a round closes.

Round 0 opens when the traffic begins, each further one at the instant its predecessor closes. Vehicles inside coverage
that are idle and were not yet invited in the open round are invited, at most ``round.invited`` in flight at once; a
freed place is filled at once. A round closes with its ``quorum``-th commit or ``deadline_s`` after it opened, even when
nobody was there: then it is empty and the model is kept. Commits count for the round that is open when they arrive, and
no vehicle counts twice in one round.

That is the pace ``quorum``; another one (``pace``) decides how many are invited and when a round closes. Who is invited
first is decided by a selection policy (``selection``). What they decide is carried out, counted and recorded here.

With a learner whose vehicles exchange with each other, a round has two parts, each at most ``deadline_s`` long. In the
first, vehicles that are ready for the exchange wait until the quorum is there or the deadline comes; then nobody else
is invited, and they exchange. The round closes when the last of them has committed or left.

Between an aggregator and its RSUs the backhaul is ideal. It knows no other aggregator, and of the fleet only whom that
offers it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import simpy

from vnetsim.coverage.windows import Window
from vnetsim.experiment import Experiment
from vnetsim.learning import Participant
from vnetsim.radio.channel import Channel
from vnetsim.simulation.exchange import Air
from vnetsim.simulation.handler import RoundHandler
from vnetsim.simulation.log import LEFT, ClosedBy, Outcome, Recorder, RoundSummary
from vnetsim.simulation.pace import Pace, RoundState
from vnetsim.simulation.participation import Coverage, Invitation, Participation, participant_of
from vnetsim.simulation.planning import Planning
from vnetsim.simulation.resources import Resources
from vnetsim.simulation.round_exchange import OpenedBy, RoundExchange
from vnetsim.simulation.selection import SelectionContext
from vnetsim.simulation.selection.choice import Chooser
from vnetsim.simulation.selection.knowledge import Knowledge
from vnetsim.simulation.vehicle import OpenWindow, Vehicle
from vnetsim.simulation.waiting import WaitingList


@dataclass(frozen=True, kw_only=True)
class World:
    """What all aggregators of a simulation share.

    Args:
        env: the event loop; its clock is the traffic's.
        experiment: rules, camera, number of rounds.
        handler: learning.
        recorder: writes the record.
        resources: links and computers.
        channels: the radio channels, by RSU.
        sidelinks: the channels between vehicles, by the RSU that schedules them.
    """

    env: simpy.Environment
    experiment: Experiment
    handler: RoundHandler
    recorder: Recorder
    resources: Resources
    channels: Mapping[str, Channel]
    sidelinks: Mapping[str, Channel]


class Surroundings(Protocol):
    """What an aggregator tells those around it."""

    def idle(self, vehicle: Vehicle) -> None:
        """Take note that a vehicle is in no participation any more, or may be invited again."""
        ...

    def cut_off(self, round_index: int, time_s: float) -> None:
        """Take note that the last round closes now (s): what is still open is cut off."""
        ...

    stopped: bool
    """Whether the run ends before its last round."""

    def closed(self) -> None:
        """Take note that a round has closed and everything about it is recorded."""
        ...


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
    """

    index: int
    open_s: float
    close_s: float = math.inf
    invited: int = 0
    taken: set[int] = field(default_factory=set)
    committed: list[tuple[int, Participant]] = field(default_factory=list)


class Aggregator:
    """Makes rounds of the vehicles that it is offered.

    Args:
        name: tells it from others.
        world: what it shares with them.
        surroundings: told of vehicles that become idle and of rounds that close.
        pace: when rounds invite and close.
        chooser: whom to invite first.
        knowledge: what it has learnt of its vehicles.

    Attributes:
        name: its name.
        finished: whether its last round has closed.
    """

    def __init__(
        self,
        *,
        name: str,
        world: World,
        surroundings: Surroundings,
        pace: Pace,
        chooser: Chooser,
        knowledge: Knowledge,
    ) -> None:
        self.name = name
        self.finished = False
        self._world = world
        self._surroundings = surroundings
        self._pace = pace
        self._chooser = chooser
        self._knowledge = knowledge
        self._planning = Planning(pace, knowledge, self._state)
        self._open = OpenRound(index=-1, open_s=world.env.now)
        self._in_flight: dict[Vehicle, Participation] = {}
        self._outside = 0  # of them, training outside coverage: they take no place
        self._waiting = WaitingList()
        self._rested: dict[str, Vehicle] = {}  # may not be invited again before the next round
        link, exchange = world.experiment.link, world.experiment.exchange
        self._exchange = RoundExchange(
            air=Air(
                env=world.env,
                sidelinks=world.sidelinks,
                radio=world.resources.radio,
                update_s=link.update_s,
                exchange=exchange,
            ),
            deadline_s=world.experiment.round.deadline_s,
            recorder=world.recorder,
            on_over=self._close_and_go_on,
        )

    @property
    def round(self) -> int:
        """Index of the open round."""
        return self._open.index

    def open(self) -> None:
        """Open the next round now."""
        self._open = OpenRound(
            index=self._open.index + 1,
            open_s=self._world.env.now,
            taken={vehicle.binding.silo for vehicle in self._in_flight},
        )
        rested, self._rested = self._rested, {}
        for vehicle in rested.values():
            self._surroundings.idle(vehicle)
        self._set_deadline(self._pace.deadline_s(self._state()))
        self.fill()
        if len(self._exchange.gathered) >= self._world.experiment.round.quorum:  # stale ones, ready since
            self._open_exchange("quorum")

    def fill(self) -> None:
        """Invite as many of those who wait as there are free places."""
        if self._exchange.under_way or not self._waiting or (free := self._pace.places(self._state())) <= 0:
            return
        now_s, waiting = self._world.env.now, self._waiting.windows()
        if (length_s := self._planning.length_s(waiting, now_s)) is not None:
            self._set_deadline(length_s)
        if not (windows := self._planning.taken(waiting, now_s)):
            return
        context = SelectionContext(
            now_s=now_s,
            round=self.round,
            open_s=self._open.open_s,
            deadline_s=self._open.close_s,
            in_flight=self._under_way,
            generator=self._chooser.generator,
        )
        known = self._knowledge.at(now_s, self._planning.planned_share)
        for window in self._chooser.order(windows, free, context, known):
            self._waiting.discard(window)
            if self._world.experiment.round.distinct_silos and window.vehicle.binding.silo in self._open.taken:
                self._rested[window.vehicle.id] = window.vehicle
            else:
                self._invite(window)
                if self._pace.places(self._state()) <= 0:
                    return

    def offer(self, window: OpenWindow) -> None:
        """Let an idle vehicle wait for an invitation in a window: in this round or, when it had one, in the next."""
        vehicle = window.vehicle
        if self._knowledge.last_round.get(vehicle.id, -1) < self.round:
            self._waiting.add(window)
        else:
            self._rested[vehicle.id] = vehicle

    def forget(self, window: OpenWindow, closed: Window) -> None:
        """Take note that a window at one of its RSUs has closed; nobody waits in it any more."""
        self._knowledge.left(window.vehicle, closed)
        self._waiting.discard(window)

    def covered(self, window: OpenWindow) -> None:
        """Let the vehicle of its participation go on in another window where it trained outside coverage."""
        participation = self._in_flight[window.vehicle]
        if participation.coverage is None:
            self._cover(participation, window)

    def uncovered(self, window: OpenWindow, time_s: float) -> None:
        """Let a vehicle whose window closed train on, where that is allowed, or end what it was doing in it."""
        participation = self._in_flight[window.vehicle]
        if participation.coverage is None or participation.coverage.window is not window:
            return
        allowed = self._world.experiment.round.training_outside and participation.invitation.cost.exchange is None
        if not (allowed and participation.stage == "training"):
            self._cut_short(participation, time_s)
            return
        participation.uncover()
        self._outside += 1
        if others := window.vehicle.windows:
            self._cover(participation, others[0])
        self._close_if_over()

    def end_of_traffic(self, time_s: float) -> None:
        """Close the open round with what has committed, or drop it when nothing has."""
        if self._open.committed:
            self._close("traffic_end", time_s)
        else:
            # whoever is left trains outside coverage: the others ended with their windows
            for participation in list(self._in_flight.values()):
                self._cut_late(participation, "traffic_end", time_s)
        self.finished = True

    def share(self, participation: Participation) -> float:
        """Return the share of its training that a participation does, by the pace."""
        return self._planning.share(participation.window, self._world.env.now)

    def ready(self, participation: Participation) -> None:
        """Let a participation wait for the round's exchange, which begins when the quorum is there."""
        self._exchange.gather(participation)
        quorum = self._world.experiment.round.quorum
        if not self._exchange.under_way and len(self._exchange.gathered) == quorum:
            self._open_exchange("quorum")

    def uploaded(self, participation: Participation) -> None:
        """Let an update count for the open round."""
        self._knowledge.last_round[participation.window.vehicle.id] = self.round
        participant = participant_of(participation, self.round, self._world.experiment.camera)
        row = self._end(participation, "committed", self._world.env.now)
        self._open.committed.append((row, participant))
        if self._exchange.under_way:
            return  # the round closes when the last member of its exchange has come to an end
        if self._closes():
            self._close_and_go_on(self._pace.closed_by)
        else:
            self.fill()

    @property
    def _under_way(self) -> int:
        return len(self._in_flight) - self._outside

    def _state(self) -> RoundState:
        return RoundState(
            round=self.round,
            open_s=self._open.open_s,
            now_s=self._world.env.now,
            invited=self._open.invited,
            in_flight=self._under_way,
            committed=len(self._open.committed),
        )

    def _set_deadline(self, length_s: float) -> None:
        """Let the open round close so long from now (s) at the latest."""
        now_s = self._world.env.now
        self._open.close_s = now_s + length_s
        deadline = self._world.env.timeout(self._open.close_s - now_s)
        deadline.callbacks.append(partial(self._deadline, self.round, self._open.close_s))

    def _deadline(self, round_index: int, close_s: float, _: object) -> None:
        if round_index != self.round or close_s != self._open.close_s or self._exchange.under_way:
            return
        if self._exchange.gathered:
            self._open_exchange("deadline")
        else:
            self._close_and_go_on("deadline")

    def _closes(self) -> bool:
        """Return whether the pace closes the round now; with an exchange it is the exchange's end that does."""
        return not self._exchange.under_way and self._pace.closes(self._state())

    def _invite(self, window: OpenWindow) -> None:
        vehicle = window.vehicle
        invitation = Invitation(
            coverage=self._coverage(window),
            base_round=self.round,
            cost=self._world.handler.cost(vehicle.binding.silo),
            predicted=self._planning.predicted(window, self._world.env.now),
            train_s=self._world.resources.train_s(window),
        )
        self._in_flight[vehicle] = Participation(env=self._world.env, invitation=invitation, owner=self)
        self._open.taken.add(vehicle.binding.silo)
        self._open.invited += 1
        self._knowledge.last_round[vehicle.id] = self.round
        window.invited = True
        vehicle.served_by = self.name

    def _coverage(self, window: OpenWindow) -> Coverage:
        world = self._world
        return Coverage(window=window, channel=world.channels[window.rsu.id], link=world.resources.link(window))

    def _cover(self, participation: Participation, window: OpenWindow) -> None:
        """Let a vehicle that trained outside coverage go on in another window."""
        self._outside -= 1
        participation.cover(self._coverage(window))

    def _open_exchange(self, opened_by: OpenedBy) -> None:
        """Let those who are ready exchange; of the others, those that may not commit to the next round are too late."""
        for participation in list(self._in_flight.values()):
            if participation not in self._exchange.gathered and self._too_old(participation):
                self._cut_late(participation, opened_by, self._world.env.now)
        self._exchange.begin(self.round, opened_by)

    def _too_old(self, participation: Participation) -> bool:
        """Return whether it may not commit to the next round."""
        oldest = self.round + 1 - self._world.experiment.round.max_staleness
        return participation.invitation.base_round < oldest

    def _cut_late(self, participation: Participation, closed_by: ClosedBy, time_s: float) -> None:
        """End what was not done when the round closed, or its exchange began."""
        participation.cut()
        late: Outcome = "deadline" if closed_by == "deadline" else "stale"
        self._end(participation, "left_training" if participation.coverage is None else late, time_s)

    def _cut_short(self, participation: Participation, time_s: float) -> None:
        """End what a vehicle that leaves coverage was doing."""
        if participation.stage == "exchange" and self._exchange.leave(participation):
            return
        self._end(participation, LEFT[participation.cut()], time_s)

    def _close_if_over(self) -> None:
        if self._closes():  # not at once: it may be the traffic that ended something, outside the event loop
            self._world.env.timeout(0).callbacks.append(partial(self._all_over, self.round))

    def _all_over(self, round_index: int, _: object) -> None:
        if round_index == self.round and self._closes():
            self._close_and_go_on(self._pace.closed_by)

    def _close_and_go_on(self, closed_by: ClosedBy) -> None:
        self._close(closed_by, self._world.env.now)
        if self.finished:
            raise simpy.core.StopSimulation(None)
        self.open()
        if self._surroundings.stopped:
            raise simpy.core.StopSimulation(None)

    def _close(self, closed_by: ClosedBy, time_s: float) -> None:
        index = self.round
        self.finished = closed_by == "traffic_end" or index + 1 == self._world.experiment.rounds
        proceed = self._exchange.stop()
        for participation in list(self._in_flight.values()):
            if self.finished or self._too_old(participation):
                self._cut_late(participation, closed_by, time_s)
            elif proceed is not None and participation.stage == "exchange":
                proceed(participation)
        if self.finished:
            self._surroundings.cut_off(index, time_s)
        summary = RoundSummary(
            round=index,
            open_s=self._open.open_s,
            close_s=time_s,
            closed_by=closed_by,
            invited=self._open.invited,
            final=self.finished,
        )
        committed, recorder = self._open.committed, self._world.recorder
        result = self._world.handler.close_round(summary, [participant for _, participant in committed])
        recorder.closed(summary, [row for row, _ in committed], result)
        self._chooser.policy.after_round(self._knowledge.learn(recorder.participations, index))
        self._surroundings.closed()

    def _end(self, participation: Participation, outcome: Outcome, time_s: float) -> int:
        """Record a participation that is over, free its place and vehicle, and return the record's row."""
        vehicle = participation.window.vehicle
        del self._in_flight[vehicle]
        self._exchange.ended(participation)
        self._outside -= participation.coverage is None
        self._close_if_over()
        vehicle.served_by = ""
        row = self._world.recorder.ended(participation, outcome, self.round, time_s)
        self._surroundings.idle(vehicle)
        return row
