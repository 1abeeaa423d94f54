"""The event loop that couples traffic, radio, on-board computing and rounds.

Traffic is read one event ahead of the SimPy clock and never influenced. At one instant exits come first, then
entries, then invitations, then what ends by the clock (transfers, training, deadlines). Windows are half-open, so an
upload whose last byte arrives exactly at the exit is too late. Only a window that closes because the recording ends
is the other way round: nothing says that the vehicle left, and what ends at that instant still counts.

Timing never depends on weights: of what ``RoundHandler.close_round`` returns only the losses may have an effect on
later events, through a selection policy that asks for them. They are in the record, where a resumed run finds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Literal, Protocol

import simpy

from vnetsim.coverage.windows import CoverageEvent, Entered, TrafficStream
from vnetsim.errors import RunError
from vnetsim.experiment import Experiment
from vnetsim.radio.channel import Channel, RateUse
from vnetsim.random_streams import Streams
from vnetsim.simulation.aggregator import Aggregator, World
from vnetsim.simulation.fleet import Fleet
from vnetsim.simulation.handler import RoundHandler
from vnetsim.simulation.links import Radio
from vnetsim.simulation.log import (
    OUTCOMES,
    Outcome,
    ParticipationRecord,
    Recorder,
    RoundRecord,
    RoundResult,
    RoundSummary,
    SimulationLog,
)
from vnetsim.simulation.plugins import SimulationPlugins, simulation_plugins
from vnetsim.simulation.resources import Resources
from vnetsim.simulation.selection.choice import Chooser
from vnetsim.simulation.selection.knowledge import Knowledge

__all__ = [
    "OUTCOMES",
    "ChannelUse",
    "Outcome",
    "ParticipationRecord",
    "ProgressCallback",
    "RoundHandler",
    "RoundRecord",
    "RoundResult",
    "RoundSummary",
    "SimulationLog",
    "SimulationResult",
    "simulate",
]


@dataclass(frozen=True, kw_only=True)
class ChannelUse:
    """How much an RSU's channel was used.

    Args:
        carried_bytes: bytes of all transfers, also of those cut short (B).
        busy_s: time with at least one active transfer (s).
    """

    carried_bytes: float
    busy_s: float


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """A simulation that came to its end.

    Args:
        ended_by: ``rounds`` when all rounds were done, ``caller`` when ``on_round`` ended them before that, ``traffic``
            when there was no more traffic.
        begin_s: first simulated instant (s).
        time_s: last simulated instant (s).
        log: the records.
        channels: use of the radio channels, by RSU.
        sidelinks: use of the channels between vehicles, by the RSU that schedules them.
        link_rates: rates between RSUs and vehicles that transfers looked up.
        sidelink_rates: rates between vehicles, likewise.
    """

    ended_by: Literal["rounds", "traffic", "caller"]
    begin_s: float
    time_s: float
    log: SimulationLog
    channels: Mapping[str, ChannelUse]
    sidelinks: Mapping[str, ChannelUse]
    link_rates: RateUse
    sidelink_rates: RateUse


class ProgressCallback(Protocol):
    """Called with how far a simulation is."""

    def __call__(self, *, time_s: float, rounds: int, windows: int) -> None:
        """Show simulated time (s), finished rounds and closed windows; called often."""
        ...


def simulate(
    experiment: Experiment,
    traffic: TrafficStream,
    handler: RoundHandler,
    streams: Streams,
    *,
    progress: ProgressCallback | None = None,
    on_round: Callable[[SimulationLog], object] | None = None,
    plugins: SimulationPlugins | None = None,
    images: Mapping[int, int] | None = None,
) -> SimulationResult:
    """Run an experiment's rounds over its traffic.

    What traffic and handler raise reaches the caller unchanged. The traffic is not closed.

    Args:
        experiment: the settings.
        traffic: RSUs and coverage events.
        handler: learning, called at the close of every round.
        streams: the experiment's random streams; those called ``radio``, ``compute`` and ``selection`` are used.
        progress: called after every instant of traffic.
        on_round: called after every round with the log, when it holds everything about that round; where it returns
            False, the run ends then as it does with its traffic.
        plugins: selection policy, pace and radio model; None makes those that the experiment names.
        images: images by silo, for selection policies that ask.

    Returns:
        the records and why the run ended. When the traffic ends while a round is open, that round closes by
        ``traffic_end`` if anybody has committed; otherwise it is dropped and leaves participations, but no record.

    Raises:
        RunError: when the traffic goes back in time.
    """
    begin_s = traffic.info.begin_s
    env = simpy.Environment(initial_time=begin_s)
    log = SimulationLog()
    made = simulation_plugins(experiment) if plugins is None else plugins
    radio = Radio(made.radio, experiment.link, streams)
    resources = Resources(experiment=experiment, radio=radio, streams=streams, cost=handler.cost)
    link_rates, sidelink_rates = radio.rate_use(), radio.rate_use()
    world = World(
        env=env,
        experiment=experiment,
        handler=handler,
        recorder=Recorder(log, experiment.camera),
        resources=resources,
        channels={rsu.id: Channel(env, link_rates) for rsu in traffic.rsus},
        sidelinks={rsu.id: Channel(env, sidelink_rates) for rsu in traffic.rsus},
    )
    fleet = Fleet(traffic.rsus, experiment.silos, world.recorder, None if on_round is None else partial(on_round, log))
    aggregator = Aggregator(
        name="global",
        world=world,
        surroundings=fleet,
        pace=made.pace,
        chooser=Chooser(made.selection, streams.generator("selection")),
        knowledge=Knowledge(
            camera=experiment.camera,
            resources=resources,
            images=images or {},
            whole_paths=traffic.info.whole_paths,
        ),
    )
    fleet.serve({rsu.id: aggregator for rsu in traffic.rsus})
    last_s = _play(traffic, env, fleet, log, progress)
    complete = len(log.rounds) == experiment.rounds
    return SimulationResult(
        ended_by="rounds" if complete else "caller" if fleet.stopped else "traffic",
        begin_s=begin_s,
        time_s=log.rounds[-1].close_s if complete else last_s,
        log=log,
        channels=_use(world.channels),
        sidelinks=_use(world.sidelinks),
        link_rates=link_rates,
        sidelink_rates=sidelink_rates,
    )


def _use(channels: Mapping[str, Channel]) -> dict[str, ChannelUse]:
    return {
        rsu_id: ChannelUse(carried_bytes=channel.carried_bytes, busy_s=channel.busy_s)
        for rsu_id, channel in channels.items()
    }


def _play(
    traffic: TrafficStream,
    env: simpy.Environment,
    fleet: Fleet,
    log: SimulationLog,
    progress: ProgressCallback | None,
) -> float:
    """Play the traffic until the last round closes or there is no more of it; return the last instant (s)."""
    fleet.open()
    last_s = traffic.info.begin_s
    time_s: float
    for time_s, events in groupby(traffic.events(), key=attrgetter("time_s")):
        if time_s < last_s:
            raise RunError(f"Traffic went back in time, from {last_s} s to {time_s} s.")
        last_s = time_s
        if not (_run_until(env, fleet, time_s) and all(_apply(event, env, fleet) for event in events)):
            if fleet.stopped and not fleet.finished:
                fleet.end_of_traffic(env.now)
            return env.now if fleet.stopped else last_s
        fleet.fill()
        if progress is not None:
            progress(time_s=time_s, rounds=len(log.rounds), windows=log.windows.total)
    end_s = traffic.info.end_s  # read again: a recording knows it once it has been read to its end
    if end_s is not None and last_s < end_s < math.inf:
        last_s = end_s
    if _run_until(env, fleet, last_s, inclusive=True) or (fleet.stopped and not fleet.finished):
        fleet.end_of_traffic(env.now if fleet.stopped else last_s)
    return last_s


def _apply(event: CoverageEvent, env: simpy.Environment, fleet: Fleet) -> bool:
    """Let a vehicle enter or leave; return whether rounds remain."""
    if isinstance(event, Entered):
        fleet.enter(event.path)
        return True
    if event.window.exit_cause == "end" and not _run_until(env, fleet, event.time_s, inclusive=True):
        return False
    fleet.leave(event)
    return True


def _run_until(env: simpy.Environment, fleet: Fleet, time_s: float, *, inclusive: bool = False) -> bool:
    """Run what happens before ``time_s``, and at it if ``inclusive``; return whether rounds remain."""
    with suppress(simpy.core.StopSimulation):  # raised when the last round closes
        # SimPy adds the difference to its clock, which may miss the target by one rounding. From a clock within a
        # factor of two the difference is exact (Sterbenz), and so is the landing.
        for until_s in (time_s - abs(time_s) / 4, time_s):
            if until_s > env.now and not (fleet.finished or fleet.stopped):
                env.run(until=until_s)
        while inclusive and not (fleet.finished or fleet.stopped) and env.peek() <= time_s:
            env.step()
    return not (fleet.finished or fleet.stopped)
