"""Vehicles and their open windows: who it is, which silo it carries, where it is covered. They know no participation.

A vehicle's silo is bound at its first entry into coverage and kept ever after, but where data are of the place: local
data is captured before a vehicle enters coverage, so a later entry changes neither its silo nor its approach. When a
scenario is played again its vehicles have new ids and are new vehicles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import VehiclePath
from vnetsim.errors.bounds import require
from vnetsim.experiment import SiloSettings
from vnetsim.experiment.traffic import Computer
from vnetsim.simulation.links import Link

LEAST_SHARE = 1e-3
"""What a vehicle still holds of a silo is forgotten below this."""


@dataclass(slots=True, kw_only=True, eq=False)
class Vehicle:
    """A vehicle that was in coverage at least once.

    Args:
        id: the vehicle's id.
        silo: what it carries.
        approach: the sector from which it first came.
        earlier: silos of places where it was before, with their share of what it holds; the rest is of ``silo``.
        entries: windows it had so far, by RSU.
        serving: the open window whose RSU serves it; None outside coverage.
        windows: those that are open, in order of entry.
        served_by: the aggregators for which it takes part, by name; empty while it is idle.
        computer: on board, None until it is needed.
    """

    id: str
    silo: int
    approach: int
    entries: dict[str, int] = field(default_factory=dict)
    serving: OpenWindow | None = None
    windows: list[OpenWindow] = field(default_factory=list)
    served_by: list[str] = field(default_factory=list)
    computer: Computer | None = None
    earlier: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class OpenWindow:
    """An open coverage window.

    Args:
        index: order of entry over all RSUs.
        earlier_windows: windows this vehicle had at this RSU before.
        link: radio link, None until it is needed.
        train_s: how long its vehicle trains (s), likewise.
        transfers_s: how long download and upload take with the whole airtime (s), where rates never change; likewise.
        straight_exit: how many points of the path were past when it was last reckoned when a vehicle leaves that goes
            straight on from there, and that time (s); likewise.
        invited: whether a participation was started in this window.
        chance: see ``Participant``; of the last invitation.
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
    chance: float = field(init=False)

    @property
    def enter_s(self) -> float:
        """When the window opened (s)."""
        return self.path.time_s[0]

    @property
    def speed_mps(self) -> float:
        """Speed at entry (m/s), the one a vehicle reports."""
        return self.path.speed_mps[0]


def approach_of(x_m: float, y_m: float, rsu: Rsu, approaches: int) -> int:
    """Return the sector in which a point (m) lies as seen from an RSU: 0 is centred on north, then clockwise.

    A point exactly on the RSU counts as north.
    """
    turns = math.atan2(x_m - rsu.x_m, y_m - rsu.y_m) / (2 * math.pi)
    return math.floor(turns * approaches + 0.5) % approaches


class SiloBinder:
    """Deals silos to vehicles in the order of their first entries.

    Raises:
        InputError: there are fewer silos than RSUs that need one.
    """

    def __init__(self, settings: SiloSettings, rsus: Sequence[Rsu]) -> None:
        groups = {"approach": settings.approaches, "origin": len(rsus), "place": len(rsus)}.get(settings.by, 1)
        require(
            groups <= settings.count,
            f"silos.count must be at least {groups} with silos.by = '{settings.by}', one for each RSU, got "
            f"{settings.count}.",
        )
        self._settings = settings
        self._districts = {rsu.id: district for district, rsu in enumerate(rsus)}
        self._dealt = [0] * groups

    def bind(self, x_m: float, y_m: float, rsu: Rsu) -> tuple[int, int]:
        """Return silo and approach of a vehicle that enters coverage for the first time, at ``x_m``, ``y_m`` (m)."""
        approach = approach_of(x_m, y_m, rsu, self._settings.approaches)
        first = {"approach": approach, "arrival": 0}.get(self._settings.by, self._districts[rsu.id])
        return self._deal(first), approach

    def move(self, vehicle: Vehicle, rsu: Rsu) -> None:
        """Let a vehicle that is idle at an RSU replace a part of what it holds, where data are of the place."""
        districts = len(self._districts)
        if self._settings.by != "place" or vehicle.silo % districts == self._districts[rsu.id]:
            return
        held = (*vehicle.earlier, (vehicle.silo, 1 - math.fsum(share for _, share in vehicle.earlier)))
        vehicle.silo = self._deal(self._districts[rsu.id])
        left = [(silo, share * (1 - self._settings.replaced_share)) for silo, share in held if silo != vehicle.silo]
        vehicle.earlier = tuple((silo, share) for silo, share in left if share > LEAST_SHARE)

    def _deal(self, first: int) -> int:
        silos = range(first, self._settings.count, len(self._dealt))
        silo = silos[self._dealt[first] % len(silos)]
        self._dealt[first] += 1
        return silo
