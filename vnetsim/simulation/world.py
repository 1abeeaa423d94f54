"""What all aggregators of a simulation share: clock, settings, links and computers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import simpy

from vnetsim.experiment import Experiment
from vnetsim.experiment.traffic import Computer
from vnetsim.learning import Cost, ModelKey
from vnetsim.radio.channel import Channel
from vnetsim.random_streams import Streams
from vnetsim.simulation.backhaul import Backhaul
from vnetsim.simulation.compute import vehicle_computer
from vnetsim.simulation.links import Link, Radio
from vnetsim.simulation.participation import Coverage
from vnetsim.simulation.vehicle import OpenWindow


@dataclass(frozen=True, kw_only=True)
class World:
    """What all aggregators share. Random streams have names, so the order of links and computers does not matter."""

    env: simpy.Environment
    begin_s: float  # when the run began (s)
    experiment: Experiment
    streams: Streams
    cost: Callable[[int], Cost]  # returns payload and work of a participation by silo
    radio: Radio
    channels: Mapping[str, Channel]  # radio channels, by RSU
    sidelinks: Mapping[str, Channel]  # channels between vehicles, by the RSU that schedules them
    backhaul: Backhaul
    images: Mapping[int, int]  # training samples by silo; empty if the task does not report them
    # functions that return models still to be trained or averaged, however old
    needed: list[Callable[[], Iterable[ModelKey]]] = field(default_factory=list)

    def needed_models(self) -> tuple[ModelKey, ...]:
        """Return the models that will still be trained or averaged, each once; always empty with one aggregator."""
        return tuple(dict.fromkeys(model for models in self.needed for model in models()))

    def share_passed(self, version: int, time_s: float) -> float:
        """Return the larger share of the run that has passed, in [0, 1]: by rounds (``version``) or by time (s)."""
        rounds, lasts_s = self.experiment.rounds, self.experiment.lasts_s
        return min(max(version / rounds if rounds else 0.0, (time_s - self.begin_s) / lasts_s), 1.0)

    def link(self, window: OpenWindow) -> Link:
        """Return a window's radio link, drawn at the first call and stored in the window."""
        if window.link is None:
            window.link = self.radio.link(window.path, window.rsu, window.earlier_windows)
        return window.link

    def train_s(self, window: OpenWindow) -> float:
        """Return how long a window's vehicle takes for the whole training (s); stored in the window."""
        if window.train_s is None:
            window.train_s = self.cost(window.vehicle.silo).work_flop / self.computer(window).flops
        return window.train_s

    def computer(self, window: OpenWindow) -> Computer:
        """Return the computer of a window's vehicle, drawn at the first call and stored in the vehicle."""
        vehicle, vehicle_type = window.vehicle, window.path.vehicle_type
        if vehicle.computer is None:
            vehicle.computer = vehicle_computer(self.experiment.compute, vehicle.id, self.streams, vehicle_type)
        return vehicle.computer

    def coverage(self, window: OpenWindow, from_s: float = 0.0) -> Coverage:
        """Return a window with the channel, backhaul and link of its RSU; transfers may begin at ``from_s`` (s)."""
        return Coverage(window, self.channels[window.rsu.id], self.backhaul, self.link(window), from_s)
