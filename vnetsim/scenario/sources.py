"""What a scenario may name besides a file or folder: a traffic source, by a word or as a class of a file.

A run directory is read, replayed and passed on without the code of its source: what a name is follows from the name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from vnetsim.coverage.windows import TrafficStream
from vnetsim.experiment import Experiment
from vnetsim.paths import resolved
from vnetsim.plugins import Kind, at_folder, code_file
from vnetsim.random_streams import Streams


@dataclass(frozen=True, kw_only=True)
class TrafficRequest:
    """What traffic is asked for.

    Args:
        experiment: all settings; those of ``traffic`` that have a meaning for a source are its to honour or refuse.
        streams: the random streams to draw from; they follow from the experiment's seed.
        repeat: whether to go on after the end, where there is more to draw.
    """

    experiment: Experiment
    streams: Streams
    repeat: bool


@runtime_checkable
class TrafficSource(Protocol):
    """Opens traffic.

    Class attributes name it: ``name``, which the record gives as the kind of traffic; ``source``, a citation;
    ``Settings``, a frozen keyword-only dataclass whose fields stand in the table ``source`` of an experiment. A path in
    ``source.file`` is taken from the folder of the file that it stands in.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    Settings: ClassVar[type]

    @classmethod
    def open(cls, settings: Any, request: TrafficRequest) -> TrafficStream:
        """Open the traffic; files that it is read from are named in ``info.inputs``, by absolute paths."""
        ...


TRAFFIC_SOURCES = Kind(
    name="traffic source",
    group="vnetsim.traffic_sources",
    protocol=TrafficSource,
    key="scenario",
    table="source",
    maker="open",
    built_in={"gaussian": "vnetsim.traffic.gaussian:GaussianSource"},
)


def source_file(scenario: str) -> Path | None:
    """Return the file of ``path/to/file.py:Class``, None for any other scenario."""
    path = code_file(scenario)
    return path if path is not None and path.suffix == ".py" else None


def names_source(scenario: str) -> bool:
    """Return whether a scenario names a traffic source, and no file or folder. Imports nothing."""
    if source_file(scenario) is not None or scenario in TRAFFIC_SOURCES.built_in:
        return True
    return re.fullmatch(r"[\w-]+", scenario) is not None and scenario in TRAFFIC_SOURCES.names()


def scenario_at(scenario: str, folder: Path) -> str:
    """Return a scenario named in a file, with its path, if it has one, taken from that file's ``folder``."""
    if source_file(scenario) is not None:
        return at_folder(scenario, folder)
    return scenario if names_source(scenario) else str(folder / scenario)


def scenario_anywhere(scenario: str) -> str:
    """Return a scenario as it is named from any working directory."""
    return scenario_at(scenario, Path.cwd()) if names_source(scenario) else str(resolved(scenario))
