"""The handover policy ``multi`` (FedMes): a vehicle takes part at all RSUs whose discs it is in."""

from __future__ import annotations

from vnetsim.simulation.aggregator import Aggregator
from vnetsim.simulation.handover import Handover
from vnetsim.simulation.participation import Participation
from vnetsim.simulation.vehicle import OpenWindow, Vehicle


class MultiHandover(Handover):
    """Starts a participation in every disc at the invitation; each ends where its disc is left."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.world.on_invited.append(self._join)

    def _join(self, invited: Participation) -> None:
        """Start the vehicle's participations at its other discs whose aggregators may take it and are not held."""
        vehicle = invited.window.vehicle
        for window in vehicle.windows:
            aggregator = self.by_rsu[window.rsu.id]
            if window is not invited.window and aggregator.takes(vehicle) and not aggregator.held:
                window.chance = invited.window.chance
                aggregator.begin(window, beside=invited)

    def leave_disc(self, window: OpenWindow) -> None:
        """Cut short the participation at a disc that a vehicle left, if it has one there."""
        owner, vehicle = self.by_rsu[window.rsu.id], window.vehicle
        if owner.name in vehicle.served_by:
            owner.cut_short(owner.participation(vehicle), self.world.env.now)

    def serve(self, owner: Aggregator, vehicle: Vehicle, window: OpenWindow) -> None:
        """Do nothing: who serves the vehicle does not matter here."""

    def lose_coverage(self, owner: Aggregator, vehicle: Vehicle) -> None:
        """Do nothing: ``leave_disc`` ends participations."""
