"""The kinds of traffic: which scenarios each accepts, which setting seeds it, and what opens it.

A scenario is a file or folder, or names a traffic source by a word or as ``file.py:Class``. Finding the kind imports
nothing, and opening imports only that kind: a run directory can be read and replayed without the code of its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Literal, Protocol, runtime_checkable

from vnetsim.coverage.windows import TrafficStream
from vnetsim.errors import InputError
from vnetsim.errors.paths import resolve_path
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.experiment.traffic import OF_RECORDINGS
from vnetsim.plugins import Kind, at_folder, code_file
from vnetsim.random_streams import Streams

RECORDINGS = (".xml", ".xml.gz", ".csv", ".csv.gz", ".parquet")
"""Suffixes of SUMO's floating-car data (FCD)."""
CONFIGURATIONS = (".sumocfg", ".sumo.cfg")
"""Suffixes of SUMO's configurations; Veins' scenario, for one, still has the second, older one."""


@dataclass(frozen=True, kw_only=True)
class TrafficRequest:
    """The argument of ``TrafficSource.open``.

    Args:
        experiment: all settings; a source obeys or refuses those of ``traffic`` that have a meaning for it.
        streams: the random streams to draw from, seeded by the experiment.
        repeat: whether to continue after the end, if the source can draw more traffic.
    """

    experiment: Experiment
    streams: Streams
    repeat: bool


@runtime_checkable
class TrafficSource(Protocol):
    """Opens traffic: a frozen keyword-only dataclass whose fields are the table ``source`` of an experiment.

    Class attributes: ``name``, which the run's record gives as the kind of traffic; ``source``, a citation; optionally
    ``traffic_settings``, the settings of ``traffic`` that it reads, such as ``("end_s", "range_m")``: others are
    refused. A path in ``source.file`` is relative to the folder of the settings file.
    """

    name: ClassVar[str]
    source: ClassVar[str]

    def open(self, request: TrafficRequest) -> TrafficStream:
        """Open the traffic; ``info.inputs`` of the result lists the absolute paths of the files that it reads."""
        ...


TRAFFIC_SOURCES = Kind(
    name="traffic source",
    group="vnetsim.traffic_sources",
    protocol=TrafficSource,
    key="scenario",
    table="source",
    built_in={
        "gaussian": "vnetsim.traffic.gaussian:GaussianSource",
        "jumps": "vnetsim.traffic.visits:JumpsSource",
        "access-log": "vnetsim.traffic.visits:AccessLogSource",
    },
)


def source_file(scenario: str) -> Path | None:
    """Return the file of a scenario ``path/to/file.py:Class``, None for any other scenario."""
    path = code_file(scenario)
    return path if path is not None and path.suffix == ".py" else None


def names_source(scenario: str) -> bool:
    """Return whether a scenario names a traffic source rather than a file or folder; imports nothing."""
    if source_file(scenario) is not None or scenario in TRAFFIC_SOURCES.built_in:
        return True
    return re.fullmatch(r"[\w-]+", scenario) is not None and scenario in TRAFFIC_SOURCES.names()


def scenario_at(scenario: str, folder: Path) -> str:
    """Return a scenario written in a settings file: a path is joined to the file's ``folder``, a name is unchanged."""
    if source_file(scenario) is not None:
        return at_folder(scenario, folder)
    return scenario if names_source(scenario) else str(folder / scenario)


def with_absolute_path(scenario: str) -> str:
    """Return a scenario with an absolute path; unchanged if it is only a name. InputError for an impossible path."""
    return scenario_at(scenario, Path.cwd()) if names_source(scenario) else str(resolve_path(scenario))


@dataclass(frozen=True, kw_only=True)
class TrafficKind:
    """A kind of traffic."""

    name: str  # the name in records; a traffic source is recorded by its own name instead
    accepts: Callable[[], str]  # returns its scenarios in words
    matches: Callable[[str], bool]  # whether a scenario is of this kind; earlier ``TRAFFIC_KINDS`` are asked first
    opener: str  # ``module:name`` of a callable with the arguments of ``vnetsim.traffic.open_traffic``
    # the setting to change for different traffic of the same scenario; empty for a recording
    seeded_by: Literal["seed", "traffic.seed", ""] = ""
    reads: Sequence[str] | None = None  # settings of ``traffic`` that it reads; None if its opener checks them


def refuse_unread(experiment: Experiment, name: str, reads: Sequence[str]) -> None:
    """Raise InputError if settings of ``traffic`` are changed that are not in ``reads``; ``name`` is the traffic's.

    ``repeat``, ``equipped`` and ``vehicle_types = ["all"]`` are not refused: all traffic can obey them.
    """
    asked, default = experiment.traffic, TrafficSettings()
    obeyed = {*reads, "repeat", "equipped", *["vehicle_types"] * (asked.vehicle_types == ("all",))}
    names = [field.name for field in fields(asked) if field.name not in obeyed]
    unread = [f"traffic.{key}" for key in names if getattr(asked, key) != getattr(default, key)]
    if unread:
        read = ", ".join(f"traffic.{key}" for key in reads) or "nothing"
        raise InputError(
            f"{name}: this traffic does not read {', '.join(unread)}: leave them out. Of the table traffic it reads "
            f"{read}."
        )


def kind_of(scenario: str) -> TrafficKind | None:
    """Return the kind of traffic of a scenario; None if it is unknown, also for a missing folder."""
    return next((kind for kind in TRAFFIC_KINDS if kind.matches(scenario)), None)


def is_sumo(scenario: str) -> bool:
    """Return whether opening a scenario starts SUMO on its files; False for an unknown kind."""
    return (kind := kind_of(scenario)) is not None and kind.name == "sumo"


_OF_ROADS = ("rsu", "rsu_spacing_m", "range_m", "begin_s", "end_s", "warmup_s", "vehicle_types")

TRAFFIC_KINDS = (
    TrafficKind(
        name=TRAFFIC_SOURCES.name,
        accepts=lambda: f"the word {' or '.join(repr(name) for name in TRAFFIC_SOURCES.names())}",
        matches=names_source,
        opener="vnetsim.traffic.sources:open_source",
        seeded_by="seed",
    ),
    TrafficKind(
        name="replay",
        accepts=lambda: "a run directory",
        matches=lambda scenario: Path(scenario).is_dir() or Path(scenario).name == "windows.parquet",
        opener="vnetsim.traffic.replay:ReplayTraffic",
    ),
    TrafficKind(
        name="fcd",
        accepts=lambda: f"{', '.join(RECORDINGS)} (FCD recording)",
        matches=lambda scenario: scenario.endswith(RECORDINGS),
        opener="vnetsim.traffic.fcd.source:FcdTraffic",
        reads=(*_OF_ROADS, "net", *OF_RECORDINGS),
    ),
    TrafficKind(
        name="sumo",
        accepts=lambda: ", ".join(CONFIGURATIONS),
        matches=lambda scenario: scenario.endswith(CONFIGURATIONS),
        opener="vnetsim.traffic.sumo.source:SumoTraffic",
        seeded_by="traffic.seed",
        reads=(*_OF_ROADS, "seed", "gui"),
    ),
)
"""All kinds; the first that matches a scenario is its kind."""


def unknown_kind(scenario: str) -> InputError:
    """Return, not raise, the error for a scenario that is missing or of an unknown kind; it lists those accepted."""
    *others, last = (kind.accepts() for kind in reversed(TRAFFIC_KINDS))
    problem = "unknown kind of scenario" if Path(scenario).exists() else "no such file or folder"
    return InputError(f"{scenario}: {problem}; accepted are {', '.join(others)}, or {last}.")
