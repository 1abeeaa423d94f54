"""CDL's divergence against the steering error: how much of it acts, when it fades, and that looking changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from learner_checks import equal, of
from torch.nn.functional import kl_div

from learners.cdl import Cdl, CdlSettings, contrastive_divergence
from learners.data.sets import SteeringSet
from vnetsim.learning import LearnerContext, Participant

MakeParticipant = Callable[..., Participant]
New = Callable[..., Any]


@pytest.fixture
def new(new_steering: New) -> New:
    return lambda topology="complete", **settings: new_steering(Cdl, topology, **{"temperature": 0.5} | settings)


def play(learner: Any, rounds: int, group: Callable[[int], list[Participant]]) -> list[Any]:
    return [learner.aggregate(learner.train(group(r))) for r in range(rounds)]


def test_gradients_are_compared_as_by_hand(
    new: New, group: Callable[[int], list[Participant]], context: LearnerContext, roads: SteeringSet
) -> None:
    learner = new(coupling="beta", beta=0.003)  # a gradient shorter than 1
    assert "weights 0.003 and 0.997, the other network held fixed" in learner.describe().facts["Divergence"]
    assert "0.3 and 0.7, through both" in new(coupling="joint", beta=0.3).describe().facts["Divergence"]
    play(learner, 1, group)
    state, vehicles = learner.state_dict(), group(1)
    updates = learner.train(vehicles)
    backbone, sub = (copy.deepcopy(learner._task.network) for _ in range(2))
    backbone.load_state_dict(of(state, "silo.1.shared."))
    sub.load_state_dict(of(state, "silo.1.own.sub."))
    generator = torch.Generator().manual_seed(context.streams.integer("training", 1, vehicles[1].vehicle_id))
    drawn = next(learner._task.silos.draw(learner._task.local_training_of(vehicles[1]), 8, generator))
    z_b = backbone.train().features(learner._task.silos.images(drawn))
    z_s = sub.train().features(learner._task.silos.images(drawn)).detach()
    error = (backbone.head(z_b) - roads.train_angles[drawn["rows"]]).square().mean()
    log_b, log_s = ((z / 0.5).log_softmax(dim=1) for z in (z_b, z_s))
    divergence = 0.003 * kl_div(log_s, log_b, log_target=True, reduction="batchmean")
    gradients = []
    for total in (error, divergence):
        backbone.zero_grad()
        total.backward(retain_graph=True)
        pieces = [torch.zeros_like(p) if p.grad is None else p.grad for p in backbone.parameters()]
        gradients.append(torch.cat([piece.flatten() for piece in pieces]))
    of_error, of_divergence = gradients
    found = updates[1].metrics
    assert found["gradient_ratio"] == pytest.approx(float(of_divergence.norm() / of_error.norm()), rel=1e-4)
    cosine = float(torch.cosine_similarity(of_divergence, of_error, dim=0))
    assert found["gradient_cosine"] == pytest.approx(cosine, rel=1e-3, abs=1e-4)
    assert found["gradient_ratio"] > 0
    assert -1 < found["gradient_cosine"] < 1
    mean = sum(update.metrics["gradient_ratio"] for update in updates) / 3
    assert learner.aggregate(updates).metrics["gradient_ratio"] == pytest.approx(mean)


def test_without_a_divergence_there_is_no_cosine(
    new: New, group: Callable[[int], list[Participant]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learners.cdl.contrastive_divergence", lambda z_b, *_, **__: 0.0 * z_b.sum())
    monkeypatch.setattr("learners.tasks.steering.mse_loss", lambda a, b: 0.01 * (a - b).square().mean())
    first, second = play(new(), 2, group)
    assert "gradient_ratio" not in first.metrics
    assert second.metrics["gradient_ratio"] == 0
    assert "gradient_cosine" not in second.metrics


@pytest.mark.all_only
def test_looking_at_gradients_changes_no_bit(new: New, group: Callable[[int], list[Participant]]) -> None:
    looking, blind = new(dropout=0.3), new(dropout=0.3)
    blind._local._compare_all = lambda starts, _: [{} for _ in starts]
    with_gradients, without = (play(learner, 2, group)[-1].metrics for learner in (looking, blind))
    assert equal(looking.state_dict(), blind.state_dict())
    assert with_gradients.keys() - without.keys() == {"gradient_ratio", "gradient_cosine"}


@pytest.mark.parametrize("coupling", ["unit", "beta", "joint"])
def test_the_influence_is_that_of_the_sub_network_on_the_backbone(coupling: Any) -> None:
    settings = CdlSettings(coupling=coupling, beta=0.3, temperature=2.0)
    z = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z_b, z_s = (features.requires_grad_() for features in z.unbind())
    whole, part = (
        torch.autograd.grad(contrastive_divergence(z_b, z_s, settings=settings, influence=influence), (z_b, z_s))
        for influence in (1.0, 0.25)
    )
    torch.testing.assert_close(part[0], whole[0] / 4)
    torch.testing.assert_close(part[1], whole[1] / 4 if coupling == "joint" else whole[1])


def kl_and_influence_in_five_rounds(learner: Any, participant: MakeParticipant) -> list[tuple[float, float | None]]:
    found = []
    for r in range(5):
        update = learner.train([participant(r, 1)])[0]
        learner.aggregate([update])
        found.append((update.metrics.get("kl_b_s", 0.0), update.metrics.get("divergence_influence")))
    return found


def test_the_influence_falls_with_the_rounds_where_it_is_asked_to(new: New, participant: MakeParticipant) -> None:
    learner = new("contact", divergence_schedule="linear")
    _, influences = zip(*kl_and_influence_in_five_rounds(learner, participant), strict=True)
    assert influences == (None, 0.75, 0.5, 0.25, 0), "of four rounds; a silo's first training has one network"
    reported = [{one.name for one in new(divergence_schedule=which).series()} for which in ("linear", "constant")]
    assert reported[0] - reported[1] == {"divergence_influence"}


def test_the_influence_falls_with_the_measured_divergence(new: New, participant: MakeParticipant) -> None:
    learner = new("contact", divergence_schedule="measured")
    found = kl_and_influence_in_five_rounds(learner, participant)
    divergences = [kl for kl, _ in found]
    assert [influence for _, influence in found[:2]] == [None, 1.0]
    for r in (2, 3, 4):
        assert found[r][1] == pytest.approx(divergences[r - 1] / max(divergences[:r]), rel=1e-6)
    assert divergences[3] < max(divergences[:3])
    seen = [{"seen": torch.tensor([last, largest])} for last, largest in ((0.0, 0.0), (0.125, 0.5))]
    assert [learner._local._influence(participant(4, 1), own) for own in seen] == [1, 0.25]
    # a silo of its own history: another one is at its beginning
    other = learner.train([participant(5, 2)])[0]
    assert "divergence_influence" not in other.metrics
