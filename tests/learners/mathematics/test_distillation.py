"""Distillation: exact gradients and limits of the loss, and the transport similarity of dense features."""

import pytest
import torch
from torch.nn.functional import adaptive_avg_pool2d, cross_entropy, one_hot

from learners.mathematics.losses import distillation_loss
from learners.mathematics.transport import dense_problem, dense_similarities, dense_similarity, emd_problem, solve


def logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_gradient_on_the_students_logits(temperature):
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


def test_similarity_is_the_mean_over_images_of_each_teacher():
    u, v = logits(3, 8, 2, 3), logits(2, 3, 8, 2, 3, seed=1)
    flat = u.flatten(2).mT
    expected = torch.stack([1 - solve(*emd_problem(flat, teacher.flatten(2).mT))[0].mean() for teacher in v])
    torch.testing.assert_close(dense_similarity(u, v), expected, rtol=1e-12, atol=1e-12)
    assert expected[0] != expected[1]
    together, part = dense_similarities([dense_problem(u, v), dense_problem(u[1:], v[:1, 1:])])
    assert together == pytest.approx(expected.tolist(), rel=1e-12)
    assert part == pytest.approx(dense_similarity(u[1:], v[:1, 1:]).tolist(), rel=1e-12)


def test_large_maps_are_pooled_to_seven_by_seven():
    u, v = logits(2, 4, 14, 9), logits(1, 2, 4, 14, 9, seed=1)
    pooled = dense_similarity(adaptive_avg_pool2d(u, (7, 7)), adaptive_avg_pool2d(v[0], (7, 7))[None])
    torch.testing.assert_close(dense_similarity(u, v), pooled, rtol=1e-12, atol=1e-12)
    # a map narrower than that keeps its positions
    assert torch.isfinite(dense_similarity(u[..., :1], v[..., :1])).all()
