import numpy as np
import pytest

from analysis.statistics.dirichlet import LARGEST_ALPHA, fit_alpha


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
