"""Blur levels, and example images: one PNG strip per blur level."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from analysis.formatting import count, number, percent, quantity
from analysis.loading import RunData
from analysis.plots.traffic import NO_TRAFFIC
from analysis.statistics.windows import entries
from analysis.style import HALF_IN, Drawn, drawing, histogram, legend, panel

_MAX_IMAGES, _MIN_IMAGES, _MAX_WIDTH_PX = 8, 3, 1320
_GAP_PX = 1


@panel("blur-level", "Blur level")
def level_panel(run: RunData) -> Drawn:
    """Draw the histogram of blur levels at entry (px on the sensor); no figure without a window with a known level."""
    entered, px, camera = entries(run.windows), run.image_px, run.experiment.camera
    level, speed = entered["level_px"].drop_nulls().to_numpy(), entered["entry_speed_mps"].to_numpy()
    level = level[np.isfinite(level)]
    if len(level) == 0:
        return None, NO_TRAFFIC
    figure, ax = drawing(HALF_IN, 2.9, top=0.34)
    low, high = float(level.min()), float(level.max())
    bins = int(np.clip(np.sqrt(len(level)), 8, 36))
    histogram(ax, level, np.linspace(low, high if high > low else low + 1, bins + 1), "windows")
    ax.set(xlabel="blur level on the sensor (px)", ylabel="windows")
    legend(ax)
    unchanged = float((camera.kernel_px(1.0, px) * speed <= 1).mean())
    one_px = quantity(camera.scene_width_m / (px * camera.exposure_s) * 3.6, "km/h")
    caption = (
        f"{quantity(float(np.median(level)), 'px')} on the sensor in the median; {percent(unchanged, 0)} of the "
        f"windows are below {one_px}, too slow to blur an image of {px} px.\n"
        f"n = {count(len(level))}, at entry speed, from {number(low)} to {quantity(high, 'px')}. The motion kernel in "
        f"an image of {px} px is {quantity(camera.kernel_px(float(np.median(speed)), px), 'px')} long at the median "
        "speed; both grow in proportion to it. One of up to 1 px leaves an image unchanged."
    )
    threshold = run.experiment.blur.threshold_kmh
    if run.learning and threshold > 0:
        caption += f" By the settings only vehicles above {quantity(threshold, 'km/h')} blur their images."
    return figure, caption


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Images of one blur level side by side: ``uri`` is a PNG data URI of ``width`` by ``height`` (px)."""

    title: str
    detail: str
    uri: str
    width: int
    height: int


def png_strip(images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> tuple[str, int, int]:
    """Return images (N, H, W, C) side by side, grey unless C is 3, as a PNG: its data URI, width and height (px)."""
    shown, height, width, channels = images.shape
    depth = 3 if channels == 3 else 1  # images that are not RGB are drawn grey, from their first channel
    canvas = np.full((height, shown * (width + _GAP_PX) - _GAP_PX, depth), 255, np.uint8)
    for i, image in enumerate(images):
        canvas[:, i * (width + _GAP_PX) : i * (width + _GAP_PX) + width] = image[..., :depth]
    buffer = io.BytesIO()
    Image.fromarray(canvas if depth == 3 else canvas[..., 0]).save(buffer, format="PNG", optimize=False)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode(), canvas.shape[1], height


def sample_strips(run: RunData) -> list[Strip]:
    """Return a strip of sharp images, then one for each quartile of the vehicles' speeds; empty without samples."""
    if run.samples is None:
        return []
    # show fewer of large images: this keeps the page small and every image recognisable
    shown = int(np.clip(_MAX_WIDTH_PX // run.samples.images.shape[3], _MIN_IMAGES, _MAX_IMAGES))
    strips = []
    for i, title in enumerate(("sharp", "first quartile", "median", "third quartile")[: len(run.samples.images)]):
        uri, width, height = png_strip(run.samples.images[i, :shown])
        kernel, speed = float(run.samples.kernels_px[i]), float(run.samples.speeds_mps[i])
        detail = "as captured" if i == 0 else f"{quantity(speed * 3.6, 'km/h')}: motion kernel {quantity(kernel, 'px')}"
        if i and np.array_equal(run.samples.images[i, :shown], run.samples.images[0, :shown]):
            detail += ", the same pixels as sharp"
        strips.append(Strip(title=title, detail=detail, uri=uri, width=width, height=height))
    return strips
