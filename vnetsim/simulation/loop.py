"""The event loop that couples traffic, radio, on-board computing and rounds.

Traffic is read one event ahead of the SimPy clock; the simulation never influences it. At one instant exits come
first, then entries, then invitations, then events of the clock (ends of transfers and training, deadlines). Windows
are half-open: an upload whose last byte arrives exactly at the exit is too late. A window that closes because the
recording ends is the exception: the vehicle may not have left, so what ends at that instant still counts.

Timing never depends on model weights. Of what ``RoundHandler.close_round`` returns, only the losses and the ``figures``
of updates may affect later events, through a selection policy. A resumed run reads them from its records.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import Literal

import simpy

from vnetsim.coverage.association import Association, Serves
from vnetsim.coverage.rsu import near_lanes
from vnetsim.coverage.windows import CoverageEvent, Entered, TrafficStream
from vnetsim.errors import RunError
from vnetsim.experiment import Experiment
from vnetsim.learning import AGGREGATOR
from vnetsim.radio.channel import Channel, RateUse
from vnetsim.random_streams import Streams
from vnetsim.simulation.aggregator import Aggregator
from vnetsim.simulation.backhaul import Backhaul, RsuWire
from vnetsim.simulation.fleet import Fleet
from vnetsim.simulation.handover import Handover
from vnetsim.simulation.invitations import Invitations
from vnetsim.simulation.links import Radio, association
from vnetsim.simulation.log import RoundHandler, SimulationLog
from vnetsim.simulation.mixing import NoMixing, mixer_class
from vnetsim.simulation.multi import MultiHandover
from vnetsim.simulation.open_round import Outbox
from vnetsim.simulation.plugins import SimulationPlugins
from vnetsim.simulation.recorder import Recorder
from vnetsim.simulation.selection.state import SelectionState
from vnetsim.simulation.topology import aggregator_by_rsu
from vnetsim.simulation.world import World


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """A finished simulation from ``begin_s`` to ``time_s`` (s); mappings are by the RSU's id."""

    # ``rounds`` when all rounds were done, ``time`` when the run's time had passed, ``caller`` when ``on_round``
    # ended it, ``traffic`` when there was no more traffic
    ended_by: Literal["rounds", "time", "traffic", "caller"]
    begin_s: float
    time_s: float
    log: SimulationLog
    channels: Mapping[str, Channel]  # channels between RSUs and vehicles
    sidelinks: Mapping[str, Channel]  # channels between vehicles; the RSU schedules them
    link_rates: RateUse  # counts of the rates between RSUs and vehicles that transfers used
    sidelink_rates: RateUse  # the same between vehicles
    wires: Mapping[str, RsuWire]  # the RSUs' backhaul


