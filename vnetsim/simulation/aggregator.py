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

An aggregator knows no other, and of the fleet only whom that offers it. What the fleet is to know of it goes into an
outbox, which the event loop empties after every event.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal

from vnetsim.learning import ModelKey
from vnetsim.simulation.invitations import Invitations
from vnetsim.simulation.log import LEFT, RoundHandler, RoundSummary
from vnetsim.simulation.open_round import OpenRound, Outbox, make_participant
from vnetsim.simulation.pace import Pace, RoundState
from vnetsim.simulation.participation import Invitation, Participation
from vnetsim.simulation.recorder import Recorder
from vnetsim.simulation.round_exchange import RoundExchange
from vnetsim.simulation.stages import Coverage
from vnetsim.simulation.tasks import Activity, Task
from vnetsim.simulation.topology import is_mixed
from vnetsim.simulation.vehicle import OpenWindow, Vehicle
from vnetsim.simulation.world import World
from vnetsim.storage.rows import ClosedBy, Outcome


@dataclass(kw_only=True, eq=False)
class Aggregator:
    """Makes rounds of the vehicles that it is offered, who wait in ``invitations``; ``finished`` after the last."""

    name: str
    world: World
    handler: RoundHandler
    recorder: Recorder
    outbox: Outbox
    pace: Pace
    invitations: Invitations
    finished: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._deadline_s, self._pace_closed_by = getattr(self.pace, "deadline_s", None), self.pace.closed_by
        self._deadline: Task | None = None
        self._pace_memory = self.pace.begin() if hasattr(self.pace, "begin") else None
        self._open = OpenRound(index=-1, open_s=self.world.env.now)
        self._in_flight: dict[Vehicle, Participation] = {}
        self._outside = 0  # of them, outside coverage: they take no place
        self._exchange = RoundExchange(world=self.world, recorder=self.recorder)

    @property
    def round(self) -> int:
        """Index of the open round, or of the last."""
        return self._open.index

    @property
    def model(self) -> ModelKey:
        """The model that the open round, or the last, began with."""
        return ModelKey(self.name, self.round)

    @property
    def held(self) -> bool:
        """Whether its model waits for the cloud's to take its place."""
        return self._open.held

    def models_in_use(self) -> Iterator[ModelKey]:
        """Yield the models that its participations began with or mixed, and are to be trained with once more."""
        for participation in self._in_flight.values():
            origin = participation.origin
            yield from (*(one.origin.base for one in origin.together), *(model for _, model in origin.mixed))
            if origin.arriving is not None:
                yield origin.arriving
        for _, participant in self._open.committed:
            yield from (participant.base, *(model for _, model in participant.mixed), *participant.bases)

    def open(self, *, held: bool = False) -> None:
        """Open the next round now, or once it is no longer held; ``fill`` invites."""
        self._open = OpenRound(
            index=self._open.index + 1,
            open_s=self.world.env.now,
            taken={vehicle.silo for vehicle in self._in_flight},
            held=held,
        )
        if not held:
            self._begin()

    def resume(self, *, reset: bool) -> None:
        """Begin the round that was held now, with another model; with ``reset``, whoever is in flight is cut."""
        self._open.held, self._open.open_s = False, self.world.env.now
        for participation in list(self._in_flight.values()) if reset else ():
            self._cut_late(participation, "quorum", self.world.env.now)
        self._begin()
        self._close_if_over()

    def _begin(self) -> None:
        self.outbox.idle.extend(self.invitations.take_rested())
        given_s = self.world.experiment.round.deadline_s
        self._set_deadline(given_s if self._deadline_s is None else self._deadline_s(self._state()))

    def fill(self) -> None:
        """Invite as many of those who wait as there are free places, as long as no exchange is under way."""
        if not (self.invitations or self._exchange.gathered):  # as most of many aggregators after most events
            return
        if self.finished or self._open.held or self._exchange.under_way:
            return
        if self.invitations and (free := self.pace.places(state := self._state())) > 0:
            self._invite_up_to(free, state)
        if len(self._exchange.gathered) >= self.world.experiment.round.quorum:  # stale ones, ready since
            self._open_exchange("quorum")

    def offer(self, window: OpenWindow) -> bool:
        """Let an idle vehicle wait for an invitation in a window: in this round or, when it had one, in the next.

        Returns:
            whether in this one.
        """
        return self.invitations.offer(window, self.round)

    def participation(self, vehicle: Vehicle) -> Participation:
        """Return the participation in which a vehicle is."""
        return self._in_flight[vehicle]

    def move(
        self, participation: Participation, coverage: Coverage | None, *, keep: bool, model: ModelKey | None = None
    ) -> None:
        """Let a participation go on elsewhere, or wait outside coverage, where it takes no place."""
        self._outside += (coverage is None) - (participation.coverage is None)
        participation.move(coverage, keep=keep, model=model)
        self._close_if_over()

    def takes(self, vehicle: Vehicle) -> bool:
        """Return whether a participation that began elsewhere may count here: no vehicle does twice in a round."""
        taken = self.world.experiment.round.distinct_silos and vehicle.silo in self._open.taken
        committed = any(participant.vehicle_id == vehicle.id for _, participant in self._open.committed)
        return not (self.finished or taken or committed)

    def release(self, participation: Participation) -> None:
        """Let another aggregator have a participation."""
        vehicle = participation.window.vehicle
        del self._in_flight[vehicle]
        vehicle.served_by.remove(self.name)
        self._close_if_over()

    def adopt(self, participation: Participation, *, change: bool) -> None:
        """Take over a participation of another aggregator, or only the change that it makes to its model."""
        vehicle, origin = participation.window.vehicle, participation.origin
        own = origin.base.aggregator == self.name
        origin.carried = "change" if change and not own else "model"
        if origin.arriving is not None:
            origin.counted_from = origin.arriving.version
        else:
            origin.counted_from = (
                None if own else self.round - self.recorder.count_closed_since(self.name, participation.start_s)
            )
        self._in_flight[vehicle] = participation
        self._open.taken.add(vehicle.silo)
        vehicle.served_by.append(self.name)
        participation.owner = self
        if origin.version < self.round - self.world.experiment.round.max_staleness:
            participation.cut()
            self._end(participation, "stale", self.world.env.now)

    def cut_short(self, participation: Participation, time_s: float) -> None:
        """End what a vehicle was doing that is not served any more."""
        if participation.stage == "exchange" and self._exchange.leave(participation):
            return
        self._end(participation, LEFT[participation.cut()], time_s)

    def end_of_traffic(self, time_s: float) -> None:
        """Close the open round with what has committed, or drop it when nothing has."""
        if self.finished:
            return
        if self._open.committed:
            self._close("traffic_end", time_s)
        else:
            # whoever is left is outside coverage: the others ended with their windows
            for participation in list(self._in_flight.values()):
                self._cut_late(participation, "traffic_end", time_s)
        self.finished = True

    def training_share(self, participation: Participation) -> float:
        """Return the share of its training that a participation does, by the pace."""
        window = participation.coverage.window if participation.coverage else participation.window
        return self.invitations.share(window, self._state())

    def wait_for_exchange(self, participation: Participation) -> None:
        """Let a participation wait for the round's exchange, which begins when the quorum is there."""
        self._exchange.gathered[participation] = None
        quorum = self.world.experiment.round.quorum
        waiting = not (self._exchange.under_way or self._open.held)
        if waiting and len(self._exchange.gathered) == quorum:
            self._open_exchange("quorum")

    def receive_update(self, participation: Participation) -> None:
        """Let an update count for the open round."""
        self.invitations.mark_round(participation.window.vehicle, self.round)
        participant = make_participant(participation, self.round, self.world.experiment.camera, self.world.share_passed)
        row = self._end(participation, "committed", self.world.env.now)
        self._open.committed.append((row, participant))
        if self._exchange.under_way:
            self._close_if_over()
        elif closed_by := self._closed_by():
            self._close_and_go_on(closed_by)
        elif not self.outbox.closed:  # else the event loop has somebody more to offer before
            self.fill()

    def _state(self) -> RoundState:
        return RoundState(
            round=self.round,
            open_s=self._open.open_s,
            now_s=self.world.env.now,
            invited=self._open.invited,
            in_flight=len(self._in_flight) - self._outside,
            committed=len(self._open.committed),
            close_s=self._open.close_s,
            rules=self.world.experiment.round,
            planned_share=self.invitations.planned_share,
            memory=self._pace_memory,
        )

    def _set_deadline(self, length_s: float) -> None:
        """Let the open round close so long from now (s) at the latest."""
        now_s = self.world.env.now
        self._open.close_s = now_s + length_s
        self._replace_deadline(self._wait_until_deadline(self._open.close_s - now_s))

    def _replace_deadline(self, deadline: Activity | None) -> None:
        if self._deadline is not None:
            self._deadline.stop()
        self._deadline = None if deadline is None else Task(deadline)

    def _wait_until_deadline(self, wait_s: float) -> Activity:
        yield self.world.env.timeout(wait_s)
        if self._exchange.gathered:
            self._open_exchange("deadline")
        else:
            self._close_and_go_on("deadline")

    def _wait_until_exchange_deadline(self) -> Activity:
        yield self.world.env.timeout(self.world.experiment.round.deadline_s)
        self._close_and_go_on("deadline")

    def _closed_by(self) -> ClosedBy | None:
        """Return what closes the round now: the end of its exchange where that has begun, else the pace, or nothing."""
        if self._open.held:
            return None
        if self._exchange.under_way:
            return self._open.exchange_by if self._exchange.over else None
        return self._pace_closed_by if self.pace.closes(self._state()) else None

    def _invite_up_to(self, free: int, state: RoundState) -> None:
        if (length_s := self.invitations.plan_length_s(state)) is not None:
            self._set_deadline(length_s)
            state = self._state()
        with closing(self.invitations.select(free, state)) as windows:
            for window in windows:
                if self.world.experiment.round.distinct_silos and window.vehicle.silo in self._open.taken:
                    self.invitations.rest(window.vehicle)
                    continue
                self._invite(window)
                if self.pace.places(self._state()) <= 0:
                    return

    def _invite(self, window: OpenWindow) -> None:
        participation = self.begin(window)
        self._open.invited += 1
        for tell in self.world.invited:
            tell(participation)

    def begin(self, window: OpenWindow, *, beside: Participation | None = None) -> Participation:
        """Let a vehicle take part from now on in a window, for itself or beside another aggregator that invited it."""
        vehicle = window.vehicle
        invitation = Invitation(
            coverage=self.world.coverage(window),
            base=self.model,
            cost=self.world.cost(vehicle.silo),
            predicted=self.invitations.predict(window, self.world.env.now),
            train_s=self.world.train_s(window),
        )
        participation = Participation(env=self.world.env, invitation=invitation, owner=self, beside=beside)
        self._in_flight[vehicle] = participation
        self._open.taken.add(vehicle.silo)
        self.invitations.mark_round(vehicle, self.round)
        window.invited = True
        vehicle.served_by.append(self.name)
        return participation

    def _open_exchange(self, opened_by: Literal["quorum", "deadline"]) -> None:
        """Let those who are ready exchange; of the others, those that may not commit to the next round are too late."""
        for participation in list(self._in_flight.values()):
            if participation not in self._exchange.gathered and self._too_old(participation):
                self._cut_late(participation, opened_by, self.world.env.now)
        self._open.exchange_by = opened_by
        self._replace_deadline(self._wait_until_exchange_deadline())
        self._exchange.begin(self.model)

    def _too_old(self, participation: Participation) -> bool:
        """Return whether it may not commit to the next round."""
        oldest = self.round + 1 - self.world.experiment.round.max_staleness
        return participation.origin.version < oldest

    def _cut_late(self, participation: Participation, closed_by: ClosedBy, time_s: float) -> None:
        """End what was not done when the round closed, or its exchange began."""
        doing = participation.cut()
        late: Outcome = (
            "deadline" if closed_by == "deadline" else "unfinished" if closed_by == "traffic_end" else "stale"
        )
        self._end(participation, LEFT[doing] if participation.coverage is None else late, time_s)

    def _close_if_over(self) -> None:
        if self._closed_by():
            Task(self._close_next())

    def _close_next(self) -> Activity:
        """Close the open round by the next event: traffic may have ended something, outside the event loop."""
        index = self.round
        yield self.world.env.timeout(0)
        if index == self.round and not self.finished and (closed_by := self._closed_by()):
            self._close_and_go_on(closed_by)

    def _close_and_go_on(self, closed_by: ClosedBy) -> None:
        self._close(closed_by, self.world.env.now)
        if not self.finished:
            held = self.world.experiment.topology.kind == "hierarchical" and self._mixed()
            self.open(held=held)

    def _mixed(self) -> bool:
        """Return whether the model that the open round makes is averaged with others'."""
        return is_mixed(self.world.experiment.topology, self.round, final=self.finished)

    def _close(self, closed_by: ClosedBy, time_s: float) -> None:
        index = self.round
        self.finished = closed_by == "traffic_end" or index + 1 == self.world.experiment.rounds
        self._replace_deadline(None)
        proceed = self._exchange.stop()
        for participation in list(self._in_flight.values()):
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
        told = self._open.accepted_updates(result)
        samples = sum(self.world.images.get(silo, 1) for silo, _ in told)
        self.recorder.record_round(summary, [row for row, _ in committed], result)
        self.invitations.after_round(self.recorder.log.participations, self.model, told)
        self.outbox.closed.append(replace(summary, samples=samples))

    def _end(self, participation: Participation, outcome: Outcome, time_s: float) -> int:
        """Record a participation that is over, free its place and vehicle, and return the record's row."""
        vehicle = participation.window.vehicle
        del self._in_flight[vehicle]
        self._exchange.remove(participation)
        self._outside -= participation.coverage is None
        if outcome != "committed":  # else the caller looks, once it counts
            self._close_if_over()
        vehicle.served_by.remove(self.name)
        row = self.recorder.record_participation(participation.window, participation, outcome, self.model, time_s)
        self.outbox.idle.append(vehicle)
        return row
