"""The rest of windows as predicted when their vehicles were invited, and as it was."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.loading import WINDOW_KEY
from analysis.statistics.windows import kaplan_meier_median

PREDICTORS = ("straight", "history")


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What one predictor said at invitations, beside what came true.

    Args:
        name: of the predictor.
        predicted_s: the rest of the window as predicted, finite (s), shape (N,).
        actual_s: as it was; where ``cut``, at least that long (s), shape (N,).
        cut: whether the end of the run cut the window off, shape (N,).
        standing: further predictions, of vehicles that stood, that they would never leave.
    """

    name: str
    predicted_s: NDArray[np.float64]
    actual_s: NDArray[np.float64]
    cut: NDArray[np.bool_]
    standing: int

    @property
    def median_error_s(self) -> float:
        """Median of predicted less actual (s), by the Kaplan-Meier estimate: of a window cut off only a bound is known.

        NaN without predictions, and where more than half of the windows were cut off: only short ones have ended then.
        """
        over_s = self.actual_s - self.predicted_s  # where cut, at least that much
        if not len(over_s):
            return math.nan
        if not self.cut.any():
            return -float(np.median(over_s))
        if 2 * int(self.cut.sum()) > len(self.cut):
            return math.nan
        median = kaplan_meier_median(over_s, self.cut)
        return -median if math.isfinite(median) else math.nan


def predictions(participations: pl.DataFrame, windows: pl.DataFrame) -> list[Predictions]:
    """Return what every predictor said that said anything, from rows of these tables of a run."""
    ends = windows.select(*WINDOW_KEY, "exit_s", "exit_cause").unique(
        subset=WINDOW_KEY, keep="first", maintain_order=True
    )
    rows = participations.filter(pl.col("outcome") != "not_selected").join(ends, on=WINDOW_KEY)
    found = []
    for name in PREDICTORS:
        told = rows.drop_nulls(f"remaining_{name}_s")
        finite = told.filter(pl.col(f"remaining_{name}_s").is_finite())
        if not told.is_empty():
            found.append(
                Predictions(
                    name=name,
                    predicted_s=finite[f"remaining_{name}_s"].to_numpy(),
                    actual_s=(finite["exit_s"] - finite["start_s"]).to_numpy(),
                    cut=(finite["exit_cause"] == "end").to_numpy(),
                    standing=told.height - finite.height,
                )
            )
    return found
