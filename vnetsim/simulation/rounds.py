"""Rounds: who is invited, whose update counts, when a round closes.

One aggregator over all RSUs, with an ideal backhaul between them. Round 0 opens when the traffic begins, each further
one at the instant its predecessor closes. Vehicles inside coverage that are idle and were not yet invited in the open
round are invited, at most ``round.invited`` in flight at once; a freed place is filled at once. A round closes with its
``quorum``-th commit or ``deadline_s`` after it opened, even when nobody was there: then it is empty and the model is
kept. Commits count for the round that is open when they arrive, and no vehicle counts twice in one round.

That is the pace ``quorum``; another one (``pace``) decides how many are invited and when a round closes. Who is invited
first is decided by a selection policy (``selection``). What they decide is carried out, counted and recorded here.

With a learner whose vehicles exchange with each other, a round has two parts, each at most ``deadline_s`` long. In the
first, vehicles that are ready for the exchange wait until the quorum is there or the deadline comes; then nobody else
is invited, and they exchange. The round closes when the last of them has committed or left.

A vehicle inside several discs takes part through the window that opened first, never twice at a time; its other
windows count as ``not_selected`` unless it is invited through them later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import simpy

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Left, VehiclePath
from vnetsim.experiment import Experiment
from vnetsim.learning import Participant
from vnetsim.radio.channel import Channel
from vnetsim.random_streams import Streams
from vnetsim.simulation.exchange import Air
from vnetsim.simulation.handler import RoundHandler
from vnetsim.simulation.links import Radio
from vnetsim.simulation.log import LEFT, ClosedBy, Outcome, Recorder, RoundSummary, SimulationLog
from vnetsim.simulation.pace import RoundState
from vnetsim.simulation.pace.checked import CheckedPace
from vnetsim.simulation.participants import participant_of
from vnetsim.simulation.participation import OpenWindow, Participation, Vehicle
from vnetsim.simulation.planning import Planning
from vnetsim.simulation.plugins import SimulationPlugins
from vnetsim.simulation.resources import Resources
from vnetsim.simulation.round_exchange import OpenedBy, RoundExchange
from vnetsim.simulation.selection import SelectionContext
from vnetsim.simulation.selection.choice import Chooser
from vnetsim.simulation.selection.knowledge import Knowledge
from vnetsim.simulation.silo_binding import SiloBinder
from vnetsim.simulation.waiting import WaitingList


class Rounds:
    """Turns entries and exits into participations and rounds.

    Args:
        experiment: rules, link, compute, silos, camera and number of rounds.
        rsus: every RSU that a path may name.
        env: the event loop; its clock is the traffic's.
        handler: learning.
        streams: the experiment's random streams.
        log: receives the records.
        plugins: selection policy, pace and radio model.
        images: images by silo, for policies that ask; empty where the task does not tell.
        whole_paths: whether a path is known to its end when it begins.
        on_round: called after every round, when ``log`` holds everything about it.

    Attributes:
        channels: the radio channels, by RSU.
        sidelinks: the channels between vehicles, by the RSU that schedules them.
        link_rates: the rates of the links between RSUs and vehicles.
        sidelink_rates: those between vehicles.
        finished: whether the last round has closed.
    """

    def __init__(
        self,
        *,
        experiment: Experiment,
        rsus: Sequence[Rsu],
        env: simpy.Environment,
        handler: RoundHandler,
        streams: Streams,
        log: SimulationLog,
        plugins: SimulationPlugins,
        images: Mapping[int, int],
        whole_paths: bool = False,
        on_round: Callable[[SimulationLog], None] | None = None,
    ) -> None:
        radio = Radio(plugins.radio, experiment.link, streams)
        self.link_rates, self.sidelink_rates = radio.rate_use(), radio.rate_use()
        self.channels: Mapping[str, Channel] = {rsu.id: Channel(env, self.link_rates) for rsu in rsus}
        self.sidelinks: Mapping[str, Channel] = {rsu.id: Channel(env, self.sidelink_rates) for rsu in rsus}
        self.finished = False
        self._experiment = experiment
        self._rsus = {rsu.id: rsu for rsu in rsus}
        self._env = env
        self._handler = handler
        self._streams = streams
        self._log = log
        self._recorder = Recorder(log, experiment.camera)
        self._on_round = on_round
        self._pace = CheckedPace(plugins.pace)
        self._chooser = Chooser(plugins.selection, streams.generator("selection"))
        self._resources = Resources(experiment=experiment, radio=radio, streams=streams, cost=handler.cost)
        self._knowledge = Knowledge(
            camera=experiment.camera, resources=self._resources, images=images, whole_paths=whole_paths
        )
        self._planning = Planning(self._pace, self._knowledge, self._state)
        self._binder = SiloBinder(experiment.silos)
        self._vehicles: dict[str, Vehicle] = {}
        self._windows: dict[VehiclePath, OpenWindow] = {}
        self._entered = 0
        self._in_flight: dict[Participation, None] = {}  # a dictionary is an ordered set
        self._outside = 0  # of them, training outside coverage: they take no place
        self._waiting = WaitingList()
        self._rested: dict[str, Vehicle] = {}  # may not be invited again before the next round
        self._committed: list[tuple[int, Participant]] = []  # with the row of its record
        air = Air(
            env=env,
            channels=self.channels,
            sidelinks=self.sidelinks,
            radio=radio,
            update_s=experiment.link.update_s,
            exchange=experiment.exchange,
        )
        self._exchange = RoundExchange(
            env=env,
            air=air,
            deadline_s=experiment.round.deadline_s,
            recorder=self._recorder,
            on_over=self._close_and_go_on,
        )
        self._taken: set[int] = set()  # silos that take part in the open round
        self._invited = 0
        self._round = -1
        self._open_s: float = env.now
        self._close_s = math.inf

    def open(self) -> None:
        """Open the next round now."""
        self._round += 1
        self._open_s = self._env.now
        self._invited = 0
        self._committed = []
        self._taken = {participation.window.vehicle.binding.silo for participation in self._in_flight}
        rested, self._rested = self._rested, {}
        for vehicle in rested.values():
            self._offer(vehicle)
        self._set_deadline(self._pace.deadline_s(self._state()))
        self.fill()
        if len(self._exchange.gathered) >= self._experiment.round.quorum:  # stale ones, ready since
            self._open_exchange("quorum")

    def _set_deadline(self, length_s: float) -> None:
        """Let the open round close so long from now (s) at the latest."""
        self._close_s = self._env.now + length_s
        deadline = self._env.timeout(self._close_s - self._env.now)
        deadline.callbacks.append(partial(self._deadline, self._round, self._close_s))

    def enter(self, path: VehiclePath) -> None:
        """Take note that a vehicle entered a disc now; ``fill`` invites it."""
        rsu = self._rsus[path.rsu_id]
        vehicle = self._vehicles.get(path.vehicle_id)
        if vehicle is None:
            binding = self._binder.bind(path.x_m[0], path.y_m[0], rsu)
            vehicle = self._vehicles[path.vehicle_id] = Vehicle(id=path.vehicle_id, binding=binding)
        earlier = vehicle.entries.get(rsu.id, 0)
        vehicle.entries[rsu.id] = earlier + 1
        window = OpenWindow(index=self._entered, vehicle=vehicle, rsu=rsu, path=path, earlier_windows=earlier)
        self._entered += 1
        self._windows[path] = window
        vehicle.windows.append(window)
        if vehicle.participation is not None and vehicle.participation.coverage is None:
            self._cover(vehicle.participation, window)
        self._offer(vehicle)

    def leave(self, event: Left) -> None:
        """End what a vehicle was doing in the window that closes now."""
        window = self._windows.pop(event.path)
        self._log.windows.append(event.window)
        self._knowledge.left(window.vehicle, event.window)
        vehicle = window.vehicle
        self._waiting.discard(window)
        vehicle.windows.remove(window)
        participation = vehicle.participation
        if participation is not None and participation.coverage is window:
            self._uncover(participation, event.time_s)
        if not window.invited:
            self._recorder.uninvited(window, self._round, event.time_s)
        self._offer(vehicle)

    def fill(self) -> None:
        """Invite as many of those who wait as there are free places."""
        if self._exchange.under_way or not self._waiting or (free := self._pace.places(self._state())) <= 0:
            return
        now_s, waiting = self._env.now, self._waiting.windows()
        if (length_s := self._planning.length_s(waiting, now_s)) is not None:
            self._set_deadline(length_s)
        if not (windows := self._planning.taken(waiting, now_s)):
            return
        context = SelectionContext(
            now_s=now_s,
            round=self._round,
            open_s=self._open_s,
            deadline_s=self._close_s,
            in_flight=self._under_way,
            generator=self._chooser.generator,
        )
        known = self._knowledge.at(now_s, self._pace.planned_share)
        for window in self._chooser.order(windows, free, context, known):
            self._waiting.discard(window)
            if self._experiment.round.distinct_silos and window.vehicle.binding.silo in self._taken:
                self._rested[window.vehicle.id] = window.vehicle
            else:
                self._invite(window)
                if self._pace.places(self._state()) <= 0:
                    return

    @property
    def _under_way(self) -> int:
        return len(self._in_flight) - self._outside

    def _state(self) -> RoundState:
        return RoundState(
            round=self._round,
            open_s=self._open_s,
            now_s=self._env.now,
            invited=self._invited,
            in_flight=self._under_way,
            committed=len(self._committed),
        )

    def _closes(self) -> bool:
        """Return whether the pace closes the round now; with an exchange it is the exchange's end that does."""
        return not self._exchange.under_way and self._pace.closes(self._state())

    def end_of_traffic(self, time_s: float) -> None:
        """Close the open round with what has committed, or drop it when nothing has."""
        if self._committed:
            self._close("traffic_end", time_s)
        else:
            for participation in list(self._in_flight):  # outside coverage: the others ended with their windows
                self._cut_late(participation, "traffic_end", time_s)
        self.finished = True

    def _offer(self, vehicle: Vehicle) -> None:
        """Let an idle vehicle wait for an invitation, in this round or, when it had one, in the next."""
        if vehicle.participation is not None or not vehicle.windows:
            return
        if vehicle.last_round < self._round:
            self._waiting.add(vehicle.windows[0])
        else:
            self._rested[vehicle.id] = vehicle

    def _invite(self, window: OpenWindow) -> None:
        vehicle = window.vehicle
        link = self._resources.link(window)
        cost = self._handler.cost(vehicle.binding.silo)
        participation = Participation(
            env=self._env,
            channel=self.channels[window.rsu.id],
            window=window,
            link=link,
            base_round=self._round,
            cost=cost,
            predicted=self._planning.predicted(window, self._env.now),
            train_s=self._resources.train_s(window),
            share=lambda participation: self._planning.share(participation, self._env.now),
            on_ready=self._ready,
            on_uploaded=self._commit,
        )
        self._taken.add(vehicle.binding.silo)
        window.invited = True
        vehicle.participation = participation
        vehicle.last_round = self._round
        self._in_flight[participation] = None
        self._invited += 1

    def _commit(self, participation: Participation) -> None:
        window = participation.window
        vehicle = window.vehicle
        vehicle.last_round = self._round
        participant = participant_of(participation, self._round, self._experiment.camera)
        row = self._end(participation, "committed", self._env.now)
        self._committed.append((row, participant))
        if self._exchange.under_way:
            return  # the round closes when the last member of its exchange has come to an end
        if self._closes():
            self._close_and_go_on(self._pace.closed_by)
        else:
            self.fill()

    def _deadline(self, round_index: int, close_s: float, _: object) -> None:
        if round_index != self._round or close_s != self._close_s or self._exchange.under_way:
            return
        if self._exchange.gathered:
            self._open_exchange("deadline")
        else:
            self._close_and_go_on("deadline")

    def _ready(self, participation: Participation) -> None:
        """Let a participation wait for the round's exchange, which begins when the quorum is there."""
        self._exchange.gather(participation)
        if not self._exchange.under_way and len(self._exchange.gathered) == self._experiment.round.quorum:
            self._open_exchange("quorum")

    def _open_exchange(self, opened_by: OpenedBy) -> None:
        """Let those who are ready exchange; of the others, those that may not commit to the next round are too late."""
        for participation in list(self._in_flight):
            if participation not in self._exchange.gathered and self._too_old(participation):
                self._cut_late(participation, opened_by, self._env.now)
        self._exchange.begin(self._round, opened_by)

    def _too_old(self, participation: Participation) -> bool:
        """Return whether it may not commit to the next round."""
        return participation.base_round < self._round + 1 - self._experiment.round.max_staleness

    def _cut_late(self, participation: Participation, closed_by: ClosedBy, time_s: float) -> None:
        """End what was not done when the round closed, or its exchange began."""
        participation.cut()
        late: Outcome = "deadline" if closed_by == "deadline" else "stale"
        self._end(participation, "left_training" if participation.coverage is None else late, time_s)

    def _close_if_over(self) -> None:
        if self._closes():  # not at once: it may be the traffic that ended something, outside the event loop
            self._env.timeout(0).callbacks.append(partial(self._all_over, self._round))

    def _all_over(self, round_index: int, _: object) -> None:
        if round_index == self._round and self._closes():
            self._close_and_go_on(self._pace.closed_by)

    def _cover(self, participation: Participation, window: OpenWindow) -> None:
        """Let a vehicle that trained outside coverage go on in another window."""
        self._outside -= 1
        participation.cover(window, self.channels[window.rsu.id], self._resources.link(window))

    def _uncover(self, participation: Participation, time_s: float) -> None:
        """Let a vehicle that leaves coverage train on, where that is allowed, or end what it was doing."""
        outside = self._experiment.round.training_outside and participation.plan is None
        if not (outside and participation.stage == "training"):
            self._cut_short(participation, time_s)
            return
        participation.uncover()
        self._outside += 1
        if others := participation.window.vehicle.windows:
            self._cover(participation, others[0])
        self._close_if_over()

    def _cut_short(self, participation: Participation, time_s: float) -> None:
        """End what a vehicle that leaves coverage was doing."""
        if participation.stage == "exchange" and self._exchange.leave(participation):
            return
        self._end(participation, LEFT[participation.cut()], time_s)

    def _close_and_go_on(self, closed_by: ClosedBy) -> None:
        self._close(closed_by, self._env.now)
        if self.finished:
            raise simpy.core.StopSimulation(None)
        self.open()

    def _close(self, closed_by: ClosedBy, time_s: float) -> None:
        index = self._round
        self.finished = closed_by == "traffic_end" or index + 1 == self._experiment.rounds
        proceed = self._exchange.stop()
        for participation in list(self._in_flight):
            if self.finished or self._too_old(participation):
                self._cut_late(participation, closed_by, time_s)
            elif proceed is not None and participation.stage == "exchange":
                proceed(participation)
        if self.finished:
            self._recorder.cut_off(self._windows.values(), index, time_s)
            self._windows.clear()
        summary = RoundSummary(
            round=index,
            open_s=self._open_s,
            close_s=time_s,
            closed_by=closed_by,
            invited=self._invited,
            final=self.finished,
        )
        result = self._handler.close_round(summary, [participant for _, participant in self._committed])
        self._recorder.closed(summary, [row for row, _ in self._committed], result)
        self._chooser.after_round(self._knowledge.learn(self._log.participations, index), index)
        if self._on_round is not None:
            self._on_round(self._log)

    def _end(self, participation: Participation, outcome: Outcome, time_s: float) -> int:
        """Record a participation that is over, free its place and vehicle, and return the record's row."""
        del self._in_flight[participation]
        self._exchange.ended(participation)
        self._outside -= participation.coverage is None
        self._close_if_over()
        vehicle = participation.window.vehicle
        vehicle.participation = None
        row = self._recorder.ended(participation, outcome, self._round, time_s)
        self._offer(vehicle)
        return row
