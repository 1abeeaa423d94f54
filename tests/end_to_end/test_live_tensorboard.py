"""Event files of TensorBoard, written while rounds close."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import events_in, interrupted_at

import vnetsim

pytest.importorskip("tensorboardX")


def scalars(folder: Path) -> list[tuple[str, int, float, float]]:
    return sorted(
        (one.tag, event.step, event.wall_time, one.simple_value)
        for event in events_in(folder)
        for one in event.summary.value
        if one.HasField("simple_value")
    )


def hyperparameters(folder: Path) -> list[bytes]:
    return [one.metadata.plugin_data.content for event in events_in(folder) for one in event.summary.value
            if one.metadata.plugin_data.plugin_name == "hparams"]  # fmt: skip


def test_points_are_there_as_rounds_close_and_once_after_a_resume(
    cli: Callable[..., Any], toy: type, scenarios: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    command = ("run", scenarios / "gaussian.toml", "--learner", "toy", "--rounds", 3, "--out", folder)
    with interrupted_at(toy, "evaluate", 3):
        stopped = cli(*command, "--tensorboard")
    assert stopped.status == 130
    early = scalars(folder)
    assert {step for tag, step, *_ in early if tag == "committed"} == {1, 2}
    assert not hyperparameters(folder)
    assert cli("resume", folder).status == 0
    vnetsim.export(folder, tensorboard=tmp_path / "exported")
    assert set(early) < set(scalars(folder))
    assert scalars(folder) == scalars(tmp_path / "exported")
    # the session's start and end times differ
    assert hyperparameters(folder)[0] == hyperparameters(tmp_path / "exported")[0]
    vnetsim.run("gaussian", learner="toy", out=folder, overwrite=True, rounds=1, progress=False)
    assert not [*folder.glob("events*")]


def test_a_comparison_has_one_in_each_cell(toy: type, tmp_path: Path) -> None:  # noqa: ARG001 - installs it
    study = vnetsim.compare(
        "gaussian", learners=["toy"], seeds=[0, 1], rounds=1, tensorboard=True, timing_only=True,
        out=tmp_path / "study", traffic__end_s=60, progress=False,
    )  # fmt: skip
    assert len(study.runs) == 2
    for run in study.runs.values():
        assert {tag for tag, *_ in scalars(run.path)} == {"committed"}
        assert b"learner" in b"".join(hyperparameters(run.path))
