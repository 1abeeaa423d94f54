"""Example images for the page: one PNG strip per blur level."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from analysis.formatting import quantity
from analysis.loading import RunData

_MAX_IMAGES, _MIN_IMAGES, _MAX_WIDTH_PX = 8, 3, 1320
_GAP_PX = 1


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Images of one level side by side: ``uri`` is a PNG data URI, ``width`` and ``height`` its size (px)."""

    title: str
    detail: str
    uri: str
    width: int
    height: int


def _png(images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> tuple[str, int, int]:
    count, height, width, channels = images.shape
    kept = 3 if channels == 3 else 1  # anything but red, green and blue is drawn grey, by its first channel
    canvas = np.full((height, count * (width + _GAP_PX) - _GAP_PX, kept), 255, np.uint8)
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