def simulate(
    experiment: Experiment,
    traffic: TrafficStream,
    handler: RoundHandler,
    streams: Streams,
    plugins: SimulationPlugins,
    *,
    progress: Callable[..., object] | None = None,
    on_round: Callable[[SimulationLog], object] | None = None,
    images: Mapping[int, int] | None = None,
) -> SimulationResult:
    """Run an experiment's rounds over its traffic; return the records, and why the run ended.

    A round that is open when the traffic ends closes by ``traffic_end`` if any update has arrived in it; otherwise it
    has no record, only participations. Exceptions of traffic and handler reach the caller unchanged; RunError if the
    traffic goes back in time. The traffic is not closed.

    ``handler`` is called at the close of every round. ``progress`` is called after every instant of traffic with
    ``time_s`` (s), finished ``rounds`` and closed ``windows``. ``on_round`` is called after every round with the log,
    which is complete for that round; if it returns False, the run ends as if the traffic had ended. ``images`` has the
    number of images by silo, for selection policies; None if the task does not report them.
    """
    env = simpy.Environment(initial_time=traffic.info.begin_s)
    log = SimulationLog()
    lanes = near_lanes(traffic.info.lanes, traffic.rsus)  # maps have more
    radio = Radio(plugins.radio, streams, traffic.rsus, lanes, traffic.info.heights_m)
    link_rates, sidelink_rates = radio.rate_use(), radio.rate_use()
    world = World(
        env=env,
        begin_s=traffic.info.begin_s,
        experiment=experiment,
        streams=streams,
        cost=handler.cost,
        radio=radio,
        channels={rsu.id: Channel(env, link_rates) for rsu in traffic.rsus},
        sidelinks={rsu.id: Channel(env, sidelink_rates) for rsu in traffic.rsus},
        backhaul=Backhaul(env, experiment.backhaul, traffic.rsus, experiment.round.max_staleness),
        images=images or {},
    )
    recorder, outbox = Recorder(log, experiment.camera), Outbox()
    by_rsu: dict[str, Aggregator] = {}
    handover = (MultiHandover if experiment.handover.policy == "multi" else Handover)(world=world, by_rsu=by_rsu)
    names = aggregator_by_rsu(experiment.topology, traffic.rsus)
    by_name = {
        name: Aggregator(
            name=name,
            world=world,
            handler=handler,
            recorder=recorder,
            outbox=outbox,
            pace=plugins.pace,
            invitations=Invitations(
                policy=plugins.selection,
                generator=streams.generator("selection" if name == AGGREGATOR else f"selection {name}"),
                pace=plugins.pace,
                selection_state=SelectionState(world=world, whole_paths=traffic.info.whole_paths),
            ),
            invite=handover.invite,
        )
        for name in dict.fromkeys(names.values())
    }
    by_rsu |= {rsu_id: by_name[name] for rsu_id, name in names.items()}
    equips = functools.partial(experiment.traffic.equips, traffic_seed=traffic.info.seed)
    fleet = Fleet(traffic.rsus, experiment.silos, recorder, by_rsu, handover, radio.enter, equips)
    mixer = mixer_class(experiment.topology, traffic.rsus)(
        world=world, handler=handler, log=log, outbox=outbox, aggregators=by_name
    )
    if len(by_name) > 1:
        world.needed.append(lambda: chain.from_iterable(one.needed_models() for one in by_name.values()))
    loop = _Loop(
        env=env,
        aggregators=tuple(by_name.values()),
        fleet=fleet,
        mixer=mixer,
        outbox=outbox,
        log=log,
        on_round=on_round,
        association=association(experiment.association, traffic.rsus, radio),
        until_s=traffic.info.begin_s + experiment.lasts_s,
    )
    last_s = loop.play(traffic, progress)
    complete = experiment.rounds is not None and len(log.rounds) == experiment.rounds * len(by_name)
    return SimulationResult(
        ended_by="rounds" if complete else loop.ended_by,
        begin_s=traffic.info.begin_s,
        time_s=max([log.rounds[-1].close_s, *(merge.time_s for merge in log.merges[-1:])]) if complete else last_s,
        log=log,
        channels=world.channels,
        sidelinks=world.sidelinks,
        link_rates=link_rates,
        sidelink_rates=sidelink_rates,
        wires=world.backhaul.wires,
    )


def _ordered_events(traffic: TrafficStream) -> Iterator[CoverageEvent]:
    """Yield the traffic's events unchanged; raise RunError if one is earlier than the event before."""
    last_s = traffic.info.begin_s
    for event in traffic.events():
        if event.time_s < last_s:
            raise RunError(f"Traffic went back in time, from {last_s} s to {event.time_s} s.")
        last_s = event.time_s
        yield event


