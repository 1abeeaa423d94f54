"""The communication and computing resources of a window: radio link and on-board computer, made when first needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vnetsim.experiment import Experiment
from vnetsim.learning import Cost
from vnetsim.random_streams import Streams
from vnetsim.simulation.compute import training_s, vehicle_flops
from vnetsim.simulation.links import Link, Radio
from vnetsim.simulation.vehicle import OpenWindow


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Links and computers; their random streams are named, so that it does not matter when they are made.

    Args:
        experiment: computers.
        radio: links.
        streams: the experiment's random streams.
        cost: payload and work of a participation by silo.
    """

    experiment: Experiment
    radio: Radio
    streams: Streams
    cost: Callable[[int], Cost]

    def link(self, window: OpenWindow) -> Link:
        """Return the radio link of a window."""
        if window.link is None:
            window.link = self.radio.link(window.path, window.rsu, window.earlier_windows)
        return window.link

    def train_s(self, window: OpenWindow) -> float:
        """Return how long a window's vehicle trains (s)."""
        if window.train_s is None:
            vehicle = window.vehicle
            if vehicle.flops is None:
                vehicle.flops = vehicle_flops(self.experiment.compute, vehicle.id, self.streams)
            window.train_s = training_s(self.cost(vehicle.binding.silo).work_flop, vehicle.flops)
        return window.train_s
