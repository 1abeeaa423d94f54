"""Radio models: the path loss of 3GPP TR 37.885 with Shannon capacity, and the same rate everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Floats
from vnetsim.errors.bounds import Share, Within
from vnetsim.radio import PositionM
from vnetsim.radio.capacity import noise_dbm, shannon_bps
from vnetsim.radio.propagation import (
    CAR_M,
    DECORRELATION_M,
    NLOS_SHADOWING,
    TRUCK_M,
    ShadowingField,
    blockage_db,
    line_of_sight_probability,
    path_loss_db,
)

if TYPE_CHECKING:
    from vnetsim.radio.sight import Streets

PowerDbm = Annotated[float, Within(-100, 100, "dBm", "below any receiver's noise; 10 MW, above any transmitter")]

NOISE_FIGURE_DB = 9.0
"""Of the receivers, RSU and vehicle alike; a better one is like so much more power."""
RSU_HEIGHT_M, VEHICLE_HEIGHT_M = 5.0, 1.6
"""Of the antennas: TR 37.885's for roadside units and passenger cars. Their difference is lost beyond some 20 m."""
NAKAGAMI_M = {True: 3, False: 1}
"""Of the fast fading on one street and behind buildings (Rayleigh); no source of TR 37.885's: an assumption."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a model knows of where it is used.

    Args:
        streets: who sees whom; None where no lane is known, or states are not a matter of streets.
        rsus: all RSUs, which interfere where that is asked for.
    """

    streets: Streets | None
    rsus: Sequence[Rsu]

    def one_street(self, one_m: PositionM, other_m: PositionM, environment: str) -> bool:
        """Return whether no building stands between two places (m); outside of towns there is none."""
        return environment != "urban" or self.streets is None or self.streets.clear(one_m, other_m)


@dataclass(frozen=True, kw_only=True)
class DrawnLink:
    """What is drawn for a link whose state changes, and holds for as long as it lives.

    Args:
        place: see ``Place``.
        uniform: behind a vehicle where the probability of line of sight is smaller than this.
        blocker_m: height of that vehicle (m).
        deviate: of its loss, see ``blockage_db``.
        shadowing: by position.
    """

    place: Place
    uniform: float
    blocker_m: float
    deviate: float
    shadowing: ShadowingField


