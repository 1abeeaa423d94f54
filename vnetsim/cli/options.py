"""Options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

TRAFFIC, LEARNING, OUTPUT = Group("Traffic"), Group("Learning"), Group("Output")


def typed_command() -> list[str]:
    """Return the command line as the user typed it, for the manifest."""
    return ["vnetsim", *sys.argv[1:]]


def settings_of(set_: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``--set table.key=value`` by dotted key; InputError for a text of another form."""
    from vnetsim.scenario.settings_file import parse_override  # noqa: PLC0415 - keeps --help quick

    return {".".join(path): value for path, value in map(parse_override, set_)}


def _split_names(_: object, tokens: Sequence[object]) -> tuple[str, ...]:
    """Return the names in an option's texts, split at commas, without empty ones; cyclopts passes type and tokens."""
    texts = (str(getattr(token, "value", token)) for token in tokens)
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def _split_columns(_: object, tokens: Sequence[object]) -> dict[str, str]:
    """Return the columns by name that an option gives as ``NAME=COLUMN,...``; ValueError without an equals sign."""
    pairs = [text.partition("=") for text in _split_names(_, tokens)]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("expected NAME=COLUMN, with commas between several, as time=Global_Time,id=Vehicle_ID.")
    return {name.strip(): column.strip() for name, _, column in pairs}


OutputPath = Annotated[Path | None, Parameter(group=OUTPUT)]
Gui = Annotated[bool, Parameter(group=TRAFFIC, negative="", help="Show sumo-gui.")]
Trust = Annotated[
    bool,
    Parameter(
        negative="", help="Let a run directory name code that is run, fetch data, and start SUMO on a scenario in it."
    ),
]
Set = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative="", help="Any setting as table.key=value, e.g. round.quorum=10. Repeatable."),
]
TimeLimit = Annotated[
    float | None,
    Parameter(
        name="--time-limit",
        help="Stop at the end of a round after so many seconds (exit status 75); the same command continues.",
    ),
]
LearningText = Annotated[str | None, Parameter(group=LEARNING)]
LearningFlag = Annotated[bool, Parameter(group=LEARNING, negative="")]
"""Types of options whose help text is in the docstring of the command."""

_KEYS = {"rsu_spacing": "rsu_spacing_m", "begin": "begin_s", "end": "end_s", "warmup": "warmup_s"}
"""Settings of ``traffic`` by the names of their options, where these differ."""
TrafficText = Annotated[str | None, Parameter(group=TRAFFIC)]
TrafficNumber = Annotated[float | None, Parameter(group=TRAFFIC)]


@Parameter(name="*", help="Where the vehicles come from.")
@dataclass(frozen=True, kw_only=True)
class TrafficOptions:
    """The options that ``run``, ``mobility`` and ``compare`` share; options that were not given are None or empty.

    Args:
        rsu: Place an RSU at JUNCTION or x,y, with :range_m if wanted, or those of FILE.xml, a SUMO additional file: its
            POIs of type rsu. Repeatable. Default: the scenario's POIs of type rsu, else the busiest signalised
            junction.
        rsu_spacing: Least distance (m) between the RSUs of --rsu all-signalised; busier junctions first.
        net: Net file of an FCD recording: for RSUs by junction, and positions in longitude and latitude.
        columns: Columns of a recording that is a table, where they are not timestep_time, vehicle_id, vehicle_x,
            vehicle_y, vehicle_speed (and vehicle_lane, vehicle_type), as time=NAME,id=NAME,x=NAME,y=NAME,speed=NAME
            (lane=NAME,type=NAME). Speeds that are not there, or left out by speed=, are computed from the positions.
        time_unit: Of a recording: s (default), ms, or the seconds of one unit, as 1/25 for frames of a camera.
        length_unit: Of a recording's positions: m (default) or ft.
        speed_unit: Of a recording's speeds: m/s (default), km/h, ft/s or mph.
        begin: Begin at this time (s) of the scenario. Default: the scenario's own begin.
        end: End at this time (s). Default: the scenario's own end.
        warmup: Simulate this time (s) first, while the net fills; windows and rounds begin after it (default 0).
        vehicle_types: Vehicles that take part, by vType id or vClass, as a,b or repeated; all for every vehicle.
            Default motor: no bicycles, pedestrians, trams, trains or ships.
    """

    # allow_leading_hyphen: the coordinate x may be negative
    rsu: Annotated[tuple[str, ...], Parameter(group=TRAFFIC, negative="", allow_leading_hyphen=True)] = ()
    rsu_spacing: TrafficNumber = None
    net: TrafficText = None
    begin: TrafficNumber = None
    end: TrafficNumber = None
    warmup: TrafficNumber = None
    vehicle_types: Annotated[tuple[str, ...], Parameter(group=TRAFFIC, negative="", converter=_split_names)] = ()
    columns: Annotated[
        dict[str, str] | None,
        Parameter(group=TRAFFIC, negative="", converter=_split_columns, accepts_keys=False, n_tokens=1),
    ] = None
    time_unit: TrafficText = None
    length_unit: TrafficText = None
    speed_unit: TrafficText = None

    def settings(self, *, gui: bool = False) -> dict[str, Any]:
        """Return the options that were given as keyword arguments ``traffic__KEY`` of ``vnetsim.run``."""
        own = {name: value for name, value in vars(self).items() if value not in (None, (), {})}
        given = {f"traffic__{_KEYS.get(name, name)}": value for name, value in own.items()}
        return {**given, "traffic__gui": True} if gui else given


@Parameter(name="*", help="What is trained, and for how long.")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options that ``run`` and ``compare`` share.

    Args:
        time_s: Simulated time to run (s); default 600, or until --rounds are done.
        rounds: Rounds to run; default as many as the time allows.
        scale: What is trained: laptop, small networks in minutes, or paper, the published network, batch and steps,
            which want a GPU. What is timed stays.
        device: auto, cpu, cuda or cuda:N (default auto).
        timing_only: Train nobody: play the rounds over all of the traffic, and report who could take part, and when. To
            compare, one learner is enough.
    """

    time_s: Annotated[float | None, Parameter(name="--time", group=LEARNING)] = None
    rounds: Annotated[int | None, Parameter(group=LEARNING)] = None
    scale: Annotated[str, Parameter(group=LEARNING)] = "laptop"
    device: LearningText = None
    timing_only: LearningFlag = False
    set_: Set = ()
    trust: Trust = False
    time_limit_s: TimeLimit = None

    def arguments(self) -> dict[str, Any]:
        """Return all options, given or not, as arguments of ``vnetsim.run``; InputError for a malformed ``--set``."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "set_"}
        return {**given, "settings": settings_of(self.set_)}
