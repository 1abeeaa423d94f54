"""The losses against a slow port in 60-digit decimals, closed forms and published numbers."""

import math
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, normalize

from learners.mathematics.losses import (
    divergence_rows,
    dual_temperature_loss,
    dual_temperature_rows,
)

EXAMPLE = torch.tensor([[0.9, 0.1, -0.2], [0.0, 0.5, 0.4], [0.3, -0.1, 0.7]], dtype=torch.float64)


def info_nce_rows(similarity: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Return -log softmax_j(s_ij / t) at j = i: cross-entropy with the positive as label."""
    return cross_entropy(similarity / temperature, torch.arange(len(similarity)), reduction="none")


def slow_rows(similarity: list[list[float]], t_alpha: float, t_beta: float) -> list[float]:
    """Eq. 6-8 term by term: softmax, its complement, their ratio, the logarithm."""
    with localcontext() as context:
        context.prec = 120

        def softmax(row: list[float], i: int, temperature: float) -> Decimal:
            exponentials = [(Decimal(s) / Decimal(temperature)).exp() for s in row]
            return exponentials[i] / sum(exponentials)

        rows = []
        for i, row in enumerate(similarity):
            p_alpha, p_beta = softmax(row, i, t_alpha), softmax(row, i, t_beta)
            rows.append(float((1 - p_beta) / (1 - p_alpha) * -p_alpha.ln()))
        return rows


def projections(seed: int, batch: int = 6, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, batch, 8, generator=generator, dtype=dtype)
    return normalize(q, dim=1), normalize(k, dim=1)


def test_published_example():
    rows = dual_temperature_rows(EXAMPLE, t_alpha=0.1, t_beta=1.0)
    assert rows.tolist() == pytest.approx([0.438973, 0.702620, 0.533119], abs=5e-7)
    columns = dual_temperature_rows(EXAMPLE.T, t_alpha=0.1, t_beta=1.0)
    assert float(rows.mean() + columns.mean()) / 2 == pytest.approx(0.544403, abs=5e-7)


@pytest.mark.parametrize(("batch", "expected"), [(2, math.log(2)), (512, 6.238325)])
def test_constant_similarities_give_log_batch(batch, expected):
    similarity = torch.full((batch, batch), 0.37, dtype=torch.float64)
    rows = dual_temperature_rows(similarity, t_alpha=0.1, t_beta=1.0)
    assert rows.tolist() == pytest.approx([expected] * batch, abs=5e-7)


def test_aligned_orthonormal_projections():
    q = torch.eye(512, dtype=torch.float64)
    assert float(dual_temperature_loss(q, q)) == pytest.approx(1.006159, abs=5e-7)


@given(
    st.integers(2, 6).flatmap(
        lambda n: st.lists(st.lists(st.floats(-1, 1), min_size=n, max_size=n), min_size=n, max_size=n)
    ),
    st.sampled_from([0.05, 0.1, 0.5, 1.0]),
    st.sampled_from([0.1, 1.0, 3.0]),
)
def test_equals_the_slow_port(similarity, t_alpha, t_beta):
    rows = dual_temperature_rows(torch.tensor(similarity, dtype=torch.float64), t_alpha=t_alpha, t_beta=t_beta)
    assert rows.tolist() == pytest.approx(slow_rows(similarity, t_alpha, t_beta), rel=1e-12)


def test_keeps_its_digits_when_the_positive_dominates():
    similarity = [[1.0, -1.0, -0.9], [-0.8, 1.0, -1.0], [-1.0, -0.7, 1.0]]
    rows = dual_temperature_rows(torch.tensor(similarity, dtype=torch.float64), t_alpha=0.02, t_beta=0.05)
    expected = slow_rows(similarity, 0.02, 0.05)
    assert max(expected) < 1e-14  # 1 - softmax in float64 would be 0 or off by its own size
    assert rows.tolist() == pytest.approx(expected, rel=1e-12, abs=0)


def test_gradient_with_the_weight_held_fixed():
    """Finite differences of the loss whose weight is a constant, which is what the stop-gradient means."""
    q, k = projections(0)
    with torch.no_grad():
        similarity = q @ k.T
        weights = [
            dual_temperature_rows(s, t_alpha=0.1, t_beta=1.0) / info_nce_rows(s, temperature=0.1)
            for s in (similarity, similarity.T)
        ]

    def fixed(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        similarity = q @ k.T
        rows = weights[0] * info_nce_rows(similarity, temperature=0.1)
        columns = weights[1] * info_nce_rows(similarity.T, temperature=0.1)
        return (rows.mean() + columns.mean()) / 2

    q.requires_grad_()
    k.requires_grad_()
    assert torch.autograd.gradcheck(fixed, (q, k))
    expected = torch.autograd.grad(fixed(q, k), (q, k))
    actual = torch.autograd.grad(dual_temperature_loss(q, k, t_alpha=0.1, t_beta=1.0), (q, k))
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e)
        assert a.abs().max() > 1e-3  # both branches learn


@given(st.integers(0, 2**32), st.floats(0.05, 2.0))
def test_equal_temperatures_give_info_nce(seed, temperature):
    q, k = projections(seed)
    ways = (info_nce_rows(similarity, temperature=temperature).mean() for similarity in (q @ k.T, k @ q.T))
    torch.testing.assert_close(dual_temperature_loss(q, k, t_alpha=temperature, t_beta=temperature), sum(ways) / 2)


@given(st.integers(0, 2**32), st.permutations(range(6)))
def test_unchanged_by_reordering_the_batch_and_by_swapping_the_views(seed, order):
    q, k = projections(seed)
    loss = dual_temperature_loss(q, k)
    torch.testing.assert_close(dual_temperature_loss(q[order], k[order]), loss)
    torch.testing.assert_close(dual_temperature_loss(k, q), loss)


@pytest.mark.parametrize(("t_alpha", "t_beta"), [(0.1, 1.0), (0.3, 0.2)])
def test_plain_negatives_are_eq_5_to_8_as_printed(t_alpha, t_beta):
    """Term by term: one positive k_i, and the un-augmented k_j of the other images."""
    q, k = projections(3)
    plain, _ = projections(4)

    def printed(anchors: torch.Tensor, positives: torch.Tensor) -> float:
        total = 0.0
        for i in range(len(anchors)):
            positive = float(anchors[i] @ positives[i])
            others = [float(anchors[i] @ plain[j]) for j in range(len(plain)) if j != i]

            def share(t: float, positive: float = positive, others: list[float] = others) -> float:
                return math.exp(positive / t) / (math.exp(positive / t) + sum(math.exp(o / t) for o in others))

            total += (1 - share(t_beta)) / (1 - share(t_alpha)) * -math.log(share(t_alpha))
        return total / len(anchors)

    expected = (printed(q, k) + printed(k, q)) / 2
    assert float(dual_temperature_loss(q, k, t_alpha=t_alpha, t_beta=t_beta)) != pytest.approx(expected)
    plain.requires_grad_()
    loss = dual_temperature_loss(q, k, t_alpha=t_alpha, t_beta=t_beta, negatives=plain)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    loss.backward()  # type: ignore[no-untyped-call]
    assert plain.grad is not None
    assert plain.grad.abs().max() > 1e-3  # Eq. 5 has no stop-gradient


def test_finite_in_single_precision_at_a_tiny_temperature():
    q, _ = projections(1, dtype=torch.float32)
    q.requires_grad_()
    loss = dual_temperature_loss(q, q.detach(), t_alpha=1e-3)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.isfinite()
    assert q.grad is not None
    assert q.grad.isfinite().all()


FEATURES = st.integers(2, 7).flatmap(
    lambda d: st.lists(st.lists(st.floats(-30, 30), min_size=d, max_size=d), min_size=2, max_size=2)
)


def slow_divergence(z: list[float], other: list[float], tau: float) -> float:
    with localcontext() as context:
        context.prec = 60

        def softmax(row: list[float]) -> list[Decimal]:
            exponentials = [(Decimal(value) / Decimal(tau)).exp() for value in row]
            return [value / sum(exponentials) for value in exponentials]

        return float(sum(p * (p.ln() - q.ln()) for p, q in zip(softmax(z), softmax(other), strict=True)))


@given(FEATURES, st.sampled_from([0.3, 1.0, 4.0]))
def test_divergence_equals_the_slow_port(rows, tau):
    z, other = torch.tensor(rows, dtype=torch.float64)[:, None].unbind()
    expected = slow_divergence(*rows, tau)
    assert float(divergence_rows(z, other, tau=tau)) == pytest.approx(expected, rel=1e-11, abs=1e-13)
    assert expected >= 0


@given(FEATURES)
def test_divergence_of_a_distribution_from_itself_is_0(rows):
    z = torch.tensor(rows, dtype=torch.float64)
    assert divergence_rows(z, z, tau=1.0).tolist() == [0.0, 0.0]
    # a common shift changes no softmax
    shifted = divergence_rows(z, z + 3, tau=1.0)
    torch.testing.assert_close(shifted, torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-13)
