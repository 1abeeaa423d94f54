"""Runs of one process record a step once: programs of equal value share it, others never do, and no bit changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from threading import get_ident
from typing import Any
from unittest import mock

import pytest
import torch
from device_checks import learner_class
from device_checks.recorder import CallingLane, OperationsLane
from device_checks.tiny_data import SILOS, tiny_images
from device_checks.tiny_rounds import SETTINGS, flat, jobs_of, tiny_data
from device_checks.training_work import context

from learners.engines import recorded, store
from learners.engines.programs import SequentialEngine, TrainingJob
from learners.engines.recorded import RecordedEngine
from learners.engines.store import RecordingStore, get_store
from learners.tasks.classification import ClassificationTask
from vnetsim.random_streams import Streams


@pytest.fixture
def made(monkeypatch):
    """One entry for each recording that is made."""
    made: list[None] = []

    class Counted(recorded.Recording):
        def __init__(self, *given: Any) -> None:
            made.append(None)
            super().__init__(*given)

    monkeypatch.setattr(recorded, "Recording", Counted)
    return made


def jobs(name: str = "fedavg-classification", seed: int = 0, **settings: Any) -> list[TrainingJob]:
    """Return the jobs of a learner's first round in a run of this seed."""
    kind = learner_class(name)
    streams = Streams(seed=seed).child("learner")
    with tiny_data():
        learner = kind.create(
            context("cpu", SILOS, rounds=4, streams=streams), kind.Settings(**(SETTINGS[kind.task] | settings))
        )
        return jobs_of(learner, rounds=1)[-1]


def trains_alike(shared: RecordingStore, given: Sequence[TrainingJob]) -> bool:
    """Return whether a run that uses the store trains as the sequential engine does, to the bit."""
    found = RecordedEngine(OperationsLane, store=shared, lanes=2).train(given)
    return all(
        torch.equal(flat(one), flat(other)) for one, other in zip(found, SequentialEngine().train(given), strict=True)
    )


@pytest.mark.parametrize(
    "name",
    [
        "fedavg-classification",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("fedavg-steering", "flsimco", "fedco", "cdl", "fedefm")
        ),
    ],
)
def test_runs_of_other_seeds_share_recordings(name, made):
    shared = RecordingStore()
    assert trains_alike(shared, jobs(name))
    assert len(made) == 2, "in two lanes"
    assert trains_alike(shared, jobs(name, seed=1))
    assert len(made) == 2


def other_images() -> Any:
    pictures = tiny_images()
    pictures.train[0, 0, 0, 0] ^= 1
    return mock.patch("device_checks.tiny_rounds.tiny_images", return_value=pictures)


def own_task() -> Any:
    """The task is of a class of the user's."""
    return mock.patch("learners.classification_fedavg.ClassificationTask", OwnTask)


def deterministic() -> Any:
    return mock.patch("torch.are_deterministic_algorithms_enabled", return_value=True)


class OwnTask(ClassificationTask):
    """A user's, whose steps may depend on more than settings."""


@pytest.mark.parametrize(
    ("first", "another", "settings"),
    [
        (mock.MagicMock, mock.MagicMock, {"momentum": 0.5}),
        (mock.MagicMock, mock.MagicMock, {"batch": 3}),
        (mock.MagicMock, other_images, {}),
        (own_task, own_task, {}),
        (mock.MagicMock, deterministic, {}),
    ],
    ids=["settings", "shapes", "images", "user's class", "arithmetic"],
)
def test_another_step_is_recorded_anew(first, another, settings, made, monkeypatch):
    compared: list[bool] = []
    agrees = RecordedEngine._agrees
    monkeypatch.setattr(
        RecordedEngine, "_agrees", lambda *given, **more: compared.append(agrees(*given, **more)) or compared[-1]
    )
    shared = RecordingStore()
    with first():
        assert trains_alike(shared, jobs()[:1])
    with another():
        assert trains_alike(shared, jobs(seed=1, **settings)[:1])
    assert (len(made), compared) == (2, [True, True]), "each with its own, and no other is tried"


def test_a_recording_of_equal_value_is_still_compared(made):
    shared, [first, *_] = RecordingStore(), jobs()
    assert trains_alike(shared, [first])

    def loss(*given: Any) -> Any:
        value, figures = first.program.loss(*given)
        return 2 * value, figures

    assert trains_alike(shared, [replace(first, program=replace(first.program, loss=loss))])
    assert len(made) == 2, "each in one lane, for one vehicle"


def test_engines_of_one_store_take_turns():
    """As the runs of two threads of a notebook."""
    given, turns = jobs()[:2], list[int]()

    class Watched(CallingLane):
        def wait_for_others(self) -> None:
            turns.append(get_ident())

        def let_others_wait(self) -> None:
            turns.append(get_ident())

    shared = RecordingStore()
    RecordedEngine(Watched, lanes=1, store=shared).train(given)
    turns.clear()
    with ThreadPoolExecutor(2) as executor:
        engines = [RecordedEngine(Watched, lanes=1, store=shared) for _ in range(2)]
        found = list(executor.map(lambda engine: engine.train(given), engines))
    assert sum(one != other for one, other in pairwise(turns)) == 1
    assert all(torch.equal(flat(one), flat(other)) for one, other in zip(*found, strict=True))


@pytest.fixture
def lane(monkeypatch):
    """The only lane of the shared store of the CPU."""
    monkeypatch.setattr(store, "_STORES", {})
    found = CallingLane()
    get_store(torch.device("cpu")).lane(0, lambda: found)
    return found


def test_a_store_without_room_is_replaced(lane):
    cpu = torch.device("cpu")
    first = get_store(cpu)
    assert get_store(cpu) is first
    lane.free_bytes = lambda: 2**39
    second = get_store(cpu)
    assert second is not first
    second.lane(0, lambda: lane)
    lane.usable = False
    assert get_store(cpu) is not second


def test_memory_of_other_runs_is_freed_where_it_is_short(made):
    shared, full = RecordingStore(), [0, 1]

    class Full(CallingLane):
        def record(self, call: Callable[[], None]) -> Callable[[], None]:
            if full.pop(0) if full and made[1:] else 0:
                raise torch.OutOfMemoryError("out of memory")
            return super().record(call)

    RecordedEngine(Full, lanes=1, store=shared).train(jobs()[:1])
    engine = RecordedEngine(Full, lanes=1, store=shared)
    engine.train(jobs(momentum=0.5)[:1])
    assert engine.remark == "recorded steps, 1 at a time"
    RecordedEngine(Full, lanes=1, store=shared).train(jobs()[:1])
    assert len(made) == 4, "one was dropped, one failed"
