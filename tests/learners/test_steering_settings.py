"""What the settings of the steering learners say they change, they change; the same for every learner."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from learner_checks import equal, of
from torch.optim.swa_utils import update_bn

from learners.steering_baselines import DecentralisedSgd, FedAvgSteering
from learners.tasks.steering import STATISTICS_FRAMES
from vnetsim.learning import Participant

MakeParticipant = Callable[..., Participant]


@pytest.fixture
def new(new_steering):
    return new_steering


def play(learner: Any, rounds: int, participant: MakeParticipant, silos: int = 2) -> Any:
    for r in range(rounds):
        learner.aggregate(learner.train([participant(r, silo) for silo in range(silos)]))
    return learner


def test_batchnorm_is_evaluated_with_statistics_of_training_frames(learner_class, new, participant, roads, monkeypatch):
    """As torch sets them: 96 frames, two passes."""
    monkeypatch.setattr("learners.tasks.steering.PASS", 48)
    learner = play(new(learner_class), 2, participant)
    task, state = learner._task, of(learner.state_dict(), "model.")
    assert STATISTICS_FRAMES >= len(roads.train) == len(task._statistics)
    assert sorted(task._statistics.flatten(1).sum(1).tolist()) == sorted(roads.train.flatten(1).sum(1).tolist())
    network = task.network
    network.load_state_dict(state)
    update_bn([half.float() / 255 for half in task._statistics.split(48)], network)
    with torch.no_grad():
        error = network.eval()(roads.test.float() / 255) - roads.test_angles
    assert learner.evaluate(final=False)["rmse"] == pytest.approx(float(error.square().mean().sqrt()), rel=1e-4)


@pytest.mark.parametrize("topology", ["contact", "star"])
def test_a_silo_keeps_its_optimizer_only_on_request(learner_class, topology, new, participant):
    learners = {kind: new(learner_class, topology, optimizer=kind) for kind in ("adam", "adam-kept")}
    first = {kind: learner.train([participant(0, 1)])[0] for kind, learner in learners.items()}
    assert equal(dict(first["adam"].state), dict(first["adam-kept"].state))
    second = {}
    for kind, learner in learners.items():
        learner.aggregate([first[kind]])
        stored = [name for name in learner.state_dict() if "optimizer." in name]
        assert bool(stored) == (kind == "adam-kept")
        second[kind] = learner.train([participant(1, 1)])[0]
    assert not equal(dict(second["adam"].state), dict(second["adam-kept"].state))
    steps = [int(tensor) for name, tensor in second["adam-kept"].kept.items() if name.endswith("optimizer.steps")]
    assert max(steps) == 4
    assert not [name for name in second["adam"].kept if "optimizer." in name]


def test_the_learning_rate_falls_on_request(learner_class, new, participant):
    """Plain descent, one step from one model: the step is as long as the rate says, of four rounds the third's."""
    plain = {"optimizer": "sgd", "weight_decay": 0.0, "steps": 1, "lr": 1e-3}
    steps = {}
    for schedule in ("constant", "cosine"):
        learner = new(learner_class, schedule=schedule, **plain)
        for _ in range(2):
            learner.aggregate([])
        update = learner.train([participant(2, 1)])[0]
        start = learner._task.initial_state()
        steps[schedule] = torch.cat([(update.state[n].double() - start[n]).flatten() for n in start if "fc" in n])
    torch.testing.assert_close(
        steps["cosine"] / steps["constant"].norm(),
        steps["constant"] / steps["constant"].norm() * (1 + math.cos(math.pi / 2)) / 2,
        rtol=1e-2,
        atol=1e-3,
    )


@pytest.mark.parametrize("settings", [{}, {"optimizer": "adam-kept", "schedule": "cosine"}], ids=str)
def test_as_a_star_decentralised_descent_is_fedavg(new, participant, settings):
    """With one setting for the optimizer's state nothing is left between them, to the bit."""
    one, other = (play(new(cls, "star", **settings), 3, participant) for cls in (DecentralisedSgd, FedAvgSteering))
    assert equal(one.state_dict(), other.state_dict())
    assert one.evaluate(final=True) == other.evaluate(final=True)
