"""Whatever stands in the JSON files of a folder: one line that names the file, or a folder that reads."""

from pathlib import Path

import pytest
from received import MANIFEST

from analysis.comparison.loading import load_comparison
from vnetsim.errors import InputError
from vnetsim.storage.records import FORMAT, ComparisonRecord, ManifestRecord
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.structure import build_record

COMPARISON = {
    "vnetsim": "0.1.0", "format": FORMAT, "title": "t", "notes": ["n"], "command": ["vnetsim"],
    "failed": {"a": "it failed"},
    "traffic": [{"folder": "traffic/t", "settings": {"scenario": "gaussian"}, "sha256": "ab"}],
    "cells": [{"folder": "a", "arm": "x", "condition": "", "learner": "x", "seed": 0, "traffic": "traffic/t"}],
    "skipped": [{"arm": "x", "condition": "", "reason": "none"}],
}  # fmt: skip


STRANGE = {"id": "a", "x_m": 0, "y_m": 0, "range_m": 500, "environment": "moon"}
KINDS = {"manifest.json": ManifestRecord, "comparison.json": ComparisonRecord}
WHOLE = {"manifest.json": MANIFEST, "comparison.json": COMPARISON}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("manifest.json", {"inputs": 1.5}, "inputs: expected a table, got 1.5."),
        ("manifest.json", {"rsus": [{"id": "a", "x_m": "1", "y_m": 0, "range_m": 1}]}, "rsus.0.x_m: expected a number"),
        ("manifest.json", {"rsus": [{"id": "a"}]}, "rsus.0.x_m: it has no default and must be given."),
        (
            "manifest.json",
            {"rsus": [STRANGE]},
            "rsus.0.environment: must be one of '', 'urban', 'highway', got 'moon'.",
        ),
        ("manifest.json", {"traffic": {"kind": "a", "begin_s": True}}, "traffic.begin_s: expected a number, got True."),
        ("manifest.json", {"host": {"cores": []}}, "host.cores: "),
        ("manifest.json", {"kind": "x"}, "kind: must be one of 'run', 'timing', 'mobility', got 'x'."),
        ("comparison.json", {"cells": [3]}, "cells.0: expected a table, got 3."),
        ("comparison.json", {"interval": -1}, "interval: must be one of 'sign-flip', 't', got -1."),
        ("comparison.json", {"last_evaluations_before": [[1]]}, "last_evaluations_before.0: expected a whole number"),
        ("comparison.json", {"failed": None}, "failed: expected a table, got None."),
    ],
)
def test_the_key_is_named(name, value, words):
    build_record(Path("run") / name, WHOLE[name], KINDS[name])
    with pytest.raises(InputError) as caught:
        build_record(Path("run") / name, {**WHOLE[name], **value}, KINDS[name])
    assert str(caught.value).startswith(f"run/{name}: damaged: {words}")


def test_a_folder_of_another_version_says_which(tmp_path):
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
def test_what_does_not_fit_in_a_comparison_is_named(change, words, tmp_path):
    RunDirectory(tmp_path).write_json("comparison.json", COMPARISON | change)
    with pytest.raises(InputError) as caught:
        load_comparison(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'comparison.json'}: {words}"


def test_a_comparison_that_was_stopped_before_its_cells_is_not_damaged(tmp_path):
    begun = {"vnetsim": "0.1.0", "format": FORMAT, "traffic": []}
    RunDirectory(tmp_path).write_json("comparison.json", begun)
    with pytest.raises(InputError, match=r"lists no cells yet; call `vnetsim compare` again\.$"):
        load_comparison(tmp_path)