@dataclass(kw_only=True)
class _Loop:
    """Advances traffic and clock together, and passes on what aggregators put into the outbox."""

    env: simpy.Environment
    aggregators: Sequence[Aggregator]
    fleet: Fleet
    mixer: NoMixing
    outbox: Outbox
    log: SimulationLog
    on_round: Callable[[SimulationLog], object] | None
    association: Association
    until_s: float
    ended_by: Literal["time", "traffic", "caller"] = "traffic"

    def play(self, traffic: TrafficStream, progress: Callable[..., object] | None) -> float:
        """Play the traffic until all rounds are done, the run's time is up or the traffic ends; return when (s)."""
        for aggregator in self.aggregators:
            aggregator.open_round()
        last_s = traffic.info.begin_s
        time_s: float
        for time_s, events in groupby(self.association.follow(_ordered_events(traffic)), key=attrgetter("time_s")):
            if time_s > self.until_s:
                return self._end_at_time_limit()
            last_s = time_s
            if not (self._run_clock_until(time_s) and all(self._apply_event(event) for event in events)):
                return self._end_run(last_s)
            self._empty_outbox()
            self._fill_places()
            if progress is not None:
                progress(time_s=time_s, rounds=len(self.log.rounds), windows=self.log.windows.total)
        end_s = traffic.info.end_s  # read again: a recording may know it only after its last event
        if end_s is not None and last_s < end_s < math.inf:
            last_s = end_s
        if last_s >= self.until_s:
            return self._end_at_time_limit()
        self._run_clock_until(last_s, inclusive=True)
        return self._end_run(last_s)

    def _end_at_time_limit(self) -> float:
        """Run the clock to the run's time limit or last round, end what is open, and return the last instant (s)."""
        if self._run_clock_until(self.until_s, inclusive=True):
            self.ended_by = "time"
        return self._end_run(self.until_s)

    def _end_run(self, last_s: float) -> float:
        """End what is open unless all rounds are done; return ``last_s``, or now if ``on_round`` ended the run (s)."""
        if self.ended_by == "caller":
            last_s = self.env.now
        if not self._finished:
            for aggregator in self.aggregators:
                aggregator.close_at_traffic_end(last_s)
            self._empty_outbox()
            self.mixer.average_at_traffic_end(last_s)
            self.fleet.record_open_windows(last_s)
        return last_s

    @property
    def _finished(self) -> bool:
        """Whether all aggregators have closed their last rounds, and their models have been averaged."""
        return all(aggregator.finished for aggregator in self.aggregators) and self.mixer.finished

    def _fill_places(self) -> None:
        """Let every aggregator invite waiting vehicles into its free places."""
        for aggregator in self.aggregators:
            aggregator.fill_places()

    def _apply_event(self, event: CoverageEvent | Serves) -> bool:
        """Apply an event; before an exit by the traffic's end, run the clock. Return False if that ends the run."""
        if isinstance(event, Entered | Serves):
            (self.fleet.enter if isinstance(event, Entered) else self.fleet.serve)(event.path)
            return True
        if event.window.exit_cause == "end" and not self._run_clock_until(event.time_s, inclusive=True):
            return False
        self.fleet.leave(event)
        return True

    def _run_clock_until(self, time_s: float, *, inclusive: bool = False) -> bool:
        """Run the clock's events before ``time_s`` (s), and at it if ``inclusive``; return False if the run is over."""
        env, outbox = self.env, self.outbox
        while (due_s := env.peek()) < time_s or (inclusive and due_s == time_s):
            env.step()
            if outbox and self._empty_outbox():
                if self.ended_by == "caller" or self._finished:
                    return False
                self._fill_places()
        # No event is due. SimPy adds the difference to its clock, which may miss the target by one rounding. From a
        # clock within a factor of two the difference is exact (Sterbenz), and so is the sum.
        for until_s in (time_s - abs(time_s) / 4, time_s):
            if until_s > env.now:
                env.run(until=until_s)
        return True

    def _empty_outbox(self) -> bool:
        """Pass on all reports of aggregators, and call ``on_round``; return whether a vehicle may now be invited."""
        news = False
        while self.outbox:  # an average without delay may begin rounds
            reports = self.outbox.take_all()
            for summary in reports.closed:
                self.mixer.handle_closed_round(summary)
            if (reports.closed or reports.mixed) and self._finished:
                self.fleet.record_open_windows(reports.closed[-1].close_s if reports.closed else self.env.now)
            for _ in reports.closed:
                if self.on_round is not None and self.on_round(self.log) is False:
                    self.ended_by = "caller"
            for vehicle in reports.idle:  # the RSU that serves it may not be the one where its update counted
                news |= self.fleet.offer(vehicle)
            news |= bool(reports.closed or reports.mixed)
        return news
