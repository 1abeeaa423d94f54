"""`vnetsim.transport.emd` against POT and HiGHS, and what it refuses."""

import doctest

import numpy as np
import ot  # type: ignore[import-untyped, unused-ignore]
import pytest
import torch
from device_checks.transport_work import highs

import vnetsim.transport
from vnetsim.errors import InputError
from vnetsim.transport import emd


def drawn(*batch: int, n: int = 7, m: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masses of totals other than 1, some of them 0, and costs of either sign."""
    rng = np.random.default_rng(n)
    a, b = rng.uniform(size=(*batch, n)), rng.uniform(size=(*batch, m))
    a[..., 0] = 0
    return a, b * (a.sum(-1) / b.sum(-1))[..., None], 300 * rng.normal(size=(*batch, n, m)) - 100


@pytest.mark.parametrize("solver", ["pot", "interior-point"])
def test_values_and_plans_are_those_of_pot_and_highs(solver):
    a, b, cost = drawn(3, 2)
    values, plans = emd(a, b, cost, solver=solver)
    assert (values.shape, plans.shape, values.dtype, values.requires_grad) == (
        (3, 2),
        (3, 2, 7, 5),
        torch.float64,
        False,
    )
    assert (plans >= 0).all()
    np.testing.assert_allclose(plans.sum(-1), a, atol=1e-12)
    np.testing.assert_allclose(plans.sum(-2), b, atol=1e-12)
    for place in np.ndindex(3, 2):
        assert values[place] == pytest.approx(ot.emd2(a[place], b[place], cost[place]), rel=1e-7)
    square = [torch.tensor(one) for one in drawn(2, n=6, m=6)]
    np.testing.assert_allclose(emd(*square, solver=solver)[0], highs(square[2], square[0], square[1]), rtol=1e-7)


@pytest.mark.parametrize("solver", ["pot", "interior-point"])
def test_one_cost_serves_many_masses_also_in_float32(solver):
    a, b, cost = drawn(4)
    b = b[0] / b[0].sum() * a.sum(-1)[:, None]
    values, _ = emd(*(torch.tensor(one, dtype=torch.float32) for one in (a, b, cost[0])), solver=solver)
    expected = [ot.emd2(rows, columns, cost[0]) for rows, columns in zip(a, b, strict=True)]
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    assert emd(a[0], b[0], cost[0], solver=solver)[0].shape == ()
    backward = emd(a[0][::-1], b[0], cost[0][::-1], solver=solver)[0]
    assert backward == pytest.approx(float(emd(a[0], b[0], cost[0], solver=solver)[0]), rel=1e-7)
    assert emd(a[0], b[0], np.full((7, 5), -3.0), solver=solver)[0] == pytest.approx(-3 * a[0].sum())
    assert emd(a[:0], b[:0], cost[0], solver=solver)[1].shape == (0, 7, 5)


def test_the_gradient_by_the_cost_is_the_plan():
    a, b, cost = drawn()
    plan, step = emd(a, b, cost)[1].numpy(), 1e-3
    change = np.random.default_rng(0).normal(size=cost.shape)
    ahead, back = (float(emd(a, b, cost + sign * step * change)[0]) for sign in (1, -1))
    assert (ahead - back) / (2 * step) == pytest.approx((plan * change).sum(), rel=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "cost", "says"),
    [
        ([0.5, 0.5], [1.0], [[1.0, 2.0]], r"expected shapes .*got \(2,\), \(1,\) and \(1, 2\)"),
        (1.0, [1.0], [[1.0]], "expected shapes"),
        ([], [1.0], torch.zeros(0, 1), "expected shapes"),
        ([[1.0]] * 2, [[1.0]] * 3, [[1.0]], "do not broadcast"),
        ([1.5, -0.5], [1.0], [[1.0], [2.0]], "masses must be finite and 0 or more"),
        ([1.0], [1.0], [[np.nan]], "costs finite"),
        ([np.inf], [np.inf], [[1.0]], "masses must be finite"),
        ([1.0], [1.1], [[1.0]], "must have the same total, above 0"),
        ([0.0], [0.0], [[1.0]], "must have the same total, above 0"),
        ([1.0], [0.5, 0.5], [[1e308, -1e308]], "costs finite; also their totals and ranges"),
        ([[0.5, 0.5], [1.0]], [1.0], [[1.0]], "a: no array of numbers: .*sequence"),
        ([1.0], [1.0], [["one"]], "cost: no array of numbers: .*'one'"),
    ],
)
def test_what_is_no_problem_is_refused(a, b, cost, says):
    with pytest.raises(InputError, match=f"^emd: .*{says}"):
        emd(a, b, cost)


def test_a_solver_must_exist(monkeypatch):
    with pytest.raises(InputError, match=r"^emd: solver: must be one of auto, pot, interior-point, got 'simplex'"):
        emd([1.0], [1.0], [[1.0]], solver="simplex")  # type: ignore[arg-type]
    monkeypatch.setattr(vnetsim.transport, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"^emd: solver: pot needs the Python package POT"):
        emd([1.0], [1.0], [[1.0]], solver="pot")


def test_the_example_of_the_page_runs():
    assert doctest.testmod(vnetsim.transport) == (0, 2)
