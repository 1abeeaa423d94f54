"""Draws of a few candidates: those of NumPy, to the bit."""

import numpy as np
import pytest

from vnetsim.simulation.selection.draws import drawn, drawn_without_replacement, quantile


@pytest.mark.parametrize("seed", range(60))
def test_what_is_drawn_is_what_numpy_draws(seed: int) -> None:
    given = np.random.default_rng(1000 + seed)
    size = int(given.integers(1, 40))
    weights = given.choice([1.0, 100.0, 1e-6], size) * given.uniform(0.5, 2.0, size)
    count = int(given.integers(1, size + 1))
    ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
    shares = weights / weights.sum()
    assert drawn(weights.tolist(), ours) == theirs.choice(size, p=shares)
    several = theirs.choice(size, size=count, replace=False, p=shares)
    assert drawn_without_replacement(weights.tolist(), count, ours) == several.tolist()
    assert ours.random() == theirs.random(), "as many random numbers were taken"


@pytest.mark.parametrize("seed", range(40))
def test_the_quantile_is_numpys(seed: int) -> None:
    given = np.random.default_rng(seed)
    values = given.lognormal(0, 3, int(given.integers(1, 30)))
    for share in (0.0, 0.5, 0.95, 1.0, float(given.random())):
        assert quantile(values.tolist(), share) == float(np.quantile(values, share))
    assert quantile([2.0] * 5, 0.95) == 2.0
