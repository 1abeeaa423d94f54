"""Whatever stands in the JSON files of a folder: one line that names the file, or a folder that reads."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from received import MANIFEST, reseal

from analysis.comparison.loading import load_comparison
from analysis.loading import load
from analysis.report.record import record
from vnetsim.errors import InputError, VnetsimError
from vnetsim.experiment import TrafficSettings
from vnetsim.runs.checkpoint import Checkpoint
from vnetsim.storage.folder import Folder
from vnetsim.storage.records import FORMAT, ComparisonRecord, ExperimentRecord, ManifestRecord
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.structure import structured
from vnetsim.traffic.replay import ReplayTraffic

ODD = [None, True, 0, -1, 1.5, "", "x", "\0", "\ud800", [], {}, [[]], {"": None}, 10**400, 1e400, float("nan"), "../.."]
VALUES = st.one_of(st.sampled_from(ODD), st.integers(), st.floats(), st.text(max_size=5))
SCALE = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the keys of every value in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(deep for key, item in items for deep in places(item, (*place, key)))]


def changed(value: Any, place: tuple[Any, ...], new: Any, *, drop: bool) -> Any:
    if not place:
        return new
    result = dict(value) if isinstance(value, dict) else list(value)
    if len(place) == 1 and drop:
        del result[place[0]]
    else:
        result[place[0]] = changed(value[place[0]], place[1:], new, drop=drop)
    return result


def alter(data: st.DataObject, path: Path, folder: Path) -> None:
    """Change one or two values of a JSON file at random places; its checksum is made anew, as a deceiver would."""
    value = json.loads(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(places(value)))
        value = changed(value, place, data.draw(VALUES), drop=data.draw(st.booleans()))
    path.write_text(json.dumps(value))
    reseal(folder)


def only_told(*readers: Callable[[], object]) -> None:
    for read in readers:
        with contextlib.suppress(VnetsimError):
            read()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with a checkpoint."""
    import torch  # noqa: PLC0415

    from vnetsim.runs.checkpoint import FinishedRound, TrainingHistory  # noqa: PLC0415

    path = tmp_path_factory.mktemp("made") / "run"
    run = RunDirectory(path)
    finished = FinishedRound(
        participants="abc", rejected=(1,), weights=(0.1, None), losses=(0.5, 2.0), metrics={"a": 0.7},
        exchanges=(("v", "w", 0.5),),
    )  # fmt: skip
    state = {"silo.3.w": torch.ones(2), "w": torch.ones(1)}
    Checkpoint(run).save(TrainingHistory(initial={"a": 0.1}, rounds=(finished,)), state)
    return path


