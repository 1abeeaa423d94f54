"""How unlike the silos' classes are, as the concentration of a Dirichlet distribution."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LARGEST_ALPHA = 1000.0
"""Largest concentration that is fitted; draws from larger ones look the same."""


def fit_alpha(counts: NDArray[np.float64]) -> float | None:
    """Return the alpha of Dirichlet draws that explain the silos' class counts best, up to ``LARGEST_ALPHA``.

    Maximum likelihood of Dirichlet-multinomial counts (Mosimann 1962, "On the compound multinomial distribution"). A
    class's concentration is alpha times its images in all silos over those of the mean class, as with
    ``data.partition = "dirichlet"``. ``counts`` are images of each silo and class, shape (silos, classes). None if
    fewer than two silos have images, or each has only one class: the smaller alpha, the better.
    """
    from scipy.optimize import minimize_scalar  # noqa: PLC0415 - takes longer than drawing a page
    from scipy.special import gammaln  # noqa: PLC0415

    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    silos, classes = counts.shape
    if silos < 2 or (np.count_nonzero(counts, axis=1) < 2).all():
        return None
    sizes, shares = counts.sum(axis=1), classes * counts.sum(axis=0) / counts.sum()

    def loss(log_alpha: float) -> float:
        """Return the negative log-likelihood of alpha = e^log_alpha, less a constant."""
        own, total = math.exp(log_alpha) * shares, math.exp(log_alpha) * classes
        of_classes = gammaln(counts + own) - gammaln(own)
        return float((gammaln(sizes + total) - gammaln(total)).sum() - of_classes.sum())

    bounds = (math.log(1e-6), math.log(LARGEST_ALPHA))
    alpha = math.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4}).x)
    return LARGEST_ALPHA if alpha > 0.99 * LARGEST_ALPHA else alpha
