"""Fluctuation of the training loss from round to round, with its trend removed."""

from __future__ import annotations

import polars as pl

LEAST_ROUNDS = 10
"""Fewest rounds of an aggregator for an estimate; its relative standard error at 10 is about a third."""


def fluctuation(rounds: pl.DataFrame) -> float | None:
    """Return the standard deviation of the training loss around its trend; None with too few rounds.

    This is the estimator of Gasser, Sroka and Jennen-Steinmetz (Biometrika 73, 1986): each loss is compared with the
    mean of the one before and the one after,

        s^2 = mean of 2/3 (y_(i-1) / 2 - y_i + y_(i+1) / 2)^2.

    Independent noise of variance s^2 around a straight line gives s^2. Unlike residuals of one line over the run, it
    does not count the bend of a loss that falls steeply at first.

    Args:
        rounds: the table ``rounds``. ``loss`` is the mean over the aggregated updates; rounds without updates are
            left out. Each aggregator is one sequence; those shorter than ``LEAST_ROUNDS`` are left out.
    """
    loss = pl.col("loss")
    measured = rounds.filter(loss.is_finite()).sort("round", maintain_order=True)
    enough = measured.filter(pl.len().over("aggregator") >= LEAST_ROUNDS)
    found = enough.select((loss.diff().diff().over("aggregator") ** 2).mean() / 6).item()  # 2/3 of the half, squared
    return None if found is None else float(found) ** 0.5
