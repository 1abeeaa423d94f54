"""Truncated Gaussian fitted to speeds by maximum likelihood, and how well it fits.

On fixed bounds the truncated Gaussian is the exponential family with density proportional to
``exp(eta_1 t + eta_2 t^2)``, where ``t`` in [-1, 1] is the speed scaled to the bounds. Its log-likelihood is concave,
so damped Newton steps always reach the maximum, and many data sets are fitted at once: that makes a parametric
bootstrap of the Kolmogorov-Smirnov distance affordable. NumPy alone: importing scipy.stats takes longer than drawing
the report.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NODES = 513
_T = np.linspace(-1.0, 1.0, _NODES)
_POWERS = np.stack([_T, _T**2, _T**3, _T**4], axis=1)
_SIMPSON = np.where(np.arange(_NODES) % 2 == 1, 4.0, 2.0) / 3 * (_T[1] - _T[0])
_SIMPSON[[0, -1]] /= 2

BOOTSTRAPS = 199
BOOTSTRAP_SIZE = 500


@dataclass(frozen=True, kw_only=True)
class SpeedFit:
    """A truncated Gaussian fitted to ``n`` values between ``low`` and ``high``, in their unit like all that follows.

    Args:
        mean: mean of the untruncated Gaussian; NaN when the values spread wider than any Gaussian on these bounds.
        sd: its standard deviation; NaN where ``mean`` is.
        ks: Kolmogorov-Smirnov distance between the values and the fit, in [0, 1].
        p_value: by parametric bootstrap: share of samples of the fitted model that, fitted again, lie as far away.
        eta: natural parameters on the scaled axis.
    """

    n: int
    low: float
    high: float
    mean: float
    sd: float
    ks: float
    p_value: float
    eta: tuple[float, float]

    @property
    def is_gaussian(self) -> bool:
        """Whether the maximum lies inside the family, so that ``mean`` and ``sd`` exist."""
        return bool(np.isfinite(self.mean))

    def density(self, values: Floats) -> Floats:
        """Return the density at ``values``, per unit of the values; 0 outside the bounds."""
        t = (2 * values - self.low - self.high) / (self.high - self.low)
        _, log_partition = _moments(np.array([self.eta]))
        log_density = self.eta[0] * t + self.eta[1] * t**2 - log_partition[0]
        inside = np.abs(t) <= 1 + 1e-9
        return np.where(inside, np.exp(np.where(inside, log_density, 0.0)) * 2 / (self.high - self.low), 0.0)


def _moments(eta: Floats) -> tuple[Floats, Floats]:
    """Return moments 1..4 of ``t``, shape (B, 4), and the log-partition, shape (B,), for ``eta`` of shape (B, 2)."""
    exponent = eta @ _POWERS[:, :2].T
    top = exponent.max(axis=1)
    weight = np.exp(exponent - top[:, None]) * _SIMPSON
    total = weight.sum(axis=1)
    return (weight @ _POWERS) / total[:, None], np.log(total) + top


def _fit(moments: Floats, iterations: int = 100) -> Floats:
    """Return the maximum-likelihood ``eta`` (B, 2) for sample moments (E t, E t^2) of shape (B, 2)."""
    variance = np.maximum(moments[:, 1] - moments[:, 0] ** 2, 1e-6)
    eta = np.stack([moments[:, 0] / variance, -0.5 / variance], axis=1)
    model, log_partition = _moments(eta)
    loss = log_partition - (eta * moments).sum(axis=1)
    for _ in range(iterations):
        gradient = model[:, :2] - moments
        if np.abs(gradient).max() < 1e-10:
            break
        a = model[:, 1] - model[:, 0] ** 2
        b = model[:, 2] - model[:, 0] * model[:, 1]
        c = model[:, 3] - model[:, 1] ** 2
        determinant = np.maximum(a * c - b * b, 1e-300)
        step = np.stack([c * gradient[:, 0] - b * gradient[:, 1], a * gradient[:, 1] - b * gradient[:, 0]], axis=1)
        step /= determinant[:, None]
        scale = np.ones(len(eta))
        for _ in range(40):
            trial = eta - scale[:, None] * step
            new_model, new_log_partition = _moments(trial)
            new_loss = new_log_partition - (trial * moments).sum(axis=1)
            worse = new_loss > loss + 1e-13 * np.abs(loss)
            if not worse.any():
                break
            scale = np.where(worse, scale / 2, scale)
        eta, model, loss = trial, new_model, new_loss
    return eta


def _cumulative(eta: Floats) -> Floats:
    """Return the distribution function at the nodes, shape (B, nodes), for ``eta`` of shape (B, 2)."""
    exponent = eta @ _POWERS[:, :2].T
    density = np.exp(exponent - exponent.max(axis=1)[:, None])
    rising = np.concatenate([np.zeros((len(eta), 1)), np.cumsum(density[:, 1:] + density[:, :-1], axis=1)], axis=1)
    result: Floats = rising / rising[:, -1:]
    return result


def _distance(sorted_t: Floats, cumulative: Floats) -> float:
    n = len(sorted_t)
    model = np.interp(sorted_t, _T, cumulative)
    steps = np.arange(n + 1) / n
    return float(max((steps[1:] - model).max(), (model - steps[:-1]).max()))


def fit_truncated_gaussian(
    values: Floats, rng: np.random.Generator, bounds: tuple[float, float] | None = None
) -> SpeedFit | None:
    """Fit a truncated Gaussian and measure its goodness of fit.

    The p-value accounts for the parameters having been fitted to the same values: samples of the fitted model (of the
    same size, at most ``BOOTSTRAP_SIZE``; distances are compared times the root of the size) are fitted again.

    Args:
        values: finite values, shape (n,).
        rng: for the bootstrap.
        bounds: known truncation bounds; None takes the smallest and the largest value, which is their
            maximum-likelihood estimate.

    Returns:
        the fit, or None with fewer than eight values or without any spread.
    """
    ordered = np.sort(values)
    n = len(ordered)
    if n < 8 or ordered[0] == ordered[-1]:
        return None
    low, high = bounds if bounds is not None else (float(ordered[0]), float(ordered[-1]))
    t = np.clip((2 * ordered - low - high) / (high - low), -1.0, 1.0)
    eta = _fit(np.array([[t.mean(), (t**2).mean()]]))
    cumulative = _cumulative(eta)[0]
    ks = _distance(t, cumulative)

    size = min(n, BOOTSTRAP_SIZE)
    samples = np.sort(np.interp(rng.random((BOOTSTRAPS, size)), cumulative, _T), axis=1)
    if bounds is None:
        first, last = samples[:, :1], samples[:, -1:]
        samples = (2 * samples - first - last) / (last - first)
    again = _cumulative(_fit(np.stack([samples.mean(axis=1), (samples**2).mean(axis=1)], axis=1), iterations=25))
    distances = np.array([_distance(s, c) for s, c in zip(samples, again, strict=True)])
    exceeding = int((np.sqrt(size) * distances >= np.sqrt(n) * ks).sum())

    half = (high - low) / 2
    gaussian = eta[0, 1] < -1e-6
    return SpeedFit(
        n=n,
        low=low,
        high=high,
        mean=float((low + high) / 2 - half * eta[0, 0] / (2 * eta[0, 1])) if gaussian else float("nan"),
        sd=float(half / np.sqrt(-2 * eta[0, 1])) if gaussian else float("nan"),
        ks=ks,
        p_value=(1 + exceeding) / (BOOTSTRAPS + 1),
        eta=(float(eta[0, 0]), float(eta[0, 1])),
    )
