"""Settings of the world a run takes place in: traffic, radio link, on-board computers. See ``vnetsim.experiment``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from vnetsim.setting_checks import Within, check_bounds, require

SimulatedS = Annotated[float, Within(0, 1e9, "s", "thirty years, beyond any recording")]
REACH = Within(1, 1e5, "m", "no roadside radio reaches further")
Reach = Annotated[float, REACH]
SpeedKmh = Annotated[float, Within(0.1, 1000, "km/h", "a standing vehicle never leaves, and none on a road is faster")]
PowerDbm = Annotated[float, Within(-100, 100, "dBm", "below any receiver's noise; 10 MW, above any transmitter")]
AntennaM = Annotated[float, Within(0.1, 1000, "m", "an antenna above the ground, on a mast at most")]
ShadowingDb = Annotated[float, Within(0, 30, "dB", "measured shadowing stays below 15 dB")]


@dataclass(frozen=True, kw_only=True)
class TrafficSettings:
    """Where vehicles come from.

    Args:
        gui: show sumo-gui.
        seed: SUMO's seed; None honours the .sumocfg's own (SUMO's default 23423 when it sets none).
        repeat: play the scenario again, with the next seed, until the rounds are done; time runs on.
        rsu: RSUs as ``JUNCTION``, ``x,y`` or ``all-signalised``, each with or without ``:range_m``. Without any, and
            without ``rsu_file``, the scenario's POIs, else the busiest signalised junction.
        rsu_file: a SUMO additional file whose POIs of type ``rsu`` are RSUs; empty for none.
        rsu_spacing_m: least distance between the RSUs of ``all-signalised`` (m), the busier ones first; 0 takes all.
        range_m: coverage radius of an RSU that names none (m).
        net: net file for FCD recordings whose RSU is named by junction; empty for none.
        begin_s: time of the scenario at which to begin (s); None is the scenario's own begin.
        end_s: time of the scenario at which to end (s); None is the scenario's own end.
        warmup_s: time that passes first, while the net fills (s); windows and rounds begin after it.
        vehicle_types: vehicles that take part, by vType id or vClass; ``motor`` are those with a motor that drive on
            roads, ``all`` are all. Of a recording that does not tell types all vehicles are taken.
    """

    gui: bool = False
    seed: Annotated[int | None, Within(0, 2_000_000_000, "", "SUMO's have 32 bits, and repeating takes the next")] = (
        None
    )
    repeat: bool = True
    rsu: tuple[str, ...] = ()
    range_m: Reach = 250.0
    net: str = ""
    rsu_file: str = ""
    rsu_spacing_m: Annotated[float, Within(0, 1e6, "m", "wider than any net")] = 0.0
    begin_s: SimulatedS | None = None
    end_s: SimulatedS | None = None
    warmup_s: SimulatedS = 0.0
    vehicle_types: tuple[str, ...] = ("motor",)

    def __post_init__(self) -> None:
        check_bounds("traffic", self)
        begin_s, end_s = self.begin_s or 0.0, math.inf if self.end_s is None else self.end_s
        require(
            begin_s + self.warmup_s < end_s,
            f"traffic.end_s: {end_s:g} s leaves no time after the begin ({begin_s:g} s) and the warm-up "
            f"({self.warmup_s:g} s).",
        )
        require(bool(self.vehicle_types), 'traffic.vehicle_types: name at least one, or "all".')


@dataclass(frozen=True, kw_only=True)
class GaussianSettings:
    """The truncated-Gaussian speed model: FLSimCo's mobility, straight through the disc.

    Args:
        v_min_kmh: lowest speed (km/h).
        v_max_kmh: highest speed (km/h).
        mean_kmh: mean of the untruncated Gaussian (km/h).
        sd_kmh: standard deviation of the untruncated Gaussian (km/h), > 0.
        arrivals_per_s: rate of the Poisson arrivals, all directions together (1/s).
        directions: names of the approaches, equally likely; the k-th comes from bearing 360 k / n degrees, the first
            from the north.
        lateral_m: standard deviation of the distance between a vehicle's line and the RSU (m); 0 drives every
            vehicle through the centre.
        duration_s: length of the simulated time (s).
        range_m: coverage radius (m).
    """

    v_min_kmh: SpeedKmh = 60.0
    v_max_kmh: SpeedKmh = 150.0
    mean_kmh: Annotated[float, Within(-1000, 1000, "km/h", "further away a tail has no digits left")] = 105.0
    sd_kmh: Annotated[float, Within(0.1, 1000, "km/h", "from one speed for all to any speed alike")] = 25.0
    arrivals_per_s: Annotated[float, Within(1e-6, 1000, "1/s", "a thousand lanes at capacity bring fewer")] = 0.5
    directions: tuple[str, ...] = ("north", "east", "south", "west")
    lateral_m: Annotated[float, Within(0, 1e5, "m", "no roadside radio reaches further")] = 0.0
    duration_s: Annotated[float, Within(0.1, 1e8, "s", "three years")] = 900.0
    range_m: Reach = 500.0

    def __post_init__(self) -> None:
        check_bounds("gaussian", self)
        require(
            self.v_min_kmh < self.v_max_kmh,
            f"gaussian.v_min_kmh must be below gaussian.v_max_kmh, got {self.v_min_kmh} and {self.v_max_kmh}.",
        )
        require(
            1 <= len(self.directions) <= 360,
            f"gaussian.directions must name 1 to 360 directions, got {len(self.directions)}.",
        )
        require(
            len(set(self.directions)) == len(self.directions),
            f"gaussian.directions must differ from each other, got {list(self.directions)}.",
        )


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """The radio link between RSU and vehicle.

    The cap: NR's highest scheme with 64QAM carries 5.55 bit/s/Hz (3GPP TS 38.214, Table 5.1.3.1-1, index 28: 6 bit at
    a code rate of 948/1024), and 86 to 94 % of a 10 MHz channel carry signal (TS 38.101-1: 24 resource blocks of
    30 kHz spacing, 52 of 15 kHz), which makes 4.8 to 5.2. With 256QAM, optional for the sidelink, it would be 7.41 and
    6.4 to 6.9. Control channels and reference symbols are not taken off. The share of the Shannon capacity is that of
    3GPP's system simulations for a downlink (TR 36.942, Annex A.2).

    Args:
        model: the radio model, an entry point in ``vnetsim.radio_models`` or ``path/to/file.py:Class``: ``tr37885`` is
            the line-of-sight path loss of 3GPP TR 37.885 with Shannon capacity; ``constant`` gives every active
            transfer the airtime share of ``rate_bps``.
        environment: whose path loss ``tr37885`` takes, also between vehicles: ``urban``, ``highway``, or ``scenario``
            for what the scenario's RSU says, the one that serves the vehicle; ``urban`` where it says nothing.
        rate_bps: rate of the ``constant`` model (bit/s).
        carrier_hz: carrier frequency (Hz).
        bandwidth_hz: channel bandwidth (Hz).
        rsu_power_dbm: transmit power of the RSU (dBm).
        vehicle_power_dbm: transmit power of a vehicle (dBm).
        noise_figure_db: receiver noise figure (dB).
        shadowing_db: standard deviation of the shadowing (dB), drawn per window and, between vehicles, per pair and
            round; the TR specifies 3 dB for LOS.
        efficiency: share of the Shannon capacity that is reached, in (0, 1].
        max_spectral_efficiency: cap of the spectral efficiency (bit/s/Hz), see above.
        rsu_height_m: antenna height of the RSU (m).
        vehicle_height_m: antenna height of a vehicle (m).
        update_s: how often a transfer's rate follows the vehicle's position (s).
    """

    model: str = "tr37885"
    environment: Literal["scenario", "urban", "highway"] = "scenario"
    rate_bps: Annotated[float, Within(1, 1e12, "bit/s", "up to a terabit, above any radio")] = 20e6
    carrier_hz: Annotated[float, Within(1e8, 1e12, "Hz", "microwaves, which the path loss is of")] = 5.9e9
    bandwidth_hz: Annotated[float, Within(1e3, 1e11, "Hz", "from telemetry to all microwave bands")] = 10e6
    rsu_power_dbm: PowerDbm = 23.0
    vehicle_power_dbm: PowerDbm = 23.0
    noise_figure_db: Annotated[float, Within(0, 50, "dB", "a receiver with more hears nothing")] = 9.0
    shadowing_db: ShadowingDb = 3.0
    efficiency: Annotated[float, Within(1e-3, 1, "", "a share of the Shannon capacity")] = 0.6
    max_spectral_efficiency: Annotated[float, Within(1e-3, 100, "bit/s/Hz", "above 1024-QAM on eight layers")] = 5.0
    rsu_height_m: AntennaM = 5.0
    vehicle_height_m: AntennaM = 1.6
    update_s: Annotated[float, Within(0.01, 3600, "s", "each update is an event of each transfer")] = 1.0

    def __post_init__(self) -> None:
        check_bounds("link", self)


@dataclass(frozen=True, kw_only=True)
class ComputeSettings:
    """On-board computers: sustained speed drawn once per vehicle from a log-normal distribution.

    No source gives these; both are assumptions. The default is what a vehicle's control unit can spare beside its
    other work, which suits the small encoder: a participation takes about 20 s, a good part of a window. The
    paper's ResNet-18 needs an accelerator, about 1e12.

    Args:
        median_flops: median sustained speed (FLOP/s).
        spread: standard deviation of the natural logarithm; 0 makes all vehicles equal.
    """

    median_flops: Annotated[float, Within(1e3, 1e18, "FLOP/s", "up to an exascale computer")] = 1e9
    spread: Annotated[float, Within(0, 5, "", "at 5 one vehicle in forty is 20,000 times as fast as the median")] = 0.5

    def __post_init__(self) -> None:
        check_bounds("compute", self)
