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
    # called with itself and the window of every vehicle that it invites; calls ``start_participation``
    invite: Callable[[Aggregator, OpenWindow], None]
    finished: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Call the pace's ``begin``, if it has one; no round is open before ``open_round``."""
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
        """Index of the open round, from 0; -1 before the first round. Once ``finished``, index of the last round."""
        return self._open.index

    @property
    def model(self) -> ModelKey:
        """The model with which the open round began; once ``finished``, the model with which the last round began."""
        return ModelKey(self.name, self.round)

    @property
    def held(self) -> bool:
        """Whether the open round waits for the cloud's model: until then it invites nobody and does not close."""
        return self._open.held

    def needed_models(self) -> Iterator[ModelKey]:
        """Yield the models still needed to train participations in flight and the open round's commits, some twice."""
        yield from self.in_flight.needed_models()
        for _, participant in self._open.committed:
            handover = participant.handover
            yield from (participant.base, *(model for _, model in handover.mixed), *handover.bases)

    def open_round(self, *, held: bool = False) -> None:
        """Open the next round; begin it now or, if ``held``, leave that to ``begin_held_round``. Invite nobody yet."""
        self._open = OpenRound(
            index=self._open.index + 1,
            open_s=self.world.env.now,
            silos={participation.window.vehicle.silo for participation in self.in_flight},
            held=held,
        )
        if not held:
            self._begin_round()

    def begin_held_round(self, *, reset: bool) -> None:
        """Begin the open round, which waited for the cloud's model; close it in this instant if it is complete.

        With ``reset``, first end all participations in flight: as ``stale`` or, outside coverage, as ``left_...``.
        """
        self._open.held, self._open.open_s = False, self.world.env.now
        for participation in self.in_flight if reset else ():
            self._end_late(participation, "quorum", self.world.env.now)
        self._begin_round()
        self._schedule_close()

    def _begin_round(self) -> None:
        """Set the open round's deadline; put vehicles that had to wait for a new round into ``outbox.idle``."""
        self.outbox.idle.extend(self.invitations.take_rested())
        length_s = self.world.experiment.round.deadline_s
        if self._deadline_s is not None:
            state = self._round_state()
            length_s = number_of(self._deadline_s(state), LENGTH, PACES, self.pace, "deadline_s", state)
        self._set_deadline(length_s)

    def fill_places(self) -> None:
        """Invite waiting vehicles while there are free places; begin the exchange if ``round.quorum`` wait for it.

        Does nothing after the last round, while the round waits for the cloud's model, and during an exchange.
        """
        waiting = len(self.invitations)
        idle = not (waiting or self._exchange.gathered)  # the usual case with many aggregators
        if idle or self.finished or self._open.held or self._exchange.under_way:
            return
        if waiting and (taken := (len(self.in_flight), len(self._open.committed))) != self._full:
            if (free := self._free_places(state := self._round_state())) > 0:
                self._invite_up_to(free, state)
            elif self._steady:
                self._full = taken
        if len(self._exchange.gathered) >= self.world.experiment.round.quorum:  # stale ones, gathered before
            self._begin_exchange("quorum")

    def offer(self, window: OpenWindow) -> bool:
        """Let an idle vehicle wait for an invitation in its window; return whether the open round may invite it.

        False if the open round has invited the vehicle or counts its update: then it waits from the next round on.
        """
        return self.invitations.offer(window, self.round)

    def move(self, participation: Participation, coverage: Coverage | None, model: ModelKey | None = None) -> None:
        """Continue a participation at another RSU or, with ``coverage`` None, outside; see ``Participation.move``.

        Outside coverage it takes no place, and the round closes if it waited only for this participation.
        """
        resume_transfer = self.world.experiment.handover.transfer == "resume"
        self.in_flight.move(participation, coverage, resume_transfer=resume_transfer, model=model)
        self._schedule_close()

    def accepts(self, vehicle: Vehicle) -> bool:
        """Return whether the open round may take a vehicle that another aggregator invited.

        False after the last round, and if the round already counts an update of the vehicle. With
        ``round.distinct_silos`` also False if the vehicle's silo takes part in the round.
        """
        silo_is_in = self.world.experiment.round.distinct_silos and vehicle.silo in self._open.silos
        committed = any(participant.vehicle_id == vehicle.id for _, participant in self._open.committed)
        return not (self.finished or silo_is_in or committed)

    def release(self, participation: Participation) -> None:
        """Remove a participation that another aggregator will ``adopt``; close the round if it waited only for that."""
        self.in_flight.remove(participation)
        self._schedule_close()

    def adopt(self, participation: Participation) -> None:
        """Take over a participation that another aggregator released; if its model is too old, end it as ``stale``."""
        participation.owner = self
        self._add_in_flight(participation)
        if self._is_too_stale(participation, self.round):
            participation.cut()
            self._record_end(participation, "stale", self.world.env.now)

    def end_uncovered(self, participation: Participation, time_s: float) -> None:
        """End a participation that lost coverage at a time (s); its outcome is the ``left_...`` of its stage.

        In the stage ``exchange`` its exchanges are cut; if only an empty upload would follow, it goes on with that.
        """
        if participation.stage == "exchange" and self._exchange.leave(participation):
            return
        self._record_end(participation, LEFT[participation.cut()], time_s)

    def close_at_traffic_end(self, time_s: float) -> None:
        """End the open round and all participations at a time (s), and set ``finished``; does nothing once finished.

        The round closes by ``traffic_end`` if any update has arrived in it; otherwise it gets no record.
        """
        if self.finished:
            return
        if self._open.committed:
            self._close_round("traffic_end", time_s)
        else:
            # those inside coverage have ended with their windows
            for participation in self.in_flight:
                self._end_late(participation, "traffic_end", time_s)
        self.finished = True

    def training_share(self, participation: Participation) -> float:
        """Return the share of the training that the pace asks of a participation now, in (0, 1]."""
        window = participation.coverage.window if participation.coverage else participation.window
        return self.invitations.share(window, self._round_state())

    def wait_for_exchange(self, participation: Participation) -> None:
        """Let a participation wait for the exchange; begin it at the ``round.quorum``-th, unless held or under way."""
        self._exchange.gathered[participation] = None
        may_begin = not (self._exchange.under_way or self._open.held)
        if may_begin and len(self._exchange.gathered) == self.world.experiment.round.quorum:
            self._begin_exchange("quorum")

    def receive_update(self, participation: Participation) -> None:
        """Count a finished participation's update for the open round, then close the round or fill its free places."""
        self.invitations.mark_round(participation.window.vehicle, self.round)
        participant = make_participant(participation, self.round, self.world)
        row = self._record_end(participation, "committed", self.world.env.now)
        self._open.committed.append((row, participant))
        if self._exchange.under_way:
            self._schedule_close()
        elif closed_by := self._closing_cause():
            self._close_and_open_next(closed_by)
        elif not self.outbox.closed:  # else the event loop fills after it has offered more vehicles
            self.fill_places()

    def _round_state(self) -> RoundState:
        """Return the state of the open round now, which the pace's and the policy's methods take."""
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

    def _free_places(self, state: RoundState) -> int:
        """Ask the pace how many more vehicles to invite now; 0 or less for none. RunError if it is no whole number."""
        free = number_of(self.pace.places(state), FINITE, PACES, self.pace, "places", state)
        if not free.is_integer():
            raise wrong_result(free, "a whole number", PACES, self.pace, "places", state)
        return int(free)

    def _set_deadline(self, length_s: float) -> None:
        """Let the open round close at the latest ``length_s`` seconds from now, instead of at the time set before."""
        self._open.close_s = self.world.env.now + length_s
        self._deadline.set(self._open.close_s - self.world.env.now, self._on_deadline)

    def _on_deadline(self) -> None:
        """Called at the deadline: begin the exchange if anybody waits for it; otherwise close the round."""
        if self._exchange.gathered:
            self._begin_exchange("deadline")
        else:
            self._close_and_open_next("deadline")

    def _closing_cause(self) -> ClosedBy | None:
        """Return why the round is to close now, apart from its deadline; None if it stays open."""
        if self._open.held:
            return None
        if self._exchange.under_way:
            return self._exchange.closed_by
        return self._pace_closed_by if self.pace.closes(self._round_state()) else None

    def _invite_up_to(self, free: int, state: RoundState) -> None:
        """Let the pace plan the round, then invite waiting vehicles in the policy's order while there are places."""
        if (length_s := self.invitations.plan_length_s(state)) is not None:
            self._set_deadline(length_s)
            state = self._round_state()
        with closing(self.invitations.select(free, state)) as windows:
            for window in windows:
                if self.world.experiment.round.distinct_silos and window.vehicle.silo in self._open.silos:
                    self.invitations.rest(window.vehicle)
                    continue
                self.invite(self, window)
                self._open.invited += 1
                if self._free_places(self._round_state()) <= 0:
                    return

    def start_participation(self, window: OpenWindow, create: Callable[..., Participation] = Participation) -> None:
        """Start a participation, made by ``create``, in a window; set ``window.invited``, not the round's count."""
        vehicle = window.vehicle
        invitation = Invitation(
            coverage=self.world.coverage(window),
            base=self.model,
            cost=self.world.cost(vehicle.silo),
            predicted=self.invitations.predict(window, self.world.env.now),
            train_s=self.world.train_s(window),
        )
        self._add_in_flight(create(env=self.world.env, invitation=invitation, owner=self))
        self.invitations.mark_round(vehicle, self.round)
        window.invited = True

    def _add_in_flight(self, participation: Participation) -> None:
        """Add a participation to those in flight, and its silo to those of the open round."""
        self.in_flight.add(participation)
        self._open.silos.add(participation.window.vehicle.silo)

    def _begin_exchange(self, opened_by: Literal["quorum", "deadline"]) -> None:
        """Begin the exchange of all that wait for it, with a new deadline; end others too stale for the next round."""
        for participation in self.in_flight:
            if participation not in self._exchange.gathered and self._is_too_stale(participation, self.round + 1):
                self._end_late(participation, opened_by, self.world.env.now)
        self._deadline.set(self.world.experiment.round.deadline_s, partial(self._close_and_open_next, "deadline"))
        self._exchange.begin(self.model, opened_by)

    def _is_too_stale(self, participation: Participation, round_index: int) -> bool:
        """Return whether a model is more than ``round.max_staleness`` versions older than that of ``round_index``."""
        return participation.version < round_index - self.world.experiment.round.max_staleness

    def _end_late(self, participation: Participation, closed_by: ClosedBy, time_s: float) -> None:
        """End a participation: ``left_...`` outside coverage; else ``deadline``, ``unfinished`` or ``stale``."""
        doing = participation.cut()
        late: dict[ClosedBy, Outcome] = {"deadline": "deadline", "traffic_end": "unfinished"}
        outcome = LEFT[doing] if participation.coverage is None else late.get(closed_by, "stale")
        self._record_end(participation, outcome, time_s)

    def _schedule_close(self) -> None:
        """If the open round is to close now, close it in a later event of this instant, if that still holds then."""
        if self._closing_cause():
            Task(self._close_if_still_due())

    def _close_if_still_due(self) -> Activity:
        """Wait for the next event of this instant; then close the round if it is open and still to close."""
        index = self.round
        yield self.world.env.timeout(0)
        if index == self.round and not self.finished and (closed_by := self._closing_cause()):
            self._close_and_open_next(closed_by)

    def _close_and_open_next(self, closed_by: ClosedBy) -> None:
        """Close the round; open the next unless this was the last, ``held`` if the cloud averages models first."""
        self._close_round(closed_by, self.world.env.now)
        if not self.finished:
            self.open_round(held=self.world.experiment.topology.kind == "hierarchical" and self._is_mixed())

    def _is_mixed(self) -> bool:
        """Return whether the open round's result is averaged with the models of other aggregators."""
        return is_mixed(self.world.experiment.topology, self.round, final=self.finished)

    def _close_round(self, closed_by: ClosedBy, time_s: float) -> None:
        """Close the round at a time (s): end stale participations (after the last round all), aggregate, report."""
        index = self.round
        self.finished = closed_by == "traffic_end" or index + 1 == self.world.experiment.rounds
        self._deadline.cancel()
        proceed = self._exchange.stop()
        for participation in self.in_flight:
            if self.finished or self._is_too_stale(participation, index + 1):
                self._end_late(participation, closed_by, time_s)
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
            mixed=closed_by != "traffic_end" and self._is_mixed(),
            needed=self.world.needed_models,
        )
        committed = self._open.committed
        result = self.handler.close_round(summary, [participant for _, participant in committed])
        accepted = self._open.accepted_updates(result)
        samples = sum(self.world.images.get(silo, 1) for silo, _ in accepted)
        self.recorder.record_round(summary, [row for row, _ in committed], result)
        self.invitations.after_round(self.recorder.log.participations, self.model, accepted)
        self.outbox.closed.append(replace(summary, samples=samples))

    def _record_end(self, participation: Participation, outcome: Outcome, time_s: float) -> int:
        """Record a participation's end, drop it from ``in_flight``, report its vehicle idle; return the row number."""
        self.in_flight.remove(participation)
        self._exchange.remove(participation)
        if outcome != "committed":  # else the caller does, after counting it
            self._schedule_close()
        self.outbox.idle.append(participation.window.vehicle)
        return self.recorder.record_participation(participation.window, participation, outcome, self.model, time_s)
