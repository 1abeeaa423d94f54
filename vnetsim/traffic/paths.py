"""Base class of opened traffic, and traffic that knows each path to its end when the path begins."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.tracker import event_sort_key
from vnetsim.coverage.windows import (
    CoverageEvent,
    Entered,
    ExitCause,
    Left,
    TrafficInfo,
    VehiclePath,
    Window,
    window_of,
)
from vnetsim.errors import InputError
from vnetsim.traffic.vehicle_types import TypeFilter

FARTHEST = 1e10
"""Limit of coordinates (m), speeds (m/s) and times (s); their squares are finite."""
Path = tuple[VehiclePath, ExitCause]
"""A whole path inside one disc, from entry to exit, and why it ends."""


def events_of(windows: Iterable[tuple[VehiclePath, Window]]) -> Iterator[CoverageEvent]:
    """Yield the events of windows in order of time, exits before entries; windows must be sorted by time of entry."""
    leaving: list[tuple[tuple[float, bool, str, str], int, Left]] = []
    for index, (path, window) in enumerate(windows):
        while leaving and leaving[0][2].time_s <= window.enter_s:
            yield heapq.heappop(leaving)[2]
        yield Entered(time_s=window.enter_s, path=path)
        left = Left(time_s=window.exit_s, path=path, window=window)
        heapq.heappush(leaving, (event_sort_key(left), index, left))
    while leaving:
        yield heapq.heappop(leaving)[2]


def source_info(
    source: Any, *, begin_s: float = 0.0, end_s: float | None, seed: int | None, inputs: tuple[str, ...] = ()
) -> TrafficInfo:
    """Return the manifest's entry for a traffic source that knows each path when it begins.

    ``source`` is a dataclass instance with ``name`` and ``source``; ``end_s`` is None if the traffic has no end,
    ``seed`` is None for recordings; ``inputs`` are absolute paths of the files read.
    """
    return TrafficInfo(
        kind=source.name,
        begin_s=begin_s,
        end_s=end_s,
        step_s=None,
        seed=seed,
        inputs=inputs,
        whole_paths=True,
        plugin={"name": source.name, "source": source.source, "settings": dataclasses.asdict(source)},
    )


class PathSpeeds:
    """Counts windows whose recorded speeds contradict the length of their path."""

    def __init__(self) -> None:
        self._windows = self._unlike = 0

    def count_window(self, event: CoverageEvent) -> None:
        """Count the window of a ``Left``, and whether its path's length contradicts its speeds; ignore other events."""
        if isinstance(event, Left):
            path = event.window
            driven_m, recorded_m = path.path_length_m, float(np.trapezoid(path.path_speed_mps, path.path_time_s))
            self._windows += 1
            self._unlike += not recorded_m / 2 <= driven_m <= 2 * recorded_m

    def make_note(self, units: str) -> str:
        """Return a warning, which ends with ``units``, if most windows contradict their speeds; otherwise empty."""
        if 2 * self._unlike <= self._windows:
            return ""
        return (
            f"{self._unlike} of {self._windows} paths are less than half or more than twice as long as their speeds "
            f"and times say: {units}."
        )


class OpenedTraffic:
    """Base class of traffic; see ``TrafficStream`` for ``rsus``, ``info`` and ``time_s``."""

    rsus: tuple[Rsu, ...]
    time_s: float
    _info: TrafficInfo
    _types: TypeFilter | None = None

    @property
    def info(self) -> TrafficInfo:
        """The traffic's entry in the manifest; complete only when all events were read."""
        if self._types is None:
            return self._info
        notes = tuple(note for note in (self._types.make_note(), *self._late_notes()) if note)
        return dataclasses.replace(self._info, notes=(*self._info.notes, *notes), left_out=self._types.left_out)

    def _late_notes(self) -> Iterable[str]:
        """Return notes that depend on what was read so far; empty texts are ignored."""
        return ()

    def close(self) -> None:
        """Release all resources; may be called twice."""


class PathTraffic(OpenedTraffic):
    """Traffic from whole paths; a replay of its recording gives the same events.

    Args:
        rsus: all RSUs that paths name.
        info: the traffic's entry in the manifest.
        paths: returns the paths sorted by time of entry, the same ones at every call.
    """

    def __init__(self, rsus: Iterable[Rsu], info: TrafficInfo, paths: Callable[[], Iterable[Path]]) -> None:
        self.rsus = tuple(rsus)
        self._info = info
        self._paths = paths
        self.time_s = info.begin_s

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the coverage events; see ``vnetsim.coverage.windows.TrafficStream``. Every call yields the same.

        Each call starts again, ``time_s`` too. InputError if a path is impossible (``check_path``) or out of order.
        """
        self.time_s = self._info.begin_s
        for event in events_of(self._windows()):
            self.time_s = event.time_s
            yield event

    def _windows(self) -> Iterator[tuple[VehiclePath, Window]]:
        """Yield paths and windows, sorted by entry, RSU and vehicle; InputError for an impossible or unsorted path."""
        for enter_s, together in groupby(self._paths(), key=lambda path: path[0].time_s[0]):
            if enter_s < self.time_s:
                raise InputError(f"traffic: a path begins at {enter_s:g} s, after one that began later; sort them.")
            for path, cause in sorted(together, key=lambda path: (path[0].rsu_id, path[0].vehicle_id)):
                check_path(path)
                yield path, window_of(path, cause, "")


def check_path(path: VehiclePath) -> None:
    """Raise InputError for an impossible path.

    Impossible are fewer than two points, columns of unequal length, a value that is too large or not finite, decreasing
    times, and no duration.
    """
    columns = (path.time_s, path.x_m, path.y_m, path.speed_mps)
    sound = len({len(column) for column in columns}) == 1 and len(path.time_s) > 1
    sound = sound and all(abs(value) <= FARTHEST for column in columns for value in column)
    sound = sound and path.time_s[0] < path.time_s[-1]
    if not (sound and all(before <= after for before, after in pairwise(path.time_s))):
        raise InputError(
            f"traffic: the path of {path.vehicle_id} must have two points or more, each with time (s), position (m) "
            f"and speed (m/s), none beyond {FARTHEST:g}, times that do not decrease, and an exit after the entry."
        )
