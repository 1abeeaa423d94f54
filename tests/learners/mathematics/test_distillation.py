"""Distillation: exact gradients and limits of the loss, and the transport similarity of dense features."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import adaptive_avg_pool2d, cross_entropy, one_hot

from learners.mathematics.distillation import dense_similarity, distillation_loss
from learners.mathematics.transport import emd_similarity


def logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_teacher_that_agrees_teaches_nothing() -> None:
    student = logits(5, 4).requires_grad_()
    loss = distillation_loss(student, student.detach().expand(3, -1, -1), torch.tensor([0.3, 1.0, 0.7]), temperature=3)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0, abs=1e-15)
    assert student.grad.abs().max() < 1e-15
    # logits that differ by a constant say the same
    shifted = distillation_loss(student, student.detach()[None] + 7, torch.ones(1), temperature=3)
    assert float(shifted.detach()) == pytest.approx(0, abs=1e-12)


def test_weights_of_zero_remove_the_term() -> None:
    student = logits(5, 4).requires_grad_()
    loss = distillation_loss(student, logits(2, 5, 4, seed=1), torch.zeros(2), temperature=3)
    loss.backward()
    assert float(loss.detach()) == 0
    assert not student.grad.any()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_gradient_on_the_students_logits(temperature: float) -> None:
    beta, weights = 0.4, torch.tensor([0.9, 0.2, 0.5], dtype=torch.float64)
    student, teachers, labels = logits(6, 5).requires_grad_(), logits(3, 6, 5, seed=1), torch.arange(6) % 5
    loss = (1 - beta) * cross_entropy(student, labels)
    loss = loss + beta * distillation_loss(student, teachers, weights, temperature=temperature)
    loss.backward()
    q, q_s = student.detach().softmax(1), (student.detach() / temperature).softmax(1)
    q_t = (teachers / temperature).softmax(2)
    expected = (1 - beta) * (q - one_hot(labels, 5))
    expected += beta * temperature * (weights[:, None, None] * (q_s - q_t)).sum(0)
    torch.testing.assert_close(student.grad, expected / 6, rtol=1e-12, atol=1e-15)


def test_a_hot_temperature_compares_centred_logits() -> None:
    student, teachers, weights = logits(6, 5), logits(2, 6, 5, seed=1), torch.tensor([0.5, 2.0], dtype=torch.float64)
    difference = student - teachers
    difference -= difference.mean(dim=2, keepdim=True)
    expected = (weights * difference.square().sum(2).mean(1)).sum() / (2 * 5)
    loss = distillation_loss(student, teachers, weights, temperature=1e4)
    torch.testing.assert_close(loss, expected, rtol=1e-3, atol=0)


def test_networks_that_see_alike_have_similarity_one() -> None:
    u = logits(3, 8, 4, 4).relu()
    torch.testing.assert_close(dense_similarity(u, torch.stack([u, 5 * u])), torch.ones(2, dtype=torch.float64))
    rows = u.flip(dims=(2,))[None]  # positions moved: transport finds them
    torch.testing.assert_close(dense_similarity(u, rows), torch.ones(1, dtype=torch.float64))
    one = u[:, :, :1, :1]
    torch.testing.assert_close(dense_similarity(one, -one[None]), -torch.ones(1, dtype=torch.float64))


def test_similarity_is_the_mean_over_images_of_each_teacher() -> None:
    u, v = logits(3, 8, 2, 3), logits(2, 3, 8, 2, 3, seed=1)
    flat = u.flatten(2).mT
    expected = torch.stack([emd_similarity(flat, teacher.flatten(2).mT).mean() for teacher in v])
    torch.testing.assert_close(dense_similarity(u, v), expected, rtol=1e-12, atol=1e-12)
    assert expected[0] != expected[1]


def test_large_maps_are_pooled_to_seven_by_seven() -> None:
    u, v = logits(2, 4, 14, 9), logits(1, 2, 4, 14, 9, seed=1)
    pooled = dense_similarity(adaptive_avg_pool2d(u, (7, 7)), adaptive_avg_pool2d(v[0], (7, 7))[None])
    torch.testing.assert_close(dense_similarity(u, v), pooled, rtol=1e-12, atol=1e-12)
    # a map narrower than that keeps its positions
    assert torch.isfinite(dense_similarity(u[..., :1], v[..., :1])).all()
