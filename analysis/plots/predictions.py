"""Predicted against actual rest of the window, by predictor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import count, plural, quantity
from analysis.loading import WINDOW_KEY, RunData, ends_of
from analysis.statistics.windows import survival
from analysis.style import BLACK, FULL_IN, ORANGE, Drawn, Figure, panel, scatter

_WORDS = {"straight": "straight on", "history": "history"}
"""Predictors, and what the page calls them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What one predictor said at invitations, beside what came true; arrays of shape (N,).

    Args:
        predicted_s: the rest of the window as predicted, finite (s).
        actual_s: as it was; where ``cut``, at least that long (s).
        cut: whether the end of the run cut the window off.
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
        median = survival(over_s, self.cut).quantile_s(0.5)
        return -median if math.isfinite(median) else math.nan


def predictions(participations: pl.DataFrame, windows: pl.DataFrame) -> list[Predictions]:
    """Return what every predictor said that said anything, from rows of these tables of a run."""
    rows = participations.filter(pl.col("outcome") != "not_selected").join(
        ends_of(windows, "exit_cause"), on=WINDOW_KEY
    )
    found = []
    for name in _WORDS:
        said = rows.drop_nulls(f"remaining_{name}_s")
        finite = said.filter(pl.col(f"remaining_{name}_s").is_finite())
        if not said.is_empty():
            found.append(
                Predictions(
                    name=name,
                    predicted_s=finite[f"remaining_{name}_s"].to_numpy(),
                    actual_s=(finite["exit_s"] - finite["start_s"]).to_numpy(),
                    cut=(finite["exit_cause"] == "end").to_numpy(),
                    standing=said.height - finite.height,
                )
            )
    return found


@panel("predictions", "Predicted and actual rest of the window, when invited", wide=True)
def prediction_panel(run: RunData) -> Drawn:
    """Draw, for each predictor, the rest of the windows of invited vehicles against what it said."""
    said = [one for one in predictions(run.participations, run.windows) if len(one.predicted_s)]
    if not said:
        return None, "Not drawn: no prediction was recorded for a window that has ended."
    figure = Figure((FULL_IN, 3.0))
    top = max(float(one.actual_s.max()) for one in said) * 1.05
    for place, one in enumerate(said):
        _draw(figure, place, len(said), one, top)
    return figure, _caption(said, top)


def _draw(figure: Figure, place: int, places: int, one: Predictions, top: float) -> None:
    width, height = figure.get_size_inches()
    left, gap = 0.68, 0.42
    side = (width - left - 0.12 - (places - 1) * gap) / places
    ax = figure.add_axes(((left + place * (side + gap)) / width, 0.48 / height, side / width, 2.1 / height))
    ax.plot([0, top], [0, top], color=BLACK, linewidth=1, linestyle=(0, (4, 3)), label="equal")
    predicted_s = np.minimum(one.predicted_s, top)  # a vehicle that hardly moves is said to stay for hours
    scatter(ax, predicted_s[~one.cut], one.actual_s[~one.cut], "window ended")
    if one.cut.any():
        (bounds,) = ax.plot(predicted_s[one.cut], one.actual_s[one.cut], "^", label="at least: run ended")
        bounds.set(markersize=4, markeredgewidth=0.8, markerfacecolor="none", color=ORANGE, clip_on=False)
    ax.set(xlim=(0, top), ylim=(0, top), xlabel="predicted (s)")
    ax.set_title(f"{_WORDS[one.name]}, n = {count(len(one.predicted_s))}", fontsize=8.5)
    if place == 0:
        ax.set_ylabel("actual (s)")
        handles, names = ax.get_legend_handles_labels()
        figure.legend(handles, names, loc="upper left", bbox_to_anchor=(0.55 / width, 1.0), ncols=3)


def _caption(said: Sequence[Predictions], top: float) -> str:
    sentences = [" ".join(_error(one) for one in said) + "\n"]
    cut = int(said[0].cut.sum())
    if cut:
        sentences.append(
            f"{plural(cut, 'window')} of {count(len(said[0].cut))} were cut off by the end of the run: they lasted at "
            "least as long as drawn, and medians take them so (Kaplan\u2013Meier)."
        )
    standing = sum(one.standing for one in said)
    if standing:
        sentences.append(f"{plural(standing, 'prediction')} that a standing vehicle never leaves are left out.")
    outside = sum(int((one.predicted_s > top).sum()) for one in said)
    if outside:
        sentences.append(
            f"{plural(outside, 'prediction')} longer than any window, of vehicles that hardly moved, at the right edge."
        )
    return " ".join(sentences)


def _error(one: Predictions) -> str:
    error, name = one.median_error_s, _WORDS[one.name].capitalize()
    if math.isnan(error):
        return f"{name}: too few windows ended to know the error."
    if abs(error) < 0.05:
        return f"{name}: no error in the median."
    words = "long" if error > 0 else "short"
    size = quantity(float(np.abs(error)), "s")
    return f"{name}: {size} too {words} in the median."
