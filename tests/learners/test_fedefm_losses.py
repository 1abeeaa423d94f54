"""FedEFM's loss with teachers: both readings of Eq. 2 and 11 by hand, and similarities once or of its steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from learner_checks import equal
from torch.nn.functional import one_hot

from learners.encoders import create_classifier
from learners.engines.programs import Program
from learners.mathematics.transport import dense_similarity

IMAGES = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(6) % 3
TAUGHT = {str(seed): create_classifier("small", classes=3, seed=seed).double().state_dict() for seed in (1, 2, 3)}


@pytest.fixture
def new(new_fedefm):
    return new_fedefm


def seen_by(given: Any, program: Program) -> tuple[Any, Any, Any, Any]:
    """Return a step's loss, figures, logits and the gradient on them, in float64, on six images of labels 0, 1, 2."""
    model = create_classifier("small", classes=3, seed=7).double().train()
    seen = []

    def record(_module: Any, _inputs: Any, logits: torch.Tensor) -> None:
        if logits.requires_grad:  # the student's; the teachers are not trained
            logits.retain_grad()
            seen.append(logits)

    model.head.register_forward_hook(record)
    before = {name: tensor.clone() for name, tensor in given.items()}
    loss, figures = program.loss(model, {"images": IMAGES, "labels": LABELS, **given}, {})
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.equal(figures["loss"], loss)
    assert equal(given, before)  # teachers' statistics included
    assert int(model.state_dict()["trunk.bn1.num_batches_tracked"]) == len(seen) == 1
    return loss.detach(), figures, seen[0].detach(), seen[0].grad


def views_of(state: Any) -> tuple[Any, Any]:
    """Return dense features and logits of a model that normalises with the batch."""
    network = create_classifier("small", classes=3, seed=0).double().train()
    network.load_state_dict(state)
    with torch.no_grad():
        return network(IMAGES, with_dense=True)


@pytest.mark.parametrize("similarity", ["visit", "step"])
@pytest.mark.parametrize("reading", ["literal", "labels-once"])
def test_loss_and_gradient_by_hand(new, group, monkeypatch, reading, similarity):
    beta, t = 0.3, 2.0
    learner = new(beta=beta, temperature=t, variant=reading, similarity=similarity)
    emd = [0.9, -0.4, 0.5]  # the second sees the contrary: it has no say
    job = learner._local._job_with_teachers(
        learner._start(group(0)[0]), TAUGHT, dict(zip(TAUGHT, emd, strict=True)) if similarity == "visit" else {}
    )
    given = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in job.given.items()}
    asked = []
    if similarity == "step":  # of the step's images, and of the student as it is

        def asked_for(u: torch.Tensor, v: torch.Tensor, solver: str) -> torch.Tensor:
            del solver
            asked.append((u, v))
            return torch.tensor(emd, dtype=torch.float64)

        monkeypatch.setattr("learners.fedefm.dense_similarity", asked_for)
    loss, figures, logits, gradient = seen_by(given, job.program)

    w = [0.9, 0.0, 0.5]
    expected_loss, expected = 0.0, torch.zeros(6, 3, dtype=torch.float64)
    teachers = [views_of(state) for state in TAUGHT.values()]
    label_weight = (1 - beta) * (sum(w) if reading == "literal" else 1)
    for n in range(6):
        q, y = logits[n].softmax(0), int(LABELS[n])
        expected_loss += label_weight * -float(q[y].log()) / 6
        expected[n] += label_weight * (q - one_hot(LABELS[n], 3)) / 6
        for w_j, (_, taught) in zip(w, teachers, strict=True):
            q_s, q_t = (logits[n] / t).softmax(0), (taught[n] / t).softmax(0)
            cross, entropy = -float((q_t * q_s.log()).sum()), -float((q_t * q_t.log()).sum())
            expected_loss += w_j * beta * t**2 * (cross - entropy) / 6
            expected[n] += w_j * beta * t * (q_s - q_t) / 6
    torch.testing.assert_close(float(loss), expected_loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(figures["similarities"].double(), torch.tensor(emd, dtype=torch.float64))
    for u, v in asked:
        student = create_classifier("small", classes=3, seed=7).state_dict()
        torch.testing.assert_close(u, views_of(student)[0])
        torch.testing.assert_close(v, torch.stack([dense for dense, _ in teachers]))
    assert len(asked) == (similarity == "step")


def test_the_similarity_of_steps_follows_the_student(new, group):
    visit, step = new(), new(similarity="step", variant="literal")
    for learner in (visit, step):
        learner.aggregate([])
    one = group(1)[0]
    once, often = visit.train([one])[0], step.train([one])[0]
    assert list(once.exchanges) == list(often.exchanges) == [peer.vehicle_id for peer in one.peers]
    assert all(0 < float(value) < 1 for value in often.exchanges.values())
    assert once.exchanges != often.exchanges
    assert not step.train([replace(one, peers=())])[0].exchanges
    assert not equal(once.state, often.state)
    job = step._local._job_with_teachers(step._start(one), step._local._train_copies([one])[0], {})
    steps = step._task.engine.train([job])[0].figures["similarities"]
    assert steps.shape == (2, 2)
    torch.testing.assert_close(steps.mean(dim=0), torch.tensor(list(often.exchanges.values()), dtype=torch.float64))


def test_features_that_overflow_reject_the_update_of_steps():
    u, v = torch.ones(2, 3, 2, 2), torch.ones(3, 2, 3, 2, 2)
    v[1, 0, 0, 0, 0] = torch.inf
    found = dense_similarity(u, v)
    assert found.isnan().tolist() == [False, True, False]
    assert dense_similarity(u * torch.nan, v).isnan().all()
