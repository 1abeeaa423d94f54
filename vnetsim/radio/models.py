"""Radio models: path loss of 3GPP TR 37.885 with Shannon capacity, and a constant rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Floats
from vnetsim.errors.bounds import SEVERAL_RSUS, Acts, Share, Within, require
from vnetsim.radio import PositionM
from vnetsim.radio.capacity import noise_dbm, shannon_bps, sidelink_efficiency
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
    from vnetsim.radio.sight import Buildings, Streets

PowerDbm = Annotated[float, Within(-100, 100, "dBm", "below any receiver's noise; 10 MW, above any transmitter")]

GainDbi = Annotated[float, Within(-30, 60, "dBi", "a dish of several metres")]
NoiseFigureDb = Annotated[float, Within(0, 50, "dB", "0 adds no noise; receivers that hear anything stay below 50")]


@dataclass(kw_only=True)
class RunMemory:
    """A model's memory of a run."""

    sight: Streets | Buildings | None  # None if no line of sight depends on streets or buildings, or no lane is known
    rsus: Sequence[Rsu]  # all RSUs; they may interfere
    notes: Sequence[str] = ()  # notes for the user
    state: str = ""  # in words the channel state of the link whose rate was returned last
    heights_m: list[float] = field(default_factory=list)  # heights of all vehicles covered so far (m)

    def is_clear(self, one_m: PositionM, other_m: PositionM, environment: str) -> bool:
        """Return whether no building is between two places (m); True outside ``urban``, or without ``sight``."""
        return environment != "urban" or self.sight is None or self.sight.is_clear(one_m, other_m)


@dataclass(frozen=True, kw_only=True)
class DrawnLink:
    """The random draws of a link; ``uniform``, ``blocker_m`` and ``deviate`` are NaN if no vehicle can block it."""

    memory: RunMemory
    heights_m: tuple[float, ...]  # height of the vehicle, or of both vehicles (m)
    shadowing: Callable[[float, float, float], float]  # standard normal, by x, y and decorrelation distance (m)
    uniform: float = math.nan  # a vehicle blocks where the probability of line of sight is smaller than this
    blocker_m: float = math.nan  # height of that vehicle (m)
    deviate: float = math.nan  # deviate of its loss, see ``blockage_db``


