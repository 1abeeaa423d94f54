"""CDL: who descends what, and what stays with the silo."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from device_checks.tiny_rounds import Doubled
from learner_checks import equal, of, peers_of
from torch.nn.functional import kl_div

from learners.cdl import Cdl, CdlSettings, contrastive_divergence
from learners.data.sets import SteeringSet
from learners.engines.programs import SequentialEngine, TrainingJob, add_prefix
from learners.mathematics.losses import divergence_rows
from learners.steering_baselines import DecentralisedSgd
from vnetsim.learning import LearnerContext, Participant

MakeParticipant = Callable[..., Participant]
New = Callable[..., Any]


@pytest.fixture
def new(new_steering: New) -> New:
    return lambda cls=Cdl, topology="contact", **settings: new_steering(cls, topology, **settings)


def features(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    z = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return z[0].requires_grad_(), z[1].requires_grad_()


@pytest.mark.parametrize(
    ("settings", "of_backbone", "of_sub"),
    [
        (CdlSettings(temperature=2.0), (1.0, 0.0), (0.0, 1.0)),
        (CdlSettings(temperature=2.0, coupling="beta", beta=0.2), (0.2, 0.0), (0.0, 0.8)),
        (CdlSettings(temperature=2.0, coupling="joint", beta=0.2), (0.2, 0.8), (0.2, 0.8)),
    ],
    ids=["unit", "beta", "joint"],
)
def test_who_descends_what(
    settings: CdlSettings, of_backbone: tuple[float, float], of_sub: tuple[float, float]
) -> None:
    """The gradient of each network is that of its own combination of KL(b || s) and KL(s || b)."""
    z_b, z_s = features(0)
    to_b, to_s = torch.autograd.grad(contrastive_divergence(z_b, z_s, settings=settings), (z_b, z_s))

    def mixture(weights: tuple[float, float]) -> torch.Tensor:
        forward, backward = divergence_rows(z_b, z_s, tau=2.0), divergence_rows(z_s, z_b, tau=2.0)
        return (weights[0] * forward + weights[1] * backward).mean()

    torch.testing.assert_close(to_b, torch.autograd.grad(mixture(of_backbone), z_b)[0])
    torch.testing.assert_close(to_s, torch.autograd.grad(mixture(of_sub), z_s)[0])
    assert to_b.abs().max() > 1e-3
    assert to_s.abs().max() > 1e-3


def test_the_first_visit_copies_the_backbone_and_the_second_compares(new: New, participant: MakeParticipant) -> None:
    learner, plain = (new(cls, optimizer="adam-kept") for cls in (Cdl, DecentralisedSgd))
    first, of_plain = learner.train([participant(0, 1)])[0], plain.train([participant(0, 1)])[0]
    assert equal(dict(first.state), dict(of_plain.state))  # no divergence yet
    assert equal(of(first.kept, "sub."), dict(first.state))
    assert "kl_b_s" not in first.metrics
    assert not of(first.kept, "sub_optimizer.")
    learner.aggregate([first])
    plain.aggregate([of_plain])
    second, of_plain = learner.train([participant(1, 1)])[0], plain.train([participant(1, 1)])[0]
    assert not equal(dict(second.state), dict(of_plain.state))
    assert not equal(of(second.kept, "sub."), of(first.kept, "sub."))
    assert second.metrics["kl_b_s"] > 0
    assert second.metrics["kl_s_b"] > 0
    assert int(second.kept["visits"]) == 2
    assert int(second.kept["sub_optimizer.steps"]) == 2
    assert int(second.kept["backbone_optimizer.steps"]) == 4
    # the sub-network's linear layer sees no loss
    assert torch.equal(second.kept["sub.fc.weight"], first.kept["sub.fc.weight"])


def test_the_first_step_of_a_visit_by_hand(
    new: New, participant: MakeParticipant, context: LearnerContext, roads: SteeringSet
) -> None:
    """Plain descent, one step: both networks against the definition, with the other held fixed."""
    learner = new(optimizer="sgd", lr=0.1, steps=1, weight_decay=0.0, temperature=0.5, coupling="beta", beta=0.3)
    a, b = participant(0, 1), participant(0, 2)
    learner.aggregate(learner.train([replace(a, peers=peers_of(b)), replace(b, peers=peers_of(a))]))
    state, vehicle = learner.state_dict(), participant(1, 1)
    backbone, sub = (copy.deepcopy(learner._task.network) for _ in range(2))
    backbone.load_state_dict(of(state, "silo.1.shared."))
    sub.load_state_dict(of(state, "silo.1.own.sub."))
    assert not equal(backbone.state_dict(), sub.state_dict())
    update = learner.train([vehicle])[0]
    generator = torch.Generator().manual_seed(context.streams.integer("training", 1, vehicle.vehicle_id))
    silos = learner._task.silos
    drawn = next(silos.draw(learner._task.local_training_of(vehicle), 8, generator))
    images, angles = silos.images(drawn), roads.train_angles[drawn["rows"]]
    z_b, z_s = backbone.train().features(images), sub.train().features(images)
    log_b, log_s = (z_b / 0.5).log_softmax(dim=1), (z_s / 0.5).log_softmax(dim=1)
    error = (backbone.head(z_b) - angles).square().mean()
    to_backbone = error + 0.3 * kl_div(log_s.detach(), log_b, log_target=True, reduction="batchmean")
    to_sub = 0.7 * kl_div(log_b.detach(), log_s, log_target=True, reduction="batchmean")
    for network, total in ((backbone, to_backbone), (sub, to_sub)):
        total.backward()
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.grad is not None:
                    parameter.sub_(0.1 * parameter.grad)
    for name, tensor in backbone.state_dict().items():
        torch.testing.assert_close(update.state[name], tensor, rtol=1e-4, atol=1e-6)
    for name, tensor in sub.state_dict().items():
        torch.testing.assert_close(update.kept[f"sub.{name}"], tensor, rtol=1e-4, atol=1e-6)
    assert update.loss == pytest.approx(error.item(), rel=1e-5)


def test_a_visit_under_adam_by_hand(
    new: New, participant: MakeParticipant, roads: SteeringSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In double precision: in single, biases before normalisation differ by steps, for their gradient is rounding."""
    learner = new(lr=3e-3, steps=3, temperature=0.5)
    a, b = participant(0, 1), participant(0, 2)
    learner.aggregate(learner.train([replace(a, peers=peers_of(b)), replace(b, peers=peers_of(a))]))
    jobs: list[TrainingJob] = []
    monkeypatch.setattr(
        learner._task.engine, "train", lambda given: jobs.extend(given) or SequentialEngine().train(given)
    )
    learner.train([participant(1, 1)])
    (found,) = SequentialEngine().train([Doubled("cpu")(job) for job in jobs])
    backbone, sub = (copy.deepcopy(learner._task.network).double() for _ in range(2))
    backbone.load_state_dict(of(learner.state_dict(), "silo.1.shared."))
    sub.load_state_dict(of(learner.state_dict(), "silo.1.own.sub."))
    both = [one for network in (backbone, sub) for one in network.parameters()]
    optimizer = torch.optim.Adam(both, lr=3e-3, weight_decay=1e-5)
    generator = torch.Generator().manual_seed(jobs[0].training.seed)
    for _ in range(3):
        drawn = next(learner._task.silos.draw(jobs[0].training, 8, generator))
        images, angles = learner._task.silos.images(drawn).double(), roads.train_angles[drawn["rows"]].double()
        z_b, z_s = backbone.train().features(images), sub.train().features(images)
        log_b, log_s = ((z / 0.5).log_softmax(dim=1) for z in (z_b, z_s))
        error = (backbone.head(z_b) - angles).square().mean()
        (error + kl_div(log_s.detach(), log_b, log_target=True, reduction="batchmean")).backward()
        kl_div(log_b.detach(), log_s, log_target=True, reduction="batchmean").backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, tensor in {
        **add_prefix("backbone.", backbone.state_dict()),
        **add_prefix("sub.", sub.state_dict()),
    }.items():
        torch.testing.assert_close(found.state[name], tensor, rtol=0, atol=1e-9)


