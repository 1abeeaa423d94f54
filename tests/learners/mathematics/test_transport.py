"""Both transport solvers against HiGHS, the assignment solver, finite differences and the laws of transport."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from device_checks.transport_work import highs
from torch import Tensor

from learners.mathematics.distillation import dense_similarity
from learners.mathematics.transport import Solver, chosen, emd_problem, emd_similarity, marginals, solve
from vnetsim.errors import InputError

Problem = tuple[Tensor, Tensor, Tensor]
Features = tuple[Tensor, Tensor]
CPU = torch.device("cpu")


@pytest.fixture(params=["pot", "interior-point"])
def solver(request: pytest.FixtureRequest) -> Solver:
    named: Solver = request.param
    return named


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def alike(g: torch.Generator, B: int, n: int) -> Features:
    """Return the features of two networks that see nearly the same, as a student and its teacher do."""
    u = normal(g, B, n, 16)
    return u.relu(), (u + normal(g, B, n, 16) * 10 ** (-6 * torch.rand(B, 1, 1, generator=g))).relu()


def repeated(g: torch.Generator, B: int, n: int) -> Features:
    u, v = alike(g, B, n)
    rows = torch.randint(0, min(n, 3), (n,), generator=g)
    return u[:, rows], v[:, rows]


def zeros_and_ones(g: torch.Generator, B: int, n: int) -> Features:
    return torch.randint(0, 2, (B, n, 4), generator=g).float(), torch.randint(0, 2, (B, n, 4), generator=g).float()


FEATURES: dict[str, Callable[[torch.Generator, int, int], Features]] = {
    "unrelated": lambda g, B, n: (normal(g, B, n, 16), normal(g, B, n, 16)),
    "alike": alike,
    "equal": lambda g, B, n: (normal(g, B, n, 16).relu(),) * 2,
    "antipodal": lambda g, B, n: (u := normal(g, B, n, 16), -u),
    "mostly zero": lambda g, B, n: ((normal(g, B, n, 16) - 2.5).relu(), (normal(g, B, n, 16) - 1.5).relu()),
    "nothing": lambda _, B, n: (torch.zeros(B, n, 16), torch.zeros(B, n, 16)),
    "repeated": repeated,
    "zeros and ones": zeros_and_ones,
    "one direction": lambda g, B, n: (normal(g, B, n, 16).abs() * 1e-4 + 1, normal(g, B, n, 16).abs() * 1e-4 + 1),
}


@pytest.mark.parametrize("n", [1, 2, 5, 16, 49])
@pytest.mark.parametrize("kind", FEATURES)
def test_a_solution_proves_itself(kind: str, n: int, solver: Solver) -> None:
    """A feasible plan and feasible duals of equal value are both optimal, whoever found them; the value is HiGHS's."""
    cost, a, b = emd_problem(*FEATURES[kind](torch.Generator().manual_seed(n), 30, n))
    found = solve(cost, a, b, solver)
    assert (found.plan >= 0).all()
    torch.testing.assert_close(found.plan.sum(2), a, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.plan.sum(1), b, rtol=0, atol=1e-12)
    assert (cost - found.dual_a[..., None] - found.dual_b[:, None]).min() >= -1e-12
    dual = (a * found.dual_a).sum(1) + (b * found.dual_b).sum(1)
    torch.testing.assert_close(found.value, dual, rtol=0, atol=1e-8)
    torch.testing.assert_close(found.value, (cost * found.plan).sum((1, 2)), rtol=0, atol=1e-12)
    expected = torch.tensor(highs(cost[:2], a[:2], b[:2]), dtype=torch.float64)
    torch.testing.assert_close(found.value[:2], expected, rtol=0, atol=1e-8)


def uniform_problem(n: int, m: int) -> Problem:
    generator = torch.Generator().manual_seed(n)
    cost, a, b = (torch.rand(12, *shape, generator=generator, dtype=torch.float64) for shape in ((n, m), (n,), (m,)))
    return cost, a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)


def test_one_row_sends_every_column_its_share(solver: Solver) -> None:
    cost, a, b = uniform_problem(1, 6)
    torch.testing.assert_close(solve(cost, a, b, solver).plan, b[:, None], rtol=0, atol=1e-15)
    torch.testing.assert_close(solve(cost.mT, b, a, solver).plan, b[..., None], rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["cost", "a", "b"])
def test_gradients_are_plan_and_duals(name: str, solver: Solver) -> None:
    """Against central differences of the value, along directions that keep the totals."""
    problem = dict(zip(("cost", "a", "b"), uniform_problem(5, 6), strict=True))
    direction = normal(torch.Generator().manual_seed(9), *problem[name].shape).double()
    if name != "cost":
        direction = 1e-3 * (direction - direction.mean(1, keepdim=True))
    ends = [solve(**problem | {name: problem[name] + step * direction}, solver=solver).value for step in (1e-7, -1e-7)]
    problem[name].requires_grad_()
    (gradient,) = torch.autograd.grad(solve(**problem, solver=solver).value.sum(), problem[name])
    slope = (gradient * direction).flatten(1).sum(1)
    torch.testing.assert_close((ends[0] - ends[1]) / 2e-7, slope, rtol=0, atol=2e-3 * float(slope.abs().max()))


