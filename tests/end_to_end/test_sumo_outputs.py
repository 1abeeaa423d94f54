"""A run, its continuation and its replay leave the files alone that the scenario would have SUMO write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from learners.contrastive import ContrastiveLearner

Cli = Callable[..., Any]
MINE = "what the user had\n"


def test_run_resume_and_replay(
    cli: Cli, small: tuple[str, ...], scenarios: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(scenarios / "intersection", tmp_path / "scenario" / "intersection")
    config = tmp_path / "scenario" / "intersection.sumocfg"
    mine = tmp_path / "tripinfos.xml"
    mine.write_text(MINE)
    text = (scenarios / config.name).read_text()
    config.write_text(text.replace("<time>", f'<output><tripinfo-output value="{mine}"/></output><time>'))
    assert config.read_text() != text
    options, out = (*small, "--end", 150), tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(ContrastiveLearner, "train", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        stopped = cli("run", config, *options, "--out", out)
    assert stopped.status == 130
    assert f"go to {out / 'sumo'}" in stopped.err
    for command in (("resume", out), ("run", out, *options, "--out", tmp_path / "replayed")):
        done = cli(*command)
        assert done.status == 0, done.err
        assert mine.read_text() == MINE
    assert b"</tripinfos>" in (out / "sumo" / "tripinfos.xml").read_bytes()
    assert not (tmp_path / "replayed" / "sumo").exists()
