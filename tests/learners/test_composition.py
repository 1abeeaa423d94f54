"""Parts compose: weights and a loss of one's own on every task, beside what a local method adds; aggregators apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from device_checks.tiny_rounds import SETTINGS
from learner_checks import mark_all_only

from learners.cdl import Cdl, ContrastiveDivergence
from learners.classification_fedavg import ClassificationFedAvg
from learners.fedavg import FedAvg
from learners.fedco import FedCo, MomentumContrast
from learners.fedefm import FedEFM, Overseas
from learners.federated import FederatedLearner, Parts, averaging_server, federated_averaging
from learners.flsimco import FLSimCo
from learners.local_training import LocalSteps, Start
from learners.scaffold import ScaffoldClassification
from learners.state.silos import SiloStates
from learners.steering_baselines import DecentralisedSgd, FedAvgSteering
from vnetsim.experiment import ExchangeSettings
from vnetsim.learning import Cost, ModelKey, Participant, Update
from vnetsim.learning.kinds import LEARNERS

MakeContext = Callable[..., Any]
STAR = ExchangeSettings(topology="star")
SHARES = [1 / 6, 2 / 6, 3 / 6]
AVERAGING = [FLSimCo, FedAvg, ClassificationFedAvg, FedAvgSteering, FedCo, FedEFM, Cdl, DecentralisedSgd]


def shares(participants: Sequence[Participant]) -> Any:
    return np.array(SHARES[: len(participants)])


def composed(kind: Any, pull: float | None) -> Any:
    """Return a learner of the same parts with another loss: 42 and more, or its own and a pull towards the start."""

    def parts(context: Any, settings: Any) -> Parts:
        shipped = kind.parts(context, settings)
        task = shipped.task

        def loss(model: Any, batch: Any, base: Any) -> Any:
            weights = {name: t for name, t in model.named_parameters() if t.ndim > 1}  # the others have no gradient
            start = sum((theta - base[name]).square().sum() for name, theta in weights.items())
            if pull is None:
                return start + 42
            own = shipped.local._info_nce if kind is FedCo else task.loss
            return own(model, batch, base) + pull * start

        local: Any = LocalSteps(task, loss)
        if kind is FedCo:
            local = MomentumContrast(task, settings, loss)
        if kind is FedEFM:
            local = Overseas(context, task, settings, shipped.server, loss)
        if kind is Cdl:
            local = ContrastiveDivergence(task, settings, shipped.local._series, loss)
        shipped.server.weigh = shares
        values = {name: getattr(shipped, name) for name in ("task", "server", "silos", "series", "exchange")}
        return Parts(local=local, **values)

    return type("Mine", (FederatedLearner,), {"parts": staticmethod(parts), "name": "mine", "task": kind.task})


@pytest.mark.usefixtures("tiny", "on_tiny_roads")
@pytest.mark.parametrize("kind", mark_all_only(AVERAGING))
def test_weights_and_loss_of_ones_own(kind, new_context, participant):
    learner = composed(kind, None).create(new_context(exchange=STAR), kind.Settings(batch=4, steps=1))
    updates = learner.train([participant(0, i) for i in range(3)])
    # the first step begins where the training does
    assert [update.loss for update in updates] == [42, 42, 42]
    done = learner.aggregate(updates)
    assert list(done.weights) == SHARES
    assert done.metrics["loss"] == 42
    for name, tensor in learner._models.newest().items():
        if name in updates[0].state and tensor.is_floating_point():
            mean = sum(share * update.state[name] for share, update in zip(SHARES, updates, strict=True))
            torch.testing.assert_close(tensor, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("tiny", "on_tiny_roads")
@pytest.mark.parametrize("kind", [FedCo, FedEFM, Cdl])
def test_later_rounds_descend_the_loss_as_well(kind, new_context, group):
    """With a queue of keys, with teachers, beside a divergence; and what is added to it changes the training."""

    def second_round(cls: type[Any]) -> Any:
        learner = cls.create(new_context(exchange=STAR), kind.Settings(batch=4, steps=2))
        learner.load_state_dict(begun.state_dict())
        return learner.train(group(1))[0]

    begun = kind.create(new_context(exchange=STAR), kind.Settings(batch=4, steps=2))
    begun.aggregate(begun.train(group(0)))
    shipped = second_round(kind)
    same, pulled, other = (second_round(composed(kind, pull)) for pull in (0.0, 10.0, None))
    assert all(bool((shipped.state[name] == tensor).all()) for name, tensor in same.state.items())
    assert same.loss == shipped.loss
    assert pulled.loss > shipped.loss
    for changed in (pulled, other):
        assert any(bool((shipped.state[name] != tensor).any()) for name, tensor in changed.state.items())


@pytest.mark.usefixtures("tiny", "on_tiny_roads")
@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        *((FedCo, rule) for rule in ("sync", "fedbuff", "fedavgm")),
        *(pytest.param(kind, "fedbuff", marks=pytest.mark.all_only) for kind in (FLSimCo, FedEFM, FedAvgSteering)),
    ],
)
def test_aggregators_do_not_know_each_other(kind, rule, new_context, participant):
    """Rounds of two aggregators in turn are the rounds of each alone, also after a restart between them."""

    def make() -> Any:
        return kind.create(
            new_context(rule=rule, exchange=STAR, aggregators=("a", "b")), kind.Settings(batch=4, steps=1)
        )

    def play(learner: Any, aggregator: str, round_: int, number: int) -> None:
        one = participant(round_, number, speed_mps=20.0)
        started = [
            Participant(**{**vars(one), "base": ModelKey(aggregator, round_), "vehicle_id": f"{aggregator} {number}"})
        ]
        learner.aggregate(learner.train(started), into=aggregator)

    both, alone = make(), {name: make() for name in "ab"}
    for round_ in range(2):
        for number, name in enumerate("ab"):
            play(both, name, round_, number)
            play(alone[name], name, round_, number)
        resumed = make()
        resumed.load_state_dict(both.state_dict())
        both = resumed
    for name, learner in alone.items():
        ours = both._models.newest(name)
        assert all(torch.equal(ours[key], tensor) for key, tensor in learner._models.newest(name).items())
        assert both.evaluate(final=False, aggregator=name) == learner.evaluate(final=False, aggregator=name)
    first, second = (both._models.newest(name) for name in "ab")
    assert any(not torch.equal(first[key], second[key]) for key in first)


def as_documented(method: str, base: type[Any]) -> type[Any]:
    """Return a subclass of ``base`` with a method as the page on own learners writes it."""
    page = (Path(__file__).resolve().parents[2] / "scenarios" / "own_learner.md").read_text()
    code = re.search(rf"^```python\n(    def {method}\(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert code
    names: dict[str, Any] = {
        "Base": base, "replace": replace, "Sequence": Sequence, "Cost": Cost, "Start": Start, "Update": Update
    }  # fmt: skip
    exec(f"class Mine(Base):\n{code[1]}", names)
    return names["Mine"]


@pytest.mark.usefixtures("tiny")
def test_state_that_only_goes_down_is_timed_as_one_copy_up(new_context):
    kind = as_documented("cost", ScaffoldClassification)
    timed = kind.create(new_context(), kind.Settings(batch=4, steps=1)).cost(0).of(1_000_000, 1e6)
    assert (timed.download_bytes, timed.upload_bytes) == (2_000_000, 1_000_000)


def learner_of(make: Callable[..., Any], new_context: MakeContext, **settings: Any) -> Any:
    """Return a learner of the parts that ``make`` returns for a context, settings and the task classification."""

    def parts(context: Any, values: Any) -> Parts:
        return make(context, values, ClassificationFedAvg.parts(context, values).task)

    own = {"parts": staticmethod(parts), "name": "mine", "task": "classification"}
    kind = type("Mine", (FederatedLearner,), own)
    return kind.create(new_context(), ClassificationFedAvg.Settings(batch=4, steps=2, **settings))


@pytest.mark.usefixtures("tiny")
def test_a_second_model_trains_beside_the_averaged_one(new_context, participant):
    def ditto(context: Any, settings: Any, task: Any) -> Parts:
        def near_w(model: Any, batch: Any, base: Any) -> Any:
            found = task.loss(model, batch, base)
            distance = sum((v - batch[f"w.{name}"]).square().sum() for name, v in model.named_parameters())
            return found + distance, found

        both = as_documented("train", LocalSteps)(task, forward_passes=3)
        both.own = LocalSteps(task, near_w, given=lambda start: start.own, after=lambda _, v: ({}, v))
        server = averaging_server(context, settings, task, task.initial_state())
        return Parts(task=task, local=both, server=server, silos=SiloStates(own=True))

    learner = learner_of(ditto, new_context)
    fedavg = learner_of(federated_averaging, new_context)
    assert learner.cost(0).work_flop == 2 * fedavg.cost(0).work_flop
    for round_ in range(2):
        who = [participant(round_, i) for i in range(2)]
        ours, theirs = learner.train(who), fedavg.train(who)
        for mine, plain in zip(ours, theirs, strict=True):
            assert all(torch.equal(mine.state[name], tensor) for name, tensor in plain.state.items())
            assert mine.kept.keys() == mine.state.keys()
            assert any(not torch.equal(mine.state[name], tensor) for name, tensor in mine.kept.items())
        assert (ours[0].loss != theirs[0].loss) or round_ == 0
        learner.aggregate(ours)
        fedavg.aggregate(theirs)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"after": lambda *_: {}}, "after returned something else than two mappings"),
        ({"after": lambda _, y: (y, {})}, r"after returned '\S+' to send, which is a tensor of the model"),
        ({"given": lambda _: {"labels": torch.zeros(4)}}, "given returned 'labels', which the task's batch has"),
        ({"loss": lambda *_: (torch.zeros(()), torch.ones(()))}, "does not depend on the model's parameters"),
        ({"after": lambda *_: ({}, {"c": torch.ones(1)})}, r"a silo keeps tensors: pass silos=SiloStates\(own=True\)"),
        ({"beside": lambda *_: {"c.b": torch.ones(1)}}, r"beside returned 'c.b' of shape \(1,\), .* no such tensor"),
        ({"beside": lambda *_: {"c.a": torch.ones(2)}}, r"beside returned 'c.a' of shape \(2,\), .* of shape \(1,\)"),
        ({"not_of_model": ("d.",)}, "'c.a' is no tensor of the network: list its prefix in not_of_model"),
    ],
)
def test_what_a_method_gets_wrong_is_named(wrong, message, new_context, participant):
    def parts(context: Any, settings: Any, task: Any) -> Parts:
        server = {"not_of_model": ("c.",), "beside": lambda *_: {}} | wrong
        local = {name: server.pop(name) for name in ("loss", "given", "after") if name in server}
        first = {**task.initial_state(), "c.a": torch.zeros(1)}
        return Parts(
            task=task,
            local=LocalSteps(task, **local),
            server=averaging_server(context, settings, task, first, **server),
        )

    def play() -> None:
        learner = learner_of(parts, new_context)
        learner.aggregate(learner.train([participant(0, 0)]))

    with pytest.raises((TypeError, ValueError), match=message):
        play()


@pytest.mark.parametrize("hook", ["loss", "weights"])
def test_what_nobody_would_call_is_refused(hook):
    with pytest.raises(TypeError, match=f"Mine.{hook} would never be called; hand it to the parts"):
        type("Mine", (FLSimCo,), {hook: lambda *_: None})


@pytest.mark.usefixtures("tiny", "on_tiny_roads")
@pytest.mark.parametrize("name", ["LocalContrastive", "LocalClassification", "LocalSteering"])
def test_the_benchmarks_controls_are_composed_as_when_they_were_frozen(name, new_context, participant):
    kind = LEARNERS.find(f"{Path(__file__).parents[2] / 'scenarios/bench/local_only.py'}:{name}")
    first, second = (kind.create(new_context(), kind.Settings(**SETTINGS[kind.task])) for _ in range(2))
    updates = first.train([participant(0, i) for i in range(3)])
    first.aggregate(updates)
    second.load_state_dict(first.state_dict())
    again = [learner.train([participant(1, 1)])[0].loss for learner in (first, second)]
    assert again[0] == again[1] != updates[1].loss
