"""Mixing matrices: doubly stochastic, the ring's rate of agreement, what happens to those who received nothing."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learners.mathematics import mixing
from learners.mathematics.mixing import Graph, half_received, metropolis_hastings, mix
from vnetsim.learning.mixing_weights import metropolis_hastings_row


def ring(count: int) -> Graph:
    """The directed ring of ``count`` vehicles, each with the model of the one before it."""
    return np.roll(np.eye(count, dtype=np.bool_), -1, axis=1)


@st.composite
def graphs(draw: st.DrawFn, *, directed: bool) -> Graph:
    count = draw(st.integers(1, 9))
    bits = draw(st.lists(st.booleans(), min_size=count * count, max_size=count * count))
    graph = np.array(bits, dtype=np.bool_).reshape(count, count)
    return graph if directed else graph | graph.T


@given(graphs(directed=False))
def test_metropolis_hastings_is_symmetric_and_doubly_stochastic(graph):
    weights = metropolis_hastings(graph)
    np.testing.assert_array_equal(weights, weights.T)
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=0, atol=1e-15)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=0, atol=1e-15)
    assert (weights >= 0).all()
    edges = graph & ~np.eye(len(graph), dtype=bool)
    np.testing.assert_array_equal(weights - np.diag(np.diag(weights)) > 0, edges)
    assert (np.diag(weights) > 0).all()
    degrees = edges.sum(axis=1)
    for i, j in zip(*edges.nonzero(), strict=True):
        assert weights[i, j] == 1 / (1 + max(degrees[i], degrees[j]))


@given(graphs(directed=False), st.randoms(use_true_random=False))
def test_rows_from_what_a_vehicle_knows_are_doubly_stochastic_when_exchanges_were_cut(graph, rnd):
    begun = graph & ~np.eye(len(graph), dtype=bool)
    completed = begun.copy()
    for i, j in zip(*begun.nonzero(), strict=True):
        if i < j and rnd.random() < 0.4:
            completed[i, j] = completed[j, i] = False
    degrees = begun.sum(axis=1)
    weights = np.zeros(graph.shape)
    for i, row in enumerate(completed):
        peers = row.nonzero()[0]
        weights[i, [i, *peers]] = metropolis_hastings_row(int(degrees[i]), [int(degrees[j]) for j in peers])
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=0, atol=1e-14)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=0, atol=1e-14)
    assert (weights >= 0).all()
    if (begun == completed).all():
        np.testing.assert_allclose(weights, metropolis_hastings(graph), rtol=0, atol=1e-15)


@given(graphs(directed=True))
def test_half_received_rows_sum_to_one(graph):
    weights = half_received(graph)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=0, atol=1e-15)
    assert (weights >= 0).all()
    alone = ~(graph & ~np.eye(len(graph), dtype=bool)).any(axis=1)
    np.testing.assert_array_equal(np.diag(weights), np.where(alone, 1.0, 0.5))


@pytest.mark.parametrize("count", [2, 3, 5, 11, 12])
def test_ring_eigenvalue(count):
    weights = half_received(ring(count))
    np.testing.assert_array_equal(weights, (np.eye(count) + ring(count)) / 2)
    np.testing.assert_allclose(weights.sum(axis=0), 1)
    moduli = np.sort(np.abs(np.linalg.eigvals(weights)))[::-1]
    assert moduli[0] == pytest.approx(1)
    assert moduli[1] == pytest.approx(math.cos(math.pi / count), abs=1e-7)
    if count == 11:
        assert moduli[1] == pytest.approx(0.959493, abs=5e-7)


def test_all_mix_from_the_same_snapshot():
    generator = torch.Generator().manual_seed(0)
    states = [{"w": torch.randn(3, 2, generator=generator), "n": torch.tensor(i)} for i in range(4)]
    before = [{name: tensor.clone() for name, tensor in state.items()} for state in states]
    weights = half_received(ring(4))
    mixed = mix(states, weights)
    expected = torch.einsum("ij,jab->iab", torch.tensor(weights), torch.stack([s["w"] for s in states]).double())
    torch.testing.assert_close(torch.stack([state["w"] for state in mixed]), expected.float())
    assert all(torch.equal(a[name], b[name]) for a, b in zip(states, before, strict=True) for name in a)


def test_a_model_that_vanishes_resembles_none():
    one, none = {"w": torch.full((3,), 0.25)}, {"w": torch.zeros(3)}
    assert mixing.similarity(one, none, ["w"]) == mixing.similarity(none, one, ["w"]) == 0
    assert mixing.similarity(one, one, ["w"]) == 1, "however small both are"
