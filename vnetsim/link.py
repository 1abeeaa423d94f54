"""Link-rate models: how fast RSU and vehicle could exchange data if they had the channel for themselves.

The airtime is shared in time (``vnetsim.channel``), so transfers at one RSU do not interfere; RSUs are taken to use
different channels. Path loss: 3GPP TR 37.885, Table 6.2.1-1, urban, line of sight.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol

from vnetsim.coverage import Track
from vnetsim.experiment import LinkSettings
from vnetsim.random_streams import Streams
from vnetsim.rsu import Rsu

THERMAL_NOISE_DBM_PER_HZ = -174.0
MIN_DISTANCE_M = 1.0


def path_loss_db(distance_m: float, carrier_hz: float) -> float:
    """Return the urban line-of-sight path loss 38.77 + 16.7 log10(d) + 18.2 log10(f) (dB).

    Source: 3GPP TR 37.885, Table 6.2.1-1, d in m and f in GHz.

    Args:
        distance_m: distance between the antennas in space (m); taken as 1 m when shorter, where no far field exists.
        carrier_hz: carrier frequency (Hz).
    """
    return 38.77 + 16.7 * math.log10(max(distance_m, MIN_DISTANCE_M)) + 18.2 * math.log10(carrier_hz / 1e9)


def noise_dbm(bandwidth_hz: float, noise_figure_db: float) -> float:
    """Return the receiver's thermal noise over a bandwidth (Hz), its noise figure included (dBm)."""
    return THERMAL_NOISE_DBM_PER_HZ + 10 * math.log10(bandwidth_hz) + noise_figure_db


def shannon_bps(snr_db: float, bandwidth_hz: float, efficiency: float, max_spectral_efficiency: float) -> float:
    """Return B min(efficiency log2(1 + SNR), cap) (bit/s)."""
    bits_per_s_per_hz = efficiency * math.log1p(10 ** (snr_db / 10)) / math.log(2)
    return bandwidth_hz * min(bits_per_s_per_hz, max_spectral_efficiency)


def position_m(track: Track, time_s: float) -> tuple[float, float]:
    """Return where a vehicle is at a time its track already covers: linear between points, the end points beyond them.

    Returns:
        x and y in net coordinates (m).
    """
    times = track.time_s
    after = bisect_right(times, time_s)
    if after == 0:
        return track.x_m[0], track.y_m[0]
    before = after - 1
    if after == len(times):
        return track.x_m[before], track.y_m[before]
    share = (time_s - times[before]) / (times[after] - times[before])
    x, y = track.x_m[before], track.y_m[before]
    return x + share * (track.x_m[after] - x), y + share * (track.y_m[after] - y)


class Link(Protocol):
    """The radio link of one coverage window."""

    @property
    def update_s(self) -> float | None:
        """How often the rates must be looked up anew (s); None when they never change."""
        ...

    def downlink_bps(self, time_s: float) -> float:
        """Return the rate from RSU to vehicle with the whole airtime (bit/s), > 0."""
        ...

    def uplink_bps(self, time_s: float) -> float:
        """Return the rate from vehicle to RSU with the whole airtime (bit/s), > 0."""
        ...


@dataclass(frozen=True, kw_only=True)
class ConstantLink:
    """The same rate everywhere and in both directions.

    Args:
        rate_bps: the rate (bit/s), > 0.
    """

    rate_bps: float
    update_s: None = None

    def downlink_bps(self, time_s: float) -> float:  # noqa: ARG002 (the protocol's argument; nothing depends on time)
        """Return ``rate_bps``."""
        return self.rate_bps

    def uplink_bps(self, time_s: float) -> float:  # noqa: ARG002 (as above)
        """Return ``rate_bps``."""
        return self.rate_bps


@dataclass(frozen=True, kw_only=True, eq=False)
class Tr37885Link:
    """Urban line of sight with Shannon capacity; rates follow the vehicle.

    Args:
        settings: powers, bandwidth, heights.
        track: the vehicle's path so far.
        rsu: the other end.
        shadowing_db: excess loss of this window (dB), in both directions.
    """

    settings: LinkSettings
    track: Track
    rsu: Rsu
    shadowing_db: float

    @property
    def update_s(self) -> float:
        """How often the rates follow the position (s)."""
        return self.settings.update_s

    def downlink_bps(self, time_s: float) -> float:
        """Return the rate from RSU to vehicle at a time the track covers (bit/s)."""
        return self._rate_bps(time_s, self.settings.rsu_power_dbm)

    def uplink_bps(self, time_s: float) -> float:
        """Return the rate from vehicle to RSU at a time the track covers (bit/s)."""
        return self._rate_bps(time_s, self.settings.vehicle_power_dbm)

    def _rate_bps(self, time_s: float, power_dbm: float) -> float:
        x_m, y_m = position_m(self.track, time_s)
        return rate_bps(self.settings, math.hypot(x_m - self.rsu.x_m, y_m - self.rsu.y_m), power_dbm, self.shadowing_db)


def rate_bps(settings: LinkSettings, ground_distance_m: float, power_dbm: float, shadowing_db: float = 0.0) -> float:
    """Return the rate of the ``tr37885`` model (bit/s).

    Args:
        settings: carrier, bandwidth, noise figure, antenna heights, efficiency and cap.
        ground_distance_m: horizontal distance between the antennas (m).
        power_dbm: transmit power (dBm).
        shadowing_db: excess loss (dB); negative for a gain.
    """
    distance_m = math.hypot(ground_distance_m, settings.rsu_height_m - settings.vehicle_height_m)
    return _capacity_bps(settings, distance_m, power_dbm, shadowing_db)


def sidelink_bps(settings: LinkSettings, distance_m: float, shadowing_db: float) -> float:
    """Return the rate of the ``tr37885`` model between two vehicles, antennas at the same height (bit/s).

    Args:
        settings: carrier, bandwidth, a vehicle's power, noise figure, efficiency and cap.
        distance_m: between the vehicles (m).
        shadowing_db: excess loss (dB); negative for a gain.
    """
    return _capacity_bps(settings, distance_m, settings.vehicle_power_dbm, shadowing_db)


def _capacity_bps(settings: LinkSettings, distance_m: float, power_dbm: float, shadowing_db: float) -> float:
    received_dbm = power_dbm - path_loss_db(distance_m, settings.carrier_hz) - shadowing_db
    snr_db = received_dbm - noise_dbm(settings.bandwidth_hz, settings.noise_figure_db)
    return shannon_bps(snr_db, settings.bandwidth_hz, settings.efficiency, settings.max_spectral_efficiency)


def open_link(settings: LinkSettings, track: Track, rsu: Rsu, visit: int, streams: Streams) -> Link:
    """Return the link of a coverage window.

    Args:
        settings: which model, and its constants.
        track: the vehicle's path, growing.
        rsu: the RSU whose window it is.
        visit: how many windows this vehicle had at this RSU before; with the two ids it names the shadowing's stream.
        streams: the experiment's random streams.
    """
    if settings.model == "constant":
        return ConstantLink(rate_bps=settings.rate_bps)
    shadowing_db = 0.0
    if settings.shadowing_db > 0:
        generator = streams.generator("radio", track.vehicle_id, rsu.id, visit)
        shadowing_db = settings.shadowing_db * float(generator.standard_normal())
    return Tr37885Link(settings=settings, track=track, rsu=rsu, shadowing_db=shadowing_db)
