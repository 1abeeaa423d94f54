"""Predicted against actual rest of the window, by predictor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from analysis.formatting import count, plural, quantity
from analysis.loading import RunData
from analysis.statistics.predictions import Predictions, predictions
from analysis.style import BLACK, FULL_IN, ORANGE, Panel, scatter, to_svg

_WORDS = {"straight": "straight on", "history": "history", "oracle": "oracle"}
_TITLE = "Predicted and actual rest of the window, when invited"


def prediction_panel(run: RunData) -> Panel:
    """Draw, for each predictor, the rest of the windows of invited vehicles against what it said."""
    told = [one for one in predictions(run.participations, run.windows) if len(one.predicted_s)]
    if not told:
        caption = "Not drawn: no prediction was recorded for a window that has ended."
        return Panel(name="predictions", title=_TITLE, caption=caption, wide=True)
    figure = Figure((FULL_IN, 3.0))
    top = max(float(one.actual_s.max()) for one in told) * 1.05
    for place, one in enumerate(told):
        _draw(figure, place, len(told), one, top)
    return Panel(
        name="predictions", title=_TITLE, caption=_caption(told, top), svg=to_svg(figure, "predictions"), wide=True
    )


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


def _caption(told: Sequence[Predictions], top: float) -> str:
    sentences = [f"{_error(one)}" for one in told]
    cut = int(told[0].cut.sum())
    if cut:
        sentences.append(
            f"{plural(cut, 'window')} of {count(len(told[0].cut))} were cut off by the end of the run: they lasted at "
            "least as long as drawn, and medians take them so (Kaplan\u2013Meier)."
        )
    standing = sum(one.standing for one in told)
    if standing:
        sentences.append(f"{plural(standing, 'prediction')} that a standing vehicle never leaves are left out.")
    outside = sum(int((one.predicted_s > top).sum()) for one in told)
    if outside:
        sentences.append(
            f"{plural(outside, 'prediction')} longer than any window, of vehicles that hardly moved, at the right edge."
        )
    return " ".join(sentences)


def _error(one: Predictions) -> str:
    error, name = one.median_error_s, _WORDS[one.name].capitalize()
    if math.isnan(error):
        return f"{name}: too few windows ended to tell an error."
    if abs(error) < 0.05:
        return f"{name}: no error in the median."
    words = "long" if error > 0 else "short"
    size = quantity(float(np.abs(error)), "s")
    return f"{name}: {size} too {words} in the median."
