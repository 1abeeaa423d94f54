"""TF32 and deterministic algorithms are a run's own: set for it, recorded, and put back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from learners.tasks.contrastive import ContrastiveTask

SmallRun = Callable[..., tuple[Path, Any]]


def test_arithmetic_is_set_for_the_run_recorded_and_put_back(
    small_run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    evaluate = ContrastiveTask.evaluate

    def watched(self: Any, state: Any, *, final: bool) -> Any:
        seen.append(torch.are_deterministic_algorithms_enabled() and torch.backends.cuda.matmul.allow_tf32)
        return evaluate(self, state, final=final)

    monkeypatch.setattr(ContrastiveTask, "evaluate", watched)
    both = ("--set", "arithmetic.deterministic=true", "--set", "arithmetic.tf32=true")
    plain, changed = (small_run("gaussian.toml", *options)[0] for options in ((), both))
    assert seen[-4:] == [True] * 4
    assert not any(seen[:-4])
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cuda.matmul.allow_tf32
    devices = [json.loads((run / "manifest.json").read_text())["device"] for run in (plain, changed)]
    assert devices[0] == {**devices[1], "tf32": False, "deterministic": False}
    assert devices[1]["tf32"] is devices[1]["deterministic"] is True
    models = [(run / "model.safetensors").read_bytes() for run in (plain, changed)]
    assert models[0] == models[1], "on a CPU neither changes a bit"
