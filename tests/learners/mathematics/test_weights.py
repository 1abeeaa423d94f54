"""Aggregation weights and the weighted mean: published values and laws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learners.mathematics.weights import (
    RunningMean,
    blur_weights,
    discard_weights,
    equal_weights,
    image_weights,
    weighted_mean,
)

LEVELS = st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=20)


def test_published_blur_weights() -> None:
    expected = [0.220588, 0.210784, 0.200980, 0.191176, 0.176471]
    assert blur_weights([60, 80, 100, 120, 150]).tolist() == pytest.approx(expected, abs=5e-7)
    assert blur_weights([1, 3]).tolist() == [0.75, 0.25]


def test_weights_by_images() -> None:
    assert image_weights([2, 60, 18]).tolist() == [0.025, 0.75, 0.225]
    assert image_weights([]).tolist() == []
    for count in range(1, 200):  # silos of one size: the bits of equal weights
        assert (image_weights([count + 3] * count) == equal_weights(count)).all()


@pytest.mark.parametrize(
    ("levels", "expected"),
    [([], []), ([2.0], [1.0]), ([0.0], [1.0]), ([0.0, 0.0], [0.5, 0.5]), ([7.0] * 4, [0.25] * 4)],
)
def test_degenerate_levels_give_equal_weights(levels: list[float], expected: list[float]) -> None:
    assert blur_weights(levels).tolist() == pytest.approx(expected, rel=1e-15)


@given(LEVELS)
def test_blur_weights_are_shares_bounded_and_equivariant(levels: list[float]) -> None:
    weights = blur_weights(levels)
    assert weights.sum() == pytest.approx(1, rel=1e-12)
    assert (weights >= 0).all()
    if len(levels) > 1:
        assert (weights <= (1 + 1e-12) / (len(levels) - 1)).all()
    order = np.random.default_rng(len(levels)).permutation(len(levels))
    assert blur_weights([levels[i] for i in order]).tolist() == weights[order].tolist()
    np.testing.assert_allclose(blur_weights([17.5 * level for level in levels]), weights, rtol=1e-12)


def test_discard_weights() -> None:
    limit = 100 / 3.6
    assert discard_weights([20.0, limit, limit + 1e-9, 40.0], limit_mps=limit).tolist() == [0.5, 0.5, 0, 0]
    assert discard_weights([30.0, 40.0], limit_mps=limit).tolist() == [0, 0]
    assert discard_weights([], limit_mps=limit).tolist() == []


def random_state(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(4, 3, generator=generator, dtype=dtype),
        "bn.running_var": torch.rand(5, generator=generator, dtype=dtype),
        "bn.num_batches_tracked": torch.randint(0, 10**6, (), generator=generator),
    }


@given(st.lists(st.floats(1e-9, 1), min_size=1, max_size=8), st.integers(0, 2**32), st.booleans())
def test_identical_models_come_back_bit_for_bit(weights: list[float], seed: int, double: bool) -> None:
    state = random_state(seed, torch.float64 if double else torch.float32)
    state["weight"][0, 0] = -0.0
    mean = weighted_mean([state] * len(weights), weights)
    for name, tensor in state.items():
        assert mean[name].dtype == tensor.dtype
        assert mean[name].numpy().tobytes() == tensor.numpy().tobytes()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8).filter(lambda w: sum(w) > 1e-3), st.integers(0, 2**32))
def test_equals_the_plain_weighted_sum_in_any_order(weights: list[float], seed: int) -> None:
    states = [random_state(seed + i) for i in range(len(weights))]
    mean = weighted_mean(states, weights)
    shares = np.asarray(weights) / np.sum(weights)
    for name in ("weight", "bn.running_var"):
        expected = sum(share * state[name].double().numpy() for share, state in zip(shares, states, strict=True))
        np.testing.assert_allclose(mean[name].numpy(), expected, rtol=1e-6, atol=1e-7)
    counter = sum(share * int(state["bn.num_batches_tracked"]) for share, state in zip(shares, states, strict=True))
    assert abs(int(mean["bn.num_batches_tracked"]) - counter) <= 0.5 + 1e-6
    backwards = weighted_mean(states[::-1], weights[::-1])
    for name, tensor in mean.items():
        torch.testing.assert_close(backwards[name], tensor, rtol=3e-7, atol=1e-9)


def test_states_of_weight_zero_are_not_read() -> None:
    broken = {"w": torch.full((2,), torch.nan)}
    mean = weighted_mean([broken, {"w": torch.tensor([1.0, 2.0])}], [0.0, 0.3])
    assert mean["w"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("states", "weights", "message"),
    [
        ([{}], [], "zip"),
        ([{}], [0.0], "no state has a positive weight"),
        ([{}], [-1.0], "at least 0"),
        ([{"a": torch.ones(1)}, {"b": torch.ones(1)}], [1.0, 1.0], "differ in their tensors"),
    ],
)
def test_refuses_what_does_not_fit(states: list[dict[str, torch.Tensor]], weights: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weighted_mean(states, weights)


@pytest.mark.parametrize("weight", [-1.0, np.inf, -np.inf, np.nan])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match=rf"^weights must be finite and at least 0, got {weight}$"):
        RunningMean().add({"w": torch.ones(2)}, weight)