@pytest.mark.parametrize("topology", ["contact", "ring", "complete", "star"])
def test_mixing_leaves_the_sub_network(new: New, participant: MakeParticipant, topology: str) -> None:
    learner = new(topology=topology)
    for r in range(2):
        a, b = participant(r, 1), participant(r, 2)
        updates = learner.train([replace(a, peers=peers_of(b)), replace(b, peers=peers_of(a))])
        assert not any(name.startswith("sub.") for update in updates for name in update.state)
        learner.aggregate(updates)
        state = learner.state_dict()
        for silo, update in zip((1, 2), updates, strict=True):
            assert equal(of(state, f"silo.{silo}.own."), dict(update.kept))
        mixed = of(state, "model.") if topology == "star" else of(state, "silo.1.shared.")
        torch.testing.assert_close(
            mixed["fc.weight"], (updates[0].state["fc.weight"] + updates[1].state["fc.weight"]) / 2
        )
        assert bool(of(state, "silo.1.shared.")) == (topology != "star")


def test_without_divergence_it_is_decentralised_sgd(
    new: New, participant: MakeParticipant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learners.cdl.contrastive_divergence", lambda z_b, *_, **__: 0.0 * z_b.sum())
    cdl, plain = new(dropout=0.4), new(DecentralisedSgd, dropout=0.4)
    for r in range(3):
        a, b = participant(r, 1), participant(r, 2)
        group = [replace(a, peers=peers_of(b)), replace(b, peers=peers_of(a))]
        for learner in (cdl, plain):
            learner.aggregate(learner.train(group))
    for silo in (1, 2):
        assert equal(of(cdl.state_dict(), f"silo.{silo}.shared."), of(plain.state_dict(), f"silo.{silo}.shared."))
    assert equal(of(cdl.state_dict(), "model."), of(plain.state_dict(), "model."))


def test_under_star_a_visit_starts_from_the_rsu_and_the_silo(new: New, participant: MakeParticipant) -> None:
    learner = new(topology="star", steps=1, optimizer="sgd", lr=1e-9, weight_decay=0.0)
    learner.aggregate(learner.train([participant(0, 1), participant(0, 2)]))
    before = learner.state_dict()
    update = learner.train([participant(1, 1)])[0]
    names = [name for name, _ in learner._task.network.named_parameters()]
    for name in names:  # the step is next to nothing, so both networks end where they began
        torch.testing.assert_close(update.state[name], before[f"model.{name}"], rtol=0, atol=1e-6)
        torch.testing.assert_close(update.kept[f"sub.{name}"], before[f"silo.1.own.sub.{name}"], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_constant_target_stays(
    new: New, participant: MakeParticipant, roads: SteeringSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A term that is no divergence pulls the angles away from it, as that of the authors' code does, to +0.10."""
    level = replace(roads, train_angles=torch.zeros(96), test_angles=torch.zeros(24))
    monkeypatch.setattr("learners.tasks.steering.load_steering", lambda *_, **__: level)
    learner = new(batch=16, steps=40, lr=3e-3)
    for r in range(4):
        learner.aggregate(learner.train([participant(r, 1)]))
    network = copy.deepcopy(learner._task.network)
    network.load_state_dict(of(learner.state_dict(), "silo.1.shared."))
    with torch.no_grad():
        mean = float(network.eval()(level.train[16:32].float() / 255).mean())
    assert mean == pytest.approx(0, abs=0.02)
