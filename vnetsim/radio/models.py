"""Radio models: the path loss of 3GPP TR 37.885 with Shannon capacity, and the same rate everywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.radio import PositionM
from vnetsim.setting_checks import Within

PowerDbm = Annotated[float, Within(-100, 100, "dBm", "below any receiver's noise; 10 MW, above any transmitter")]

THERMAL_NOISE_DBM_PER_HZ = -174.0
NOISE_FIGURE_DB = 9.0
"""Of the receivers, RSU and vehicle alike; a better one is like so much more power."""
RSU_HEIGHT_M, VEHICLE_HEIGHT_M = 5.0, 1.6
"""Of the antennas: TR 37.885's for roadside units and passenger cars. Their difference is lost beyond some 20 m."""
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


def noise_dbm(bandwidth_hz: float, noise_figure_db: float) -> float:
    """Return the receiver's thermal noise over a bandwidth (Hz), its noise figure included (dBm)."""
    return THERMAL_NOISE_DBM_PER_HZ + 10 * math.log10(bandwidth_hz) + noise_figure_db


def shannon_bps(snr_db: float, bandwidth_hz: float, efficiency: float, max_spectral_efficiency: float) -> float:
    """Return B min(efficiency log2(1 + SNR), cap) (bit/s)."""
    bits_per_s_per_hz = efficiency * math.log1p(10 ** (snr_db / 10)) / math.log(2)
    return bandwidth_hz * min(bits_per_s_per_hz, max_spectral_efficiency)


