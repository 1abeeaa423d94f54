"""The command line on a device: a study's cells at a time, a run that is killed and resumed, Ray, SUMO.

Needs vnetsim and what it depends on installed; a part without what it needs is not run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from device_checks.rows import CheckSetup, NotRun, Row

ROOT = Path(__file__).parents[2]
UNFINISHED = 75
SAME = ("--set", "arithmetic.deterministic=true")
"""On a GPU bits are the same each time only so."""
LEFT_S = 15.0
"""Seconds of a part's limit that are left for what it does besides."""


def cells(setup: CheckSetup) -> list[Row]:
    """100 cells of the small encoder as ``compare`` runs them by itself, against one run; as many as there is time for.

    Arms differ in their step size alone.
    """
    arms, seeds = (2, 1) if setup.tiny else (10, 10)
    size = _size(setup, rounds=30)
    rates = [f'[[arms]]\nname = "{i}"\nlearner = "flsimco"\nlearning.lr = {0.01 * (i + 1):.2f}\n' for i in range(arms)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study.toml").write_text('title = "Cells"\nscenario = "gaussian"\n\n' + "\n".join(rates))
        one_s, _ = _call(setup, folder, "run", "gaussian", *size, "--out", "one")
        whole_s, status = _call(
            setup, folder, "compare", "study.toml", *size, "--seeds", f"0:{seeds}", "--out", "all",
            "--time-limit", f"{max(1.0, setup.left_s - LEFT_S):.0f}", may_end=(0, UNFINISHED),
        )  # fmt: skip
        done = sum('"status": "finished"' in path.read_text() for path in folder.glob("all/cells/*/manifest.json"))
    ratio, count = whole_s / one_s, arms * seeds
    seen = f"{ratio:.1f} x ({whole_s:.3g} s) for {done} of {count} cells"
    return [
        Row(work=f"a study of {count} cells with the small encoder, workers chosen by itself",
            reference=f"one run: {one_s:.3g} s", target="<= 5 x",
            seen=seen, met=ratio <= 5 if status == 0 or ratio > 5 else None,
            values={"ratio": ratio, "one_s": one_s, "wall_s": whole_s, "cells": float(done)})
    ]  # fmt: skip


def resume(setup: CheckSetup) -> list[Row]:
    """A run that is killed after a saved round and resumed, against one that nothing disturbed: the same model."""
    size = (*_size(setup, rounds=20), *SAME)
    with TemporaryDirectory() as name:
        folder = Path(name)
        _call(setup, folder, "run", "gaussian", *size, "--out", "whole")
        command = _command(setup, "run", "gaussian", *size, "--out", "killed")
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stderr=subprocess.DEVNULL)
        while process.poll() is None and not (folder / "killed" / "checkpoint" / "progress.json").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
        if killed:
            _call(setup, folder, "resume", "killed", device=False)
        same = _model(folder / "whole") == _model(folder / "killed")
    why = "" if killed else "ended before it was killed"
    return [_judged("a run killed (kill -9) after a saved round and resumed", same and killed, why)]


def ray(setup: CheckSetup) -> list[Row]:
    """Two cells over Ray, which has as many GPUs as it finds, against one process: the same models."""
    if find_spec("ray") is None:
        raise NotRun("Ray is not installed here")
    size = (*_size(setup, rounds=5), *SAME, "--learners", "flsimco,fedavg", "--seeds", "0")
    with TemporaryDirectory() as name:
        folder = Path(name)
        _call(setup, folder, "compare", "gaussian", *size, "--workers", "1", "--out", "here")
        _call(setup, folder, "compare", "gaussian", *size, "--engine", "ray", "--workers", "2", "--out", "ray")
        models = [{path.name: _model(path) for path in folder.glob(f"{out}/cells/*")} for out in ("here", "ray")]
    return [_judged("two cells of a comparison over Ray", models[0] == models[1] and len(models[0]) == 2)]


def sumo(setup: CheckSetup) -> list[Row]:
    """A run of the shipped crossing with SUMO beside it, against the same run on the recorded traffic."""
    if find_spec("sumo") is None:
        raise NotRun("SUMO is not installed here")
    size = (*_size(setup, rounds=5), *SAME)
    with TemporaryDirectory() as name:
        folder = Path(name)
        _call(setup, folder, "run", str(ROOT / "scenarios" / "intersection.sumocfg"), *size, "--out", "live")
        _call(setup, folder, "run", "live", *size, "--out", "replayed")
        same = _model(folder / "live") == _model(folder / "replayed")
    return [_judged("a run with SUMO, against its replay", same)]


def _judged(work: str, same: bool, why: str = "") -> Row:
    """Return the row of models that ought to be the same."""
    seen = "the same bits" if same else why or "other bits"
    return Row(work=work, reference="the run that nothing disturbed", target="the same bits", seen=seen, met=same)


def _size(setup: CheckSetup, *, rounds: int) -> tuple[str, ...]:
    """Return the options of a run of so many rounds; tiny ones take a second of training."""
    settings: dict[str, object] = {"rounds": 3 if setup.tiny else rounds, "learning.encoder": "small"}
    if setup.tiny:
        settings |= {"data.train_images": 200, "data.test_images": 20, "silos.count": 4, "silos.approaches": 2,
                     "learning.batch": 4, "learning.steps": 1, "learning.bank": 40}  # fmt: skip
    return tuple(one for key, value in settings.items() for one in ("--set", f"{key}={value}"))


def _model(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def _command(setup: CheckSetup, *words: str, device: bool = True) -> list[str]:
    return [sys.executable, "-m", "vnetsim", *words, *(("--device", setup.device) if device else ())]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def _call(
    setup: CheckSetup, folder: Path, *words: str, device: bool = True, may_end: Sequence[int] = (0,)
) -> tuple[float, int]:
    """Run a command in ``folder``; return its seconds and exit status. NotRun without vnetsim, else RuntimeError."""
    try:
        version("vnetsim")
        assert find_spec("polars"), "polars"
    except (PackageNotFoundError, AssertionError) as lacking:
        raise NotRun(f"not installed here: {lacking}") from None
    began_s = time.perf_counter()
    done = subprocess.run(
        _command(setup, *words, device=device), cwd=folder, env=_environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode not in may_end:
        raise RuntimeError(f"{' '.join(words[:2])} ended with {done.returncode}: {done.stderr[-400:]}")
    return time.perf_counter() - began_s, done.returncode
