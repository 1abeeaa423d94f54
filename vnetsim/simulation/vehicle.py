"""Vehicles, their silos, and their open windows.

A vehicle gets its silo at its first entry into coverage and keeps it, unless data belong to places
(``silos.by = "place"``): its local data were captured before it entered coverage, so later entries change neither silo
nor approach. When a scenario is repeated, its vehicles have new ids and are new vehicles.
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

LEAST_SHARE = 1e-3  # a silo with at most this share of a vehicle's data is dropped


@dataclass(slots=True, kw_only=True, eq=False)
class Vehicle:
    """A vehicle that was in coverage at least once."""

    id: str
    silo: int  # index of its local data
    approach: int  # the sector from which it first entered coverage
    equipped: bool = True  # whether it can take part; if not, ``silo`` and ``approach`` are -1
    entries: dict[str, int] = field(default_factory=dict)  # number of windows so far, by RSU
    serving_window: OpenWindow | None = None  # the open window whose RSU serves it; None outside coverage
    windows: list[OpenWindow] = field(default_factory=list)  # its open windows, in order of entry
    owner_names: list[str] = field(default_factory=list)  # names of the aggregators for which it takes part
    computer: Computer | None = None  # on board; None until it is needed
    # silos of earlier places, with their shares of its data; the rest is from ``silo``
    earlier: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class OpenWindow:
    """An open coverage window."""

    index: int  # order of entry over all RSUs
    vehicle: Vehicle
    rsu: Rsu
    path: VehiclePath
    earlier_windows: int  # number of windows that this vehicle had at this RSU before
    link: Link | None = None  # its radio link; None until it is needed
    train_s: float | None = None  # how long the whole training takes on board (s); None until it is needed
    # duration of download and upload with the whole airtime (s); None if not needed yet or rates change
    transfers_s: tuple[float, float] | None = None
    straight_exit: tuple[int, float] | None = None  # number of path points, and exit straight on (s): a cache
    invited: bool = False  # whether a participation was started in this window
    chance: float = field(init=False)  # of the last invitation; see ``Participant``. Not set before the first.

    @property
    def enter_s(self) -> float:
        """When the window opened (simulated time, s)."""
        return self.path.time_s[0]

    @property
    def speed_mps(self) -> float:
        """Speed at entry (m/s), which the vehicle reports."""
        return self.path.speed_mps[0]


def approach_of(x_m: float, y_m: float, rsu: Rsu, approaches: int) -> int:
    """Return the sector of a point (m) seen from an RSU: 0 is centred on north, then clockwise; 0 on the RSU itself."""
    turns = math.atan2(x_m - rsu.x_m, y_m - rsu.y_m) / (2 * math.pi)
    return math.floor(turns * approaches + 0.5) % approaches


class SiloBinder:
    """Assigns silos to vehicles in the order of first entry; InputError if ``silos.by`` has more groups than silos."""

    def __init__(self, settings: SiloSettings, rsus: Sequence[Rsu]) -> None:
        groups = {"approach": settings.approaches, "origin": len(rsus), "place": len(rsus)}.get(settings.by, 1)
        require(
            groups <= settings.count,
            f"silos.count must be at least {groups} with silos.by = '{settings.by}', one for each RSU, got "
            f"{settings.count}.",
        )
        self._settings = settings
        self._districts = {rsu.id: district for district, rsu in enumerate(rsus)}
        self._turns = [0] * groups

    def bind(self, x_m: float, y_m: float, rsu: Rsu) -> tuple[int, int]:
        """Return (silo, approach) for a vehicle's first entry at a point (m); the silo is the next by ``silos.by``."""
        approach = approach_of(x_m, y_m, rsu, self._settings.approaches)
        first = {"approach": approach, "arrival": 0}.get(self._settings.by, self._districts[rsu.id])
        return self._next_silo(first), approach

    def move(self, vehicle: Vehicle, rsu: Rsu) -> None:
        """With ``silos.by = "place"``, replace ``silos.replaced_share`` of a vehicle's data by a silo of ``rsu``.

        Changes the vehicle's ``silo`` and ``earlier``, unless its silo is already one of this RSU's.
        """
        district = self._districts[rsu.id]
        if self._settings.by != "place" or vehicle.silo % len(self._districts) == district:
            return
        shares = (*vehicle.earlier, (vehicle.silo, 1 - math.fsum(share for _, share in vehicle.earlier)))
        vehicle.silo = self._next_silo(district)
        left = [(silo, share * (1 - self._settings.replaced_share)) for silo, share in shares if silo != vehicle.silo]
        vehicle.earlier = tuple((silo, share) for silo, share in left if share > LEAST_SHARE)

    def _next_silo(self, group: int) -> int:
        """Return a group's next silo, in turn: ``group``, then ``group`` plus the number of groups, and so on."""
        silos = range(group, self._settings.count, len(self._turns))
        silo = silos[self._turns[group] % len(silos)]
        self._turns[group] += 1
        return silo
