"""Distributions fitted to speeds and to classes of silos, against SciPy and what was drawn."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import kstest, truncnorm

from analysis.statistics.dirichlet import LARGEST_ALPHA, fit_alpha
from analysis.statistics.truncated_gaussian import fit_truncated_gaussian


def sample(mean, sd, low, high, n, seed=0):
    return truncnorm((low - mean) / sd, (high - mean) / sd, loc=mean, scale=sd).rvs(n, random_state=seed)


@pytest.mark.parametrize(
    ("mean", "sd", "low", "high"), [(105, 25, 60, 150), (55, 2.5, 50, 60), (45, 5, 0, 200), (80, 30, 60, 150)]
)
def test_equals_maximum_likelihood_by_scipy(mean, sd, low, high):
    values = sample(mean, sd, low, high, 800)

    def loss(p):
        scale = np.exp(p[1])
        return -truncnorm.logpdf(values, (low - p[0]) / scale, (high - p[0]) / scale, loc=p[0], scale=scale).sum()

    best = minimize(loss, [mean, np.log(sd)], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}).x
    fit = fit_truncated_gaussian(values, (low, high))
    assert fit.mean == pytest.approx(best[0], rel=1e-5)
    assert fit.sd == pytest.approx(np.exp(best[1]), rel=1e-5)


def test_distance_and_density_agree_with_scipy():
    values = sample(100, 20, 60, 150, 300)
    fit = fit_truncated_gaussian(values, (60, 150))
    model = truncnorm((60 - fit.mean) / fit.sd, (150 - fit.mean) / fit.sd, loc=fit.mean, scale=fit.sd)
    assert fit.ks == pytest.approx(kstest(values, model.cdf).statistic, abs=1e-5)
    grid = np.linspace(55, 155, 41)
    assert fit.density(grid) == pytest.approx(model.pdf(grid), abs=1e-7)


def test_two_peaks_have_no_gaussian():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.uniform(0, 5, 100), rng.uniform(45, 50, 100)])
    fit = fit_truncated_gaussian(values)
    assert not fit.is_gaussian
    assert fit.ks > 0.1


@pytest.mark.parametrize("values", [[], [50.0] * 100, [1.0, 2.0, 3.0]])
def test_nothing_to_fit(values):
    assert fit_truncated_gaussian(np.array(values, float)) is None


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_the_alpha_that_counts_were_drawn_from_is_found(alpha):
    rng = np.random.default_rng(0)
    sizes, frequency = rng.integers(50, 400, 300), np.array([0.2, 0.2, 0.6, 1.0, 1.0, 1.0, 1.0, 3.0, 2.0, 0.0])
    shares = rng.dirichlet(alpha * frequency[:-1], len(sizes))
    shares = np.column_stack([shares, np.zeros(len(sizes))])  # a class that nobody has changes nothing
    counts = np.stack([rng.multinomial(size, share) for size, share in zip(sizes, shares, strict=True)])
    assert fit_alpha(counts) == pytest.approx(alpha * frequency.mean() * 10 / 9, rel=0.1)


def test_alike_is_the_largest_and_one_class_each_has_none():
    assert fit_alpha(np.full((20, 5), 40)) == LARGEST_ALPHA
    assert fit_alpha(np.eye(5) * 40) is None
    assert fit_alpha(np.array([[3, 4, 5]])) is None
    assert fit_alpha(np.array([[3, 4, 5], [0, 0, 0]])) is None
    assert fit_alpha(np.eye(5) * 40 + np.eye(5, k=1)) < 0.1
