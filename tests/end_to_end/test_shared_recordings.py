"""Cells of a study that use one another's recorded steps have the bits of cells that train plainly."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from device_checks.recorder import CallingLane
from learner_checks import one_thread
from small_runs import TINY

import vnetsim
from learners.engines.recorded import RecordedEngine, Recording
from learners.engines.store import RecordingStore


class Interrupting:
    """A display that interrupts when so much of a study is done."""

    def __init__(self, after: float) -> None:
        self._after = after

    def stage(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:  # noqa: ARG002
        if done >= self._after:
            raise KeyboardInterrupt


@pytest.mark.slow  # tests/learners/engines/test_store.py has runs that share recordings
def test_interrupted_cells_with_one_recording_have_the_same_bits(tmp_path, monkeypatch, results_of):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vnetsim.study.workers.REPORT_EVERY_S", 0.0)  # every round is seen
    settings = {**TINY, "learning.linear_probe": "never", "learning.bank": 40, "compute.median_flops": 1e12}
    compare = partial(
        vnetsim.compare, "gaussian", learners=["flsimco", "fedavg"], rounds=3, seeds=[0], settings=settings
    )
    with one_thread():
        plain = compare(out="plain")
        made: list[str] = []
        init, shared = Recording.__init__, RecordingStore()

        def counted(self: Recording, *given: Any) -> None:
            made.append("")
            init(self, *given)

        monkeypatch.setattr(Recording, "__init__", counted)
        monkeypatch.setattr(
            "learners.tasks.task.create_engine", lambda *_: RecordedEngine(CallingLane, lanes=1, store=shared)
        )
        for after in (0.5, 1.4):
            with pytest.raises(KeyboardInterrupt):
                compare(out="recorded", progress=Interrupting(after))
        recorded = compare(out="recorded")
    assert len(made) == 2, "one for each arm, none again by a resumed cell"
    for name, cell in recorded.runs.items():
        assert results_of(cell.path) == results_of(plain.runs[name].path)
        assert cell.manifest["learner"]["facts"]["Engine"] == "recorded steps, 1 at a time"
