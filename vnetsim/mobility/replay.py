"""The traffic of an earlier run from the windows it recorded: same events, same order, same floats, no simulator."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vnetsim.coverage import CoverageEvent, Entered, Left, Track, TrafficInfo, Window
from vnetsim.errors import InputError
from vnetsim.rsu import Rsu
from vnetsim.run_directory import RunDirectory
from vnetsim.tracker import events_order

_PATHS = ("path_time_s", "path_x_m", "path_y_m", "path_speed_mps")


class ReplayTraffic:
    """The windows of a run directory.

    Args:
        path: the run directory, or the ``windows.parquet`` in it.

    Raises:
        InputError: when it is not a run directory, or its record of the traffic is damaged.
    """

    def __init__(self, path: Path) -> None:
        if path.is_file():
            path = path.parent
        directory = RunDirectory(path)
        manifest = directory.manifest()
        where = str(path / "manifest.json")
        try:
            self._rsus = tuple(
                Rsu(id=str(rsu["id"]), **{key: float(rsu[key]) for key in ("x_m", "y_m", "range_m")})
                for rsu in manifest["rsus"]
            )
            recorded: Mapping[str, Any] = manifest["traffic"]
            self._info = TrafficInfo(
                kind="replay",
                begin_s=float(recorded["begin_s"]),
                end_s=float(manifest.get("time_s") or recorded["begin_s"]),
                step_s=None if recorded.get("step_s") is None else float(recorded["step_s"]),
                seed=recorded.get("seed"),
                command=tuple(recorded.get("command", ())),
                version=str(recorded.get("version", "")),
                inputs=(str((path / "windows.parquet").resolve()),),
                notes=tuple(recorded.get("notes", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{where}: its record of RSUs and traffic is damaged or of another version.") from error
        if not self._rsus:
            raise InputError(f"{where}: it records no RSU.")
        self._table = directory.read("windows")
        # The recording ends where its run ended, which may be before the scenario's end or after the last exit.
        last_exit_s = float(self._table["exit_s"].max() or self._info.end_s)  # type: ignore[arg-type]
        self._info = dataclasses.replace(self._info, end_s=max(last_exit_s, self._info.end_s or last_exit_s))
        known = {rsu.id for rsu in self._rsus}
        if strangers := sorted(set(self._table["rsu_id"].to_list()) - known):
            raise InputError(f"{path / 'windows.parquet'}: RSU '{strangers[0]}' is not in manifest.json.")
        if directory.has("map"):
            lanes = directory.read("map")
            self._info = dataclasses.replace(
                self._info,
                lanes=tuple(
                    np.column_stack((x_m, y_m))
                    for x_m, y_m in zip(lanes["x_m"].to_list(), lanes["y_m"].to_list(), strict=True)
                ),
            )
        self._time_s = self._info.begin_s

    @property
    def rsus(self) -> tuple[Rsu, ...]:
        """The RSUs of the recorded run."""
        return self._rsus

    @property
    def info(self) -> TrafficInfo:
        """What the record says of this traffic; of the kind ``replay``, the rest as recorded."""
        return self._info

    @property
    def time_s(self) -> float:
        """How far the traffic has been read (s)."""
        return self._time_s

    def close(self) -> None:
        """Do nothing: the table is in memory."""

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the coverage events; see ``vnetsim.coverage.Traffic``. Every call yields the same."""
        leaving: list[tuple[tuple[float, bool, str, str], int, Left]] = []
        table = self._table.sort("enter_s", "rsu_id", "vehicle_id")
        names = table.columns
        for index, row in enumerate(table.iter_rows()):
            window = _window(dict(zip(names, row, strict=True)))
            track = _track(window)
            while leaving and leaving[0][2].time_s <= window.enter_s:
                yield self._at(heapq.heappop(leaving)[2])
            yield self._at(Entered(time_s=window.enter_s, track=track))
            left = Left(time_s=window.exit_s, track=track, window=window)
            heapq.heappush(leaving, (events_order(left), index, left))
        while leaving:
            yield self._at(heapq.heappop(leaving)[2])

    def _at(self, event: CoverageEvent) -> CoverageEvent:
        self._time_s = event.time_s
        return event


def _window(row: dict[str, Any]) -> Window:
    fields = {field.name: row[field.name] for field in dataclasses.fields(Window)}
    return Window(**{**fields, **{name: np.array(row[name], dtype=np.float64) for name in _PATHS}})


def _track(window: Window) -> Track:
    return Track(
        vehicle_id=window.vehicle_id,
        vehicle_type=window.vehicle_type,
        rsu_id=window.rsu_id,
        entry_cause=window.entry_cause,
        entry_edge=window.entry_edge,
        time_s=window.path_time_s.tolist(),
        x_m=window.path_x_m.tolist(),
        y_m=window.path_y_m.tolist(),
        speed_mps=window.path_speed_mps.tolist(),
    )
