"""Losses between two antennas: path loss, blockage by vehicles and shadowing of 3GPP TR 37.885.

A link is in line of sight (``los``), behind other vehicles (``nlosv``) or behind buildings (``nlos``). Geometry decides
about ``nlos`` (``vnetsim.radio.sight``). Otherwise ``los`` is drawn with a probability that falls with the distance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

MIN_DISTANCE_M = 1.0
CAR_M, TRUCK_M = 1.6, 3.0
"""Heights of blocking vehicles (TR 37.885, 6.1.2)."""

PATH_LOSS: Mapping[tuple[str, bool], tuple[float, float, float]] = {
    ("urban", True): (38.77, 16.7, 18.2),
    ("highway", True): (32.4, 20.0, 20.0),
    ("urban", False): (36.85, 30.0, 18.9),
    ("highway", False): (36.85, 30.0, 18.9),
}
"""Path loss (dB) of Table 6.2.1-1: a constant, and the loss per decade of the distance in m and of the carrier in GHz;
by environment and whether the link is on one street (``los`` and ``nlosv``) or behind buildings (``nlos``)."""

NLOS_SHADOWING = 4 / 3
"""Ratio of the shadowing's deviations behind buildings (4 dB) and on one street (3 dB); Table 6.2.1-2."""

DECORRELATION_M: Mapping[str, float] = {"urban": 10.0, "highway": 25.0}
"""Distance at which the shadowing's correlation is 1/e; 3GPP TR 36.885, A.1.4, to which TR 37.885 refers."""


def path_loss_db(distance_m: float, carrier_hz: float, environment: str, *, one_street: bool = True) -> float:
    """Return the path loss (dB) of a link, on one street or behind buildings; see ``PATH_LOSS``.

    ``distance_m`` is between the antennas in space (m); below 1 m there is no far field, and 1 m is used.
    ``environment`` is ``urban`` or ``highway``.
    """
    constant_db, per_decade_db, per_carrier_decade_db = PATH_LOSS[environment, one_street]
    distance_db = per_decade_db * math.log10(max(distance_m, MIN_DISTANCE_M))
    return constant_db + distance_db + per_carrier_decade_db * math.log10(carrier_hz / 1e9)


def line_of_sight_probability(distance_m: float, environment: str) -> float:
    """Return the probability that no vehicle is between two antennas on one street (TR 37.885, Table 6.2-1).

    ``distance_m`` is their distance on the ground (m); an environment other than ``urban`` is taken as ``highway``.
    """
    if environment == "urban":
        return min(1.0, 1.05 * math.exp(-0.0114 * distance_m))
    if distance_m <= 475:
        return min(1.0, 2.1013e-6 * distance_m**2 - 0.002 * distance_m + 1.0193)
    return max(0.0, 0.54 - 0.001 * (distance_m - 475))


def blockage_db(distance_m: float, antennas_m: tuple[float, float], blocker_m: float, deviate: float) -> float:
    """Return the loss by a vehicle between two antennas (dB, >= 0); TR 37.885, 6.2.1.

    The standard's "log-normal random variable" is taken as normal in dB: otherwise its maximum with 0 dB would have no
    effect.

    Args:
        distance_m: distance between the antennas (m).
        antennas_m: their heights (m).
        blocker_m: height of the vehicle (m). An antenna on a car's roof is as high as a blocking car: that is the
            standard's third case (5 dB), not its first (no loss).
        deviate: a standard normal deviate.
    """
    if min(antennas_m) > blocker_m:
        return 0.0
    mean_db, deviation_db = (9.0, 4.5) if max(antennas_m) < blocker_m else (5.0, 4.0)
    far_db = max(0.0, 15 * math.log10(max(distance_m, MIN_DISTANCE_M)) - 41)
    return max(0.0, mean_db + far_db + deviation_db * deviate)


class ShadowingField:
    """The shadowing of one link: a Gaussian field over the plane with correlation exp(-distance / decorrelation).

    TR 37.885 updates the shadowing along a path from its last value. The field has the same correlation, and its value
    depends only on the place, not on when rates are looked up. It is a sum of waves; their wave numbers are drawn from
    the spectrum of that correlation, (1 + k^2)^(-3/2) in two dimensions.
    """

    WAVES = 64
    """With this number of waves the kurtosis differs from a Gaussian's by 0.02."""

    __slots__ = ("_phase", "_wave")

    def __init__(self, generator: np.random.Generator) -> None:
        uniform = generator.random((3, self.WAVES))
        # the distribution of k is 1 - (1 + k^2)^(-1/2)
        k = np.sqrt((1 - uniform[0]) ** -2 - 1)
        angle = 2 * math.pi * uniform[1]
        self._wave: NDArray[np.float64] = k * np.array([np.cos(angle), np.sin(angle)])
        self._phase: NDArray[np.float64] = 2 * math.pi * uniform[2]

    def __call__(self, x_m: float, y_m: float, decorrelation_m: float) -> float:
        """Return the field's value at x, y (m) with a decorrelation distance (m): mean 0, standard deviation 1."""
        waves = np.cos((x_m * self._wave[0] + y_m * self._wave[1]) / decorrelation_m + self._phase)
        return math.sqrt(2 / self.WAVES) * float(waves.sum())
