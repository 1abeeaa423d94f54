"""Radio models: the path loss of 3GPP TR 37.885 with Shannon capacity, and the same rate everywhere."""

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
class Place:
    """What a model knows of where it is used.

    Args:
        sight: who sees whom; None where no lane is known, or states are a matter of neither streets nor buildings.
        rsus: all RSUs, which interfere where that is asked for.
        notes: lines that the user must see.
        state: of the link whose rate was told last, in words.
        heights_m: of the vehicles that have been covered so far, each once (m).
    """

    sight: Streets | Buildings | None
    rsus: Sequence[Rsu]
    notes: Sequence[str] = ()
    state: str = ""
    heights_m: list[float] = field(default_factory=list)

    def one_street(self, one_m: PositionM, other_m: PositionM, environment: str) -> bool:
        """Return whether no building stands between two places (m); outside of towns there is none."""
        return environment != "urban" or self.sight is None or self.sight.clear(one_m, other_m)


@dataclass(frozen=True, kw_only=True)
class DrawnLink:
    """What is drawn for a link, and holds for as long as it lives.

    Args:
        place: see ``Place``.
        heights_m: of the vehicle, or of both where it is between two (m).
        shadowing: standard normal, by position and the distance over which it changes (m).
        uniform: behind a vehicle where the probability of line of sight is smaller than this.
        blocker_m: height of that vehicle (m).
        deviate: of its loss, see ``blockage_db``. Like the two before NaN, which blocks nothing, where none is drawn.
    """

    place: Place
    heights_m: tuple[float, ...]
    shadowing: Callable[[float, float, float], float]
    uniform: float = math.nan
    blocker_m: float = math.nan
    deviate: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Tr37885:
    """Rates follow the vehicle, as far as 3GPP TR 37.885 says, with a share of the Shannon capacity.

    With d the distance of the antennas (m), at least 1 m, f the carrier in GHz, P the sender's power, G the gains of
    both antennas, B the bandwidth, F the receiver's noise figure, and sigma the deviation of the shadowing X::

        PL  = 38.77 + 16.7 log10(d) + 18.2 log10(f)   dB, urban, on one street
        PL  = 32.4  + 20.0 log10(d) + 20.0 log10(f)   dB, highway
        PL  = 36.85 + 30.0 log10(d) + 18.9 log10(f)   dB, behind buildings
        SNR = P + G - PL - blockage - X - (-174 dBm/Hz + 10 log10(B) + F)   dB,  X ~ N(0, sigma^2)
        R   = B min(efficiency log2(1 + SNR), max_spectral_efficiency)   bit/s, SNR here as a ratio

    A vehicle in between blocks with a probability that grows with the distance; whether it does, who of those covered
    so far it is and what it takes is drawn once a window, or once a pair and round, as is the field of the shadowing.

    Vehicles are as high as SUMO says, and have their antennas on the roof; where no type is known, 1.6 m. Nothing is
    drawn of fast fading: the share of the Shannon capacity is a mean over it.

    The cap is what the highest scheme with 64QAM of an NR sidelink carries; see ``sidelink_efficiency``. The share of
    the Shannon capacity is that of 3GPP's system simulations for a downlink (TR 36.942, Annex A.2).

    Args:
        state: ``streets``, behind buildings wherever the line of sight leaves the streets of an urban net, else in line
            of sight or behind a vehicle, with a shadowing that changes along the path (10 m urban, 25 m highway);
            ``polygons``, the same with the buildings of ``file``; ``probability``, without any; or ``los``, always in
            line of sight, with one draw of the shadowing a window. Where no lane is known, as for the Gaussian,
            ``streets`` is ``probability``.
        file: SUMO additional file whose polygons of a type that begins with "building" are the buildings of
            ``polygons``, as polyconvert writes it; empty takes that of the SUMO scenario's additional files.
        environment: whose path loss holds, also between vehicles: ``urban``, ``highway``, or ``scenario`` for what the
            scenario's RSU says, the one that serves the vehicle; ``urban`` where it says nothing.
        carrier_hz: carrier frequency (Hz).
        bandwidth_hz: channel bandwidth (Hz).
        rsu_power_dbm: transmit power of the RSU (dBm).
        vehicle_power_dbm: transmit power of a vehicle (dBm).
        rsu_antenna_dbi: gain of the RSU's antenna (dBi); the TR's element.
        vehicle_antenna_dbi: gain of a vehicle's antenna (dBi); the TR's element.
        rsu_noise_figure_db: of the RSU's receiver (dB); the TR's for RSUs that are built like a vehicle's unit, and 5
            for those that are built like a base station.
        vehicle_noise_figure_db: of a vehicle's receiver (dB).
        rsu_height_m: of the RSU's antenna above the ground (m).
        shadowing_db: standard deviation of the shadowing (dB), drawn per window and, between vehicles, per pair and
            round; behind buildings a third more. The TR specifies 3 dB and there 4.
        truck_share: share of vehicles of 3 m among those that block, all others being 1.6 m high. None takes the
            heights of the vehicles covered so far.
        interference: ``none``, RSUs have a channel each; or ``co-channel``, all others always send on the same one.
        efficiency: share of the Shannon capacity that is reached, in (0, 1].
        max_spectral_efficiency: cap of the spectral efficiency (bit/s/Hz); None is a sidelink's, 3.0 below 20 MHz and
            3.4 from there on.
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
        given = self.max_spectral_efficiency
        return sidelink_efficiency(self.bandwidth_hz) if given is None else given

    def begin(self, rsus: Sequence[Rsu], lanes: Sequence[Floats]) -> Place:
        """Return who sees whom, and who interferes."""
        known = self.state == "polygons" or (self.state == "streets" and any(len(lane) > 1 for lane in lanes))
        if not known:
            return Place(sight=None, rsus=rsus)
        from vnetsim.radio.sight import Buildings, Streets  # noqa: PLC0415 - brings shapely, which others do without

        places = {rsu.id: (rsu.x_m, rsu.y_m) for rsu in rsus}
        if self.state == "streets":
            return Place(sight=Streets(lanes, list(places.values())), rsus=rsus)
        buildings = Buildings(Path(self.file), places)
        return Place(sight=buildings, rsus=rsus, notes=buildings.notes)

    def entered(self, height_m: float, memory: Place) -> None:
        """Take note of a vehicle's height, for it may block."""
        memory.heights_m.append(height_m)

    def draw(self, generator: np.random.Generator, memory: Place, heights_m: tuple[float, ...]) -> DrawnLink:
        """Return what holds for a link; always in line of sight nothing but one shadowing."""
        if self.state == "los":
            drawn = float(generator.standard_normal())
            return DrawnLink(place=memory, heights_m=heights_m, shadowing=lambda *_: drawn)
        uniform, which = float(generator.random()), float(generator.random())
        if self.truck_share is not None:
            blocker_m = TRUCK_M if which < self.truck_share else CAR_M
        else:
            known_m = memory.heights_m or [CAR_M]
            blocker_m = known_m[int(which * len(known_m))]
        return DrawnLink(
            place=memory,
            heights_m=heights_m,
            uniform=uniform,
            blocker_m=blocker_m,
            deviate=float(generator.standard_normal()),
            shadowing=ShadowingField(generator),
        )

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink) -> float:
        """Return the rate with the RSU's power (bit/s)."""
        return self._with_rsu_bps(rsu, vehicle_m, state, uplink=False)

    def uplink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink) -> float:
        """Return the rate with the vehicle's power (bit/s)."""
        return self._with_rsu_bps(rsu, vehicle_m, state, uplink=True)

    def sidelink_bps(self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: DrawnLink) -> float:
        """Return the rate between two vehicles, with the sender's power (bit/s)."""
        loss_db = self.loss_db(sender_m, receiver_m, self.environment_of(rsu), state)
        received_dbm = self.vehicle_power_dbm + 2 * self.vehicle_antenna_dbi - loss_db
        return self.capacity_bps(received_dbm, self.vehicle_noise_figure_db)

    def received_dbm(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink) -> float:
        """Return the power that a vehicle receives of the RSU (dBm)."""
        loss_db = self.loss_db((rsu.x_m, rsu.y_m), vehicle_m, self.environment_of(rsu), state)
        return self.rsu_power_dbm + self.rsu_antenna_dbi + self.vehicle_antenna_dbi - loss_db

    def environment_of(self, rsu: Rsu) -> str:
        """Return whose path loss holds around an RSU: that of the setting, else of the scenario, else ``urban``."""
        return (rsu.environment or "urban") if self.environment == "scenario" else self.environment

    def loss_db(self, one_m: PositionM, other_m: PositionM, environment: str, state: DrawnLink) -> float:
        """Return what a link loses (dB).

        Args:
            one_m: where the RSU is, or one of two vehicles.
            other_m: where the vehicle is, or the other one; the shadowing is that of the vehicle, or of the middle.
            environment: see ``path_loss_db``.
            state: what was drawn.
        """
        place, between_vehicles = state.place, len(state.heights_m) > 1
        one_height_m, other_height_m = state.heights_m if between_vehicles else (self.rsu_height_m, *state.heights_m)
        ground_m = math.dist(one_m, other_m)
        distance_m = math.hypot(ground_m, one_height_m - other_height_m)
        one_street = place.one_street(one_m, other_m, environment)
        path_db = path_loss_db(distance_m, self.carrier_hz, environment, one_street=one_street)
        excess_db = 0.0
        place.state = "in line of sight" if one_street else "behind buildings"
        if one_street and state.uniform > line_of_sight_probability(ground_m, environment):
            place.state = "behind a vehicle"
            excess_db = blockage_db(distance_m, (one_height_m, other_height_m), state.blocker_m, state.deviate)
        x_m, y_m = ((a + b) / 2 for a, b in zip(one_m, other_m, strict=True)) if between_vehicles else other_m
        deviation_db = self.shadowing_db * (1.0 if one_street else NLOS_SHADOWING)
        if deviation_db > 0:
            excess_db += deviation_db * state.shadowing(x_m, y_m, DECORRELATION_M[environment])
        return path_db + excess_db

    def _with_rsu_bps(self, rsu: Rsu, vehicle_m: PositionM, state: DrawnLink, *, uplink: bool) -> float:
        rsu_m = rsu.x_m, rsu.y_m
        loss_db = self.loss_db(rsu_m, vehicle_m, self.environment_of(rsu), state)
        gains_db = self.rsu_antenna_dbi + self.vehicle_antenna_dbi
        received_dbm = (self.vehicle_power_dbm if uplink else self.rsu_power_dbm) + gains_db - loss_db
        return self.capacity_bps(
            received_dbm,
            self.rsu_noise_figure_db if uplink else self.vehicle_noise_figure_db,
            self._interference_mw(rsu, rsu_m if uplink else vehicle_m, state.place, uplink=uplink),
        )

    def _interference_mw(self, own: Rsu, receiver_m: PositionM, place: Place, *, uplink: bool) -> float:
        """Return what all other RSUs, always sending, give to a receiver (mW), without shadowing and blockage."""
        if self.interference == "none":
            return 0.0
        total_mw = 0.0
        sent_dbm = self.rsu_power_dbm + self.rsu_antenna_dbi
        heard_dbm = sent_dbm + (self.rsu_antenna_dbi if uplink else self.vehicle_antenna_dbi)
        for rsu in place.rsus:
            if rsu.id == own.id:
                continue
            at_m, environment = (rsu.x_m, rsu.y_m), self.environment_of(rsu)
            one_street = place.one_street(at_m, receiver_m, environment)
            loss_db = path_loss_db(math.dist(at_m, receiver_m), self.carrier_hz, environment, one_street=one_street)
            total_mw += 10 ** ((heard_dbm - loss_db) / 10)
        return total_mw

    def capacity_bps(self, received_dbm: float, noise_figure_db: float, interference_mw: float = 0.0) -> float:
        """Return the rate of a receiver (bit/s).

        Args:
            received_dbm: power at it (dBm).
            noise_figure_db: its noise figure (dB).
            interference_mw: what others send to it (mW).
        """
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
