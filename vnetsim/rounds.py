"""Rounds: who is invited, whose update counts, when a round closes.

One aggregator over all RSUs, with an ideal backhaul between them. Round 0 opens when the traffic begins, each further
one at the instant its predecessor closes. Vehicles inside coverage that are idle and were not yet invited in the open
round are invited, at most ``round.invited`` in flight at once; a freed place is filled at once. A round closes with its
``quorum``-th commit or ``deadline_s`` after it opened, even when nobody was there: then it is empty and the model is
kept. Commits count for the round that is open when they arrive, and no vehicle counts twice in one round.

With a learner whose vehicles exchange with each other, a round has two parts, each at most ``deadline_s`` long. In the
first, vehicles that are ready for the exchange wait until the quorum is there or the deadline comes; then nobody else
is invited, and they exchange. The round closes when the last of them has committed or left.

A vehicle inside several discs takes part through the window that opened first, never twice at a time; its other
windows count as ``not_selected`` unless it is invited through them later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, Protocol

import simpy

from vnetsim.channel import Channel
from vnetsim.compute import training_s, vehicle_flops
from vnetsim.coverage import Left, Track
from vnetsim.exchange import Air, Exchanged, ExchangePhase
from vnetsim.experiment import Experiment
from vnetsim.learning import Cost, Participant, Peer
from vnetsim.link import open_link
from vnetsim.participation import Participation, Stage, Stay, Vehicle
from vnetsim.random_streams import Streams
from vnetsim.rsu import Rsu
from vnetsim.silos import SiloBinder
from vnetsim.simulation_log import ClosedBy, Outcome, Recorder, RoundResult, RoundSummary, SimulationLog
from vnetsim.waiting import WaitingList
from vnetsim.window_cut import cut_window

_LEFT: Mapping[Stage, Outcome] = {
    "download": "left_download",
    "waiting": "left_exchange",
    "exchange": "left_exchange",
    "training": "left_training",
    "upload": "left_upload",
}


class RoundHandler(Protocol):
    """Learning as the simulation sees it."""

    def cost(self, silo: int) -> Cost:
        """Return payload and work of a visit by a vehicle that holds ``silo``."""
        ...

    def close_round(self, summary: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        """Train the committed participants (perhaps none), in order of commit, and aggregate them."""
        ...


class Rounds:
    """Turns entries and exits into participations and rounds.

    Args:
        experiment: rules, link, compute, silos, camera and number of rounds.
        rsus: every RSU that a track may name.
        env: the event loop; its clock is the traffic's.
        handler: learning.
        streams: the experiment's random streams.
        log: receives the records.
        on_round: called after every round, when ``log`` holds everything about it.

    Attributes:
        channels: the radio channels, by RSU.
        sidelinks: the channels between vehicles, by the RSU that schedules them.
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
        on_round: Callable[[SimulationLog], None] | None = None,
    ) -> None:
        self.channels: Mapping[str, Channel] = {rsu.id: Channel(env) for rsu in rsus}
        self.sidelinks: Mapping[str, Channel] = {rsu.id: Channel(env) for rsu in rsus}
        self.finished = False
        self._experiment = experiment
        self._rsus = {rsu.id: rsu for rsu in rsus}
        self._env = env
        self._handler = handler
        self._streams = streams
        self._log = log
        self._recorder = Recorder(log, experiment.camera)
        self._on_round = on_round
        self._binder = SiloBinder(experiment.silos)
        self._vehicles: dict[str, Vehicle] = {}
        self._stays: dict[Track, Stay] = {}
        self._entered = 0
        self._in_flight: dict[Participation, None] = {}  # a dictionary is an ordered set
        self._waiting = WaitingList(streams.generator("selection") if experiment.round.selection == "random" else None)
        self._rested: dict[str, Vehicle] = {}  # may not be invited again before the next round
        self._committed: list[tuple[int, Participant]] = []  # with the row of its record
        self._air = Air(
            env=env,
            channels=self.channels,
            sidelinks=self.sidelinks,
            link=experiment.link,
            exchange=experiment.exchange,
            streams=streams,
        )
        self._gathered: dict[Participation, None] = {}  # ready for the exchange, in order of arrival
        self._phase: ExchangePhase | None = None
        self._members: dict[Participation, None] = {}  # of the exchange, as long as they are in flight
        self._opened_by: Literal["quorum", "deadline"] = "quorum"
        self._taken: set[int] = set()  # silos that take part in the open round
        self._invited = 0
        self._round = -1
        self._open_s: float = env.now

    def open(self) -> None:
        """Open the next round now."""
        self._round += 1
        self._open_s = self._env.now
        self._invited = 0
        self._committed = []
        self._taken = {participation.stay.vehicle.binding.silo for participation in self._in_flight}
        rested, self._rested = self._rested, {}
        for vehicle in rested.values():
            self._offer(vehicle)
        deadline = self._env.timeout(self._experiment.round.deadline_s)
        deadline.callbacks.append(partial(self._deadline, self._round))
        self.fill()
        if len(self._gathered) >= self._experiment.round.quorum:  # stale ones that got ready during an exchange
            self._open_exchange("quorum")

    def enter(self, track: Track) -> None:
        """Take note that a vehicle entered a disc now; ``fill`` invites it."""
        rsu = self._rsus[track.rsu_id]
        vehicle = self._vehicles.get(track.vehicle_id)
        if vehicle is None:
            binding = self._binder.bind(track.x_m[0], track.y_m[0], rsu)
            vehicle = self._vehicles[track.vehicle_id] = Vehicle(id=track.vehicle_id, binding=binding)
        visit = vehicle.entries.get(rsu.id, 0)
        vehicle.entries[rsu.id] = visit + 1
        stay = Stay(index=self._entered, vehicle=vehicle, rsu=rsu, track=track, visit=visit)
        self._entered += 1
        self._stays[track] = stay
        vehicle.stays.append(stay)
        self._offer(vehicle)

    def leave(self, event: Left) -> None:
        """End what a vehicle was doing in the window that closes now."""
        stay = self._stays.pop(event.track)
        self._log.windows.append(event.window)
        vehicle = stay.vehicle
        self._waiting.discard(stay)
        vehicle.stays.remove(stay)
        participation = vehicle.participation
        if participation is not None and participation.stay is stay:
            self._cut_short(participation, event.time_s)
        elif not stay.invited:
            self._recorder.uninvited(stay, self._round, event.time_s)
        self._offer(vehicle)

    def fill(self) -> None:
        """Invite as many of those who wait as there are free places."""
        rules = self._experiment.round
        while self._phase is None and self._waiting and len(self._in_flight) < rules.invited:
            stay = self._waiting.pop()
            if rules.distinct_silos and stay.vehicle.binding.silo in self._taken:
                self._rested[stay.vehicle.id] = stay.vehicle
            else:
                self._invite(stay)

    def end_of_traffic(self, time_s: float) -> None:
        """Close the open round with what has committed, or drop it when nothing has."""
        if self._committed:
            self._close("traffic_end", time_s)
        self.finished = True

    def _offer(self, vehicle: Vehicle) -> None:
        """Let an idle vehicle wait for an invitation, in this round or, when it had one, in the next."""
        if vehicle.participation is not None or not vehicle.stays:
            return
        if vehicle.last_round < self._round:
            self._waiting.add(vehicle.stays[0])
        else:
            self._rested[vehicle.id] = vehicle

    def _invite(self, stay: Stay) -> None:
        vehicle, settings = stay.vehicle, self._experiment
        if vehicle.flops is None:
            vehicle.flops = vehicle_flops(settings.compute, vehicle.id, self._streams)
        if stay.link is None:
            stay.link = open_link(settings.link, stay.track, stay.rsu, stay.visit, self._streams)
        cost = self._handler.cost(vehicle.binding.silo)
        participation = Participation(
            env=self._env,
            channel=self.channels[stay.rsu.id],
            stay=stay,
            link=stay.link,
            base_round=self._round,
            cost=cost,
            train_s=training_s(cost.work_flop, vehicle.flops),
            on_ready=self._ready,
            on_uploaded=self._commit,
        )
        self._taken.add(vehicle.binding.silo)
        stay.invited = True
        vehicle.participation = participation
        vehicle.last_round = self._round
        self._in_flight[participation] = None
        self._invited += 1

    def _commit(self, participation: Participation) -> None:
        stay = participation.stay
        vehicle = stay.vehicle
        vehicle.last_round = self._round
        participant = Participant(
            round=self._round,
            base_round=participation.base_round,
            vehicle_id=vehicle.id,
            rsu_id=stay.rsu.id,
            silo=vehicle.binding.silo,
            speed_mps=stay.speed_mps,
            level_px=self._experiment.camera.level_px(stay.speed_mps),
            peers=tuple(self._peer(peer) for peer in participation.peers),
        )
        row = self._end(participation, "committed", self._env.now)
        self._committed.append((row, participant))
        if self._phase is not None:
            return  # the round closes when the last member of its exchange has come to an end
        if len(self._committed) == self._experiment.round.quorum:
            self._close_and_go_on("quorum")
        else:
            self.fill()

    def _peer(self, participation: Participation) -> Peer:
        stay = participation.stay
        return Peer(
            vehicle_id=stay.vehicle.id,
            silo=stay.vehicle.binding.silo,
            speed_mps=stay.speed_mps,
            level_px=self._experiment.camera.level_px(stay.speed_mps),
        )

    def _deadline(self, round_index: int, _: object) -> None:
        if round_index != self._round or self._phase is not None:
            return
        if self._gathered:
            self._open_exchange("deadline")
        else:
            self._close_and_go_on("deadline")

    def _ready(self, participation: Participation) -> None:
        """Let a participation wait for the round's exchange, which begins when the quorum is there."""
        self._gathered[participation] = None
        if self._phase is None and len(self._gathered) == self._experiment.round.quorum:
            self._open_exchange("quorum")

    def _open_exchange(self, opened_by: Literal["quorum", "deadline"]) -> None:
        """Let those who are ready exchange; the others are too late for this round."""
        self._members, self._gathered = self._gathered, {}
        oldest = self._round + 1 - self._experiment.round.max_staleness
        for participation in list(self._in_flight):
            if participation not in self._members and participation.base_round < oldest:
                participation.cut()
                self._end(participation, "deadline" if opened_by == "deadline" else "stale", self._env.now)
        plan = next(iter(self._members)).plan
        assert plan is not None
        self._phase = ExchangePhase(
            air=self._air,
            plan=plan,
            members=tuple(self._members),
            round_index=self._round,
            on_ended=self._exchanged,
            on_done=Participation.proceed,
        )
        for participation in self._members:
            participation.begin_exchange()
        deadline = self._env.timeout(self._experiment.round.deadline_s)
        deadline.callbacks.append(partial(self._exchange_deadline, self._round))
        self._opened_by = opened_by
        self._phase.begin()

    def _exchanged(self, exchange: Exchanged) -> None:
        self._recorder.exchanged(exchange, self._round)

    def _exchange_deadline(self, round_index: int, _: object) -> None:
        if round_index == self._round:
            self._close_and_go_on("deadline")

    def _exchange_over(self, round_index: int, _: object) -> None:
        if round_index == self._round and self._phase is not None and not self._members:
            self._close_and_go_on(self._opened_by)

    def _cut_short(self, participation: Participation, time_s: float) -> None:
        """End what a vehicle that leaves coverage was doing."""
        if participation.stage == "exchange":
            assert self._phase is not None
            peers = self._phase.leave(participation)
            if not participation.needs_coverage:
                participation.proceed(peers)  # what it sent has arrived: it counts, with whom it completed
                return
        self._end(participation, _LEFT[participation.cut()], time_s)

    def _close_and_go_on(self, closed_by: ClosedBy) -> None:
        self._close(closed_by, self._env.now)
        if self.finished:
            raise simpy.core.StopSimulation(None)
        self.open()

    def _close(self, closed_by: ClosedBy, time_s: float) -> None:
        index = self._round
        self.finished = closed_by == "traffic_end" or index + 1 == self._experiment.rounds
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.stop()
        oldest = index + 1 - self._experiment.round.max_staleness
        for participation in list(self._in_flight):
            if self.finished or participation.base_round < oldest:
                participation.cut()
                self._end(participation, "deadline" if closed_by == "deadline" else "stale", time_s)
            elif phase is not None and participation.stage == "exchange":
                participation.proceed(phase.peers(participation))
        if self.finished:
            self._close_windows(time_s)
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
        if self._on_round is not None:
            self._on_round(self._log)

    def _close_windows(self, time_s: float) -> None:
        """Record the windows that the end of the run leaves open, as far as their paths are known."""
        windows = []
        for stay in self._stays.values():
            if not stay.invited:
                self._recorder.uninvited(stay, self._round, time_s)
            windows.append(cut_window(stay.track, time_s))
        self._log.windows.extend(sorted(windows, key=lambda window: window.exit_s))
        self._stays.clear()

    def _end(self, participation: Participation, outcome: Outcome, time_s: float) -> int:
        """Record a participation that is over, free its place and vehicle, and return the record's row."""
        del self._in_flight[participation]
        self._gathered.pop(participation, None)
        if participation in self._members:
            del self._members[participation]
            if not self._members:  # not at once: it may be the traffic that ended it, outside the event loop
                self._env.timeout(0).callbacks.append(partial(self._exchange_over, self._round))
        vehicle = participation.stay.vehicle
        vehicle.participation = None
        row = self._recorder.ended(participation, outcome, self._round, time_s)
        self._offer(vehicle)
        return row
