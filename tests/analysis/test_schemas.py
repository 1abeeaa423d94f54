"""Whatever stands in the JSON files of a folder: one line that names the file, or a folder that reads."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.comparison.loading import load_comparison
from analysis.loading import load
from analysis.report.record import record
from vnetsim.errors import InputError, VnetsimError
from vnetsim.experiment import TrafficSettings
from vnetsim.runs.checkpoint import Checkpoint
from vnetsim.runs.runner import resume_run
from vnetsim.storage.checksums import RECORD
from vnetsim.storage.folder import Folder
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.schemas import check
from vnetsim.traffic.replay import ReplayTraffic

VALUES = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            0,
            -1,
            1.5,
            "",
            "x",
            "\0",
            "\ud800",
            [],
            {},
            [[]],
            {"": None},
            10**400,
            1e400,
            float("nan"),
            "../..",
        ]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
)
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


def alter(data: st.DataObject, path: Path) -> None:
    """Change one or two values of a JSON file at random places; its checksum is made anew, as a deceiver would."""
    value = json.loads(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(places(value)))
        value = changed(value, place, data.draw(VALUES), drop=data.draw(st.booleans()))
    path.write_text(json.dumps(value))


def only_told(*readers: Callable[[], object]) -> None:
    for read in readers:
        with contextlib.suppress(VnetsimError):
            read()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory whose checksums were lost, as of an earlier version."""
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
    (path / RECORD).unlink()
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
    alter(data, path)
    only_told(lambda: record(load(recorded)), lambda: ReplayTraffic(recorded, TrafficSettings()))


@given(data=st.data())
@SCALE
def test_any_progress(data: st.DataObject, made: Path) -> None:
    path = made / "checkpoint" / "progress.json"
    whole = path.read_bytes()
    try:
        alter(data, path)
        only_told(lambda: Checkpoint(Folder(made)).load())
    finally:
        path.write_bytes(whole)


COMPARISON = {
    "vnetsim": "0.1.0", "title": "t", "notes": ["n"], "command": ["vnetsim"], "failed": {"a": "it failed"},
    "traffic": [{"folder": "traffic/t", "settings": {"scenario": "gaussian"}, "sha256": "ab"}],
    "cells": [{"folder": "a", "arm": "x", "condition": "", "learner": "x", "seed": 0, "traffic": "traffic/t"}],
    "skipped": [{"arm": "x", "condition": "", "reason": "none"}],
}  # fmt: skip


@given(data=st.data())
@SCALE
def test_any_comparison(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps(COMPARISON))
    alter(data, path)
    only_told(lambda: load_comparison(tmp_path))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("manifest.json", {"inputs": 1.5}, "'inputs' is missing or of the wrong type: expected an object, got 1.5."),
        ("manifest.json", {"rsus": [{"x_m": "1"}]}, "'rsus.0.x_m' is missing or of the wrong type: expected a finite"),
        ("manifest.json", {"traffic": {"end_s": True}}, "'traffic.end_s' is missing or of the wrong type"),
        ("manifest.json", [], "expected an object at the top, got []."),
        (
            "manifest.json",
            {"peak_memory_bytes": 12345},
            "'peak_memory_bytes' is missing or of the wrong type: expected",
        ),
        (
            "manifest.json",
            {"kind": "x"},
            "'kind' is missing or of the wrong type: expected one of run, mobility, got 'x'",
        ),
        ("manifest.json", {"status": "done"}, "'status' is missing or of the wrong type: expected one of running, "),
        (
            "experiment.toml",
            {"silos": {"count": "x"}},
            "'silos.count' is missing or of the wrong type: expected a whole",
        ),
        ("progress.json", {"rounds": [{"weights": ""}]}, "'rounds.0.weights' is missing or of the wrong type"),
        ("comparison.json", {"cells": [3]}, "'cells.0' is missing or of the wrong type: expected an object, got 3."),
        (
            "comparison.json",
            {"interval": -1},
            "'interval' is missing or of the wrong type: expected one of sign-flip, t",
        ),
        ("comparison.json", {"arm_settings": 1e308}, "'arm_settings' is missing or of the wrong type: expected a list"),
        ("comparison.json", {"last_evaluations": {}}, "'last_evaluations' is missing or of the wrong type: expected a"),
        (
            "comparison.json",
            {"last_evaluations_before": 5},
            "'last_evaluations_before' is missing or of the wrong type",
        ),
        (
            "comparison.json",
            {"last_evaluations_before": [[1]]},
            "'last_evaluations_before.0' is missing or of the wrong",
        ),
    ],
)
def test_the_key_is_named(name: str, value: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        check(Path("run") / name, value)
    assert str(caught.value).startswith(f"run/{name}: damaged: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"failed": None}, "damaged: 'failed' is missing or of the wrong type: expected an object, got None."),
        ({"traffic": []}, "damaged: 'cells.0.traffic' is none of the traffic in it."),
        ({"traffic": [{"a": None}]}, "damaged: 'traffic.0.folder' is missing."),
        ({"cells": [{**COMPARISON["cells"][0], "seed": 1}, {"folder": "a"}]}, "damaged: 'cells.1.learner' is missing."),
        ({"last_evaluations": 0}, "damaged: 'last_evaluations' must be at least 1, got 0."),
    ],
    ids=["failed", "no traffic", "traffic", "cells", "last"],
)
def test_what_a_comparison_lacks_is_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    RunDirectory(tmp_path).write_json("comparison.json", COMPARISON | change)
    with pytest.raises(InputError) as caught:
        load_comparison(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'comparison.json'}: {words}"


def test_a_comparison_that_was_stopped_before_its_cells_is_not_damaged(tmp_path: Path) -> None:
    RunDirectory(tmp_path).write_json("comparison.json", {"vnetsim": "0.1.0", "traffic": []})
    with pytest.raises(InputError, match=r"tells of no cells yet; call `vnetsim compare` again\.$"):
        load_comparison(tmp_path)


@pytest.mark.parametrize("key", ["kind", "status"])
def test_what_is_not_said_to_be_a_run_is_not_resumed(key: str, tmp_path: Path) -> None:
    manifest = {"vnetsim": "0.1.0", "kind": "mobility", "status": "interrupted"}
    RunDirectory(tmp_path).write_json("manifest.json", {name: value for name, value in manifest.items() if name != key})
    with pytest.raises(InputError, match=rf"manifest\.json: damaged: '{key}' is missing\.$"):
        resume_run(tmp_path, command=(), progress=Mock())
