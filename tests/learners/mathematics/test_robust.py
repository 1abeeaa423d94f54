"""Robust averaging: what one broken or hostile upload can do, and the laws of each rule."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import trim_mean
from torch import Tensor

from learners.encoders import create_encoder
from learners.mathematics import robust
from learners.mathematics.robust import AveragingSettings, clip, combine, used_weights, weigh_by_distance
from learners.mathematics.weights import equal_weights, weighted_mean

State = dict[str, Tensor]
ROBUST = [AveragingSettings(aggregation="median"), AveragingSettings(aggregation="trimmed-mean", trim=0.2)]
BY_DISTANCE = [
    AveragingSettings(aggregation="krum"),
    AveragingSettings(aggregation="multi-krum"),
    AveragingSettings(aggregation="geometric-median"),
]
ALL = [AveragingSettings(), *ROBUST, *BY_DISTANCE]
HONEST = 4


def uploads(count: int = HONEST, *, seed: int = 0) -> tuple[State, list[State]]:
    """Return a small base model, BatchNorm and counter included, and uploads a little off it."""
    generator = torch.Generator().manual_seed(seed)
    base = {
        "weight": torch.randn(7, 5, generator=generator),
        "bn.running_var": torch.rand(6, generator=generator) + 0.1,
        "bn.num_batches_tracked": torch.tensor(40),
        "bias": torch.randn((), generator=generator),
    }

    def moved(tensor: Tensor, number: int) -> Tensor:
        if not tensor.is_floating_point():
            return tensor + number
        return tensor + 0.01 * torch.randn(tensor.shape, generator=generator)

    return base, [{name: moved(tensor, i) for name, tensor in base.items()} for i in range(count)]


def scaled(base: State, state: State) -> State:
    return {n: base[n] + 1e6 * (t - base[n]) if t.is_floating_point() else t for n, t in state.items()}


def flipped(base: State, state: State) -> State:
    return {n: base[n] - 300 * (t - base[n]) if t.is_floating_point() else t for n, t in state.items()}


def distance(a: State, b: State) -> float:
    return math.sqrt(sum(float((a[n].double() - b[n]).square().sum()) for n in a if a[n].is_floating_point()))


def combined(states: list[State], weights: Any, base: State, settings: AveragingSettings) -> State:
    """Return one model of uploads that all started from ``base``, as the server makes it."""
    clipped = [clip(state, base, settings) for state in states]
    begin = used_weights(np.asarray(weights), settings)
    return combine(clipped, weigh_by_distance(clipped, begin, settings), settings)


def equal(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) and a[n].dtype == b[n].dtype for n in a)


@pytest.mark.parametrize("attack", [scaled, flipped])
def test_one_hostile_upload_ruins_the_mean_and_not_the_robust_rules(attack):
    base, honest = uploads()
    everybody = [*honest[:2], attack(base, honest[0]), *honest[2:]]
    weights = equal_weights(len(everybody))
    radius = max(distance(base, state) for state in honest)
    assert distance(base, combined(everybody, weights, base, AveragingSettings())) > 10 * radius
    for settings in ROBUST:
        result = combined(everybody, weights, base, settings)
        for name in result:
            values = torch.stack([state[name] for state in honest])
            assert (result[name] >= values.amin(0)).all(), (
                "within the range of the honest ones, coordinate by coordinate"
            )
            assert (result[name] <= values.amax(0)).all()
    for norm in (radius, 0.1 * radius):
        clipped = combined(everybody, weights, base, AveragingSettings(clip_norm=norm))
        honest_part = combined(honest, equal_weights(HONEST), base, AveragingSettings(clip_norm=norm))
        assert distance(base, clipped) <= norm * (1 + 1e-5)
        assert distance(clipped, honest_part) <= 2 * norm / len(everybody) * (1 + 1e-5)


@pytest.mark.parametrize("settings", [*ROBUST, *BY_DISTANCE], ids=lambda s: s.aggregation)
def test_a_large_weight_gives_no_power(settings: AveragingSettings) -> None:
    base, honest = uploads()
    everybody = [*honest, scaled(base, honest[0])]
    heavy = combined(everybody, [1e-3] * HONEST + [1.0], base, settings)
    assert equal(heavy, combined(everybody, equal_weights(5), base, settings))


@pytest.mark.parametrize("settings", [*ALL, AveragingSettings(clip_norm=1e9)], ids=str)
def test_identical_models_come_back_bit_for_bit(settings):
    model = dict(create_encoder("small", seed=0).state_dict())
    model["zero"] = torch.tensor([-0.0, 0.0])
    base = {name: tensor * 2 for name, tensor in model.items()}
    for count in (1, 2, 3, 6):
        result = combined([model] * count, np.arange(1.0, count + 1), base, settings)
        assert equal(result, model)
        assert torch.signbit(result["zero"]).tolist() == [True, False]


@given(order=st.permutations(range(5)), rule=st.sampled_from(ROBUST), seed=st.integers(0, 99))
def test_the_order_of_the_uploads_is_immaterial(order, rule, seed):
    base, states = uploads(5, seed=seed)
    weights = equal_weights(5)
    assert equal(combined([states[i] for i in order], weights, base, rule), combined(states, weights, base, rule))


@given(count=st.integers(1, 9), seed=st.integers(0, 99))
def test_median_and_trimmed_mean_are_those_of_numpy_and_scipy(count, seed):
    base, states = uploads(count, seed=seed)
    values = np.stack([state["weight"].numpy().astype(np.float64) for state in states])
    median = combined(states, equal_weights(count), base, AveragingSettings(aggregation="median"))
    np.testing.assert_allclose(median["weight"], np.median(values, axis=0), rtol=1e-6)
    cut = min(math.ceil(0.3 * count), (count - 1) // 2)
    trimmed = combined(states, equal_weights(count), base, AveragingSettings(aggregation="trimmed-mean", trim=0.3))
    np.testing.assert_allclose(trimmed["weight"], trim_mean(values, (cut + 1e-9) / count, axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    ("count", "trim", "cut"),
    [(5, 0.1, 1), (10, 0.1, 1), (11, 0.1, 2), (100, 0.07, 7), (2, 0.4, 0), (4, 0.49, 1), (9, 0.0, 0)],
)
def test_the_share_to_cut_is_rounded_up_and_leaves_a_value(count, trim, cut):
    states = [{"x": torch.tensor([float(4**i)], dtype=torch.float64)} for i in range(count)]
    result = combined(states, equal_weights(count), {}, AveragingSettings(aggregation="trimmed-mean", trim=trim))
    assert float(result["x"]) == pytest.approx(np.mean([4.0**i for i in range(cut, count - cut)]), rel=1e-12)


def test_the_mean_is_the_weighted_mean_bit_for_bit():
    base, states = uploads()
    weights = [0.1, 0.2, 0.3, 0.4]
    expected = weighted_mean(states, weights)
    assert equal(combined(states, weights, base, AveragingSettings()), expected)
    assert equal(combined(states, weights, base, AveragingSettings(clip_norm=1e9)), expected), "nothing to clip"


@pytest.mark.parametrize("settings", [*ALL, AveragingSettings(clip_norm=0.01)], ids=str)
def test_uploads_of_weight_0_stay_out(settings):
    base, states = uploads()
    spoilt = {name: torch.full_like(tensor, 9e9) for name, tensor in states[0].items()}
    some = combined([states[0], spoilt, *states[1:]], [0.25, 0, 0.25, 0.25, 0.25], base, settings)
    assert equal(some, combined(states, equal_weights(HONEST), base, settings))


def test_clipping_is_per_upload_and_keeps_its_direction():
    base = {"a": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)}
    states = [
        {"a": torch.tensor([31.0, 42.0]), "n": torch.tensor(5)},
        {"a": torch.tensor([1.0, 2.5]), "n": torch.tensor(5)},
    ]
    result = combined(states, [0.5, 0.5], base, AveragingSettings(clip_norm=1.0))
    torch.testing.assert_close(result["a"], torch.tensor([1.3, 2.65]))
    assert result["n"] == 5, "counters are not clipped"
    at_the_limit = {"a": torch.tensor([1e-20, 2.0])}
    assert equal(combined([at_the_limit], [1.0], base, AveragingSettings(clip_norm=1.0)), at_the_limit)


@pytest.mark.parametrize("settings", [*ALL, AveragingSettings(clip_norm=0.05)], ids=str)
def test_variances_stay_variances_and_counters_whole(settings):
    base, states = uploads()
    states[0]["bn.running_var"] = torch.zeros(6)
    result = combined(states, equal_weights(HONEST), base, settings)
    assert (result["bn.running_var"] >= 0).all()
    assert result["bn.num_batches_tracked"].dtype == torch.int64
    if settings in BY_DISTANCE:
        assert 41 <= result["bn.num_batches_tracked"] <= 43, "the first upload, 40, is far away"
    else:
        assert result["bn.num_batches_tracked"] == 42, "40, 41, 42, 43: 41.5 rounded to even"


def test_pieces_make_no_difference(monkeypatch):
    base, states = uploads()
    whole = [combined(states, equal_weights(HONEST), base, settings) for settings in ROBUST]
    monkeypatch.setattr(robust, "CHUNK", 13)
    assert all(equal(combined(states, equal_weights(HONEST), base, s), w) for s, w in zip(ROBUST, whole, strict=True))
    monkeypatch.setattr(robust, "CHUNK", 1)
    assert equal(combined(states, equal_weights(HONEST), base, ROBUST[0]), whole[0])
    assert combined([{"none": torch.empty(0, 3)}] * 3, equal_weights(3), {}, ROBUST[0])["none"].shape == (0, 3)


def rows_of(states: list[State]) -> Any:
    flat = [[t.double().numpy().ravel() for t in one.values() if t.is_floating_point()] for one in states]
    return np.stack([np.concatenate(one) for one in flat])


@given(count=st.integers(3, 11), seed=st.integers(0, 99), trim=st.sampled_from([0.0, 0.1, 0.3, 0.49]))
def test_krum_is_that_of_the_paper(count: int, seed: int, trim: float) -> None:
    _, states = uploads(count, seed=seed)
    rows = rows_of(states)
    f = min(math.ceil(trim * count - 1e-9), (count - 3) // 2)
    scores = []
    for i in range(count):
        others = sorted(((rows[i] - rows[j]) ** 2).sum() for j in range(count) if j != i)
        scores.append(sum(others[: count - f - 2]))
    for name, taken in ("krum", 1), ("multi-krum", count - f):
        weights = weigh_by_distance(states, equal_weights(count), AveragingSettings(aggregation=name, trim=trim))  # type: ignore[arg-type]
        limit = sorted(scores)[taken - 1]
        best = {i for i in range(count) if scores[i] <= limit * (1 + 1e-12)}
        assert set(np.flatnonzero(weights)) == best
        assert weights[[*best]].tolist() == [pytest.approx(1 / len(best))] * len(best)


@pytest.mark.parametrize(("count", "seed"), [(3, 0), (4, 1), (5, 2), (9, 3)])
def test_no_point_is_nearer_to_all_than_the_geometric_median(count: int, seed: int) -> None:
    base, states = uploads(count, seed=seed)
    found = combined(states, equal_weights(count), base, BY_DISTANCE[2])
    rows, median = rows_of(states), rows_of([found])[0]
    best = minimize(lambda at: np.linalg.norm(rows - at, axis=1).sum(), rows.mean(axis=0))
    assert np.linalg.norm(rows - median, axis=1).sum() <= best.fun * (1 + 1e-5)


@pytest.mark.parametrize("settings", BY_DISTANCE, ids=lambda s: s.aggregation)
@pytest.mark.parametrize("far", [1e3, 1e15, 1e30])
def test_hostile_uploads_far_away_have_no_power(settings: AveragingSettings, far: float) -> None:
    base, honest = uploads(5)
    hostile = {n: t + far if t.is_floating_point() else t for n, t in base.items()}
    radius = max(distance(a, b) for a in honest for b in honest)
    centre = weighted_mean(honest, equal_weights(5))
    found = combined([hostile, *honest], equal_weights(6), base, settings)
    assert distance(found, centre) <= radius
    if settings.aggregation == "geometric-median":  # less than half together
        two = combined([*honest, hostile, hostile], equal_weights(7), base, settings)
        assert distance(two, centre) <= 2 * radius


@given(
    order=st.permutations(range(6)), rule=st.sampled_from(BY_DISTANCE), shift=st.floats(-2, 2), seed=st.integers(0, 99)
)
def test_order_and_translation_are_immaterial(
    order: list[int], rule: AveragingSettings, shift: float, seed: int
) -> None:
    _, states = uploads(6, seed=seed)
    states = [{name: t.double() for name, t in state.items() if t.is_floating_point()} for state in states]
    found = combined(states, equal_weights(6), {}, rule)
    moved = [{name: t + shift for name, t in states[i].items()} for i in order]
    for name, tensor in combined(moved, equal_weights(6), {}, rule).items():
        torch.testing.assert_close(tensor, found[name] + shift, rtol=0, atol=1e-6)


def test_two_uploads_count_equally_and_of_three_krum_takes_the_nearest_two() -> None:
    states = [{"x": torch.tensor([x])} for x in (0.0, 1.0, 5.0)]
    for settings in BY_DISTANCE:
        assert weigh_by_distance(states[:2], equal_weights(2), settings).tolist() == [0.5, 0.5]
        assert weigh_by_distance(states[:2], np.zeros(2), settings).tolist() == [0, 0]
    assert weigh_by_distance(states, equal_weights(3), BY_DISTANCE[0]).tolist() == [0.5, 0.5, 0]


def test_the_weights_that_count() -> None:
    weights = np.array([0.5, 0.0, 0.3, 0.2])
    assert used_weights(weights, AveragingSettings()) is weights
    for settings in ROBUST:
        assert used_weights(weights, settings).tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
        assert used_weights(np.array([0.0, 0.7]), settings).tolist() == [0, 1]
        assert used_weights(np.zeros(2), settings).tolist() == [0, 0]
        assert used_weights(np.empty(0), settings).tolist() == []
