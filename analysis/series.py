"""What a learner measured: its declared series over rounds. Knows no learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import clean, dimension, percent, quantity
from analysis.loading import RunData


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """One declared metric over rounds; ``value`` is in the unit as declared (a fraction for ``%``).

    ``group`` is the title of the figure it shares with others, ``result`` whether it is a headline number.
    """

    label: str
    unit: str
    caption: str
    group: str
    result: bool
    round: NDArray[np.int64]
    value: NDArray[np.float64]

    def words(self, value: float) -> str:
        """Return a value with its unit."""
        return percent(value) if self.unit == "%" else quantity(value, clean(self.unit, 12))

    def quantity(self, value: float) -> str:
        """Return a value with its unit, where that does not say what is measured and so stands in the title."""
        return percent(value) if self.unit == "%" else quantity(value, clean(dimension(self.unit), 12))


def curves(run: RunData) -> list[Curve]:
    """Return the declared series that were measured, then the rounds' training loss unless a series is called so."""
    result = []
    names = set()
    for series in run.manifest.series:
        names.add(series.name)
        rows = run.metrics.filter((pl.col("name") == series.name) & pl.col("value").is_finite()).sort(
            "round", maintain_order=True
        )
        if not rows.is_empty():
            result.append(
                Curve(
                    label=clean(series.label or series.name, 40),
                    unit=series.unit,
                    caption=clean(series.caption, 400),
                    group=clean(series.group, 60),
                    result=series.result,
                    round=rows["round"].to_numpy(),
                    value=rows["value"].to_numpy(),
                )
            )
    losses = run.rounds.filter(pl.col("loss").is_finite()).sort("round")
    if not names & {"loss", "train_loss", "training_loss"} and not losses.is_empty():
        result.append(
            Curve(
                label="training loss",
                unit="",
                caption="Mean training loss of the aggregated updates.",
                group="",
                result=True,
                round=losses["round"].to_numpy() + 1,
                value=losses["loss"].to_numpy(),
            )
        )
    return result
