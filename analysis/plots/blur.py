"""Blur levels, and how level and kernel follow from speed."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from analysis.formatting import count, number, percent, quantity
from analysis.loading import RunData
from analysis.plots.traffic import NO_TRAFFIC
from analysis.statistics.windows import entries
from analysis.style import BLACK, BLUE, HALF_IN, ORANGE, Panel, axes, histogram, legend, to_svg

_DASHES = (0, (5, 2))


def level_panel(run: RunData) -> Panel:
    """Draw the histogram of blur levels."""
    title = "Blur level"
    level = entries(run.windows)["level_px"].drop_nulls().to_numpy()
    level = level[np.isfinite(level)]
    if len(level) == 0:
        return Panel(name="blur-level", title=title, caption=f"Not drawn: {NO_TRAFFIC}.")
    figure = Figure((HALF_IN, 2.9))
    ax = axes(figure, top=0.34)
    low, high = float(level.min()), float(level.max())
    bins = int(np.clip(np.sqrt(len(level)), 8, 36))
    histogram(ax, level, np.linspace(low, high if high > low else low + 1, bins + 1), "windows")
    ax.set(xlabel="blur level on the sensor (px)", ylabel="windows")
    legend(ax)
    caption = (
        f"n = {count(len(level))}. The blur level at entry speed is {quantity(float(np.median(level)), 'px')} on the "
        f"sensor in the median, from {number(low)} to {quantity(high, 'px')}."
    )
    return Panel(name="blur-level", title=title, caption=caption, svg=to_svg(figure, "blur-level"))


def blur_speed_panel(run: RunData) -> Panel:
    """Draw level and thumbnail kernel as functions of speed, with the quartiles of the traffic."""
    title = "Blur against speed"
    speed = entries(run.windows)["entry_speed_mps"].to_numpy()
    if len(speed) == 0:
        return Panel(name="blur-speed", title=title, caption=f"Not drawn: {NO_TRAFFIC}.")
    px, camera = run.image_px, run.camera
    figure = Figure((HALF_IN, 2.9))
    ax = axes(figure, right=0.68, top=0.34)
    fastest = max(float(speed.max()) * 1.08, 10.0)
    ax.plot([0, fastest * 3.6], [0, camera.level_px(fastest)], color=BLUE, label="blur level")
    kernel = ax.twinx()
    kernel.plot([0, fastest * 3.6], [0, camera.kernel_px(fastest, px)], color=ORANGE, linestyle=_DASHES)
    ax.plot([], [], color=ORANGE, linestyle=_DASHES, label="motion kernel")
    quartiles = np.percentile(speed, [25, 50, 75])
    ax.plot(quartiles * 3.6, [camera.level_px(v) for v in quartiles], "o", color=BLACK, markersize=4, label="quartiles")
    ax.set(xlabel="speed (km/h)", ylabel="blur level on the sensor (px)", xlim=(0, fastest * 3.6), ylim=(0, None))
    # both are proportional to speed and would coincide: the kernel's axis reaches higher
    kernel.set(ylabel=f"motion kernel (px of {px})", ylim=(0, camera.kernel_px(fastest, px) * 1.5))
    kernel.spines["right"].set_visible(True)
    kernel.grid(visible=False)
    legend(ax, 3)
    unchanged = float((camera.kernel_px(1.0, px) * speed <= 1).mean())
    one_px = camera.scene_width_m / (px * camera.exposure_s)
    threshold = run.experiment.blur.threshold_kmh
    caption = (
        f"At the median speed the motion kernel in an image of {px} px is "
        f"{quantity(camera.kernel_px(float(quartiles[1]), px), 'px')} long. One of up to 1 px, below "
        f"{quantity(one_px * 3.6, 'km/h')}, leaves an image unchanged: {percent(unchanged, 0)} of the windows."
    )
    if run.learning and threshold > 0:
        caption += f" By the settings only vehicles above {quantity(threshold, 'km/h')} blur their images."
    return Panel(name="blur-speed", title=title, caption=caption, svg=to_svg(figure, "blur-speed"))