@dataclass(frozen=True, kw_only=True)
class Tr37885:
    """Rates follow the vehicle, as far as 3GPP TR 37.885 says, with a share of the Shannon capacity.

    With d the distance of the antennas (m), at least 1 m, f the carrier in GHz, P the sender's power, G the gains of
    both antennas, B the bandwidth, F the receiver's noise figure, 9 dB, and sigma the deviation of the shadowing X::

        PL  = 38.77 + 16.7 log10(d) + 18.2 log10(f)   dB, urban, on one street
        PL  = 32.4  + 20.0 log10(d) + 20.0 log10(f)   dB, highway
        PL  = 36.85 + 30.0 log10(d) + 18.9 log10(f)   dB, behind buildings
        SNR = P + G - PL - blockage - X - (-174 dBm/Hz + 10 log10(B) + F)   dB,  X ~ N(0, sigma^2)
        R   = B min(efficiency E[log2(1 + SNR)], max_spectral_efficiency)   bit/s, SNR here as a ratio

    A vehicle in between blocks with a probability that grows with the distance; whether it does, how high it is and
    what it takes is drawn once a window, or once a pair and round, as is the field of the shadowing.

    Antennas are 5 m high at the RSU and 1.6 m on vehicles.

    The cap: NR's highest scheme with 64QAM carries 5.55 bit/s/Hz (3GPP TS 38.214, Table 5.1.3.1-1, index 28: 6 bit at
    a code rate of 948/1024), and 86 to 94 % of a 10 MHz channel carry signal (TS 38.101-1: 24 resource blocks of
    30 kHz spacing, 52 of 15 kHz), which makes 4.8 to 5.2. With 256QAM, optional for the sidelink, it would be 7.41 and
    6.4 to 6.9. Control channels and reference symbols are not taken off. The share of the Shannon capacity is that of
    3GPP's system simulations for a downlink (TR 36.942, Annex A.2).

    Args:
        state: ``los``, always in line of sight, with one draw of the shadowing a window; ``probability``, in line of
            sight or behind a vehicle, with a shadowing that changes along the path (10 m urban, 25 m highway); or
            ``streets``, that and behind buildings wherever the line of sight leaves the streets of an urban net. Where
            no lane is known, as for the Gaussian, ``streets`` is ``probability``.
        environment: whose path loss holds, also between vehicles: ``urban``, ``highway``, or ``scenario`` for what the
            scenario's RSU says, the one that serves the vehicle; ``urban`` where it says nothing.
        carrier_hz: carrier frequency (Hz).
        bandwidth_hz: channel bandwidth (Hz).
        rsu_power_dbm: transmit power of the RSU (dBm).
        vehicle_power_dbm: transmit power of a vehicle (dBm).
        shadowing_db: standard deviation of the shadowing (dB), drawn per window and, between vehicles, per pair and
            round; behind buildings a third more. The TR specifies 3 dB and there 4.
        antenna_dbi: gain of each antenna (dBi); the TR's elements have 3.
        truck_share: share of trucks among the vehicles that block; the TR's urban fleet has none.
        fading: whether the capacity is the mean over fast fading (Nakagami's m = 3 on one street, 1 behind buildings).
        interference: ``none``, RSUs have a channel each; or ``co-channel``, all others always send on the same one.
        efficiency: share of the Shannon capacity that is reached, in (0, 1].
        max_spectral_efficiency: cap of the spectral efficiency (bit/s/Hz), see above.
    """

    name: ClassVar[str] = "tr37885"
    source: ClassVar[str] = (
        "3GPP TR 37.885, Table 6.2.1-1 (line of sight); TR 36.942, Annex A.2 (share of the Shannon capacity)"
    )
    # a vehicle at 50 km/h moves by 14 m, over which the path loss changes by .5 dB at 200 m; each update is an event
    update_s: ClassVar[float | None] = 1.0

    state: Literal["los", "probability", "streets"] = "los"
    environment: Literal["scenario", "urban", "highway"] = "scenario"
    carrier_hz: Annotated[float, Within(1e8, 1e12, "Hz", "microwaves, which the path loss is of")] = 5.9e9
    bandwidth_hz: Annotated[float, Within(1e3, 1e11, "Hz", "from telemetry to all microwave bands")] = 10e6
    rsu_power_dbm: PowerDbm = 23.0
    vehicle_power_dbm: PowerDbm = 23.0
    shadowing_db: Annotated[float, Within(0, 30, "dB", "measured shadowing stays below 15 dB")] = 3.0
    antenna_dbi: Annotated[float, Within(-30, 60, "dBi", "a dish of several metres")] = 0.0
    truck_share: Share = 0.0
    fading: bool = False
    interference: Literal["none", "co-channel"] = "none"
    efficiency: Annotated[float, Within(1e-3, 1, "", "a share of the Shannon capacity")] = 0.6
    max_spectral_efficiency: Annotated[float, Within(1e-3, 100, "bit/s/Hz", "above 1024-QAM on eight layers")] = 5.0

    @property
    def cap_bps(self) -> float:
        """The highest rate (bit/s)."""
        return self.bandwidth_hz * self.max_spectral_efficiency

    def begin(self, rsus: Sequence[Rsu], lanes: Sequence[Floats]) -> Place:
        """Return who sees whom, and who interferes."""
        if self.state != "streets" or not any(len(lane) > 1 for lane in lanes):
            return Place(streets=None, rsus=rsus)
        from vnetsim.radio.sight import Streets  # noqa: PLC0415 - brings shapely, which other states do without

        return Place(streets=Streets(lanes, [(rsu.x_m, rsu.y_m) for rsu in rsus]), rsus=rsus)

    def draw(self, generator: np.random.Generator, memory: Place) -> DrawnLink | tuple[float, Place]:
        """Return what holds for a link: in line of sight its excess loss (dB), the same both ways."""
        if self.state == "los":
            return self.shadowing_db * float(generator.standard_normal()) if self.shadowing_db > 0 else 0.0, memory
        return DrawnLink(
            place=memory,
            uniform=float(generator.random()),
            blocker_m=TRUCK_M if generator.random() < self.truck_share else CAR_M,
            deviate=float(generator.standard_normal()),
            shadowing=ShadowingField(generator),
        )

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink | tuple[float, Place]) -> float:
        """Return the rate with the RSU's power (bit/s)."""
        return self._from_rsu_bps(rsu, vehicle_m, self.rsu_power_dbm, state, vehicle_m)

    def uplink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink | tuple[float, Place]) -> float:
        """Return the rate with the vehicle's power (bit/s)."""
        return self._from_rsu_bps(rsu, vehicle_m, self.vehicle_power_dbm, state, (rsu.x_m, rsu.y_m))

    def sidelink_bps(
        self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: DrawnLink | tuple[float, Place]
    ) -> float:
        """Return the rate between antennas at the same height, with the sender's power (bit/s)."""
        heights_m = VEHICLE_HEIGHT_M, VEHICLE_HEIGHT_M
        path_db, excess_db, one_street = self.loss_db(sender_m, receiver_m, heights_m, self.environment_of(rsu), state)
        return self.capacity_bps(self.vehicle_power_dbm - path_db - excess_db, 0.0, one_street=one_street)

    def received_dbm(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink | tuple[float, Place]) -> float:
        """Return the power that a vehicle receives of the RSU (dBm), without fast fading."""
        heights_m = RSU_HEIGHT_M, VEHICLE_HEIGHT_M
        path_db, excess_db, _ = self.loss_db((rsu.x_m, rsu.y_m), vehicle_m, heights_m, self.environment_of(rsu), state)
        return self.rsu_power_dbm - path_db - excess_db

    def environment_of(self, rsu: Rsu) -> str:
        """Return whose path loss holds around an RSU: that of the setting, else of the scenario, else ``urban``."""
        return (rsu.environment or "urban") if self.environment == "scenario" else self.environment

    def loss_db(
        self,
        one_m: PositionM,
        other_m: PositionM,
        heights_m: tuple[float, float],
        environment: str,
        state: DrawnLink | tuple[float, Place],
    ) -> tuple[float, float, bool]:
        """Return path loss less the antennas' gains, what else is lost (dB), and whether they are on one street.

        Args:
            one_m: where one of them is.
            other_m: where the other is; the shadowing is that of the middle, or of the vehicle where one is an RSU's.
            heights_m: of the antennas (m).
            environment: see ``path_loss_db``.
            state: what was drawn.
        """
        ground_m = math.dist(one_m, other_m)
        distance_m = math.hypot(ground_m, heights_m[0] - heights_m[1])
        if not isinstance(state, DrawnLink):
            return path_loss_db(distance_m, self.carrier_hz, environment) - 2 * self.antenna_dbi, state[0], True
        one_street = state.place.one_street(one_m, other_m, environment)
        path_db = path_loss_db(distance_m, self.carrier_hz, environment, one_street=one_street) - 2 * self.antenna_dbi
        excess_db = 0.0
        if one_street and state.uniform > line_of_sight_probability(ground_m, environment):
            excess_db = blockage_db(distance_m, heights_m, state.blocker_m, state.deviate)
        between_vehicles = heights_m[0] == heights_m[1]
        x_m, y_m = ((a + b) / 2 for a, b in zip(one_m, other_m, strict=True)) if between_vehicles else other_m
        deviation_db = self.shadowing_db * (1.0 if one_street else NLOS_SHADOWING)
        if deviation_db > 0:
            excess_db += deviation_db * state.shadowing(x_m, y_m, DECORRELATION_M[environment])
        return path_db, excess_db, one_street

    def _from_rsu_bps(
        self,
        rsu: Rsu,
        vehicle_m: PositionM,
        power_dbm: float,
        state: DrawnLink | tuple[float, Place],
        receiver_m: PositionM,
    ) -> float:
        heights_m = RSU_HEIGHT_M, VEHICLE_HEIGHT_M
        path_db, excess_db, one_street = self.loss_db(
            (rsu.x_m, rsu.y_m), vehicle_m, heights_m, self.environment_of(rsu), state
        )
        place = state.place if isinstance(state, DrawnLink) else state[1]
        return self.capacity_bps(
            power_dbm - path_db - excess_db, self._interference_mw(rsu, receiver_m, place), one_street=one_street
        )

    def _interference_mw(self, own: Rsu, receiver_m: PositionM, place: Place) -> float:
        """Return what all other RSUs, always sending, give to a receiver (mW), without shadowing and blockage."""
        if self.interference == "none":
            return 0.0
        total_mw = 0.0
        for rsu in place.rsus:
            if rsu.id == own.id:
                continue
            at_m, environment = (rsu.x_m, rsu.y_m), self.environment_of(rsu)
            one_street = place.one_street(at_m, receiver_m, environment)
            loss_db = path_loss_db(math.dist(at_m, receiver_m), self.carrier_hz, environment, one_street=one_street)
            total_mw += 10 ** ((self.rsu_power_dbm + 2 * self.antenna_dbi - loss_db) / 10)
        return total_mw

    def capacity_bps(self, received_dbm: float, interference_mw: float = 0.0, *, one_street: bool = True) -> float:
        """Return the rate at a received power (dBm), with an interference (mW), on one street or behind buildings."""
        below_dbm = noise_dbm(self.bandwidth_hz, NOISE_FIGURE_DB)
        if interference_mw:
            below_dbm = 10 * math.log10(10 ** (below_dbm / 10) + interference_mw)
        fading_m = NAKAGAMI_M[one_street] if self.fading else 0
        limits = self.efficiency, self.max_spectral_efficiency
        return shannon_bps(received_dbm - below_dbm, self.bandwidth_hz, *limits, fading_m)


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
