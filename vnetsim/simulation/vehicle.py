"""Vehicles and their open windows: who it is, which silo it carries, where it is covered. They know no participation.

A vehicle's silo is bound at its first entry into coverage and kept ever after: local data is captured before a vehicle
enters coverage, so a later entry from elsewhere changes neither its silo nor its approach. When a scenario is played
again its vehicles have new ids and are new vehicles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import VehiclePath
from vnetsim.experiment import SiloSettings
from vnetsim.experiment.traffic import Computer
from vnetsim.simulation.links import Link


@dataclass(slots=True, kw_only=True, eq=False)
class Vehicle:
    """A vehicle that was in coverage at least once.

    Args:
        id: the vehicle's id.
        silo: what it carries.
        approach: the sector from which it first came.
        entries: windows it had so far, by RSU.
        windows: its open windows, the earliest first.
        served_by: the aggregator in whose participation it is; empty while it is idle.
        computer: on board, None until it is needed.
    """

    id: str
    silo: int
    approach: int
    entries: dict[str, int] = field(default_factory=dict)
    windows: list[OpenWindow] = field(default_factory=list)
    served_by: str = ""
    computer: Computer | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class OpenWindow:
    """An open coverage window.

    Args:
        index: order of entry over all RSUs.
        vehicle: who.
        rsu: where.
        path: the path so far.
        earlier_windows: windows this vehicle had at this RSU before.
        link: radio link, None until it is needed.
        train_s: how long its vehicle trains (s), likewise.
        transfers_s: how long download and upload take with the whole airtime (s), where rates never change; likewise.
        straight_exit: how many points of the path were past when it was last reckoned when a vehicle leaves that goes
            straight on from there, and that time (s); likewise.
        invited: whether a participation was started in this window.
    """

    index: int
    vehicle: Vehicle
    rsu: Rsu
    path: VehiclePath
    earlier_windows: int
    link: Link | None = None
    train_s: float | None = None
    transfers_s: tuple[float, float] | None = None
    straight_exit: tuple[int, float] | None = None
    invited: bool = False

    @property
    def enter_s(self) -> float:
        """When the window opened (s)."""
        return self.path.time_s[0]

    @property
    def speed_mps(self) -> float:
        """Speed at entry (m/s), the one a vehicle reports."""
        return self.path.speed_mps[0]


def approach_of(x_m: float, y_m: float, rsu: Rsu, approaches: int) -> int:
    """Return the sector in which a point lies as seen from an RSU: 0 is centred on north, then clockwise.

    Args:
        x_m: position in net coordinates (m), like ``y_m``.
        y_m: see ``x_m``.
        rsu: the RSU; a point exactly on it counts as north.
        approaches: number of equal sectors, >= 1.
    """
    turns = math.atan2(x_m - rsu.x_m, y_m - rsu.y_m) / (2 * math.pi)
    return math.floor(turns * approaches + 0.5) % approaches


class SiloBinder:
    """Deals silos to vehicles in the order of their first entries.

    Args:
        settings: number of silos and rule.
    """

    def __init__(self, settings: SiloSettings) -> None:
        self._settings = settings
        self._dealt = [0] * (settings.approaches if settings.by == "approach" else 1)

    def bind(self, x_m: float, y_m: float, rsu: Rsu) -> tuple[int, int]:
        """Return silo and approach of a vehicle that enters coverage for the first time, at ``x_m``, ``y_m`` (m)."""
        settings = self._settings
        approach = approach_of(x_m, y_m, rsu, settings.approaches)
        first, stride = (approach, settings.approaches) if settings.by == "approach" else (0, 1)
        silos = range(first, settings.count, stride)
        silo = silos[self._dealt[first] % len(silos)]
        self._dealt[first] += 1
        return silo, approach
