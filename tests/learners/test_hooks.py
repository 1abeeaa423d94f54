"""The two hooks of all learners that average, ``weights`` and ``loss``: called on every task, or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from learners.averaging import AveragingLearner
from learners.cdl import Cdl
from learners.classification_fedavg import ClassificationFedAvg
from learners.fedavg import FedAvg
from learners.fedco import FedCo
from learners.fedefm import FedEFM
from learners.steering_baselines import DecentralisedSgd, FedAvgSteering
from learners.tasks.classification import ClassificationTask
from vnetsim.experiment import ExchangeSettings
from vnetsim.learning import Participant

MakeParticipant = Callable[..., Participant]
MakeContext = Callable[..., Any]
QUICK = {"batch": 4, "steps": 2}
LEARNERS = [FedAvg, FedCo, ClassificationFedAvg, FedEFM, FedAvgSteering, Cdl]
STAR = ExchangeSettings(topology="star")
SHARES = [1 / 6, 2 / 6, 3 / 6]


class Hooks:
    """Weights and a loss that no shipped method has; ``base`` must be what the training started from."""

    def weights(self, participants: Sequence[Participant]) -> Any:
        return np.array(SHARES[: len(participants)])

    def loss(self, model: Any, first: Any, second: Any, base: Any) -> Any:
        assert len(first) == len(second)
        start = sum((theta - base[name]).square().sum() for name, theta in model.named_parameters())
        return start + 42


@pytest.mark.usefixtures("tiny", "on_tiny_roads")
@pytest.mark.parametrize("kind", LEARNERS)
def test_every_learner_calls_them(kind: Any, new_context: MakeContext, participant: MakeParticipant) -> None:
    mine = type("Mine", (Hooks, kind), {})
    learner = mine.create(new_context(exchange=STAR), kind.Settings(batch=4, steps=1))
    updates = learner.train([participant(0, i) for i in range(3)])
    # the first step begins where the training does
    assert [update.loss for update in updates] == [42, 42, 42]
    done = learner.aggregate(updates)
    assert list(done.weights) == SHARES
    assert done.metrics["loss"] == 42


@pytest.mark.usefixtures("tiny", "on_tiny_roads")
@pytest.mark.parametrize("kind", [FedCo, FedEFM, Cdl])
def test_later_rounds_descend_the_loss_as_well(kind: Any, new_context: MakeContext, group: Callable[..., Any]) -> None:
    """With a queue of keys, with teachers, beside a divergence; and what is added to it changes the training."""

    class Pulled(kind):  # type: ignore[misc]
        pull = 0.0

        def loss(self, model: Any, first: Any, second: Any, base: Any, **offered: Any) -> Any:
            start = sum((theta - base[name]).square().sum() for name, theta in model.named_parameters())
            return super().loss(model, first, second, base, **offered) + self.pull * (start + 1)

    def second_round(cls: type[Any]) -> Any:
        learner = cls.create(new_context(exchange=STAR), kind.Settings(batch=4, steps=2))
        learner.load_state_dict(begun.state_dict())
        return learner.train(group(1))[0]

    begun = kind.create(new_context(exchange=STAR), kind.Settings(batch=4, steps=2))
    begun.aggregate(begun.train(group(0)))
    shipped = second_round(kind)
    same, pulled, other = (
        second_round(cls) for cls in (Pulled, type("P", (Pulled,), {"pull": 10.0}), type("Mine", (Hooks, kind), {}))
    )
    assert all(bool((shipped.state[name] == tensor).all()) for name, tensor in same.state.items())
    assert same.loss == shipped.loss
    assert pulled.loss > shipped.loss
    for changed in (pulled, other):
        assert any(bool((shipped.state[name] != tensor).any()) for name, tensor in changed.state.items())


@pytest.mark.usefixtures("tiny", "on_tiny_roads")
@pytest.mark.parametrize("kind", LEARNERS)
def test_weights_decide_the_average(kind: Any, new_context: MakeContext, participant: MakeParticipant) -> None:
    class Mine(kind):  # type: ignore[misc]
        def weights(self, participants: Sequence[Participant]) -> Any:
            return np.arange(len(participants), dtype=float)

    learner = Mine.create(new_context(exchange=STAR), kind.Settings(**QUICK))
    updates = learner.train([participant(0, i) for i in range(2)])
    assert list(learner.aggregate(updates).weights) == [0, 1]
    state = learner.state_dict()
    sent = {name: tensor for name, tensor in updates[1].state.items() if name != "keys"}
    assert all(bool((state[f"model.{name}"] == tensor).all()) for name, tensor in sent.items())


@pytest.mark.usefixtures("tiny")
def test_a_method_without_hooks_averages_alike_what_descended_the_loss_of_its_task(
    new_context: MakeContext, participant: MakeParticipant
) -> None:
    class Bare(AveragingLearner):
        name, task, paper = "bare", "classification", "none"
        Settings, Task = ClassificationFedAvg.Settings, ClassificationTask

    bare, named = (kind.create(new_context(), kind.Settings(**QUICK)) for kind in (Bare, ClassificationFedAvg))
    ours, theirs = (learner.train([participant(0, i) for i in range(3)]) for learner in (bare, named))
    assert [update.loss for update in ours] == [update.loss for update in theirs]
    assert list(bare.aggregate(ours).weights) == [1 / 3] * 3


@pytest.mark.parametrize("kind", [*LEARNERS, DecentralisedSgd])
def test_settings_are_composed_of_few_classes(kind: Any) -> None:
    def depth(settings: type) -> int:
        return max((1 + depth(base) for base in settings.__bases__ if base is not object), default=1)

    assert depth(kind.Settings) <= 3
