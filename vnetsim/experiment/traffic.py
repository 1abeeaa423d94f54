"""Settings of traffic and on-board computers. See ``vnetsim.experiment``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.bounds import Acts, Within, check_bounds, require
from vnetsim.errors.paths import is_rsu_file
from vnetsim.random_streams import Streams

SimulatedS = Annotated[float, Within(0, 1e9, "s", "thirty years, beyond any recording")]
REACH_M = 250.0  # default coverage radius of an RSU in a road net
REACH = Within(1, 1e5, "m", "no roadside radio reaches further")
RECORDED: Mapping[str, str] = {
    "time": "timestep_time",
    "id": "vehicle_id",
    "x": "vehicle_x",
    "y": "vehicle_y",
    "speed": "vehicle_speed",
    "lane": "vehicle_lane",
    "type": "vehicle_type",
    "edge": "vehicle_edge",
}
"""Columns of a recording that is a table, with SUMO's names; the first four are required."""
OF_RECORDINGS = ("columns", "time_unit", "length_unit", "speed_unit", "longest_gap_s")  # settings only for recordings
_TIME_UNIT = Within(1e-9, 1e4, "s", "a nanosecond; hours and more are hardly a clock")


@dataclass(frozen=True, kw_only=True)
class TrafficSettings:
    """Where vehicles come from.

    Args:
        gui: show sumo-gui.
        seed: SUMO's seed; None honours the .sumocfg's own (SUMO's default 23423 when it sets none).
        repeat: play the scenario again, with the next seed, until the rounds are done; time runs on.
        rsu: RSUs as ``JUNCTION``, ``x,y`` or ``all-signalised``, each with or without ``:range_m``; or ``FILE.xml``, a
            SUMO additional file whose POIs of type ``rsu`` are RSUs. Without any, the scenario's POIs, else the busiest
            signalised junction.
        rsu_spacing_m: least distance between the RSUs of ``all-signalised`` (m), the busier ones first; 0 takes all.
        range_m: coverage radius of an RSU that names none (m); None is 250 m, or 500 m for the Gaussian model.
        net: net file of an FCD recording, whose RSU may then be named by junction or by longitude and latitude; empty
            for none.
        columns: names of the columns of a recording that is a table, where they are not SUMO's, by ``time``, ``id``,
            ``x``, ``y``, ``speed``, ``lane``, ``type`` and ``edge``; an empty name leaves a column out. Speeds that are
            not recorded are computed from the positions.
        time_unit: of a recording: ``s``, ``ms``, or the seconds of one unit, as ``1/25`` for frames of a camera.
        length_unit: of a recording's positions.
        speed_unit: of a recording's speeds.
        begin_s: time of the scenario at which to begin (s); None is the scenario's own begin.
        end_s: time of the scenario at which to end (s); None is the scenario's own end, or 900 s for the Gaussian
            model.
        warmup_s: time that passes first, while the net fills (s); windows and rounds begin after it.
        vehicle_types: vehicles that take part, by vType id or vClass; ``motor`` are those with a motor that drive on
            roads, ``all`` are all. All vehicles of a recording without types take part.
        equipped: share of these vehicles that are equipped, and so can take part. Drawn for each vehicle by its id and
            the seed of the traffic; those of a smaller share are among those of a larger one. The others drive, are
            recorded and block links.
        longest_gap_s: longest time between two rows of one vehicle in a recording (s), whatever rows other vehicles
            have in between; a longer gap ends its window. None is three times the recording's step; if the recording
            samples all vehicles at the same instants, a vehicle that is missing at one of them is then gone.
    """

    gui: bool = False
    seed: Annotated[int | None, Within(0, 2_000_000_000, "", "SUMO's have 32 bits, and repeating takes the next")] = (
        None
    )
    repeat: bool = True
    rsu: tuple[str, ...] = ()
    range_m: Annotated[float, REACH] | None = None
    net: str = ""
    rsu_spacing_m: Annotated[float, Within(0, 1e6, "m", "wider than any net")] = 0.0
    begin_s: SimulatedS | None = None
    end_s: SimulatedS | None = None
    warmup_s: SimulatedS = 0.0
    vehicle_types: tuple[str, ...] = ("motor",)
    equipped: Annotated[float, Within(1e-6, 1, "", "a share of the vehicles; without any nobody takes part")] = 1.0
    longest_gap_s: Annotated[float | None, Within(1e-3, 1e6, "s", "more than a week is no path")] = None
    columns: Mapping[str, str] = field(default_factory=dict)
    time_unit: str = "s"
    length_unit: Literal["m", "ft"] = "m"
    speed_unit: Literal["m/s", "km/h", "ft/s", "mph"] = "m/s"

    def __post_init__(self) -> None:
        """Raise InputError: out of bounds, unknown column, wrong time unit, no time after warm-up, no vehicle type."""
        check_bounds("traffic", self)
        for name in self.columns:
            if name not in RECORDED:
                raise unknown_name("column", name, RECORDED, where="traffic.columns")
        _ = self.time_unit_s  # refused here, not in the middle of a run
        begin_s, end_s = self.begin_s or 0.0, math.inf if self.end_s is None else self.end_s
        require(
            begin_s + self.warmup_s < end_s,
            f"traffic.end_s: {end_s:g} s leaves no time after the begin ({begin_s:g} s) and the warm-up "
            f"({self.warmup_s:g} s).",
        )
        require(bool(self.vehicle_types), 'traffic.vehicle_types: name at least one, or "all".')

    @property
    def time_unit_s(self) -> float:
        """The unit ``time_unit`` of a recording in seconds; InputError if it is malformed or out of bounds."""
        number, _, parts = {"s": "1", "ms": "0.001"}.get(self.time_unit, self.time_unit).partition("/")
        try:
            unit_s = float(number) / float(parts or 1)
        except (ValueError, ZeroDivisionError):
            raise InputError(
                "traffic.time_unit must be s, ms, or the seconds of one unit, such as 0.04 or 1/25, got "
                f"'{self.time_unit}'."
            ) from None
        _TIME_UNIT.check("traffic.time_unit", unit_s)
        return unit_s

    def equips(self, vehicle_id: str, traffic_seed: int | None) -> bool:
        """Return whether a vehicle is equipped, drawn with probability ``equipped`` by id and seed (may be None)."""
        drawn = Streams(seed=0, path=("equipped", str(traffic_seed)))
        return self.equipped >= 1 or drawn.integer(vehicle_id) < self.equipped * 2**63

    @property
    def rsu_files(self) -> tuple[str, ...]:
        """The entries of ``rsu`` that are files."""
        return tuple(spec for spec in self.rsu if is_rsu_file(spec))

    @property
    def rsu_places(self) -> tuple[str, ...]:
        """The entries of ``rsu`` that are not files."""
        return tuple(spec for spec in self.rsu if not is_rsu_file(spec))


