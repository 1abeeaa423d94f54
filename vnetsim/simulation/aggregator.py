"""An aggregator's rounds: who is invited, whose update counts, when a round closes; see ``docs/explanation/rounds.md``.

A round opens when the one before closes, and a commit counts for the round that is open when it arrives. An aggregator
does not know the others, and knows only the vehicles that the fleet offers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from vnetsim.learning import ModelKey
from vnetsim.plugins.results import FINITE, number_of, wrong_result
from vnetsim.simulation.exchange import RoundExchange
from vnetsim.simulation.invitations import Invitations
from vnetsim.simulation.log import LEFT, RoundHandler, RoundSummary
from vnetsim.simulation.open_round import OpenRound, Outbox, make_participant
from vnetsim.simulation.pace import LENGTH, PACES, Pace, RoundState
from vnetsim.simulation.pace.quorum import CoveragePace, QuorumPace
from vnetsim.simulation.participation import Coverage, InFlight, Invitation, Participation
from vnetsim.simulation.recorder import Recorder
from vnetsim.simulation.tasks import Activity, Deadline, Task
from vnetsim.simulation.topology import is_mixed
from vnetsim.simulation.vehicle import OpenWindow, Vehicle
from vnetsim.simulation.world import World
from vnetsim.storage.rows import ClosedBy, Outcome

_STEADY = QuorumPace.places, CoveragePace.places
"""Places that depend only on the numbers in flight and committed, and so need no look at each event of the traffic."""


@dataclass(kw_only=True, eq=False)
class Aggregator:
    """Runs the rounds of one model; ``in_flight`` are its participations; ``finished``: the last round has closed."""

    name: str
    world: World
    handler: RoundHandler
    recorder: Recorder
    outbox: Outbox
    pace: Pace
    invitations: Invitations  # the vehicles that wait for its invitation
    # called with itself and the window of every vehicle that it invites; calls ``begin``
    invite: Callable[[Aggregator, OpenWindow], None]
    finished: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._deadline_s, self._pace_closed_by = getattr(self.pace, "deadline_s", None), self.pace.closed_by
        self._deadline = Deadline(self.world.env)
        self._pace_memory = self.pace.begin() if hasattr(self.pace, "begin") else None
        self._steady = getattr(type(self.pace), "places", None) in _STEADY
        self._full: tuple[int, int] | None = None  # in flight and committed when a steady pace had no place
        self._open = OpenRound(index=-1, open_s=self.world.env.now)
        self.in_flight = InFlight(self.name)
        self._exchange = RoundExchange(world=self.world, record=self.recorder.record_exchange)

    @property
    def round(self) -> int:
        """Index of the open round, from 0; of the last one once ``finished``, -1 before the first."""
        return self._open.index

    @property
    def model(self) -> ModelKey:
        """The model with which round ``round`` began."""
        return ModelKey(self.name, self.round)

    @property
    def held(self) -> bool:
        """Whether the open round waits for the cloud's model: until then it invites nobody and does not close."""
        return self._open.held

    def models_in_use(self) -> Iterator[ModelKey]:
        """Yield the models needed to train participations in flight and the open round's commits; some come twice."""
        yield from self.in_flight.models()
        for _, participant in self._open.committed:
            handover = participant.handover
            yield from (participant.base, *(model for _, model in handover.mixed), *handover.bases)

    def open(self, *, held: bool = False) -> None:
        """Open the next round, without inviting anybody yet; ``fill`` does.

        With ``held`` the round begins only at ``resume``. When it begins, its deadline is set, and vehicles that could
        not be invited in the round before are reported to the outbox as idle.
        """
        self._open = OpenRound(
            index=self._open.index + 1,
            open_s=self.world.env.now,
            silos={participation.window.vehicle.silo for participation in self.in_flight},
            held=held,
        )
        if not held:
            self._begin()

    def resume(self, *, reset: bool) -> None:
        """Begin the round that waits for the cloud's model; it closes at once if the commits so far complete it.

        ``reset`` ends all participations in flight: as ``stale``, and those outside coverage as if they had left it.
        """
        self._open.held, self._open.open_s = False, self.world.env.now
        for participation in self.in_flight if reset else ():
            self._cut_late(participation, "quorum", self.world.env.now)
        self._begin()
        self._close_if_over()

    def _begin(self) -> None:
        """Set the open round's deadline; report vehicles that could not be invited again in the last round as idle."""
        self.outbox.idle.extend(self.invitations.take_rested())
        length_s = self.world.experiment.round.deadline_s
        if self._deadline_s is not None:
            state = self._state()
            length_s = number_of(self._deadline_s(state), LENGTH, PACES, self.pace, "deadline_s", state)
        self._set_deadline(length_s)

    def fill(self) -> None:
        """Invite waiting vehicles while there are free places, and begin the exchange if enough vehicles wait for it.

        Does nothing after the last round, while the round is held, and while an exchange is under way.
        """
        waiting = len(self.invitations)
        if not (waiting or self._exchange.gathered):  # the usual case with many aggregators
            return
        if self.finished or self._open.held or self._exchange.under_way:
            return
        if waiting and (taken := (len(self.in_flight), len(self._open.committed))) != self._full:
            if (free := self._places(state := self._state())) > 0:
                self._invite_up_to(free, state)
            elif self._steady:
                self._full = taken
        if len(self._exchange.gathered) >= self.world.experiment.round.quorum:  # stale ones, gathered before
            self._open_exchange("quorum")

    def offer(self, window: OpenWindow) -> bool:
        """Let an idle vehicle wait for an invitation; return whether the open round may invite it.

        A vehicle that the open round has invited, or whose update counts for it, rests until the next round.
        """
        return self.invitations.offer(window, self.round)

    def move(
        self, participation: Participation, coverage: Coverage | None, *, keep: bool, model: ModelKey | None = None
    ) -> None:
        """Let a participation go on at another RSU, or outside coverage with None; see ``Participation.move``.

        Outside coverage it takes no place, and the round closes if it waited only for this participation.
        """
        self.in_flight.move(participation, coverage, keep=keep, model=model)
        self._close_if_over()

    def takes(self, vehicle: Vehicle) -> bool:
        """Return whether a vehicle's participation that began elsewhere may count in the open round.

        It may not after the last round, if the vehicle has already committed to the open round, or, with
        ``round.distinct_silos``, if its silo takes part in it.
        """
        silo_is_in = self.world.experiment.round.distinct_silos and vehicle.silo in self._open.silos
        committed = any(participant.vehicle_id == vehicle.id for _, participant in self._open.committed)
        return not (self.finished or silo_is_in or committed)

    def release(self, participation: Participation) -> None:
        """Remove a participation that another aggregator will ``adopt``; the round closes if it waited only for it."""
        self.in_flight.remove(participation)
        self._close_if_over()

    def adopt(self, participation: Participation) -> None:
        """Take over a participation that another aggregator has released; it ends at once if its model is too stale."""
        participation.owner = self
        self._add(participation)
        if participation.version < self.round - self.world.experiment.round.max_staleness:
            participation.cut()
            self._end(participation, "stale", self.world.env.now)

    def cut_short(self, participation: Participation, time_s: float) -> None:
        """End, at a time (s), the participation of a vehicle that left coverage, unless its exchange can go on."""
        if participation.stage == "exchange" and self._exchange.leave(participation):
            return
        self._end(participation, LEFT[participation.cut()], time_s)

    def end_of_traffic(self, time_s: float) -> None:
        """End all rounds and participations at a time (s); nothing if the last round has closed.

        The open round closes by ``traffic_end`` if anybody has committed; otherwise it gets no record.
        """
        if self.finished:
            return
        if self._open.committed:
            self._close("traffic_end", time_s)
        else:
            # participations that are left are outside coverage: the others ended with their windows
            for participation in self.in_flight:
                self._cut_late(participation, "traffic_end", time_s)
        self.finished = True

    def training_share(self, participation: Participation) -> float:
        """Return the share of the training that the pace asks of a participation at its present RSU, in (0, 1]."""
        window = participation.coverage.window if participation.coverage else participation.window
        return self.invitations.share(window, self._state())

    def wait_for_exchange(self, participation: Participation) -> None:
        """Let a participation wait for the exchange.

        The ``round.quorum``-th that waits begins it at once, unless the round is held or an exchange is under way.
        """
        self._exchange.gathered[participation] = None
        quorum = self.world.experiment.round.quorum
        waiting = not (self._exchange.under_way or self._open.held)
        if waiting and len(self._exchange.gathered) == quorum:
            self._open_exchange("quorum")

    def receive_update(self, participation: Participation) -> None:
        """Count an update for the open round, end it as ``committed``, and close the round or fill its free places."""
        self.invitations.mark_round(participation.window.vehicle, self.round)
        participant = make_participant(participation, self.round, self.world)
        row = self._end(participation, "committed", self.world.env.now)
        self._open.committed.append((row, participant))
        if self._exchange.under_way:
            self._close_if_over()
        elif closed_by := self._closed_by():
            self._close_and_go_on(closed_by)
        elif not self.outbox.closed:  # else the event loop fills after it has offered more vehicles
            self.fill()

    def _state(self) -> RoundState:
        """Return the state of the open round now, for pace and selection policy."""
        return RoundState(
            round=self.round,
            open_s=self._open.open_s,
            now_s=self.world.env.now,
            invited=self._open.invited,
            in_flight=len(self.in_flight),
            committed=len(self._open.committed),
            close_s=self._open.close_s,
            rules=self.world.experiment.round,
            planned_share=self.invitations.planned_share,
            memory=self._pace_memory,
        )

    def _places(self, state: RoundState) -> int:
        """Return how many more vehicles the pace invites now; 0 or less for none."""
        free = number_of(self.pace.places(state), FINITE, PACES, self.pace, "places", state)
        if not free.is_integer():
            raise wrong_result(free, "a whole number", PACES, self.pace, "places", state)
        return int(free)

    def _set_deadline(self, length_s: float) -> None:
        """Make the open round close at most ``length_s`` seconds from now."""
        now_s = self.world.env.now
        self._open.close_s = now_s + length_s
        self._deadline.set(self._open.close_s - now_s, self._expire)

    def _expire(self) -> None:
        """At the deadline, begin the exchange if anybody waits for it, else close the round."""
        if self._exchange.gathered:
            self._open_exchange("deadline")
        else:
            self._close_and_go_on("deadline")

    def _closed_by(self) -> ClosedBy | None:
        """Return the reason for which the round is to close now; None if it stays open."""
        if self._open.held:
            return None
        if self._exchange.under_way:
            return self._exchange.closed_by
        return self._pace_closed_by if self.pace.closes(self._state()) else None

    def _invite_up_to(self, free: int, state: RoundState) -> None:
        """Let the pace plan the round, then invite in the policy's order while the pace has places for more."""
        if (length_s := self.invitations.plan_length_s(state)) is not None:
            self._set_deadline(length_s)
            state = self._state()
        with closing(self.invitations.select(free, state)) as windows:
            for window in windows:
                if self.world.experiment.round.distinct_silos and window.vehicle.silo in self._open.silos:
                    self.invitations.rest(window.vehicle)
                    continue
                self.invite(self, window)
                self._open.invited += 1
                if self._places(self._state()) <= 0:
                    return

    def begin(self, window: OpenWindow, make: Callable[..., Participation] = Participation) -> None:
        """Start a participation in a window; ``make`` creates it. Does not increase the round's ``invited``."""
        vehicle = window.vehicle
        invitation = Invitation(
            coverage=self.world.coverage(window),
            base=self.model,
            cost=self.world.cost(vehicle.silo),
            predicted=self.invitations.predict(window, self.world.env.now),
            train_s=self.world.train_s(window),
        )
        self._add(make(env=self.world.env, invitation=invitation, owner=self))
        self.invitations.mark_round(vehicle, self.round)
        window.invited = True

    def _add(self, participation: Participation) -> None:
        """Add a participation to those in flight; its silo takes part in the open round."""
        self.in_flight.add(participation)
        self._open.silos.add(participation.window.vehicle.silo)

    def _open_exchange(self, opened_by: Literal["quorum", "deadline"]) -> None:
        """Begin the exchange of those who wait, with a new deadline; cut others too stale for the next round."""
        for participation in self.in_flight:
            if participation not in self._exchange.gathered and self._too_old(participation):
                self._cut_late(participation, opened_by, self.world.env.now)
        self._deadline.set(self.world.experiment.round.deadline_s, partial(self._close_and_go_on, "deadline"))
        self._exchange.begin(self.model, opened_by)

    def _too_old(self, participation: Participation) -> bool:
        """Return whether a participation is too stale to commit to the next round."""
        oldest = self.round + 1 - self.world.experiment.round.max_staleness
        return participation.version < oldest

    def _cut_late(self, participation: Participation, closed_by: ClosedBy, time_s: float) -> None:
        """End a participation as ``deadline``, ``unfinished`` or ``stale`` by ``closed_by``; outside as left."""
        doing = participation.cut()
        late: Outcome = (
            "deadline" if closed_by == "deadline" else "unfinished" if closed_by == "traffic_end" else "stale"
        )
        self._end(participation, LEFT[doing] if participation.coverage is None else late, time_s)

    def _close_if_over(self) -> None:
        """Close the open round if it is to close now, in an event of its own at this instant."""
        if self._closed_by():
            Task(self._close_next())

    def _close_next(self) -> Activity:
        """In a later event of this instant, close the open round if it is then still to close."""
        index = self.round
        yield self.world.env.timeout(0)
        if index == self.round and not self.finished and (closed_by := self._closed_by()):
            self._close_and_go_on(closed_by)

    def _close_and_go_on(self, closed_by: ClosedBy) -> None:
        """Close the round and open the next, unless it was the last; held if the cloud averages the model first."""
        self._close(closed_by, self.world.env.now)
        if not self.finished:
            held = self.world.experiment.topology.kind == "hierarchical" and self._mixed()
            self.open(held=held)

    def _mixed(self) -> bool:
        """Return whether the open round's model is averaged with those of other aggregators."""
        return is_mixed(self.world.experiment.topology, self.round, final=self.finished)

    def _close(self, closed_by: ClosedBy, time_s: float) -> None:
        """Close the round at a time (s): cut stale participations, aggregate, record, report; set ``finished``."""
        index = self.round
        self.finished = closed_by == "traffic_end" or index + 1 == self.world.experiment.rounds
        self._deadline.cancel()
        proceed = self._exchange.stop()
        for participation in self.in_flight:
            if self.finished or self._too_old(participation):
                self._cut_late(participation, closed_by, time_s)
            elif proceed is not None and participation.stage == "exchange":
                proceed(participation)
        summary = RoundSummary(
            round=index,
            open_s=self._open.open_s,
            close_s=time_s,
            closed_by=closed_by,
            invited=self._open.invited,
            final=self.finished,
            aggregator=self.name,
            mixed=closed_by != "traffic_end" and self._mixed(),
            needed=self.world.needed_models,
        )
        committed = self._open.committed
        result = self.handler.close_round(summary, [participant for _, participant in committed])
        accepted = self._open.accepted_updates(result)
        samples = sum(self.world.images.get(silo, 1) for silo, _ in accepted)
        self.recorder.record_round(summary, [row for row, _ in committed], result)
        self.invitations.after_round(self.recorder.log.participations, self.model, accepted)
        self.outbox.closed.append(replace(summary, samples=samples))

    def _end(self, participation: Participation, outcome: Outcome, time_s: float) -> int:
        """Record a participation that has ended, free its place, report its vehicle as idle; return its row number."""
        self.in_flight.remove(participation)
        self._exchange.remove(participation)
        if outcome != "committed":  # else the caller does, after counting it
            self._close_if_over()
        self.outbox.idle.append(participation.window.vehicle)
        return self.recorder.record_participation(participation.window, participation, outcome, self.model, time_s)