def test_gradients_of_the_similarity(solver: Solver) -> None:
    u, v = FEATURES["unrelated"](torch.Generator().manual_seed(11), 2, 3)
    inputs = u.double().requires_grad_(), v.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda u, v: emd_similarity(u, v, solver), inputs, eps=1e-5, atol=1e-4, rtol=1e-4)


def test_a_batch_gives_what_single_problems_give(solver: Solver) -> None:
    """To the last bit with POT; the interior-point method rounds otherwise in another batch."""
    problems = [emd_problem(*sample(torch.Generator().manual_seed(6), 3, 9)) for sample in FEATURES.values()]
    cost, a, b = (torch.cat(parts) for parts in zip(*problems, strict=True))
    together = solve(cost, a, b, solver).value
    alone = torch.cat([solve(*(part[i : i + 1] for part in (cost, a, b)), solver).value for i in range(len(cost))])
    torch.testing.assert_close(alone, together, rtol=0, atol=0 if solver == "pot" else 1e-8)
    assert torch.equal(solve(cost, a, b, solver).value, together)


def test_ties_are_the_same_plan_every_time(solver: Solver) -> None:
    """Where every plan is optimal both solvers keep to one, and to its value."""
    cost, (_, a, b) = torch.ones(12, 5, 6, dtype=torch.float64), uniform_problem(5, 6)
    first, again = solve(cost, a, b, solver), solve(cost, a, b, solver)
    assert all(map(torch.equal, first, again))
    torch.testing.assert_close(first.value, torch.ones(12).double(), rtol=0, atol=1e-12)


def test_stacked_vehicles_are_one_batch(solver: Solver) -> None:
    generator = torch.Generator().manual_seed(7)
    u, v = normal(generator, 3, 4, 8, 2, 3), normal(generator, 3, 2, 4, 8, 2, 3)
    stacked = torch.func.vmap(lambda u, v: dense_similarity(u, v, solver))(u, v)
    each = torch.stack([dense_similarity(u[i], v[i], solver) for i in range(3)])
    torch.testing.assert_close(stacked, each, rtol=0, atol=1e-8)


def test_what_is_not_finite_spoils_no_other_problem(solver: Solver) -> None:
    u, v = FEATURES["unrelated"](torch.Generator().manual_seed(8), 3, 4)
    expected = emd_similarity(u, v, solver)
    u[1, 2, 3] = torch.inf
    found = emd_similarity(u, v, solver)
    assert found.isnan().tolist() == [False, True, False]
    torch.testing.assert_close(found[::2], expected[::2], rtol=0, atol=1e-8)


def test_the_similarity_and_its_laws(solver: Solver) -> None:
    u, v = FEATURES["unrelated"](torch.Generator().manual_seed(13), 5, 9)
    close = {"rtol": 0, "atol": 1e-9}
    one, similarity = torch.ones(5).double(), emd_similarity(u, v, solver)
    assert (similarity.abs() < 1).all()
    torch.testing.assert_close(emd_similarity(u, u, solver), one, **close)
    torch.testing.assert_close(emd_similarity(u, 4 * u.flip(1), solver), one, **close)
    torch.testing.assert_close(emd_similarity(v, u, solver), similarity, **close)
    line = torch.zeros(5, 4, 9).double()
    line[..., 0] = torch.arange(1, 5)
    torch.testing.assert_close(emd_similarity(line, -line, solver), -one, **close)
    torch.testing.assert_close(emd_similarity(line, line.roll(1, 2), solver), 0 * one, **close)
    torch.testing.assert_close(emd_similarity(line, 0 * line, solver), 0 * one, **close)


def test_features_of_zero_norm_have_finite_gradients(solver: Solver) -> None:
    u, v = FEATURES["unrelated"](torch.Generator().manual_seed(15), 3, 4)
    u[0], u[1, 2], u[2], v[2] = 0, 0, 0, 0
    grads = torch.autograd.grad(emd_similarity(u.requires_grad_(), v.requires_grad_(), solver).sum(), (u, v))
    assert all(grad.isfinite().all() for grad in grads)
    assert grads[0][1].any()


def test_weights_are_those_of_deepemd() -> None:
    u = torch.tensor([[[1.0, 0.0], [0.0, -1.0], [2.0, 2.0]]])
    v = torch.tensor([[[1.0, 0.0], [1.0, 2.0]]])  # mean (1, 1): products 1, -1, 4
    torch.testing.assert_close(marginals(u, v), torch.tensor([[1.001, 0.001, 4.001]]) / 5.003)
    torch.testing.assert_close(marginals(0 * u, v), torch.full((1, 3), 1 / 3))


def test_a_machine_without_pot(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen("auto", CPU) == "pot"
    assert chosen("auto", torch.device("cuda")) == "interior-point"
    monkeypatch.setitem(sys.modules, "ot", None)
    assert chosen("auto", CPU) == "interior-point"
    with pytest.raises(InputError, match=r"POT is not installed; .* or take learning.solver=interior-point"):
        solve(*uniform_problem(3, 4), "pot")