class Computer(NamedTuple):
    """A kind of on-board computer."""

    flops: float  # median of its sustained speed over vehicles (FLOP/s)
    watts: float | None  # its power while it trains (W); None if unknown


COMPUTERS: Mapping[str, Computer] = {
    "ecu": Computer(1e9, None),
    "jetson-nano": Computer(8e10, 10.0),
    "xavier-nx": Computer(3e11, 15.0),
    "agx-xavier": Computer(5e11, 30.0),
    "agx-orin": Computer(1.9e12, 60.0),
}
"""On-board computers by preset. The speed is an assumed 35 % of the single-precision peak, at the module's power
budget; the speed of ``ecu`` is only an assumption (``docs/explanation/computers.md``)."""


@dataclass(frozen=True, kw_only=True)
class ComputeSettings:
    """On-board computers: sustained speed drawn once per vehicle from a log-normal distribution.

    No source measures these with this training; all are assumptions. The default trains the papers' ResNet-18 for 8
    steps of 64 images in about 7 s.

    Args:
        preset: the computer of every vehicle: ``ecu``, a share of a control unit, 1e9 FLOP/s; or an NVIDIA module with
            known power, so that energy is computed too.
        fleet: presets by name with their shares of the vehicles, which sum to 1, drawn once per vehicle; it overrides
            ``preset``.
        by_type: presets by vehicle type (vType id); it overrides both. The report lists types that never appeared.
        median_flops: median sustained speed (FLOP/s), in place of the preset's; None is the preset's.
        spread: standard deviation of the natural logarithm; 0 makes all vehicles of a preset equal.
    """

    preset: Annotated[
        Literal["ecu", "jetson-nano", "xavier-nx", "agx-xavier", "agx-orin"], Acts("compute.fleet", ({},))
    ] = "agx-xavier"
    fleet: Mapping[str, float] = field(default_factory=dict)
    by_type: Mapping[str, str] = field(default_factory=dict)
    median_flops: Annotated[float | None, Within(1e3, 1e18, "FLOP/s", "up to an exascale computer")] = None
    spread: Annotated[float, Within(0, 5, "", "at 5 one vehicle in forty is 20,000 times as fast as the median")] = 0.5

    def __post_init__(self) -> None:
        check_bounds("compute", self)
        for where, names in (("compute.fleet", self.fleet), ("compute.by_type", self.by_type.values())):
            for name in names:
                if name not in COMPUTERS:
                    raise unknown_name("preset", name, sorted(COMPUTERS), where=where)
        for name, share in self.fleet.items():
            require(0 < share <= 1, f"compute.fleet.{name}: expected a share above 0 and at most 1, got {share}.")
        total = math.fsum(self.fleet.values())
        require(
            not self.fleet or math.isclose(total, 1, abs_tol=1e-6),
            f"compute.fleet: the shares of its presets must sum to 1, got {total:g}.",
        )
        for key, presets in (("fleet", self.fleet), ("by_type", self.by_type)):
            require(
                not presets or self.median_flops is None,
                f"compute.median_flops: one speed for all, beside compute.{key}, whose presets have each their own; "
                "leave one of the two out.",
            )

    @property
    def shares(self) -> Mapping[str, float]:
        """Presets with their shares of the vehicles: those of ``fleet``, sorted by name, else ``preset`` with 1."""
        return dict(sorted(self.fleet.items())) or {self.preset: 1.0}

    def median_of(self, preset: str) -> float:
        """Return the median speed (FLOP/s) of vehicles with a preset: ``median_flops`` or, if None, the preset's."""
        return COMPUTERS[preset].flops if self.median_flops is None else self.median_flops
