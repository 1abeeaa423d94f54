"""Dwell: how long windows last, though the end of the run cuts some off; and how fast they come in.

One value under one name: whoever tells a median dwell or a median speed at entry takes it from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import count, plural, quantity

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Dwell:
    """What windows say of the dwell.

    Args:
        windows: how many windows were counted.
        cut: how many of them the end of the run cut off: they lasted longer than was seen.
        begun: windows left out, as their vehicles were inside before the recording began.
        median_s: the median (s); infinite when so many were cut that it lies beyond what was seen, NaN without windows.
        at_least_s: what the median exceeds for certain (s): the median of what was seen.
    """

    windows: int
    cut: int
    begun: int
    median_s: float
    at_least_s: float

    @property
    def median(self) -> str:
        """The median in words."""
        if math.isinf(self.median_s):
            return f"more than {quantity(self.at_least_s, 's')}"
        return quantity(self.median_s, "s")

    @property
    def brief(self) -> str:
        """The median in words, with how many windows were cut in brackets."""
        return f"{self.median} ({count(self.cut)} of {count(self.windows)} cut off)" if self.cut else self.median

    @property
    def sentence(self) -> str:
        """How the median was reached."""
        words = f"Median dwell {self.median}"
        if self.cut:
            words += (
                f": the end of the run cut {count(self.cut)} of {plural(self.windows, 'window')} off, which the "
                "Kaplan\u2013Meier estimate takes into account"
            )
        if self.begun:
            words += f"; {plural(self.begun, 'window')} of vehicles that were inside from the beginning not counted"
        return f"{words}."


def kaplan_meier_median(values: Floats, cut: NDArray[np.bool_]) -> float:
    """Return the first value at which the Kaplan-Meier estimate (1958, Eq. 2b) of the survival is 1/2 or less.

    Args:
        values: what was seen, shape (N,).
        cut: of which values only a bound is known, as they are larger, shape (N,).

    Returns:
        infinity when so many were cut that the median lies beyond what was seen.
    """
    at, index = np.unique(values, return_inverse=True)
    ended = np.bincount(index, ~cut, len(at))
    left = np.cumsum(np.bincount(index, minlength=len(at))[::-1])[::-1]  # those cut at a value are still there
    reached = np.flatnonzero((np.cumprod(1 - ended / left) <= 0.5 + 1e-12) & (ended > 0))  # a half, but for rounding
    return float(at[reached[0]]) if len(reached) else math.inf


def dwell(windows: pl.DataFrame) -> Dwell:
    """Return the median dwell by the Kaplan-Meier estimate (1958), in which a window cut off is known to last longer.

    Args:
        windows: rows of the table ``windows``.
    """
    whole = windows.filter(pl.col("entry_cause") != "begin")
    begun = windows.height - whole.height
    if whole.is_empty() and begun:
        whole, begun = windows, 0
    seconds = (whole["exit_s"] - whole["enter_s"]).to_numpy()
    cut = (whole["exit_cause"] == "end").to_numpy()
    finite = np.isfinite(seconds)
    seconds, cut = seconds[finite], cut[finite]
    if len(seconds) == 0:
        return Dwell(windows=0, cut=0, begun=begun, median_s=math.nan, at_least_s=math.nan)
    seen = float(np.median(seconds))
    median = kaplan_meier_median(seconds, cut) if cut.any() else seen
    return Dwell(windows=len(seconds), cut=int(cut.sum()), begun=begun, median_s=median, at_least_s=seen)


def entries(windows: pl.DataFrame) -> pl.DataFrame:
    """Return the windows that began by crossing the rim, whose speed at entry is known; all of them if none did."""
    known = windows.filter(pl.col("entry_speed_mps").is_finite())
    crossing = known.filter(pl.col("entry_cause") == "crossing")
    return known if crossing.is_empty() else crossing
