"""A replayed run gives the consumer exactly what the live run gave it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from received import MANIFEST
from small_runs import write_table

from vnetsim.coverage.windows import CoverageEvent, Left, VehiclePath, Window
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import WINDOWS
from vnetsim.traffic import open_traffic


def record(scenario: str, folder: Path, **settings: object) -> list[CoverageEvent]:
    """Play a scenario and write its windows and manifest as a run does."""
    traffic = open_traffic(
        Experiment(scenario=scenario, traffic=TrafficSettings(repeat=False, **settings))  # type: ignore[arg-type]
    )
    events = list(traffic.events())
    traffic.close()
    rows = []
    for index, window in enumerate(event.window for event in events if isinstance(event, Left)):
        values = {field.name: getattr(window, field.name) for field in dataclasses.fields(Window)}
        values = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
        rows.append(tuple({"window": index, "level_px": 0.0, **values}[column.name] for column in WINDOWS))
    directory = RunDirectory(folder)
    write_table(directory, "windows", rows)
    info = {k: v for k, v in dataclasses.asdict(traffic.info).items() if k != "lanes" and (v or k != "plugin")}
    rsus = [dataclasses.asdict(rsu) for rsu in traffic.rsus]
    directory.write_json("manifest.json", {**MANIFEST, "rsus": rsus, "traffic": info})
    return events


@pytest.mark.parametrize("kind", ["sumo", "gaussian"])
def test_replay_equals_live(kind, scenario, tmp_path, events_of):
    specs = ("B1:120", "A1:60", "310,505:90.5") if kind == "sumo" else ()
    live = record(str(scenario) if kind == "sumo" else "gaussian", tmp_path, rsu=specs)
    replayed = events_of(tmp_path)
    assert len(live) == len(replayed) > 50
    for ours, theirs in zip(live, replayed, strict=True):
        assert type(ours) is type(theirs)
        assert ours.time_s == theirs.time_s
        for field in dataclasses.fields(VehiclePath):
            np.testing.assert_array_equal(getattr(ours.path, field.name), getattr(theirs.path, field.name))
        if isinstance(ours, Left):
            for field in dataclasses.fields(Window):
                np.testing.assert_array_equal(getattr(ours.window, field.name), getattr(theirs.window, field.name))


def test_the_table_itself_can_be_named(tmp_path):
    record("gaussian", tmp_path)
    traffic = open_traffic(Experiment(scenario=str(tmp_path / "windows.parquet")))
    assert traffic.info.kind == "replay"
    assert traffic.info.whole_paths
    assert traffic.info.end_s == 900.0
    assert [(rsu.id, rsu.environment) for rsu in traffic.rsus] == [("0,0", "highway")]


@pytest.mark.parametrize(("recorded_s", "expected_s"), [(2000.0, 2000.0), (1.0, 900.0), (None, 900.0)])
def test_a_replay_ends_with_its_run_and_not_before_its_last_exit(tmp_path, recorded_s, expected_s):
    record("gaussian", tmp_path)
    directory = RunDirectory(tmp_path)
    directory.write_json("manifest.json", {**directory.manifest(), "time_s": recorded_s})
    assert open_traffic(Experiment(scenario=str(tmp_path))).info.end_s == expected_s


def test_altered_settings_of_what_is_replayed_are_told(tmp_path, events_of):
    record("gaussian", tmp_path)
    RunDirectory(tmp_path).put({"experiment.toml": b'scenario = "gaussian"\n[traffic]\nwarmup_s = 0.0\n'})
    assert events_of(tmp_path)
    (tmp_path / "experiment.toml").write_bytes(b"altered")
    with pytest.raises(InputError, match=r"experiment\.toml: altered or damaged since it was written"):
        events_of(tmp_path)
