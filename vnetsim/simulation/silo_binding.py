"""Which silo a vehicle carries: bound at its first entry into coverage, kept ever after.

Local data is captured before a vehicle enters coverage, so a later entry from elsewhere changes neither its silo nor
its approach. When a scenario is played again its vehicles have new ids and are new vehicles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vnetsim.coverage.rsu import Rsu
from vnetsim.experiment import SiloSettings


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


@dataclass(frozen=True, kw_only=True)
class Binding:
    """What a vehicle brings along: its ``silo``, and the sector (``approach``) from which it first came."""

    silo: int
    approach: int


class SiloBinder:
    """Deals silos to vehicles in the order of their first entries.

    Args:
        settings: number of silos and rule.
    """

    def __init__(self, settings: SiloSettings) -> None:
        self._settings = settings
        self._dealt = [0] * (settings.approaches if settings.by == "approach" else 1)

    def bind(self, x_m: float, y_m: float, rsu: Rsu) -> Binding:
        """Return what a vehicle carries that enters coverage for the first time, at ``x_m``, ``y_m`` (m)."""
        settings = self._settings
        approach = approach_of(x_m, y_m, rsu, settings.approaches)
        first, stride = (approach, settings.approaches) if settings.by == "approach" else (0, 1)
        silos = range(first, settings.count, stride)
        silo = silos[self._dealt[first] % len(silos)]
        self._dealt[first] += 1
        return Binding(silo=silo, approach=approach)
