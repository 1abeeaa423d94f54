"""Between a run and a traffic source: opens it, says for the record what it is, and refuses paths that cannot be."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vnetsim.coverage.windows import CoverageEvent, Left, TrafficInfo, TrafficStream
from vnetsim.errors import InputError
from vnetsim.errors.paths import resolved
from vnetsim.experiment import Experiment
from vnetsim.plugins.checked import checked
from vnetsim.random_streams import Streams
from vnetsim.scenario.kinds import TRAFFIC_SOURCES, TrafficRequest, refuse_unread, source_file, unread_settings
from vnetsim.scenario.settings_file import Chosen, chosen
from vnetsim.traffic.paths import PathSpeeds, check_path

_UNITS = "speed_mps is in m/s, time_s in s, x_m and y_m in m"
_ROUNDING = 1.01
"""How many ranges away from its RSU a path may lead: entries and exits that were counted are rounded."""


def open_source(experiment: Experiment, *, repeat: bool, source: Chosen | None = None, **_: object) -> TrafficStream:
    """Open the traffic source that an experiment names, ``source`` where it was found before.

    Raises:
        InputError: there is none of that name, or its settings or what it reads are wrong.
        RunError: it failed.
    """
    source = source or chosen(TRAFFIC_SOURCES, experiment.source, experiment.scenario)
    streams = Streams(seed=experiment.seed).child("traffic")
    request = TrafficRequest(experiment=experiment, streams=streams, repeat=repeat)
    reads, unsaid = getattr(source.found, "traffic_settings", None), list[str]()
    if reads is None:
        unsaid = unread_settings(experiment, ())
    else:
        refuse_unread(experiment, source.found.name, reads)
    traffic = checked(source.settings, TRAFFIC_SOURCES.name, TRAFFIC_SOURCES.protocol).open(request)
    if experiment.scenario in TRAFFIC_SOURCES.built_in:
        return traffic  # type: ignore[no-any-return]
    own = checked(traffic, TRAFFIC_SOURCES.name, TrafficStream, name=source.found.name)
    return OwnTraffic(own, source.record, experiment.scenario, unsaid)


class OwnTraffic:
    """Traffic of a source that users brought: the record says of which, and a path that cannot be is refused.

    ``unsaid`` are settings of which the source does not say whether it reads them.
    """

    def __init__(self, traffic: TrafficStream, record: dict[str, Any], scenario: str, unsaid: Sequence[str]) -> None:
        self._traffic = traffic
        self._record = record
        self.rsus = tuple(traffic.rsus)
        if not self.rsus:
            raise InputError(f"traffic source '{record['name']}': it has no RSU.")
        self._speeds = PathSpeeds()
        self._unsaid = unsaid
        file = source_file(scenario)
        self._inputs = () if file is None else (str(resolved(file)),)

    @property
    def info(self) -> TrafficInfo:
        """What the record says of this traffic, the source's name and file included."""
        info = self._traffic.info
        return dataclasses.replace(
            info,
            kind=self._record["name"],
            inputs=(*info.inputs, *self._inputs),
            notes=(*info.notes, *self._notes()),
            plugin=self._record,
        )

    @property
    def time_s(self) -> float:
        """How far the traffic has been read (s)."""
        return self._traffic.time_s

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the coverage events; see ``vnetsim.coverage.windows.TrafficStream``."""
        for event in self._traffic.events():
            self._check(event)
            yield event

    def close(self) -> None:
        """Release what the source holds."""
        self._traffic.close()

    def _check(self, event: CoverageEvent) -> None:
        """Refuse a path that cannot lie in its RSU's disc; count those whose speeds are not those it drives.

        Raises:
            InputError: an RSU that there is not, or a path outside of the disc.
        """
        path, who = event.path, f"traffic: the path of {event.path.vehicle_id}"
        rsu = next((rsu for rsu in self.rsus if rsu.id == path.rsu_id), None)
        if rsu is None:
            raise InputError(f"{who} names RSU '{path.rsu_id}', which is not there.")
        away_m = float(np.hypot(np.subtract(path.x_m, rsu.x_m), np.subtract(path.y_m, rsu.y_m)).max())
        if away_m > _ROUNDING * rsu.range_m:
            raise InputError(
                f"{who} leads {away_m:g} m away from RSU '{rsu.id}', whose range is {rsu.range_m:g} m: a path lies "
                "inside the disc, from the exact entry to the exit (m)."
            )
        if isinstance(event, Left):
            check_path(path)
        self._speeds.see(event)

    def _notes(self) -> Iterator[str]:
        if self._unsaid:
            yield (
                f"Traffic source '{self._record['name']}' does not say whether it reads {', '.join(self._unsaid)}: its "
                "class attribute traffic_settings lists what it reads."
            )
        if note := self._speeds.note(_UNITS):
            yield note