@dataclass(frozen=True, kw_only=True)
class Tr37885:
    """Rates follow the vehicle; the shadowing is drawn per window and, between vehicles, per pair and round.

    With d the distance of the antennas (m), at least 1 m, f the carrier in GHz, P the sender's power, B the bandwidth,
    F the receiver's noise figure, 9 dB, and sigma the deviation of the shadowing X::

        PL  = 38.77 + 16.7 log10(d) + 18.2 log10(f)   dB, urban
        PL  = 32.4  + 20.0 log10(d) + 20.0 log10(f)   dB, highway
        SNR = P - PL - X - (-174 dBm/Hz + 10 log10(B) + F)   dB,  X ~ N(0, sigma^2)
        R   = B min(efficiency log2(1 + SNR), max_spectral_efficiency)   bit/s, SNR here as a ratio

    Antennas are 5 m high at the RSU and 1.6 m on vehicles.

    The cap: NR's highest scheme with 64QAM carries 5.55 bit/s/Hz (3GPP TS 38.214, Table 5.1.3.1-1, index 28: 6 bit at
    a code rate of 948/1024), and 86 to 94 % of a 10 MHz channel carry signal (TS 38.101-1: 24 resource blocks of
    30 kHz spacing, 52 of 15 kHz), which makes 4.8 to 5.2. With 256QAM, optional for the sidelink, it would be 7.41 and
    6.4 to 6.9. Control channels and reference symbols are not taken off. The share of the Shannon capacity is that of
    3GPP's system simulations for a downlink (TR 36.942, Annex A.2).

    Args:
        environment: whose path loss holds, also between vehicles: ``urban``, ``highway``, or ``scenario`` for what the
            scenario's RSU says, the one that serves the vehicle; ``urban`` where it says nothing.
        carrier_hz: carrier frequency (Hz).
        bandwidth_hz: channel bandwidth (Hz).
        rsu_power_dbm: transmit power of the RSU (dBm).
        vehicle_power_dbm: transmit power of a vehicle (dBm).
        shadowing_db: standard deviation of the shadowing (dB), drawn per window and, between vehicles, per pair and
            round; the TR specifies 3 dB for LOS.
        efficiency: share of the Shannon capacity that is reached, in (0, 1].
        max_spectral_efficiency: cap of the spectral efficiency (bit/s/Hz), see above.
    """

    name: ClassVar[str] = "tr37885"
    source: ClassVar[str] = (
        "3GPP TR 37.885, Table 6.2.1-1 (line of sight); TR 36.942, Annex A.2 (share of the Shannon capacity)"
    )
    # a vehicle at 50 km/h moves by 14 m, over which the path loss changes by .5 dB at 200 m; each update is an event
    update_s: ClassVar[float | None] = 1.0

    environment: Literal["scenario", "urban", "highway"] = "scenario"
    carrier_hz: Annotated[float, Within(1e8, 1e12, "Hz", "microwaves, which the path loss is of")] = 5.9e9
    bandwidth_hz: Annotated[float, Within(1e3, 1e11, "Hz", "from telemetry to all microwave bands")] = 10e6
    rsu_power_dbm: PowerDbm = 23.0
    vehicle_power_dbm: PowerDbm = 23.0
    shadowing_db: Annotated[float, Within(0, 30, "dB", "measured shadowing stays below 15 dB")] = 3.0
    efficiency: Annotated[float, Within(1e-3, 1, "", "a share of the Shannon capacity")] = 0.6
    max_spectral_efficiency: Annotated[float, Within(1e-3, 100, "bit/s/Hz", "above 1024-QAM on eight layers")] = 5.0

    @property
    def cap_bps(self) -> float:
        """The highest rate (bit/s)."""
        return self.bandwidth_hz * self.max_spectral_efficiency

    def draw(self, generator: np.random.Generator) -> float:
        """Return the excess loss (dB), the same both ways."""
        return self.shadowing_db * float(generator.standard_normal()) if self.shadowing_db > 0 else 0.0

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: float) -> float:
        """Return the rate with the RSU's power (bit/s)."""
        return self._from_rsu_bps(rsu, vehicle_m, self.rsu_power_dbm, state)

    def uplink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: float) -> float:
        """Return the rate with the vehicle's power (bit/s)."""
        return self._from_rsu_bps(rsu, vehicle_m, self.vehicle_power_dbm, state)

    def sidelink_bps(self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: float) -> float:
        """Return the rate between antennas at the same height (bit/s)."""
        distance_m = math.hypot(sender_m[0] - receiver_m[0], sender_m[1] - receiver_m[1])
        return self.rate_bps(distance_m, self.vehicle_power_dbm, state, self.environment_of(rsu))

    def environment_of(self, rsu: Rsu) -> str:
        """Return whose path loss holds around an RSU: that of the setting, else of the scenario, else ``urban``."""
        return (rsu.environment or "urban") if self.environment == "scenario" else self.environment

    def rate_bps(self, distance_m: float, power_dbm: float, shadowing_db: float, environment: str) -> float:
        """Return the rate between antennas at a distance in space (bit/s).

        Args:
            distance_m: between the antennas (m).
            power_dbm: transmit power (dBm).
            shadowing_db: excess loss (dB); negative for a gain.
            environment: see ``path_loss_db``.
        """
        received_dbm = power_dbm - path_loss_db(distance_m, self.carrier_hz, environment) - shadowing_db
        snr_db = received_dbm - noise_dbm(self.bandwidth_hz, NOISE_FIGURE_DB)
        return shannon_bps(snr_db, self.bandwidth_hz, self.efficiency, self.max_spectral_efficiency)

    def _from_rsu_bps(self, rsu: Rsu, vehicle_m: PositionM, power_dbm: float, shadowing_db: float) -> float:
        ground_m = math.hypot(vehicle_m[0] - rsu.x_m, vehicle_m[1] - rsu.y_m)
        distance_m = math.hypot(ground_m, RSU_HEIGHT_M - VEHICLE_HEIGHT_M)
        return self.rate_bps(distance_m, power_dbm, shadowing_db, self.environment_of(rsu))


@dataclass(frozen=True, kw_only=True)
class ConstantRate:
    """The same rate everywhere and in all directions.

    Args:
        rate_bps: rate of a transfer that has the channel for itself (bit/s).
    """

    name: ClassVar[str] = "constant"
    source: ClassVar[str] = "an ideal channel"
    update_s: ClassVar[float | None] = None

    rate_bps: Annotated[float, Within(1, 1e12, "bit/s", "up to a terabit, above any radio")] = 20e6

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: None) -> float:  # noqa: ARG002 - the protocol's
        """Return ``rate_bps``."""
        return self.rate_bps

    uplink_bps = downlink_bps

    def sidelink_bps(self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: None) -> float:  # noqa: ARG002
        """Return ``rate_bps``."""
        return self.rate_bps