@dataclass(frozen=True, kw_only=True)
class Tr37885:
    """Rates from the vehicle's position by 3GPP TR 37.885, with a share of the Shannon capacity.

    With d the distance of the antennas (m), at least 1 m, f the carrier in GHz, P the sender's power, G the gains of
    both antennas, B the bandwidth, F the receiver's noise figure, and sigma the deviation of the shadowing X::

        PL  = 38.77 + 16.7 log10(d) + 18.2 log10(f)   dB, urban, on one street
        PL  = 32.4  + 20.0 log10(d) + 20.0 log10(f)   dB, highway
        PL  = 36.85 + 30.0 log10(d) + 18.9 log10(f)   dB, behind buildings
        SNR = P + G - PL - blockage - X - (-174 dBm/Hz + 10 log10(B) + F)   dB,  X ~ N(0, sigma^2)
        R   = B min(efficiency log2(1 + SNR), max_spectral_efficiency)   bit/s, SNR here as a ratio

    The probability that a vehicle blocks the link grows with the distance. Drawn once for each window, or for each pair
    of vehicles and round, are: whether a vehicle blocks, which of those covered so far, its loss, and the shadowing.

    Vehicles have SUMO's heights, with antennas on the roof; 1.6 m if no type is known. There is no fast fading: the
    share of the Shannon capacity is a mean over it.

    The cap is the highest rate of an NR sidelink with 64QAM; see ``sidelink_efficiency``. The share of the Shannon
    capacity is that of 3GPP's system simulations for a downlink (TR 36.942, Annex A.2).

    Args:
        state: ``streets``: behind buildings wherever the line of sight leaves the streets of an urban net, otherwise in
            line of sight or behind a vehicle, with shadowing that changes along the path (over 10 m urban, 25 m
            highway); ``polygons``: the same with the buildings of ``file``; ``probability``: the same without
            buildings; ``los``: always in line of sight, with one shadowing value for each window. If no lane is known,
            as with the Gaussian, ``streets`` means ``probability``.
        file: SUMO additional file for ``polygons``, as polyconvert writes it: polygons with a type that begins with
            "building" are the buildings. If empty, the SUMO scenario's additional file with buildings is used.
        environment: environment of the path loss, also between vehicles: ``urban``, ``highway``, or ``scenario`` for
            that of the RSU that serves the vehicle; ``urban`` if it has none.
        carrier_hz: carrier frequency (Hz).
        bandwidth_hz: channel bandwidth (Hz).
        rsu_power_dbm: transmit power of the RSU (dBm).
        vehicle_power_dbm: transmit power of a vehicle (dBm).
        rsu_antenna_dbi: gain of the RSU's antenna (dBi); the TR's element.
        vehicle_antenna_dbi: gain of a vehicle's antenna (dBi); the TR's element.
        rsu_noise_figure_db: noise figure of the RSU's receiver (dB). The TR has 9 for RSUs built like a vehicle's unit
            and 5 for those built like a base station.
        vehicle_noise_figure_db: noise figure of a vehicle's receiver (dB).
        rsu_height_m: height of the RSU's antenna above the ground (m).
        shadowing_db: standard deviation of the shadowing (dB); behind buildings a third more. The TR has 3 dB, and 4
            behind buildings.
        truck_share: share of trucks (3 m high) among blocking vehicles; the others are cars (1.6 m). None uses the
            heights of the vehicles covered so far.
        interference: ``none``: each RSU has its own channel; ``co-channel``: all other RSUs always send on the same
            channel.
        efficiency: share of the Shannon capacity that is reached, in (0, 1].
        max_spectral_efficiency: cap of the spectral efficiency (bit/s/Hz); None for that of a sidelink: 3.0 below
            20 MHz, else 3.4.
    """

    name: ClassVar[str] = "tr37885"
    source: ClassVar[str] = (
        "3GPP TR 37.885, Table 6.2.1-1 and section 6.2.1; TR 36.942, Annex A.2 (share of the Shannon capacity)"
    )
    # a vehicle at 50 km/h moves by 14 m, over which the path loss changes by .5 dB at 200 m; each update is an event
    update_s: ClassVar[float | None] = 1.0

    state: Literal["los", "probability", "streets", "polygons"] = "streets"
    file: Annotated[str, Acts("radio.state", ("polygons",))] = ""
    environment: Literal["scenario", "urban", "highway"] = "scenario"
    carrier_hz: Annotated[float, Within(1e8, 1e12, "Hz", "microwaves, which the path loss is of")] = 5.9e9
    bandwidth_hz: Annotated[float, Within(1e3, 1e11, "Hz", "from telemetry to all microwave bands")] = 30e6
    rsu_power_dbm: PowerDbm = 23.0
    vehicle_power_dbm: PowerDbm = 23.0
    rsu_antenna_dbi: GainDbi = 3.0
    vehicle_antenna_dbi: GainDbi = 3.0
    rsu_noise_figure_db: NoiseFigureDb = 9.0
    vehicle_noise_figure_db: NoiseFigureDb = 9.0
    rsu_height_m: Annotated[float, Within(0.1, 300, "m", "above the ground; up to the highest masts")] = 5.0
    shadowing_db: Annotated[float, Within(0, 30, "dB", "measured shadowing stays below 15 dB")] = 3.0
    truck_share: Annotated[Share | None, Acts("radio.state", unless=("los",))] = None
    interference: Annotated[Literal["none", "co-channel"], SEVERAL_RSUS] = "none"
    efficiency: Annotated[float, Within(1e-3, 1, "", "a share of the Shannon capacity")] = 0.6
    max_spectral_efficiency: Annotated[
        float | None, Within(1e-3, 100, "bit/s/Hz", "above 1024-QAM on eight layers")
    ] = None

    def __post_init__(self) -> None:
        require(
            (self.state == "polygons") == bool(self.file),
            "radio.file: the buildings of radio.state = polygons, a SUMO additional file; give both or neither, or the "
            "state alone with a .sumocfg whose additional files have buildings.",
        )

    @property
    def cap_bps(self) -> float:
        """The highest rate (bit/s)."""
        return self.bandwidth_hz * self._efficiency_cap

    @property
    def _efficiency_cap(self) -> float:
        """The highest spectral efficiency (bit/s/Hz): the setting, or that of a sidelink if it is None."""
        given = self.max_spectral_efficiency
        return sidelink_efficiency(self.bandwidth_hz) if given is None else given

    def begin(self, rsus: Sequence[Rsu], lanes: Sequence[Floats]) -> RunMemory:
        """Return the memory of a run; InputError if the file of buildings is unusable, see ``Buildings``."""
        known = self.state == "polygons" or (self.state == "streets" and any(len(lane) > 1 for lane in lanes))
        if not known:
            return RunMemory(sight=None, rsus=rsus)
        from vnetsim.radio.sight import Buildings, Streets  # noqa: PLC0415 - loads shapely, which other models do not need

        places = {rsu.id: (rsu.x_m, rsu.y_m) for rsu in rsus}
        if self.state == "streets":
            return RunMemory(sight=Streets(lanes, list(places.values())), rsus=rsus)
        buildings = Buildings(Path(self.file), places)
        return RunMemory(sight=buildings, rsus=rsus, notes=buildings.notes)

    def entered(self, height_m: float, memory: RunMemory) -> None:
        """Append a vehicle's height (m) to ``memory.heights_m``: from now on it may block links."""
        memory.heights_m.append(height_m)

    def draw(self, generator: np.random.Generator, memory: RunMemory, heights_m: tuple[float, ...]) -> DrawnLink:
        """Return the draws of a link; with ``state = "los"`` its shadowing is constant, and no vehicle can block it."""
        if self.state == "los":
            drawn = float(generator.standard_normal())
            return DrawnLink(memory=memory, heights_m=heights_m, shadowing=lambda *_: drawn)
        uniform, which = float(generator.random()), float(generator.random())
        if self.truck_share is not None:
            blocker_m = TRUCK_M if which < self.truck_share else CAR_M
        else:
            known_m = memory.heights_m or [CAR_M]
            blocker_m = known_m[int(which * len(known_m))]
        return DrawnLink(
            memory=memory,
            heights_m=heights_m,
            uniform=uniform,
            blocker_m=blocker_m,
            deviate=float(generator.standard_normal()),
            shadowing=ShadowingField(generator),
        )

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink) -> float:
        """Return the rate from RSU to vehicle (bit/s); ``state.memory.state`` then says what blocks the link."""
        return self._rsu_link_bps(rsu, vehicle_m, state, uplink=False)

    def uplink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink) -> float:
        """Return the rate from vehicle to RSU (bit/s); ``state.memory.state`` then says what blocks the link."""
        return self._rsu_link_bps(rsu, vehicle_m, state, uplink=True)

    def sidelink_bps(self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: DrawnLink) -> float:
        """Return the rate between two vehicles (bit/s), without interference; sets ``state.memory.state`` in words."""
        loss_db = self.loss_db(sender_m, receiver_m, self.environment_of(rsu), state)
        received_dbm = self.vehicle_power_dbm + 2 * self.vehicle_antenna_dbi - loss_db
        return self.capacity_bps(received_dbm, self.vehicle_noise_figure_db)

    def received_dbm(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink) -> float:
        """Return the power received from an RSU (dBm); ``state.memory.state`` then says what blocks the link."""
        loss_db = self.loss_db((rsu.x_m, rsu.y_m), vehicle_m, self.environment_of(rsu), state)
        return self.rsu_power_dbm + self.rsu_antenna_dbi + self.vehicle_antenna_dbi - loss_db

    def environment_of(self, rsu: Rsu) -> str:
        """Return the setting ``environment``; if it is ``scenario``, the RSU's, or ``urban`` if the RSU has none."""
        return (rsu.environment or "urban") if self.environment == "scenario" else self.environment

    def loss_db(self, one_m: PositionM, other_m: PositionM, environment: str, state: DrawnLink) -> float:
        """Return path loss, blockage and shadowing of a link (dB, without antenna gains) with the draws of ``state``.

        Sets ``state.memory.state`` to what blocks the link, in words. ``other_m`` is a vehicle's place (m); ``one_m``
        an RSU's, or a vehicle's if ``state`` has two heights. Shadowing is that at the vehicle, or midway between two.
        """
        memory, between_vehicles = state.memory, len(state.heights_m) > 1
        one_height_m, other_height_m = state.heights_m if between_vehicles else (self.rsu_height_m, *state.heights_m)
        ground_m = math.dist(one_m, other_m)
        distance_m = math.hypot(ground_m, one_height_m - other_height_m)
        one_street = memory.is_clear(one_m, other_m, environment)
        path_db = path_loss_db(distance_m, self.carrier_hz, environment, one_street=one_street)
        excess_db = 0.0
        memory.state = "in line of sight" if one_street else "behind buildings"
        if one_street and state.uniform > line_of_sight_probability(ground_m, environment):
            memory.state = "behind a vehicle"
            excess_db = blockage_db(distance_m, (one_height_m, other_height_m), state.blocker_m, state.deviate)
        x_m, y_m = ((a + b) / 2 for a, b in zip(one_m, other_m, strict=True)) if between_vehicles else other_m
        deviation_db = self.shadowing_db * (1.0 if one_street else NLOS_SHADOWING)
        if deviation_db > 0:
            excess_db += deviation_db * state.shadowing(x_m, y_m, DECORRELATION_M[environment])
        return path_db + excess_db

    def _rsu_link_bps(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink, *, uplink: bool) -> float:
        """Return the rate (bit/s) from vehicle to RSU if ``uplink``, else from RSU to vehicle; with interference."""
        rsu_m = rsu.x_m, rsu.y_m
        loss_db = self.loss_db(rsu_m, vehicle_m, self.environment_of(rsu), state)
        gains_db = self.rsu_antenna_dbi + self.vehicle_antenna_dbi
        received_dbm = (self.vehicle_power_dbm if uplink else self.rsu_power_dbm) + gains_db - loss_db
        return self.capacity_bps(
            received_dbm,
            self.rsu_noise_figure_db if uplink else self.vehicle_noise_figure_db,
            self._interference_mw(rsu, rsu_m if uplink else vehicle_m, state.memory, uplink=uplink),
        )

    def _interference_mw(self, own: Rsu, receiver_m: PositionM, memory: RunMemory, *, uplink: bool) -> float:
        """Return unshadowed power (mW) of other RSUs at a vehicle, or ``own`` if ``uplink``; 0 for setting ``none``."""
        if self.interference == "none":
            return 0.0
        total_mw = 0.0
        sent_dbm = self.rsu_power_dbm + self.rsu_antenna_dbi
        heard_dbm = sent_dbm + (self.rsu_antenna_dbi if uplink else self.vehicle_antenna_dbi)
        for rsu in memory.rsus:
            if rsu.id == own.id:
                continue
            at_m, environment = (rsu.x_m, rsu.y_m), self.environment_of(rsu)
            one_street = memory.is_clear(at_m, receiver_m, environment)
            loss_db = path_loss_db(math.dist(at_m, receiver_m), self.carrier_hz, environment, one_street=one_street)
            total_mw += 10 ** ((heard_dbm - loss_db) / 10)
        return total_mw

    def capacity_bps(self, received_dbm: float, noise_figure_db: float, interference_mw: float = 0.0) -> float:
        """Return a receiver's rate (bit/s) from received power (dBm), noise figure (dB) and interference (mW)."""
        below_dbm = noise_dbm(self.bandwidth_hz, noise_figure_db)
        if interference_mw:
            below_dbm = 10 * math.log10(10 ** (below_dbm / 10) + interference_mw)
        return shannon_bps(received_dbm - below_dbm, self.bandwidth_hz, self.efficiency, self._efficiency_cap)


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

    def downlink_bps(self, *_: object) -> float:
        """Return ``rate_bps``."""
        return self.rate_bps

    uplink_bps = sidelink_bps = downlink_bps
