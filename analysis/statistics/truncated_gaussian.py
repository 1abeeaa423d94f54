"""Truncated Gaussian fitted to speeds by maximum likelihood, and how well it fits.

The density is proportional to ``exp(eta_1 t + eta_2 t^2)``, where ``t`` in [-1, 1] is the speed scaled to the bounds.
The log-likelihood is concave, so damped Newton steps reach the maximum. NumPy alone: importing scipy.stats takes longer
than drawing a page.
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


@dataclass(frozen=True, kw_only=True)
class SpeedFit:
    """A truncated Gaussian fitted to ``n`` values between ``low`` and ``high``; all in the unit of the values."""

    n: int
    low: float
    high: float
    mean: float  # mean of the untruncated Gaussian; NaN if the values spread wider than any Gaussian on these bounds
    sd: float  # standard deviation of the untruncated Gaussian; NaN if ``mean`` is NaN
    ks: float  # Kolmogorov-Smirnov distance between the values and the fit, in [0, 1]
    eta: tuple[float, float]  # natural parameters on the scaled axis

    @property
    def is_gaussian(self) -> bool:
        """Whether the maximum lies inside the family, so that ``mean`` and ``sd`` exist."""
        return bool(np.isfinite(self.mean))

    def density(self, values: Floats) -> Floats:
        """Return the density at ``values``, per unit of the values; 0 outside the bounds."""
        t = (2 * values - self.low - self.high) / (self.high - self.low)
        _, log_partition = _moments(np.array(self.eta))
        log_density = self.eta[0] * t + self.eta[1] * t**2 - log_partition
        inside = np.abs(t) <= 1 + 1e-9
        return np.where(inside, np.exp(np.where(inside, log_density, 0.0)) * 2 / (self.high - self.low), 0.0)


def _moments(eta: Floats) -> tuple[Floats, float]:
    """Return the first four moments of ``t``, shape (4,), and the log-partition, for ``eta`` of shape (2,)."""
    exponent = _POWERS[:, :2] @ eta
    top = exponent.max()
    weight = np.exp(exponent - top) * _SIMPSON
    total = weight.sum()
    return (weight @ _POWERS) / total, float(np.log(total) + top)


def _fit_eta(moments: Floats) -> Floats:
    """Return the maximum-likelihood ``eta``, shape (2,), for the sample moments (E t, E t^2)."""
    variance = max(moments[1] - moments[0] ** 2, 1e-6)
    eta = np.array([moments[0] / variance, -0.5 / variance])
    model, log_partition = _moments(eta)
    loss = log_partition - eta @ moments
    for _ in range(100):
        gradient = model[:2] - moments
        if np.abs(gradient).max() < 1e-10:
            break
        mixed = model[2] - model[0] * model[1]
        covariance = np.array([[model[1] - model[0] ** 2, mixed], [mixed, model[3] - model[1] ** 2]])
        step = np.linalg.solve(covariance, gradient)
        for halvings in range(40):
            trial = eta - step / 2**halvings
            new_model, new_log_partition = _moments(trial)
            new_loss = new_log_partition - trial @ moments
            if new_loss <= loss + 1e-13 * abs(loss):
                break
        eta, model, loss = trial, new_model, new_loss
    return eta


def _ks_distance(sorted_t: Floats, eta: Floats) -> float:
    """Return the Kolmogorov-Smirnov distance, in [0, 1], between sorted values, scaled to [-1, 1], and the fit."""
    exponent = _POWERS[:, :2] @ eta
    density = np.exp(exponent - exponent.max())
    rising = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    model = np.interp(sorted_t, _T, rising / rising[-1])
    steps = np.arange(len(sorted_t) + 1) / len(sorted_t)
    return float(max((steps[1:] - model).max(), (model - steps[:-1]).max()))


def fit_truncated_gaussian(values: Floats, bounds: tuple[float, float] | None = None) -> SpeedFit | None:
    """Fit a truncated Gaussian to finite values (n,); None for fewer than eight, or if all are equal.

    Without ``bounds``, they are the smallest and the largest value, their maximum-likelihood estimates.
    """
    ordered = np.sort(values)
    n = len(ordered)
    if n < 8 or ordered[0] == ordered[-1]:
        return None
    low, high = bounds if bounds is not None else (float(ordered[0]), float(ordered[-1]))
    t = np.clip((2 * ordered - low - high) / (high - low), -1.0, 1.0)
    eta = _fit_eta(np.array([t.mean(), (t**2).mean()]))
    half = (high - low) / 2
    gaussian = eta[1] < -1e-6
    return SpeedFit(
        n=n,
        low=low,
        high=high,
        mean=float((low + high) / 2 - half * eta[0] / (2 * eta[1])) if gaussian else float("nan"),
        sd=float(half / np.sqrt(-2 * eta[1])) if gaussian else float("nan"),
        ks=_ks_distance(t, eta),
        eta=(float(eta[0]), float(eta[1])),
    )
