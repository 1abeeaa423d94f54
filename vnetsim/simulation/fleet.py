"""The fleet: which vehicles are covered, by which RSUs, and which aggregator each of them turns to.

An aggregator knows the vehicles that wait for it and those that take part in its rounds. Who came, left, or is free for
somebody else is the fleet's business.

A vehicle inside several discs waits, and takes part, where it is served, never twice at a time; its other windows count
as ``not_selected`` unless it is invited through them later. With ``handover.policy = "multi"`` it takes part in all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Left, VehiclePath
from vnetsim.experiment import SiloSettings
from vnetsim.simulation.aggregator import Aggregator
from vnetsim.simulation.handover import Handover
from vnetsim.simulation.recorder import Recorder
from vnetsim.simulation.vehicle import OpenWindow, SiloBinder, Vehicle


@dataclass
class Fleet:
    """Follows vehicles through the discs of the RSUs.

    Args:
        by_rsu: the topology: the aggregator to which each RSU belongs, by the RSU's id.
        on_first_entry: called with the type of every vehicle when it enters coverage for the first time.
    """

    rsus: Sequence[Rsu]
    silos: SiloSettings
    recorder: Recorder
    by_rsu: Mapping[str, Aggregator]
    handover: Handover
    on_first_entry: Callable[[str], None]

    def __post_init__(self) -> None:
        self._rsus = {rsu.id: rsu for rsu in self.rsus}
        self._binder = SiloBinder(self.silos, self.rsus)
        self._vehicles: dict[str, Vehicle] = {}
        self._windows: dict[VehiclePath, OpenWindow] = {}
        self._entered = 0
        self._by_name = {aggregator.name: aggregator for aggregator in self.by_rsu.values()}

    @property
    def finished(self) -> bool:
        """Whether every aggregator has closed its last round."""
        return all(aggregator.finished for aggregator in self._by_name.values())

    def open(self) -> None:
        """Open everybody's first round now."""
        for aggregator in self._by_name.values():
            aggregator.open()

    def fill(self) -> None:
        """Let every aggregator invite as many of those who wait as it has places."""
        for aggregator in self._by_name.values():
            aggregator.fill()

    def end_of_traffic(self, time_s: float) -> None:
        """Let every aggregator close its open round, for nobody comes any more."""
        for aggregator in self._by_name.values():
            aggregator.end_of_traffic(time_s)

    def enter(self, path: VehiclePath) -> None:
        """Take note that a vehicle entered a disc now; once that RSU serves it, ``fill`` invites it."""
        rsu = self._rsus[path.rsu_id]
        vehicle = self._vehicles.get(path.vehicle_id)
        if vehicle is None:
            self.on_first_entry(path.vehicle_type)
            silo, approach = self._binder.bind(path.x_m[0], path.y_m[0], rsu)
            vehicle = self._vehicles[path.vehicle_id] = Vehicle(id=path.vehicle_id, silo=silo, approach=approach)
        earlier = vehicle.entries.get(rsu.id, 0)
        vehicle.entries[rsu.id] = earlier + 1
        window = OpenWindow(index=self._entered, vehicle=vehicle, rsu=rsu, path=path, earlier_windows=earlier)
        self._entered += 1
        self._windows[path] = window
        vehicle.windows.append(window)

    def serve(self, path: VehiclePath) -> None:
        """Let the RSU of an open window serve its vehicle from now on."""
        window = self._windows[path]
        vehicle = window.vehicle
        if (before := vehicle.serving) is not None and not vehicle.served_by:
            self.by_rsu[before.rsu.id].invitations.withdraw(before)
        vehicle.serving = window
        if vehicle.served_by:
            self.handover.served(self._by_name[vehicle.served_by[0]], vehicle, window)
        self.idle(vehicle)

    def leave(self, event: Left) -> None:
        """Take note that a window closes now, which ends what the vehicle was doing if it was served in it."""
        window = self._windows.pop(event.path)
        vehicle = window.vehicle
        vehicle.windows.remove(window)
        aggregator = self.by_rsu[window.rsu.id]
        self.recorder.log.windows.append(event.window)
        aggregator.invitations.forget(window, event.window)
        if vehicle.serving is window:
            vehicle.serving = None
            if vehicle.served_by:
                self.handover.left(self._by_name[vehicle.served_by[0]], vehicle)
        self.handover.closed(window)
        if not window.invited:
            self.recorder.ended(window, None, "not_selected", aggregator.model, event.time_s)

    def idle(self, vehicle: Vehicle) -> bool:
        """Let a vehicle that takes part nowhere wait for an invitation where it is served.

        Returns:
            whether it waits for one in the open round.
        """
        if vehicle.served_by or vehicle.serving is None:
            return False
        self._binder.move(vehicle, vehicle.serving.rsu)
        return self.by_rsu[vehicle.serving.rsu.id].offer(vehicle.serving)

    def cut_off(self, time_s: float) -> None:
        """Record the windows that the end of the run, at a time (s), leaves open."""
        for window in self._windows.values():
            if not window.invited:
                self.recorder.ended(window, None, "not_selected", self.by_rsu[window.rsu.id].model, time_s)
        self.recorder.cut_off(self._windows.values(), time_s)
        self._windows.clear()
