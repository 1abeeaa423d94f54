"""Blur levels, how level and kernel follow from speed, and example images: one PNG strip per blur level."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from analysis.formatting import count, number, percent, quantity
from analysis.loading import RunData
from analysis.plots.traffic import NO_TRAFFIC
from analysis.statistics.windows import entries
from analysis.style import BLACK, BLUE, HALF_IN, ORANGE, Drawn, axes, histogram, legend, panel

_DASHES = (0, (5, 2))
_MAX_IMAGES, _MIN_IMAGES, _MAX_WIDTH_PX = 8, 3, 1320
_GAP_PX = 1


@panel("blur-level", "Blur level")
def level_panel(run: RunData) -> Drawn:
    """Draw the histogram of blur levels."""
    level = entries(run.windows)["level_px"].drop_nulls().to_numpy()
    level = level[np.isfinite(level)]
    if len(level) == 0:
        return None, NO_TRAFFIC
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
    return figure, caption


@panel("blur-speed", "Blur against speed")
def blur_speed_panel(run: RunData) -> Drawn:
    """Draw level and thumbnail kernel as functions of speed, with the quartiles of the traffic."""
    speed = entries(run.windows)["entry_speed_mps"].to_numpy()
    if len(speed) == 0:
        return None, NO_TRAFFIC
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
    return figure, caption


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Images of one level side by side: ``uri`` is a PNG data URI, ``width`` and ``height`` its size (px)."""

    title: str
    detail: str
    uri: str
    width: int
    height: int


def _png(images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> tuple[str, int, int]:
    shown, height, width, channels = images.shape
    kept = 3 if channels == 3 else 1  # anything but red, green and blue is drawn grey, by its first channel
    canvas = np.full((height, shown * (width + _GAP_PX) - _GAP_PX, kept), 255, np.uint8)
    for i, image in enumerate(images):
        canvas[:, i * (width + _GAP_PX) : i * (width + _GAP_PX) + width] = image[..., :kept]
    buffer = io.BytesIO()
    Image.fromarray(canvas if kept == 3 else canvas[..., 0]).save(buffer, format="PNG", optimize=False)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode(), canvas.shape[1], height


def sample_strips(run: RunData) -> list[Strip]:
    """Return one strip per level: sharp first, then the quartiles of the vehicles' speeds."""
    if run.samples is None:
        return []
    blurred = len(run.samples.images) - 1
    titles = ["sharp"] + (
        ["first quartile", "median", "third quartile"] if blurred == 3 else [f"level {i + 1}" for i in range(blurred)]
    )
    # large images: fewer of them, so that the page stays small and none is shrunk beyond recognition
    shown = int(np.clip(_MAX_WIDTH_PX // run.samples.images.shape[3], _MIN_IMAGES, _MAX_IMAGES))
    strips = []
    for i, title in enumerate(titles):
        uri, width, height = _png(run.samples.images[i, :shown])
        kernel, speed = float(run.samples.kernels_px[i]), float(run.samples.speeds_mps[i])
        detail = "as captured" if i == 0 else f"{quantity(speed * 3.6, 'km/h')}: motion kernel {quantity(kernel, 'px')}"
        if i and np.array_equal(run.samples.images[i, :shown], run.samples.images[0, :shown]):
            detail += ", the same pixels as sharp"
        strips.append(Strip(title=title, detail=detail, uri=uri, width=width, height=height))
    return strips
