"""A round that is averaged as it comes gives the bits of one that is held, and holds less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from learners.classification_fedavg import ClassificationFedAvg
from learners.engines.programs import Trained, TrainingJob, summarise
from learners.fedavg import Discard, FedAvg
from learners.flsimco import FLSimCo


class Counting:
    """An engine that says how many jobs it was given at a time; some results are spoilt."""

    def __init__(self, engine: Any, *spoilt: int) -> None:
        self.sizes: list[int] = []
        self._engine, self._spoilt = engine, spoilt

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        self.sizes.append(len(jobs))
        results = [
            replace(trained, state={name: tensor * torch.nan for name, tensor in trained.state.items()})
            if job.training.silo in self._spoilt
            else trained
            for job, trained in zip(jobs, self._engine.train(jobs), strict=True)
        ]
        return summarise(results)


@pytest.fixture
def played(tiny, context, participant, monkeypatch):  # noqa: ARG001
    """Return what two rounds of five vehicles come to: the state, the record, and the sizes of what was trained."""

    def play(kind: Any, *spoilt: int, held: int, **settings: object) -> tuple[Any, list[Any], list[int]]:
        monkeypatch.setattr("learners.local_training.HELD_BYTES", held)
        own = {"local_test": 12} if kind.task == "classification" else {"bank": 40}
        learner = kind.create(context, kind.Settings(batch=4, steps=2, **own, **settings))
        learner._task.engine = engine = Counting(learner._task.engine, *spoilt)
        told: list[Any] = []
        for round_ in range(2):
            updates = learner.train([participant(round_, i, speed_mps=15.0 + 8 * i) for i in range(5)])
            assert held > 10**9 or not any(update.state for update in updates)
            done = learner.aggregate([update for update in updates if update.finite])
            told += [done.weights, done.metrics, [update.finite for update in updates], [u.loss for u in updates]]
        return learner.state_dict(), told, engine.sizes

    return play


@pytest.mark.parametrize(
    ("kind", "settings", "spoilt"),
    [
        pytest.param(FLSimCo, {}, (), marks=pytest.mark.all_only),
        pytest.param(FLSimCo, {}, (1, 4), marks=pytest.mark.all_only),
        pytest.param(FedAvg, {"clip_norm": 0.01}, (1, 4), marks=pytest.mark.all_only),
        (FedAvg, {"batchnorm": "local"}, (1, 4)),
        pytest.param(Discard, {}, (1, 4), marks=pytest.mark.all_only),
        (Discard, {"limit_kmh": 1.0}, ()),
        pytest.param(ClassificationFedAvg, {}, (), marks=pytest.mark.all_only),
        (ClassificationFedAvg, {"clip_norm": 0.01}, (1, 4)),
    ],
    ids=str,
)
def test_same_bits_as_held(played, kind, settings, spoilt):
    (held, expected, at_once), (streamed, told, sizes) = (
        played(kind, *spoilt, held=2**40, **settings), played(kind, *spoilt, held=700_000, **settings)
    )  # fmt: skip
    assert at_once == [5, 5]
    assert sizes == 2 * ([2, 2, 1, 2, 1] if spoilt else [2, 2, 1]), "those that are finite a second time"
    assert told == expected
    assert held.keys() == streamed.keys()
    assert all(torch.equal(held[name], streamed[name]) for name in held)


def test_a_robust_rule_needs_all_uploads(played):
    with pytest.raises(AssertionError):  # of the fixture: the updates have states
        played(FedAvg, held=1, aggregation="median")


@pytest.mark.usefixtures("tiny")
def test_updates_that_were_averaged_cannot_be_chosen_among(context, participant, monkeypatch):
    monkeypatch.setattr("learners.local_training.HELD_BYTES", 1)
    learner: Any = FLSimCo.create(context, FLSimCo.Settings(batch=4, steps=1, bank=40))
    learner._task.engine = engine = Counting(learner._task.engine)
    updates = learner.train([participant(0, i) for i in range(3)])
    assert engine.sizes == [1, 1, 1]
    with pytest.raises(ValueError, match="only be aggregated all together"):
        learner.aggregate(updates[:2])
