"""Opens traffic sources, records what they are, and refuses impossible paths of users' own sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import CoverageEvent, Left, TrafficInfo, TrafficStream
from vnetsim.errors import InputError
from vnetsim.errors.paths import resolve_path
from vnetsim.experiment import Experiment
from vnetsim.plugins import plugin_errors
from vnetsim.random_streams import Streams
from vnetsim.scenario.kinds import TRAFFIC_SOURCES, TrafficRequest, refuse_unread, source_file
from vnetsim.scenario.plugins import ResolvedPlugin, resolve_plugin
from vnetsim.traffic.paths import PathSpeeds, check_path

_UNITS = "speed_mps is in m/s, time_s in s, x_m and y_m in m"
_ROUNDING = 1.01
"""Largest distance of a path from its RSU, in ranges; more than 1 because computed entries and exits are rounded."""


def open_source(
    experiment: Experiment, *, repeat: bool, source: ResolvedPlugin | None = None, **_: object
) -> TrafficStream:
    """Open the traffic source that an experiment names; ``source`` is that plug-in, None to find it by name.

    InputError if there is no source of that name, or its settings or input are wrong; RunError if the source failed.
    Further keywords are ignored.
    """
    source = source or resolve_plugin(TRAFFIC_SOURCES, experiment.source, experiment.scenario)
    streams = Streams(seed=experiment.seed).child("traffic")
    request = TrafficRequest(experiment=experiment, streams=streams, repeat=repeat)
    refuse_unread(experiment, source.found.name, getattr(source.found, "traffic_settings", None) or ())
    with plugin_errors(TRAFFIC_SOURCES.name, source.found.name, "in open"):
        traffic: TrafficStream = source.settings.open(request)
        if experiment.scenario in TRAFFIC_SOURCES.built_in:
            return traffic
        return OwnTraffic(traffic, source.record, experiment.scenario)


class OwnTraffic:
    """Traffic of a user's own source: adds it to the record, refuses impossible paths, names the source in errors."""

    def __init__(self, traffic: TrafficStream, record: dict[str, Any], scenario: str) -> None:
        self._traffic = traffic
        self._record = record
        self.rsus = tuple(traffic.rsus)
        if not self.rsus:
            raise InputError(f"traffic source '{record['name']}': it has no RSU.")
        if not all(isinstance(rsu, Rsu) for rsu in self.rsus):
            raise InputError(f"traffic source '{record['name']}': its rsus must be vnetsim.coverage.rsu.Rsu.")
        self._speeds = PathSpeeds()
        file = source_file(scenario)
        self._inputs = () if file is None else (str(resolve_path(file)),)

    @property
    def info(self) -> TrafficInfo:
        """The traffic's entry in the manifest, with the source's name and file; RunError if the source failed."""
        with self._translate_errors("in info"):
            info, note = self._traffic.info, self._speeds.make_note(_UNITS)
            return dataclasses.replace(
                info,
                kind=self._record["name"],
                inputs=(*info.inputs, *self._inputs),
                notes=(*info.notes, note) if note else info.notes,
                plugin=self._record,
            )

    @property
    def time_s(self) -> float:
        """Time (s) up to which the traffic was read; RunError if the source failed."""
        with self._translate_errors("in time_s"):
            return float(self._traffic.time_s)

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the coverage events; InputError for an impossible path or RSU, RunError if the source failed."""
        with self._translate_errors("in events"):
            for event in self._traffic.events():
                self._check_event(event)
                yield event

    def close(self) -> None:
        """Close the source's traffic; RunError if the source failed."""
        with self._translate_errors("in close"):
            self._traffic.close()

    def _translate_errors(self, when: str) -> AbstractContextManager[None]:
        """Return a context that turns exceptions of the source into RunError; ``when`` is part of the message."""
        return plugin_errors(TRAFFIC_SOURCES.name, self._record["name"], when)

    def _check_event(self, event: CoverageEvent) -> None:
        """Raise InputError for an unknown RSU, an impossible path or one outside its disc; count speeds of windows."""
        path, who = event.path, f"traffic: the path of {event.path.vehicle_id}"
        rsu = next((rsu for rsu in self.rsus if rsu.id == path.rsu_id), None)
        if rsu is None:
            raise InputError(f"{who} names RSU '{path.rsu_id}', which is not there.")
        away_m = float(np.hypot(np.subtract(path.x_m, rsu.x_m), np.subtract(path.y_m, rsu.y_m)).max())
        if not away_m <= _ROUNDING * rsu.range_m:  # NaN is refused too
            raise InputError(
                f"{who} leads {away_m:g} m away from RSU '{rsu.id}', whose range is {rsu.range_m:g} m: a path lies "
                "inside the disc, from the exact entry to the exit (m)."
            )
        if isinstance(event, Left):
            check_path(path)
        self._speeds.count_window(event)
