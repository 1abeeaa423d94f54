"""The least cost of a transport against HiGHS, and the laws of the earth mover's similarity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import linprog
from torch import Tensor

from learners.mathematics.distillation import dense_similarity
from learners.mathematics.transport import earth_movers_distance, least_cost, marginals

Features = tuple[Tensor, Tensor]


def similarity(u: Tensor, v: Tensor) -> Tensor:
    return 1 - earth_movers_distance(u, v)


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


FEATURES: dict[str, Callable[[torch.Generator, int, int], Features]] = {
    "unrelated": lambda g, B, n: (normal(g, B, n, 16), normal(g, B, n, 16)),
    "alike": alike,
    "equal": lambda g, B, n: (normal(g, B, n, 16).relu(),) * 2,
    "antipodal": lambda g, B, n: (u := normal(g, B, n, 16), -u),
    "mostly zero": lambda g, B, n: ((normal(g, B, n, 16) - 2.5).relu(), (normal(g, B, n, 16) - 1.5).relu()),
    "nothing": lambda _, B, n: (torch.zeros(B, n, 16), torch.zeros(B, n, 16)),
    "repeated": repeated,
}


def by_highs(u: Tensor, v: Tensor) -> list[float]:
    """Return the similarity of pairs of sets by HiGHS, from its definition."""
    n, values = u.shape[1], []
    totals = sp.vstack((sp.kron(sp.eye(n), np.ones((1, n))), sp.kron(np.ones((1, n)), sp.eye(n)))).tocsc()
    for one, other in zip(u.double(), v.double(), strict=True):
        cosine = torch.nn.functional.normalize(one, dim=1) @ torch.nn.functional.normalize(other, dim=1).mT
        sums = torch.cat([marginals(one, other), marginals(other, one)])
        found = linprog((1 - cosine).flatten().numpy(), A_eq=totals, b_eq=sums.numpy(), method="highs")
        assert found.status == 0
        values.append(1 - float(found.fun))
    return values


@pytest.mark.parametrize("n", [1, 2, 16, 49])
@pytest.mark.parametrize("kind", FEATURES)
def test_the_similarity_is_that_of_highs(kind: str, n: int) -> None:
    u, v = FEATURES[kind](torch.Generator().manual_seed(n), 4, n)
    torch.testing.assert_close(
        similarity(u, v), torch.tensor(by_highs(u, v), dtype=torch.float64), rtol=0, atol=5e-7
    )  # HiGHS's own


def test_one_row_sends_every_column_its_share() -> None:
    cost, share = torch.rand(3, 1, 6, dtype=torch.float64), torch.rand(3, 6, dtype=torch.float64).softmax(1)
    expected = (cost[:, 0] * share).sum(1)
    torch.testing.assert_close(least_cost(cost, torch.ones(3, 1), share), expected, rtol=0, atol=1e-12)


def test_a_batch_gives_what_single_problems_give() -> None:
    sets = [sample(torch.Generator().manual_seed(6), 3, 9) for sample in FEATURES.values()]
    u, v = (torch.cat(parts) for parts in zip(*sets, strict=True))
    alone = torch.cat([similarity(u[i : i + 1], v[i : i + 1]) for i in range(len(u))])
    assert torch.equal(similarity(u, v), alone)


def test_stacked_vehicles_are_one_batch() -> None:
    generator = torch.Generator().manual_seed(7)
    u, v = normal(generator, 3, 4, 8, 2, 3), normal(generator, 3, 2, 4, 8, 2, 3)
    each = torch.stack([dense_similarity(u[i], v[i]) for i in range(3)])
    torch.testing.assert_close(torch.func.vmap(dense_similarity)(u, v), each, rtol=0, atol=1e-8)


def test_what_is_not_finite_spoils_no_other_problem() -> None:
    u, v = FEATURES["unrelated"](torch.Generator().manual_seed(8), 3, 4)
    expected = similarity(u, v)
    u[1, 2, 3] = torch.inf
    found = similarity(u.requires_grad_(), v)
    assert found.isnan().tolist() == [False, True, False]
    assert torch.equal(found[::2], expected[::2])
    assert not found.requires_grad


def test_the_similarity_and_its_laws() -> None:
    u, v = FEATURES["unrelated"](torch.Generator().manual_seed(13), 5, 9)
    close = {"rtol": 0, "atol": 1e-9}
    one, between = torch.ones(5).double(), similarity(u, v)
    assert (between.abs() < 1).all()
    torch.testing.assert_close(similarity(u, u), one, **close)
    torch.testing.assert_close(similarity(u, 4 * u.flip(1)), one, **close)
    torch.testing.assert_close(similarity(v, u), between, **close)
    line = torch.zeros(5, 4, 9).double()
    line[..., 0] = torch.arange(1, 5)
    torch.testing.assert_close(similarity(line, -line), -one, **close)
    torch.testing.assert_close(similarity(line, line.roll(1, 2)), 0 * one, **close)
    torch.testing.assert_close(similarity(line, 0 * line), 0 * one, **close)


def test_weights_are_those_of_deepemd() -> None:
    u = torch.tensor([[[1.0, 0.0], [0.0, -1.0], [2.0, 2.0]]])
    v = torch.tensor([[[1.0, 0.0], [1.0, 2.0]]])  # mean (1, 1): products 1, -1, 4
    torch.testing.assert_close(marginals(u, v), torch.tensor([[1.001, 0.001, 4.001]]) / 5.003)
    torch.testing.assert_close(marginals(0 * u, v), torch.full((1, 3), 1 / 3))
