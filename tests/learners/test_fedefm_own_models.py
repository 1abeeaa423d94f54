"""FedEFM without a server: silos' own models, mixed before training with what guests brought."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from learner_checks import equal

from learners.mathematics.weights import weighted_mean
from vnetsim.learning import Participant, Update

Group = Callable[..., list[Participant]]


@pytest.fixture
def new(new_fedefm: Callable[..., Any]) -> Callable[..., Any]:
    return lambda context=None, **settings: new_fedefm(context, server="none", **settings)


def play(learner: Any, vehicles: list[Participant]) -> list[Update]:
    updates = list(learner.train(vehicles))
    learner.aggregate(updates)
    return updates


def test_a_first_visit_is_plain_local_training_and_later_ones_start_from_the_mixture(
    new: Callable[..., Any], group: Group
) -> None:
    learner = new(overseas_steps=1, max_teachers=1)
    first = play(learner, group(0))
    assert all(update.metrics["teachers"] == 0 and not update.exchanges for update in first)
    alone = new().train([replace(one, peers=()) for one in group(0)])
    assert all(equal(a.state, b.state) for a, b in zip(first, alone, strict=True))
    vehicles = group(1)
    # everybody met everybody: each starts from the mean of the three, and sends its own
    mean = weighted_mean([update.state for update in first], [1 / 3] * 3)
    for i, one in enumerate(vehicles):
        base = learner._server.base(one)
        for name, tensor in mean.items():
            torch.testing.assert_close(base[name], tensor)
        assert equal(learner._server.carried(one), first[i].state)
    # no teacher but the first, whatever is mixed
    assert [update.metrics["teachers"] for update in play(learner, vehicles)] == [1, 1, 1]


def test_copies_start_from_their_silos_own_models(new: Callable[..., Any], group: Group) -> None:
    learner = new(lr=1e-12, weight_decay=0.0)
    start = learner._models.newest()
    play(learner, group(0))
    shifted = {silo: {n: t + silo if t.is_floating_point() else t for n, t in start.items()} for silo in range(3)}
    for silo, state in shifted.items():
        learner._silos.keep(silo, shared=state)
    for one, copies in zip(group(1), learner._local._train_copies(group(1)), strict=True):
        assert len(copies) == 2
        for copy in copies.values():
            torch.testing.assert_close(copy["head.weight"], shifted[one.silo]["head.weight"])


def test_weights_are_those_of_metropolis_and_hastings(new: Callable[..., Any], group: Group) -> None:
    learner = new()
    first = play(learner, group(0))
    one, other, third = group(1)
    # one met two others and lost the second on the way; the other had begun with five
    met = replace(one, peers=(replace(one.peers[0], neighbours=5),), neighbours=2)
    for vehicle, weights in ((met, [5 / 6, 1 / 6]), (replace(one, peers=one.peers[:1], neighbours=4), [4 / 5, 1 / 5])):
        expected = weighted_mean([update.state for update in first[:2]], weights)
        base = learner._server.base(vehicle)
        for name in expected:
            torch.testing.assert_close(base[name], expected[name])
    # a newcomer neither mixes nor is mixed: what it would get stays with the other
    newcomer = replace(third, silo=5)
    assert equal(learner._server.base(newcomer), new()._models.newest())
    meets = replace(one, peers=(replace(one.peers[0], silo=5),), neighbours=1)
    assert equal(learner._server.base(meets), first[0].state)
    assert equal(learner._server.base(replace(other, peers=())), first[1].state)


def test_models_stay_with_their_silos_and_the_average_is_reported(new: Callable[..., Any], group: Group) -> None:
    learner = new(lr=0.5)
    assert set(learner.evaluate(final=False)) == {"accuracy"}, "no silo has a model yet"
    updates = list(learner.train(group(0)))
    done = learner.aggregate(updates[:2])
    assert list(done.weights) == [0.5, 0.5]
    assert equal(learner._server.carried(group(0)[0]), updates[0].state)
    assert not learner._server.trained(group(0)[2])
    mean = weighted_mean([update.state for update in updates[:2]], [0.5, 0.5])
    assert equal(dict(learner._models.newest()), mean)
    measured = learner.evaluate(final=True)
    own = [learner._task.evaluate(update.state, final=True)["accuracy"] for update in updates[:2]]
    assert max(own) > min(own)
    assert measured == {
        **learner._task.evaluate(mean, final=True),
        "accuracy_silos": pytest.approx(np.mean(own)),
        "accuracy_best": max(own),
        "accuracy_worst": min(own),
    }
    metrics = learner.aggregate(learner.train(group(1))).metrics | learner.evaluate(final=True)
    results = {series.name: series.result for series in learner.series()}
    assert set(metrics) <= set(results)
    assert (results["accuracy_best"], results["accuracy_worst"]) == (False, False)
    assert {"emd_least", "emd_largest", "accuracy_worst"} <= set(metrics)
    # a round in which nobody committed changes nothing
    before = learner._models.newest()
    learner.aggregate([])
    assert equal(dict(learner._models.newest()), dict(before))
