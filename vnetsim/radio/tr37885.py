"""Shannon capacity over the path loss of 3GPP TR 37.885, Table 6.2.1-1, line of sight, urban and highway."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.experiment import ExchangeSettings, LinkSettings
from vnetsim.radio import PositionM

THERMAL_NOISE_DBM_PER_HZ = -174.0
MIN_DISTANCE_M = 1.0


@dataclass(frozen=True, kw_only=True)
class PathLoss:
    """Path loss constant + per_decade log10(d) + per_carrier_decade log10(f) (dB), d in m and f in GHz."""

    constant_db: float
    per_decade_db: float
    per_carrier_decade_db: float


PATH_LOSS: Mapping[str, PathLoss] = {
    "urban": PathLoss(constant_db=38.77, per_decade_db=16.7, per_carrier_decade_db=18.2),
    "highway": PathLoss(constant_db=32.4, per_decade_db=20.0, per_carrier_decade_db=20.0),
}
"""By environment, line of sight; 3GPP TR 37.885, Table 6.2.1-1. That of highways is free space."""


def path_loss_db(distance_m: float, carrier_hz: float, environment: str) -> float:
    """Return the line-of-sight path loss of an environment (dB); see ``PATH_LOSS``.

    Args:
        distance_m: distance between the antennas in space (m); taken as 1 m when shorter, where no far field exists.
        carrier_hz: carrier frequency (Hz).
        environment: ``urban`` or ``highway``.
    """
    loss = PATH_LOSS[environment]
    distance_db = loss.per_decade_db * math.log10(max(distance_m, MIN_DISTANCE_M))
    return loss.constant_db + distance_db + loss.per_carrier_decade_db * math.log10(carrier_hz / 1e9)


def environment_of(settings: LinkSettings, rsu: Rsu) -> str:
    """Return whose path loss holds around an RSU: that of the settings, else what the scenario says, else ``urban``."""
    if settings.environment != "scenario":
        return settings.environment
    return rsu.environment or "urban"


def cap_bps(settings: LinkSettings) -> float:
    """Return the highest rate of the ``tr37885`` model (bit/s)."""
    return settings.bandwidth_hz * settings.max_spectral_efficiency


def noise_dbm(bandwidth_hz: float, noise_figure_db: float) -> float:
    """Return the receiver's thermal noise over a bandwidth (Hz), its noise figure included (dBm)."""
    return THERMAL_NOISE_DBM_PER_HZ + 10 * math.log10(bandwidth_hz) + noise_figure_db


def shannon_bps(snr_db: float, bandwidth_hz: float, efficiency: float, max_spectral_efficiency: float) -> float:
    """Return B min(efficiency log2(1 + SNR), cap) (bit/s)."""
    bits_per_s_per_hz = efficiency * math.log1p(10 ** (snr_db / 10)) / math.log(2)
    return bandwidth_hz * min(bits_per_s_per_hz, max_spectral_efficiency)


def rate_bps(
    settings: LinkSettings, ground_distance_m: float, power_dbm: float, shadowing_db: float = 0.0, *, environment: str
) -> float:
    """Return the rate of the ``tr37885`` model (bit/s).

    Args:
        settings: carrier, bandwidth, noise figure, antenna heights, efficiency and cap.
        ground_distance_m: horizontal distance between the antennas (m).
        power_dbm: transmit power (dBm).
        shadowing_db: excess loss (dB); negative for a gain.
        environment: see ``path_loss_db``.
    """
    distance_m = math.hypot(ground_distance_m, settings.rsu_height_m - settings.vehicle_height_m)
    return _capacity_bps(settings, distance_m, power_dbm, shadowing_db, environment)


