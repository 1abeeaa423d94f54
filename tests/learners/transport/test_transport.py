"""The transport solver against HiGHS, the assignment solver, finite differences and the laws of transport."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog
from torch import Tensor

from learners import transport
from learners.transport import Transport, emd_similarity, interior_point, marginals, solve, transport_value
from learners.transport import simplex as transport_simplex
from vnetsim.errors import InputError

SIZES = ((2, 2), (3, 5), (7, 4), (8, 8), (2, 11))

Sampler = Callable[[torch.Generator, int, int, int], Tensor]


def uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def features(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def near_duplicates(g: torch.Generator, B: int, n: int, m: int) -> Tensor:
    half = uniform(g, B, n, (m + 1) // 2)
    return torch.cat((half, half + 1e-10 * uniform(g, *half.shape)), dim=2)[..., :m].clone()


def cosine(g: torch.Generator, B: int, n: int, m: int) -> Tensor:
    u, v = features(g, B, n, 8), features(g, B, m, 8)
    return 1 - torch.nn.functional.cosine_similarity(u[:, :, None], v[:, None], dim=3)


def one_dear_cell(g: torch.Generator, B: int, n: int, m: int) -> Tensor:
    cost = uniform(g, B, n, m)
    cost[:, 0, 0] = 1e6
    return cost


COSTS: dict[str, Sampler] = {
    "uniform": uniform,
    "cosine": cosine,
    "signed": features,
    "equal": lambda _g, B, n, m: torch.full((B, n, m), 3.0, dtype=torch.float64),
    "integers": lambda g, B, n, m: torch.randint(0, 5, (B, n, m), generator=g).double(),
    "binary": lambda g, B, n, m: torch.randint(0, 2, (B, n, m), generator=g).double(),
    "line": lambda _g, B, n, m: (
        (torch.linspace(0, 1, n).double()[:, None] - torch.linspace(0, 1, m).double()).abs().expand(B, n, m)
    ),
    "sums": lambda g, B, n, m: uniform(g, B, n, 1) + uniform(g, B, 1, m),
    "products": lambda g, B, n, m: uniform(g, B, n, 1) * uniform(g, B, 1, m),
    "near duplicates": near_duplicates,
    "almost equal": lambda g, B, n, m: 1 + 1e-6 * uniform(g, B, n, m),
    "one dear cell": one_dear_cell,
    "tiny": lambda g, B, n, m: 1e-12 * uniform(g, B, n, m),
    "huge": lambda g, B, n, m: 1e6 * uniform(g, B, n, m),
    "18 decades": lambda g, B, n, m: 10 ** (18 * uniform(g, B, n, m) - 12),
}


def integers_of_one_total(g: torch.Generator, B: int, n: int, m: int) -> tuple[Tensor, Tensor]:
    """Zeros and equal partial sums: the optimal flow falls into pieces."""
    a, b = torch.randint(0, 4, (B, n), generator=g).double(), torch.randint(0, 4, (B, m), generator=g).double()
    a[:, 0] += 1 + (b.sum(1) - a.sum(1)).clamp_min(0)
    b[:, 0] += a.sum(1) - b.sum(1)
    return a, b


def shares(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)


def mostly_zero(g: torch.Generator, B: int, n: int, m: int) -> tuple[Tensor, Tensor]:
    a, b = uniform(g, B, n), uniform(g, B, m)
    a[:, 1:] *= a[:, 1:] < 0.3
    b[:, 1:] *= b[:, 1:] < 0.3
    return shares(a + 1e-300, b)


MARGINALS: dict[str, Callable[[torch.Generator, int, int, int], tuple[Tensor, Tensor]]] = {
    "uniform": lambda _g, B, n, m: shares(torch.ones(B, n).double(), torch.ones(B, m).double()),
    "random": lambda g, B, n, m: shares(uniform(g, B, n) + 1e-3, uniform(g, B, m) + 1e-3),
    "integers": integers_of_one_total,
    "mostly zero": mostly_zero,
    "15 decades": lambda g, B, n, m: shares(10 ** (-15 * uniform(g, B, n)), 10 ** (-15 * uniform(g, B, m))),
}


def highs_values(cost: Tensor, a: Tensor, b: Tensor) -> np.ndarray:
    """Return the optimal values by HiGHS, many problems to one block-diagonal programme.

    Costs and totals are scaled to 1, as its tolerances are absolute, and the redundant last column sum is left out.
    """
    B, n, m = cost.shape
    total = a.sum(1, keepdim=True)
    scale = cost.abs().amax((1, 2))
    scale[scale == 0] = 1
    scaled = (cost / scale[:, None, None]).numpy()
    one = sp.vstack((sp.kron(sp.eye(n), np.ones((1, m))), sp.kron(np.ones((1, n)), sp.eye(m)))).tocsr()[:-1]
    sums = torch.cat((a / total, (b / b.sum(1, keepdim=True))[:, :-1]), dim=1).numpy()
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10, "presolve": False}
    A = sp.block_diag([one] * B, format="csc")
    result = linprog(scaled.ravel(), A_eq=A, b_eq=sums.ravel(), method="highs-ds", options=options)
    assert result.status == 0, result.message
    flow: np.ndarray = result.x.reshape(B, n, m)
    values: np.ndarray = (scaled * flow).sum((1, 2)) * scale.numpy() * total.flatten().numpy()
    return values


def assert_certified(t: Transport, cost: Tensor, a: Tensor, b: Tensor) -> None:
    """A solution proves itself: feasible flow, feasible duals, equal values."""
    total = a.sum(1)
    assert (t.flow >= 0).all()
    assert ((t.flow.sum(2) - a).abs().amax(1) <= 1e-9 * total).all()
    assert ((t.flow.sum(1) - b).abs().amax(1) <= 1e-9 * total).all()
    slack = cost - t.dual_a[..., None] - t.dual_b[:, None]
    size = cost.abs().amax((1, 2))
    assert (slack.amin((1, 2)) >= -1e-12 * size).all()
    dual = (a * t.dual_a).sum(1) + (b * t.dual_b).sum(1)
    assert ((t.value - dual).abs() <= 1e-8 * size * total).all()
    assert (t.gap.abs() <= 1e-8).all()
    torch.testing.assert_close(t.value, (cost * t.flow).sum((1, 2)), rtol=1e-12, atol=0)


FAMILIES = [(cost, marginal) for cost in COSTS for marginal in MARGINALS]


def compare_with_highs(seed: int, count: int, cost_kind: str, marginal_kind: str) -> int:
    generator = torch.Generator().manual_seed(seed)
    for n, m in SIZES:
        cost = COSTS[cost_kind](generator, count, n, m)
        a, b = MARGINALS[marginal_kind](generator, count, n, m)
        t = solve(cost, a, b)
        assert_certified(t, cost, a, b)
        expected = highs_values(cost, a, b)
        size = (cost.abs().amax((1, 2)) * a.sum(1)).numpy()
        above = t.value.numpy() - expected
        # Values of 0 are met to 1e-11 of the median cost. And HiGHS ends at reduced costs of -1e-10 and at row sums off
        # by 1e-10: where costs span decades the certified value may lie below its own, and where marginals do, above.
        typical = (cost.abs().flatten(1).median(dim=1).values * a.sum(1)).numpy()
        room = (1e-9 if marginal_kind == "15 decades" else 1e-13) * size + 2e-11 * typical
        assert (above <= 1e-8 * np.abs(expected) + room).all(), (n, m)
        assert (-above <= 1e-8 * np.abs(expected) + 1e-9 * size).all(), (n, m)
    return count * len(SIZES)


@pytest.mark.parametrize(("cost_kind", "marginal_kind"), FAMILIES)
def test_value_is_that_of_highs(cost_kind: str, marginal_kind: str) -> None:
    compare_with_highs(1, 4, cost_kind, marginal_kind)


@pytest.mark.slow
def test_values_of_ten_thousand_problems_are_those_of_highs() -> None:
    solved = 0
    for seed, (cost_kind, marginal_kind) in enumerate(FAMILIES):
        solved += compare_with_highs(100 + seed, 30, cost_kind, marginal_kind)
    assert solved >= 10_000


@pytest.mark.parametrize(("n", "m"), [(49, 49), (64, 64), (25, 49), (64, 3)])
def test_large_problems_are_those_of_highs(n: int, m: int) -> None:
    generator = torch.Generator().manual_seed(n)
    for cost_kind in ("cosine", "integers", "near duplicates"):
        cost = COSTS[cost_kind](generator, 2, n, m)
        a, b = MARGINALS["random"](generator, 2, n, m)
        t = solve(cost, a, b)
        assert_certified(t, cost, a, b)
        np.testing.assert_allclose(t.value.numpy(), highs_values(cost, a, b), rtol=1e-8, atol=2e-11)


@given(seed=st.integers(0, 2**31), n=st.integers(1, 12), m=st.integers(1, 12), kinds=st.sampled_from(FAMILIES))
@settings(max_examples=60)
def test_every_solution_proves_itself(seed: int, n: int, m: int, kinds: tuple[str, str]) -> None:
    generator = torch.Generator().manual_seed(seed)
    cost = COSTS[kinds[0]](generator, 5, n, m)
    a, b = MARGINALS[kinds[1]](generator, 5, n, m)
    assert_certified(solve(cost, a, b), cost, a, b)


def test_uniform_marginals_are_the_assignment_problem() -> None:
    generator = torch.Generator().manual_seed(2)
    cost = features(generator, 20, 9, 9)
    a = torch.full((20, 9), 1 / 9, dtype=torch.float64)
    expected = [c[linear_sum_assignment(c)].mean() for c in cost.numpy()]
    np.testing.assert_allclose(solve(cost, a, a).value.numpy(), expected, rtol=1e-9)


def test_one_row_sends_every_column_its_share() -> None:
    generator = torch.Generator().manual_seed(3)
    cost, b = features(generator, 4, 1, 6), uniform(generator, 4, 6)
    a = b.sum(1, keepdim=True)
    for t, flow in ((solve(cost, a, b), b[:, None]), (solve(cost.mT, b, a), b[..., None])):
        torch.testing.assert_close(t.flow, flow, rtol=1e-15, atol=0)
    assert_certified(solve(cost, a, b), cost, a, b)


def test_a_constant_on_the_costs_is_added_to_the_value() -> None:
    generator = torch.Generator().manual_seed(4)
    cost = uniform(generator, 6, 5, 7)
    a, b = MARGINALS["random"](generator, 6, 5, 7)
    value = solve(cost, a, b).value
    torch.testing.assert_close(solve(cost + 1e3, a, b).value, value + 1e3, rtol=1e-12, atol=0)
    torch.testing.assert_close(solve(cost - 2.5, 3 * a, 3 * b).value, 3 * (value - 2.5), rtol=1e-9, atol=0)


def test_an_empty_problem_has_no_flow() -> None:
    cost, zero = torch.ones(2, 3, 3).double(), torch.zeros(2, 3).double()
    t = solve(cost, zero, zero)
    assert not t.flow.any()
    assert not t.value.any()
    assert len(solve(cost[:0], zero[:0], zero[:0]).value) == 0


def test_zero_marginals_carry_no_flow() -> None:
    generator = torch.Generator().manual_seed(5)
    cost = uniform(generator, 8, 6, 9)
    a, b = MARGINALS["mostly zero"](generator, 8, 6, 9)
    a = torch.where(a < 1e-200, 0, a)
    flow = solve(cost, a, b).flow
    assert not flow[a == 0].any()
    assert not flow.mT[b == 0].any()


def test_a_problem_does_not_depend_on_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(6)
    cost = torch.cat([sample(generator, 3, 6, 8) for sample in COSTS.values()])
    a, b = MARGINALS["random"](generator, len(cost), 6, 8)
    together = solve(cost, a, b)
    monkeypatch.setitem(transport.WAVE_ENTRIES, "cpu", 7 * 48)  # waves of 7 problems, joined by later ones
    in_waves = solve(cost, a, b)
    alone = [solve(cost[i : i + 1], a[i : i + 1], b[i : i + 1]).value[0] for i in range(len(cost))]
    assert torch.equal(in_waves.iterations, together.iterations)
    size = cost.abs().amax((1, 2))
    for values in (in_waves.value, torch.stack(alone)):
        assert ((values - together.value).abs() <= 1e-9 * size).all()
    unique = slice(0, 9)  # uniform, cosine and signed costs: one optimum, one flow
    torch.testing.assert_close(in_waves.flow[unique], together.flow[unique], rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_dtype_and_device_are_kept(dtype: torch.dtype, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    generator = torch.Generator().manual_seed(7)
    wide = (cosine(generator, 3, 4, 6), *MARGINALS["random"](generator, 3, 4, 6))
    t = solve(*(part.to(device=device, dtype=dtype) for part in wide))
    for part in (t.flow, t.value, t.dual_a, t.dual_b):
        assert part.dtype == dtype
        assert part.device.type == device
    torch.testing.assert_close(t.value.double().cpu(), solve(*wide).value, rtol=4 * torch.finfo(dtype).eps, atol=1e-9)
    u = features(generator, 3, 4, 5).to(device=device, dtype=dtype)
    assert emd_similarity(u, u).dtype == dtype
    assert emd_similarity(u, u).device.type == device


def test_value_agrees_with_float64_for_float32_totals_off_by_rounding() -> None:
    generator = torch.Generator().manual_seed(8)
    a, b = (uniform(generator, 5, 40).float().softmax(1) for _ in range(2))
    cost = uniform(generator, 5, 40, 40).float()
    assert (a.double().sum(1) != b.double().sum(1)).all()
    assert (solve(cost, a, b).gap.abs() < 1e-8).all()


def test_gradients_are_flow_and_duals() -> None:
    """Against central differences of the value along directions that keep the totals equal."""
    generator = torch.Generator().manual_seed(9)
    cost = uniform(generator, 12, 5, 6).requires_grad_()
    a, b = (part.requires_grad_() for part in MARGINALS["random"](generator, 12, 5, 6))
    torch.autograd.backward(transport_value(cost, a, b).sum())
    assert cost.grad is not None
    assert a.grad is not None
    assert b.grad is not None
    step = 1e-7
    dc, da, db = features(generator, 12, 5, 6), features(generator, 12, 5), features(generator, 12, 6)
    da, db = 1e-3 * (da - da.mean(1, keepdim=True)), 1e-3 * (db - db.mean(1, keepdim=True))
    base = (cost.detach(), a.detach(), b.detach())
    for position, direction in enumerate((dc, da, db)):
        ends = []
        for sign in (1, -1):
            moved = list(base)
            moved[position] = moved[position] + sign * step * direction
            ends.append(solve(*moved).value)
        gradient = (cost.grad, a.grad, b.grad)[position]
        slope = (gradient * direction).flatten(1).sum(1)
        torch.testing.assert_close((ends[0] - ends[1]) / (2 * step), slope, rtol=1e-6, atol=1e-6)


def test_gradcheck_through_normalised_marginals() -> None:
    generator = torch.Generator().manual_seed(10)
    inputs = tuple(features(generator, 2, *shape).requires_grad_() for shape in ((3, 4), (3,), (4,)))
    assert torch.autograd.gradcheck(
        lambda cost, a, b: transport_value(cost, a.softmax(1), b.softmax(1)), inputs, eps=1e-6, atol=1e-6, rtol=1e-6
    )


def test_gradcheck_of_the_similarity() -> None:
    generator = torch.Generator().manual_seed(11)
    u, v = features(generator, 2, 3, 4).requires_grad_(), features(generator, 2, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(emd_similarity, (u, v), eps=1e-6, atol=1e-6, rtol=1e-6)


# ---- the similarity


def weights(generator: torch.Generator, *shape: int) -> Tensor:
    weight = uniform(generator, *shape) + 0.1
    return weight / weight.sum(1, keepdim=True)


def test_equal_features_have_similarity_one() -> None:
    u = features(torch.Generator().manual_seed(12), 5, 9, 16)
    torch.testing.assert_close(emd_similarity(u, u), torch.ones(5).double(), rtol=0, atol=1e-9)


def test_similarity_ignores_order_and_positive_scale() -> None:
    """With given weights, which the default ones, products of the features themselves, do not ignore."""
    generator = torch.Generator().manual_seed(13)
    u, a = features(generator, 5, 9, 16), weights(generator, 5, 9)
    order = torch.randperm(9, generator=generator)
    scale = 0.1 + 10 * uniform(generator, 5, 9, 1)
    one = torch.ones(5).double()
    torch.testing.assert_close(emd_similarity(u, (scale * u)[:, order], a, a[:, order]), one, rtol=0, atol=1e-9)
    torch.testing.assert_close(emd_similarity(u, u[:, order]), one, rtol=0, atol=1e-9)
    v = features(generator, 5, 7, 16)
    b = weights(generator, 5, 7)
    expected = emd_similarity(u, v, a, b)
    torch.testing.assert_close(emd_similarity((scale * u)[:, order], v, a[:, order], b), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(emd_similarity(1e-200 * u, 1e200 * v, a, b), expected, rtol=0, atol=1e-9)


def test_antipodal_and_orthogonal_features() -> None:
    direction = torch.zeros(1, 4, 3).double()
    direction[..., 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    other = torch.zeros(1, 5, 3).double()
    other[..., 1] = 2.0
    torch.testing.assert_close(emd_similarity(direction, -direction), -torch.ones(1).double())
    torch.testing.assert_close(emd_similarity(direction, other), torch.zeros(1).double(), rtol=0, atol=1e-12)


def test_similarity_is_symmetric() -> None:
    generator = torch.Generator().manual_seed(14)
    u, v = features(generator, 6, 9, 8), features(generator, 6, 4, 8)
    similarity = emd_similarity(u, v)
    torch.testing.assert_close(emd_similarity(v, u), similarity, rtol=0, atol=1e-9)
    assert (similarity.abs() <= 1).all()


def test_weights_are_those_of_deepemd() -> None:
    u = torch.tensor([[[1.0, 0.0], [0.0, -1.0], [2.0, 2.0]]])
    v = torch.tensor([[[1.0, 0.0], [1.0, 2.0]]])  # mean (1, 1): products 1, -1, 4
    expected = torch.tensor([[1.001, 0.001, 4.001]]) / 5.003
    torch.testing.assert_close(marginals(u, v), expected)
    torch.testing.assert_close(marginals(-u[:, :1], v), torch.ones(1, 1))
    torch.testing.assert_close(marginals(0 * u, v), torch.full((1, 3), 1 / 3))


def test_features_of_zero_norm_cost_one_and_have_finite_gradients() -> None:
    generator = torch.Generator().manual_seed(15)
    u, v = features(generator, 3, 4, 5), features(generator, 3, 4, 5)
    u[0] = 0  # against anything: cosine 0
    u[1, 2] = 0
    u[2], v[2] = 0, 0
    u.requires_grad_()
    v.requires_grad_()
    similarity = emd_similarity(u, v)
    torch.autograd.backward(similarity.sum())
    torch.testing.assert_close(similarity[[0, 2]], torch.zeros(2).double(), rtol=0, atol=1e-12)
    assert u.grad is not None
    assert v.grad is not None
    assert torch.isfinite(u.grad).all()
    assert torch.isfinite(v.grad).all()
    assert u.grad[1].any()


# ---- what is refused


def problem(**changes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    parts = {"cost": torch.rand(3, 2, 4), "a": torch.full((3, 2), 0.5), "b": torch.full((3, 4), 0.25)} | changes
    return parts["cost"], parts["a"], parts["b"]


def changed(values: Tensor, index: tuple[int, ...], value: float) -> Tensor:
    values = values.clone()
    values[index] = value
    return values


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (problem(a=changed(torch.full((3, 2), 0.5), (1, 0), 0.6)), "problem 1 of 3: .* unequal totals"),
        (problem(cost=changed(torch.rand(3, 2, 4), (2, 0, 0), float("nan"))), "problem 2 of 3: its cost.* not finite"),
        (problem(cost=changed(torch.rand(3, 2, 4), (0, 1, 1), float("inf"))), "problem 0 of 3: its cost.* not finite"),
        (problem(b=torch.tensor([[1.5, -0.5, 0.0, 0.0]]).expand(3, 4)), "problem 0 of 3: a marginal is negative"),
        (problem(a=torch.full((3, 2), float("nan"))), "problem 0 of 3: a marginal is negative or not finite"),
        (problem(a=torch.full((3, 4), 0.25)), r"shapes \(B, n, m\), \(B, n\) and \(B, m\), got"),
        (problem(cost=torch.rand(2, 4)), "got cost"),
        ((torch.rand(3, 0, 4), torch.rand(3, 0), torch.rand(3, 4)), "at least one row"),
        (problem(cost=torch.rand(3, 2, 4).double()), "share one floating dtype"),
    ],
)
def test_problems_without_solution_are_refused(arguments: tuple[Tensor, Tensor, Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        solve(*arguments)


def test_features_that_do_not_fit_are_refused() -> None:
    u = torch.rand(2, 3, 4)
    with pytest.raises(InputError, match=r"features must have shapes"):
        emd_similarity(u, torch.rand(2, 3, 5))
    with pytest.raises(InputError, match="both feature sets or for neither"):
        emd_similarity(u, u, torch.full((2, 3), 1 / 3))
    with pytest.raises(InputError, match="must be finite"):
        emd_similarity(u, changed(u, (0, 0, 0), float("inf")))


# ---- the parts


def test_simplex_finishes_from_any_plan() -> None:
    generator = torch.Generator().manual_seed(16)
    for sample in MARGINALS.values():
        cost = COSTS["binary"](generator, 4, 6, 7)
        a, b = shares(*sample(generator, 4, 6, 7))
        expected = solve(cost, a, b).value.numpy()
        for index in range(4):
            plan = np.random.default_rng(index).random((6, 7))
            c = cost[index].numpy()
            flow, v = transport_simplex.finish(c, a[index].numpy(), b[index].numpy(), plan)
            assert (flow >= 0).all()
            assert abs((c * flow).sum() - expected[index]) < 1e-9
            u = (c - v).min(axis=1)
            assert abs(a[index].numpy() @ u + b[index].numpy() @ v - expected[index]) < 1e-9


def test_iterations_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    advance = interior_point._Active.advance

    def counted(self: interior_point._Active, *arguments: Tensor) -> None:
        steps.append(self.count)
        advance(self, *arguments)

    monkeypatch.setattr(interior_point._Active, "advance", counted)
    generator = torch.Generator().manual_seed(19)
    cost, (a, b) = uniform(generator, 1, 5, 6), MARGINALS["random"](generator, 1, 5, 6)
    assert solve(cost, a, b).iterations.tolist() == [len(steps)]
    assert len(steps) > 3


def test_the_goal_is_a_share_of_the_value() -> None:
    """For a plan that meets the marginals, gap and dual value make the primal one."""
    generator = torch.Generator().manual_seed(20)
    cost, (a, b) = uniform(generator, 6, 5, 6), MARGINALS["random"](generator, 6, 5, 6)
    active = interior_point._Active(torch.arange(6), cost, a, b)
    active._a, active._b = active.plan.sum(2), active.plan.sum(1)
    goal = active.goal((active.plan * active.slack).sum((1, 2)))
    value = (active.plan * cost).sum((1, 2))
    torch.testing.assert_close(goal / interior_point.GAP, value, rtol=1e-9, atol=0)


def test_equal_entries_of_a_plan_are_taken_row_by_row() -> None:
    """On any machine, so that where several flows are optimal the same one is found."""
    generator = np.random.default_rng(18)
    a, b = generator.dirichlet(np.ones(6)), generator.dirichlet(np.ones(6))
    plan = generator.integers(0, 3, (6, 6)).astype(np.float64)
    flow, tree = transport_simplex._vertex(a, b, plan)
    in_order, same_tree = transport_simplex._vertex(a, b, plan - 1e-3 * np.arange(36).reshape(6, 6))
    assert np.array_equal(flow, in_order)
    assert tree == same_tree


def test_interior_point_alone_solves_the_similarity_of_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simplex method is for degenerate problems; features never need it, and take few iterations."""
    monkeypatch.setattr(transport_simplex, "finish", None)
    generator = torch.Generator().manual_seed(17)
    for n in (4, 16, 49):
        u, v = features(generator, 30, n, 32), features(generator, 30, n, 32)
        t = solve(
            1 - torch.nn.functional.normalize(u, dim=2) @ torch.nn.functional.normalize(v, dim=2).mT,
            marginals(u, v),
            marginals(v, u),
        )
        assert t.iterations.max() <= 30
        assert t.iterations.double().mean() <= 12.5


def test_a_failing_factorisation_is_retried_or_left_to_the_simplex(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(18)
    cost = uniform(generator, 6, 4, 5)
    a, b = MARGINALS["random"](generator, 6, 4, 5)
    expected = solve(cost, a, b)
    factorise = torch.linalg.cholesky_ex

    def fails_for_two(rows: Tensor, out: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        factor, info = factorise(rows, out=out)
        info[:2] = 1
        return factor, info

    monkeypatch.setattr(interior_point, "cholesky_ex", fails_for_two)
    t = solve(cost, a, b)
    assert_certified(t, cost, a, b)
    torch.testing.assert_close(t.value, expected.value, rtol=1e-9, atol=0)


def test_results_are_immutable() -> None:
    t = solve(*problem())
    with pytest.raises(dataclasses.FrozenInstanceError, match="flow"):
        t.flow = t.flow  # type: ignore[misc]