@pytest.fixture(scope="module")
def recorded(learning_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory without the pages."""
    path = tmp_path_factory.mktemp("recorded")
    for name in ("manifest.json", "experiment.toml", "windows.parquet", "map.parquet"):
        shutil.copy(learning_run / name, path / name)
    return path


@given(data=st.data())
@SCALE
def test_any_manifest(data: st.DataObject, learning_run: Path, recorded: Path) -> None:
    path = recorded / "manifest.json"
    path.write_bytes((learning_run / path.name).read_bytes())
    alter(data, path, recorded)
    only_told(lambda: record(load(recorded)), lambda: ReplayTraffic(recorded, TrafficSettings()))


@given(data=st.data())
@SCALE
def test_any_progress(data: st.DataObject, made: Path) -> None:
    path = made / "checkpoint" / "progress.json"
    whole = path.read_bytes()
    try:
        alter(data, path, made)
        only_told(lambda: Checkpoint(Folder(made)).load())
    finally:
        path.write_bytes(whole)


COMPARISON = {
    "vnetsim": "0.1.0", "format": FORMAT, "title": "t", "notes": ["n"], "command": ["vnetsim"],
    "failed": {"a": "it failed"},
    "traffic": [{"folder": "traffic/t", "settings": {"scenario": "gaussian"}, "sha256": "ab"}],
    "cells": [{"folder": "a", "arm": "x", "condition": "", "learner": "x", "seed": 0, "traffic": "traffic/t"}],
    "skipped": [{"arm": "x", "condition": "", "reason": "none"}],
}  # fmt: skip


@given(data=st.data())
@SCALE
def test_any_comparison(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps(COMPARISON))
    alter(data, path, tmp_path)
    only_told(lambda: load_comparison(tmp_path))


STRANGE = {"id": "a", "x_m": 0, "y_m": 0, "range_m": 500, "environment": "moon"}
KINDS = {"manifest.json": ManifestRecord, "experiment.toml": ExperimentRecord, "comparison.json": ComparisonRecord}
WHOLE = {"manifest.json": MANIFEST, "experiment.toml": {"scenario": "gaussian"}, "comparison.json": COMPARISON}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("manifest.json", {"inputs": 1.5}, "inputs: expected a table, got 1.5."),
        ("manifest.json", {"rsus": [{"id": "a", "x_m": "1", "y_m": 0, "range_m": 1}]}, "rsus.0.x_m: expected a number"),
        ("manifest.json", {"rsus": "none"}, "rsus: expected a list, got 'none'."),
        ("manifest.json", {"rsus": [{"id": "a"}]}, "rsus.0.x_m: it has no default and must be given."),
        (
            "manifest.json",
            {"rsus": [STRANGE]},
            "rsus.0.environment: must be one of '', 'urban', 'highway', got 'moon'.",
        ),
        ("manifest.json", {"traffic": {"kind": "a", "begin_s": True}}, "traffic.begin_s: expected a number, got True."),
        ("manifest.json", {"time_s": float("nan")}, "time_s: expected a finite number, got nan."),
        ("manifest.json", {"command": ["\0"]}, "command.0: expected a string, got '\\x00'."),
        ("manifest.json", {"host": {"cores": []}}, "host.cores: "),
        ("manifest.json", {"kind": "x"}, "kind: must be one of 'run', 'timing', 'mobility', got 'x'."),
        ("experiment.toml", {"silos": {"count": "x"}}, "silos.count: expected a whole number, got 'x'."),
        ("comparison.json", {"cells": [3]}, "cells.0: expected a table, got 3."),
        ("comparison.json", {"interval": -1}, "interval: must be one of 'sign-flip', 't', got -1."),
        ("comparison.json", {"last_evaluations_before": [[1]]}, "last_evaluations_before.0: expected a whole number"),
        ("comparison.json", {"failed": None}, "failed: expected a table, got None."),
    ],
)
def test_the_key_is_named(name: str, value: dict[str, Any], words: str) -> None:
    structured(Path("run") / name, WHOLE[name], KINDS[name])
    with pytest.raises(InputError) as caught:
        structured(Path("run") / name, {**WHOLE[name], **value}, KINDS[name])
    assert str(caught.value).startswith(f"run/{name}: damaged: {words}")


def test_a_folder_of_another_version_says_which(tmp_path: Path) -> None:
    """One number marks the format; without it, the folder is of the time before."""
    for content, who in (({"vnetsim": "7.1", "format": 9}, "vnetsim 7.1"), ({"cells": []}, "another version")):
        for name in ("manifest.json", "comparison.json"):
            RunDirectory(tmp_path).write_json(name, content)
        for read in (RunDirectory(tmp_path).manifest, lambda: load_comparison(tmp_path)):
            with pytest.raises(InputError, match=rf"json: written by {who} in another format than vnetsim .* reads\.$"):
                read()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"traffic": []}, "damaged: 'cells.0.traffic' is none of the traffic in it."),
        ({"last_evaluations": 0}, "damaged: 'last_evaluations' must be at least 1, got 0."),
    ],
    ids=["no traffic", "last"],
)
def test_what_does_not_fit_in_a_comparison_is_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    RunDirectory(tmp_path).write_json("comparison.json", COMPARISON | change)
    with pytest.raises(InputError) as caught:
        load_comparison(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'comparison.json'}: {words}"


def test_a_comparison_that_was_stopped_before_its_cells_is_not_damaged(tmp_path: Path) -> None:
    begun = {"vnetsim": "0.1.0", "format": FORMAT, "traffic": []}
    RunDirectory(tmp_path).write_json("comparison.json", begun)
    with pytest.raises(InputError, match=r"lists no cells yet; call `vnetsim compare` again\.$"):
        load_comparison(tmp_path)
