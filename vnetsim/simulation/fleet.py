"""The fleet: which vehicles are covered by which RSUs, and which aggregator may invite each of them.

A vehicle inside several discs waits only at the RSU that serves it. Its other windows are recorded as ``not_selected``
unless it takes part in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Left, VehiclePath, cut_window
from vnetsim.experiment import SiloSettings
from vnetsim.simulation.aggregator import Aggregator
from vnetsim.simulation.handover import Handover
from vnetsim.simulation.recorder import Recorder
from vnetsim.simulation.vehicle import OpenWindow, SiloBinder, Vehicle


@dataclass
class Fleet:
    """Follows vehicles through discs. Vehicles that are not equipped block links, but have no participations."""

    rsus: Sequence[Rsu]
    silos: SiloSettings
    recorder: Recorder
    by_rsu: Mapping[str, Aggregator]  # the aggregator of each RSU, by the RSU's id
    handover: Handover
    on_first_entry: Callable[[str], None]  # called with a vehicle's type at its first entry into coverage
    equips: Callable[[str], bool]  # returns whether the vehicle of an id is equipped

    def __post_init__(self) -> None:
        self._rsus = {rsu.id: rsu for rsu in self.rsus}
        self._binder = SiloBinder(self.silos, self.rsus)
        self._vehicles: dict[str, Vehicle] = {}
        self._windows: dict[VehiclePath, OpenWindow] = {}
        self._entered = 0
        self._by_name = {aggregator.name: aggregator for aggregator in self.by_rsu.values()}

    def enter(self, path: VehiclePath) -> None:
        """Open a window as a vehicle enters a disc; a new vehicle gets a silo. Its RSU serves it from ``serve`` on."""
        rsu = self._rsus[path.rsu_id]
        vehicle = self._vehicles.get(path.vehicle_id)
        if vehicle is None:
            self.on_first_entry(path.vehicle_type)
            equipped = self.equips(path.vehicle_id)
            silo, approach = self._binder.bind(path.x_m[0], path.y_m[0], rsu) if equipped else (-1, -1)
            vehicle = Vehicle(id=path.vehicle_id, silo=silo, approach=approach, equipped=equipped)
            self._vehicles[path.vehicle_id] = vehicle
        earlier = vehicle.entries.get(rsu.id, 0)
        vehicle.entries[rsu.id] = earlier + 1
        window = OpenWindow(index=self._entered, vehicle=vehicle, rsu=rsu, path=path, earlier_windows=earlier)
        self._entered += 1
        self._windows[path] = window
        vehicle.windows.append(window)

    def serve(self, path: VehiclePath) -> None:
        """Let a window's RSU serve its vehicle: hand over the participation or, without one, let the vehicle wait."""
        window = self._windows[path]
        vehicle = window.vehicle
        if (before := vehicle.serving_window) is not None and not vehicle.owner_names:
            self.by_rsu[before.rsu.id].invitations.withdraw(before)
        vehicle.serving_window = window
        if vehicle.owner_names:
            self.handover.serve(self._by_name[vehicle.owner_names[0]], vehicle, window)
        self.offer(vehicle)

    def leave(self, event: Left) -> None:
        """Close and record the window of a vehicle that leaves a disc; the vehicle waits there no longer.

        If the window's RSU served the vehicle, nobody does until another ``serve``, and the participation has lost
        coverage. If the vehicle was never invited in the window, a participation ``not_selected`` is recorded.
        """
        window = self._windows.pop(event.path)
        vehicle = window.vehicle
        vehicle.windows.remove(window)
        aggregator = self.by_rsu[window.rsu.id]
        self.recorder.log.windows.append(event.window)
        if not vehicle.equipped:
            return
        aggregator.invitations.forget(window, event.window)
        if vehicle.serving_window is window:
            vehicle.serving_window = None
            if vehicle.owner_names:
                self.handover.lose_coverage(self._by_name[vehicle.owner_names[0]], vehicle)
        self.handover.leave_disc(window)
        if not window.invited:
            self.recorder.record_participation(window, None, "not_selected", aggregator.model, event.time_s)

    def offer(self, vehicle: Vehicle) -> bool:
        """Let a vehicle wait for an invitation at the RSU that serves it; return whether the open round may invite it.

        False if it takes part, is not equipped, or no RSU serves it. With ``silos.by = "place"`` its data may change.
        """
        if not vehicle.equipped or vehicle.owner_names or vehicle.serving_window is None:
            return False
        self._binder.move(vehicle, vehicle.serving_window.rsu)
        return self.by_rsu[vehicle.serving_window.rsu.id].offer(vehicle.serving_window)

    def record_open_windows(self, time_s: float) -> None:
        """Record all windows that are open at the run's end (s), and forget them.

        Windows without an invitation also get a participation ``not_selected``. Each window ends at its first path
        point after that time.
        """
        for window in self._windows.values():
            if window.vehicle.equipped and not window.invited:
                model = self.by_rsu[window.rsu.id].model
                self.recorder.record_participation(window, None, "not_selected", model, time_s)
        windows = [cut_window(path, time_s) for path in self._windows]
        self.recorder.log.windows.extend(sorted(windows, key=lambda window: window.exit_s))
        self._windows.clear()
