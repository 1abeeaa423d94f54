"""Replays the traffic of an earlier run from its recorded windows: the same events, bit for bit, without SUMO."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import TrafficInfo, VehiclePath, Window
from vnetsim.errors import InputError
from vnetsim.errors.paths import resolve_path
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.structure import structure
from vnetsim.traffic.paths import PathTraffic

_PATHS = ("path_time_s", "path_x_m", "path_y_m", "path_speed_mps")


class ReplayTraffic(PathTraffic):
    """The windows of a run directory, which ``experiment.scenario`` names, or its ``windows.parquet``.

    Settings of ``traffic`` must be the defaults or equal to the recorded ones, except ``repeat`` and ``equipped``. Of
    files only the names are compared. InputError if it is not a run directory, its record is damaged, or a setting of
    ``traffic`` differs.
    """

    def __init__(self, experiment: Experiment, **_: object) -> None:
        path, settings = Path(experiment.scenario), experiment.traffic
        if path.is_file():
            path = path.parent
        directory = RunDirectory(path)
        manifest = directory.manifest_record()
        self.rsus = tuple(Rsu(**dataclasses.asdict(rsu)) for rsu in manifest.rsus)
        if not self.rsus:
            raise InputError(f"{path / 'manifest.json'}: it records no RSU.")
        self._table = directory.read("windows")
        lanes = directory.read("map").select("x_m", "y_m").iter_rows() if directory.has("map") else ()
        recorded = manifest.traffic
        # The recording ends where its run ended, which may be before the scenario's end or after the last exit.
        end_s = manifest.time_s or recorded.begin_s
        last_exit_s = float(self._table["exit_s"].max() or end_s)  # type: ignore[arg-type]
        self._info = TrafficInfo(
            kind="replay",
            begin_s=recorded.begin_s,
            end_s=max(last_exit_s, end_s),
            step_s=recorded.step_s,
            seed=recorded.seed,
            command=tuple(recorded.command),
            version=recorded.version,
            inputs=(str(resolve_path(path / "windows.parquet")),),
            notes=tuple(recorded.notes),
            vehicles=recorded.vehicles,
            lanes=tuple(np.column_stack(lane) for lane in lanes),
            heights_m=recorded.heights_m,
            whole_paths=True,
            left_out=recorded.left_out,
            silences=recorded.silences,
            glimpsed=recorded.glimpsed,
        )
        file = "experiment.toml"
        table = directory.settings().get("traffic", {}) if directory.holds(file) else {}
        recorded_with = structure(table, TrafficSettings, str(path / file), ("traffic",))
        for field in dataclasses.fields(TrafficSettings):
            asked, made, default = (
                _strip_folders(getattr(one, field.name)) for one in (settings, recorded_with, TrafficSettings())
            )
            if field.name not in {"repeat", "equipped"} and asked not in (made, default):
                raise InputError(
                    f"{path}: traffic.{field.name}: a replay is the whole recording, made with {made}; record again "
                    "with vnetsim mobility."
                )
        if recorded_with.equipped not in {1.0, settings.equipped}:
            note = f"Recorded with traffic.equipped = {recorded_with.equipped:g}; here it is {settings.equipped:g}."
            self._info = dataclasses.replace(self._info, notes=(*self._info.notes, note))
        self.time_s = self._info.begin_s

    def _windows(self) -> Iterator[tuple[VehiclePath, Window]]:
        """Yield the recorded paths and windows, sorted by time of entry, RSU and vehicle."""
        for row in self._table.sort("enter_s", "rsu_id", "vehicle_id").iter_rows(named=True):
            window = _make_window(row)
            yield _make_path(window), window


def _strip_folders(value: Any) -> Any:
    """Return paths, a text or a tuple, without their folders, since files may have moved; other values as they are."""
    if isinstance(value, str):
        return Path(value).name
    return tuple(Path(one).name for one in value) if isinstance(value, tuple) else value


def _make_window(row: dict[str, Any]) -> Window:
    """Return the window that a row of the table ``windows`` records, with its path as arrays."""
    fields = {field.name: row[field.name] for field in dataclasses.fields(Window)}
    return Window(**{**fields, **{name: np.array(row[name], dtype=np.float64) for name in _PATHS}})


def _make_path(window: Window) -> VehiclePath:
    """Return the path of a recorded window, whole, with lists of floats."""
    return VehiclePath(
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