def sidelink_bps(settings: LinkSettings, distance_m: float, shadowing_db: float, *, environment: str) -> float:
    """Return the rate of the ``tr37885`` model between two vehicles, antennas at the same height (bit/s).

    Args:
        settings: carrier, bandwidth, a vehicle's power, noise figure, efficiency and cap.
        distance_m: between the vehicles (m).
        shadowing_db: excess loss (dB); negative for a gain.
        environment: see ``path_loss_db``.
    """
    return _capacity_bps(settings, distance_m, settings.vehicle_power_dbm, shadowing_db, environment)


def _capacity_bps(
    settings: LinkSettings, distance_m: float, power_dbm: float, shadowing_db: float, environment: str
) -> float:
    received_dbm = power_dbm - path_loss_db(distance_m, settings.carrier_hz, environment) - shadowing_db
    snr_db = received_dbm - noise_dbm(settings.bandwidth_hz, settings.noise_figure_db)
    return shannon_bps(snr_db, settings.bandwidth_hz, settings.efficiency, settings.max_spectral_efficiency)


class Tr37885:
    """Rates follow the vehicle; the shadowing is drawn per window and, between vehicles, per pair and round.

    With d the distance of the antennas (m), at least 1 m, f the carrier in GHz, P the sender's power, B the bandwidth,
    F the receiver's noise figure and sigma the deviation of the shadowing X::

        PL  = 38.77 + 16.7 log10(d) + 18.2 log10(f)   dB, urban
        PL  = 32.4  + 20.0 log10(d) + 20.0 log10(f)   dB, highway
        SNR = P - PL - X - (-174 dBm/Hz + 10 log10(B) + F)   dB,  X ~ N(0, sigma^2)
        R   = B min(efficiency log2(1 + SNR), max_spectral_efficiency)   bit/s, SNR here as a ratio

    Args:
        link: environment, powers, bandwidth, heights, and the deviation of the shadowing.
    """

    name = "tr37885"
    source = "3GPP TR 37.885, Table 6.2.1-1 (line of sight); TR 36.942, Annex A.2 (share of the Shannon capacity)"
    follows_position = True

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """There are none besides those of ``link``."""

    def __init__(self, link: LinkSettings) -> None:
        self._link = link

    @classmethod
    def create(cls, settings: Settings, link: LinkSettings, exchange: ExchangeSettings) -> Tr37885:  # noqa: ARG003
        """Make it."""
        return cls(link)

    @property
    def cap_bps(self) -> float:
        """The highest rate (bit/s)."""
        return cap_bps(self._link)

    def window_state(self, generator: np.random.Generator) -> float:
        """Return the excess loss of a window (dB), in both directions."""
        return _shadowing_db(self._link.shadowing_db, generator)

    def pair_state(self, generator: np.random.Generator) -> float:
        """Return the excess loss between two vehicles (dB), the same both ways."""
        return _shadowing_db(self._link.shadowing_db, generator)

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: float) -> float:
        """Return the rate with the RSU's power (bit/s)."""
        return self._rate_bps(rsu, vehicle_m, self._link.rsu_power_dbm, state)

    def uplink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: float) -> float:
        """Return the rate with the vehicle's power (bit/s)."""
        return self._rate_bps(rsu, vehicle_m, self._link.vehicle_power_dbm, state)

    def sidelink_bps(self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: float) -> float:
        """Return the rate between antennas at the same height (bit/s)."""
        distance_m = math.hypot(sender_m[0] - receiver_m[0], sender_m[1] - receiver_m[1])
        return sidelink_bps(self._link, distance_m, state, environment=environment_of(self._link, rsu))

    def _rate_bps(self, rsu: Rsu, vehicle_m: PositionM, power_dbm: float, shadowing_db: float) -> float:
        distance_m = math.hypot(vehicle_m[0] - rsu.x_m, vehicle_m[1] - rsu.y_m)
        environment = environment_of(self._link, rsu)
        return rate_bps(self._link, distance_m, power_dbm, shadowing_db, environment=environment)


def _shadowing_db(deviation_db: float, generator: np.random.Generator) -> float:
    return deviation_db * float(generator.standard_normal()) if deviation_db > 0 else 0.0
