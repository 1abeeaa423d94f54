"""A procedural traffic-sign set: ten classes, 32 x 32 RGB, made from a seed.

A sign of random size, place, tilt, turn and wear stands on a pole in front of a roadside scene, may be partly hidden,
and is seen in random light by a noisy camera. A small convolutional network separates the classes, raw pixels do not.

Everything is drawn in batches: images have shape (N, 3, H, W), float32, RGB in [0, 1]; each has its own draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from learners.data import sign_designs
from learners.data.image_cache import load_or_draw
from learners.data.sets import ImageSet, classed_set
from learners.data.sign_designs import DESIGNS, PAINTS, Floats
from learners.data.unread import black_set
from vnetsim.errors.bounds import Within
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

TRAIN_IMAGES, TEST_IMAGES = 9500, 2000
"""Default numbers of images: 100 training images for each of 95 silos."""
_CHUNK = 250
"""Images of a class drawn at a time, in the processor's cache; the images depend on this number."""
Colour = tuple[float, float, float]
SIDE_PX = 32
_Y: Floats
_X: Floats
_Y, _X = np.mgrid[0:SIDE_PX, 0:SIDE_PX].astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Signs:
    """Traffic signs, drawn by the program: 32 x 32, colour.

    Args:
        scatter: how far signs are shifted from the middle, tilted and turned away, relative to the default; at 0 all
            are upright in the middle, which a single layer of perceptrons learns in some dozen steps.
    """

    name, targets, needs = "signs", "classes", ()
    source = "built in"

    scatter: Annotated[float, Within(0, 1, "", "at 1 a sign is still inside the image")] = 1.0

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:
        """Return the set, training and test images from separate random streams; by default 9500 and 2000 images."""
        train = self._draw_part(data.train_images or TRAIN_IMAGES, streams.generator("signs", "train"))
        test = self._draw_part(data.test_images or TEST_IMAGES, streams.generator("signs", "test"))
        return classed_set(self.name, data.root, train=train, test=test, class_names=tuple(DESIGNS))

    def outline(self, data: DataSettings, streams: Streams) -> ImageSet:
        """Return the set with black images and the classes of ``load``; no image is drawn."""
        train = _draw_classes(data.train_images or TRAIN_IMAGES, streams.generator("signs", "train"))
        test = _draw_classes(data.test_images or TEST_IMAGES, streams.generator("signs", "test"))
        return black_set(self.name, train, test, SIDE_PX, class_names=tuple(DESIGNS))

    def _draw_part(self, count: int, generator: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return images (count, 3, 32, 32) and classes (count,); images drawn before are read from disk."""
        key, code = (generator.bit_generator.state, self.scatter), (__file__, sign_designs.__file__)
        labels = _draw_classes(count, generator)
        draw = partial(_draw_images, labels, generator, self.scatter)
        return load_or_draw(draw, (count, 3, SIDE_PX, SIDE_PX), key, code=code), labels


def _draw_classes(count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return ``count`` class numbers in random order; every class occurs equally often, to within one."""
    return generator.permutation(np.arange(count) % len(DESIGNS))


def _draw_images(labels: NDArray[np.int64], generator: np.random.Generator, scatter: float) -> NDArray[np.uint8]:
    """Return a drawn image for each label, in their order, shape (N, 3, 32, 32)."""
    images = np.empty((len(labels), 3, SIDE_PX, SIDE_PX), dtype=np.uint8)
    for label, name in enumerate(DESIGNS):
        members = np.flatnonzero(labels == label)
        for start in range(0, len(members), _CHUNK):
            chunk = members[start : start + _CHUNK]
            images[chunk] = np.rint(_render(name, len(chunk), generator, np.float32(scatter))).astype(np.uint8)
    return images


def _render(name: str, count: int, generator: np.random.Generator, scatter: np.float32) -> Floats:
    """Return ``count`` new images of the class ``name``, in [0, 255], not rounded."""
    image = draw_scene(generator, count)
    u, v, softness = _draw_poses(generator, count, scatter)
    pole = np.maximum(np.abs(u) - np.float32(0.075), -v)
    cover(image, _cover_pixels(pole / softness), uniform(generator, 0.35, 0.65, count, 1))
    fading = uniform(generator, 0, 0.25, count, 1)
    for distance, paint in DESIGNS[name](u, v, generator):
        colour = np.array(PAINTS[paint], dtype=np.float32) + uniform(generator, -0.05, 0.05, count, 3)
        cover(image, _cover_pixels(distance / softness), colour + fading * (np.float32(0.6) - colour))
    occlude(generator, image)
    return expose(generator, image)


def _draw_poses(generator: np.random.Generator, count: int, scatter: np.float32) -> tuple[Floats, Floats, Floats]:
    """Draw poses of signs; return each pixel's u, v (N, H, W) and its width (N, 1, 1), in radii of the sign."""
    radius = uniform(generator, 7.5, 13.5, count, 1, 1)
    reach = scatter * (16 - np.float32(0.85) * radius)
    x = _X - 15.5 - reach * uniform(generator, -1, 1, count, 1, 1)
    y = _Y - 15.5 - reach * uniform(generator, -1, 1, count, 1, 1)
    lean = np.clip(generator.standard_normal((count, 1, 1), dtype=np.float32), -2, 2)
    tilt = scatter * lean * np.float32(np.deg2rad(8))
    # cosine of the angle by which the sign faces away
    turn = 1 - scatter * (1 - uniform(generator, 0.65, 1, count, 1, 1))
    u = (np.cos(tilt) * x + np.sin(tilt) * y) / (radius * turn)
    v = (np.cos(tilt) * y - np.sin(tilt) * x) / radius + uniform(generator, -0.12, 0.12, count, 1, 1) * u
    return u, v, np.reciprocal(radius * np.sqrt(turn))


def uniform(generator: np.random.Generator, low: float, high: float, *shape: int) -> Floats:
    """Return random float32 numbers in [low, high), of ``shape``."""
    return generator.random(shape, dtype=np.float32) * np.float32(high - low) + np.float32(low)


def cover(image: Floats, coverage: Floats, colour: Floats) -> None:
    """Blend ``image`` in place, by coverage in [0, 1], (N, H, W), with a colour, (N, 3), (N, 1) or (N, 3, H, W)."""
    paint = colour if colour.ndim == image.ndim else colour[:, :, None, None]
    image += coverage[:, None] * (paint - image)


def value_noise(generator: np.random.Generator, count: int, cells: int) -> Floats:
    """Return interpolated noise, (count, H, W), with unit variance at its ``cells`` x ``cells`` nodes."""
    nodes = generator.standard_normal((count, cells, cells), dtype=np.float32)
    position = np.linspace(0, cells - 1, SIDE_PX, dtype=np.float32)
    weights = np.maximum(0, 1 - np.abs(position[:, None] - np.arange(cells, dtype=np.float32)))
    return np.asarray(weights @ nodes @ weights.T, dtype=np.float32)


def _cover_pixels(distance: NDArray[np.floating[Any]]) -> Floats:
    """Return how much of each pixel a shape covers, in [0, 1], given the signed distance to its edge (px)."""
    return np.asarray(np.clip(0.5 - distance, 0, 1))


def _draw_colours(generator: np.random.Generator, count: int, first: Colour, second: Colour) -> Floats:
    """Return ``count`` random colours between two RGB colours in [0, 1], with some scatter, shape (count, 3)."""
    mix = uniform(generator, 0, 1, count, 1)
    ends = np.array([first, second], dtype=np.float32)
    return np.asarray(ends[0] + mix * (ends[1] - ends[0]) + uniform(generator, -0.06, 0.06, count, 3))


def draw_scene(generator: np.random.Generator, count: int) -> Floats:
    """Return roadside backgrounds, (count, 3, 32, 32): sky over ground, houses or trees between, passing vehicles."""
    horizon = uniform(generator, 0.45, 1.1, count, 1, 1) * SIDE_PX
    zenith = _draw_colours(generator, count, (0.35, 0.55, 0.85), (0.80, 0.82, 0.85))
    haze = _draw_colours(generator, count, (0.75, 0.85, 0.95), (0.90, 0.80, 0.70))
    height = np.clip(_Y / horizon, 0, 1)[:, None]
    image: Floats = zenith[:, :, None, None] * (1 - height) + haze[:, :, None, None] * height
    coarse, fine = value_noise(generator, count, 5), value_noise(generator, count, 14)

    skyline = horizon - uniform(generator, 2, 24, count, 1, 1)
    wooded = uniform(generator, 0, 1, count, 1, 1) < 0.5
    tree = _draw_colours(generator, count, (0.10, 0.26, 0.08), (0.35, 0.45, 0.18))
    trees = _cover_pixels(skyline - _Y + 4 * coarse + 1.5 * fine) * wooded
    cover(image, trees, tree[:, :, None, None] * (1 + 0.45 * fine + 0.2 * coarse)[:, None])

    facade = _draw_colours(generator, count, (0.45, 0.30, 0.24), (0.80, 0.74, 0.62))
    left, width = uniform(generator, -20, 20, count, 1, 1), uniform(generator, 18, 44, count, 1, 1)
    house = np.maximum(skyline - _Y, np.abs(_X - left - width / 2) - width / 2)
    built = _cover_pixels(house) * ~wooded
    cover(image, built, facade[:, :, None, None] * (1 + 0.08 * fine)[:, None])
    pitch = uniform(generator, 4.5, 9, count, 1, 1)
    column, row = np.mod(_X - left, pitch), np.mod(_Y - skyline, pitch * 1.25)
    windows = _cover_pixels(
        np.maximum(np.abs(column - pitch / 2) - pitch / 4.5, np.abs(row - pitch / 1.6) - pitch / 3.2)
    )
    glass = _draw_colours(generator, count, (0.12, 0.15, 0.20), (0.55, 0.62, 0.68))
    cover(image, windows * built, glass)

    ground = _draw_colours(generator, count, (0.30, 0.30, 0.31), (0.38, 0.46, 0.22))
    cover(image, _cover_pixels(horizon - _Y), ground[:, :, None, None] * (1 + 0.12 * fine + 0.1 * coarse)[:, None])
    for _ in range(2):
        _paint_box(generator, image)
    return image


def _paint_box(generator: np.random.Generator, image: Floats) -> None:
    """Paint, in place, a blurred box, as of a lorry or hoarding, over each image with probability 0.4."""
    count = len(image)
    x, y = uniform(generator, -4, 36, count, 1, 1), uniform(generator, 0, 36, count, 1, 1)
    half_width, half_height = uniform(generator, 2, 8, count, 1, 1), uniform(generator, 1.5, 7, count, 1, 1)
    box = np.maximum(np.abs(_X - x) - half_width, np.abs(_Y - y) - half_height)
    shown = uniform(generator, 0, 1, count, 1, 1) < 0.4
    muted = uniform(generator, -0.25, 0.25, count, 3)
    cover(image, _cover_pixels(box / 2) * shown, muted + uniform(generator, 0.1, 0.85, count, 1))


def occlude(generator: np.random.Generator, image: Floats) -> None:
    """Paint, in place, a branch over a quarter of the images and a pole or lorry's edge over another fifth."""
    count = len(image)
    kind = uniform(generator, 0, 1, count, 1, 1)
    angle = uniform(generator, 0, 2 * np.pi, count, 1, 1)
    outward = np.cos(angle) * (_X - 15.5) + np.sin(angle) * (_Y - 15.5)
    leaves = value_noise(generator, count, 9)
    branch = _cover_pixels(uniform(generator, 4, 9, count, 1, 1) - outward + 4 * leaves) * (kind < 0.25)
    green = _draw_colours(generator, count, (0.08, 0.20, 0.05), (0.34, 0.40, 0.14))
    cover(image, branch, green[:, :, None, None] * (1 + 0.35 * value_noise(generator, count, 16))[:, None])
    offset = uniform(generator, -12, 12, count, 1, 1)
    lean = uniform(generator, -0.2, 0.2, count, 1, 1)
    bar = np.abs(_X - 15.5 - offset - lean * (_Y - 15.5)) - uniform(generator, 0.6, 2.2, count, 1, 1)
    cover(image, _cover_pixels(bar) * (kind > 0.8), _draw_colours(generator, count, (0.2, 0.2, 0.2), (0.6, 0.6, 0.6)))


def expose(generator: np.random.Generator, image: Floats) -> Floats:
    """Return images as a camera records them, in [0, 255], not rounded: shade, tint, haze, contrast, sensor noise."""
    count = len(image)
    angle = uniform(generator, 0, 2 * np.pi, count, 1, 1)
    across = (np.cos(angle) * (_X - 15.5) + np.sin(angle) * (_Y - 15.5)) / 16
    shade = 1 + uniform(generator, 0, 0.35, count, 1, 1) * across
    dark = (uniform(generator, 0, 1, count, 1, 1) < 0.3) * uniform(generator, 0.25, 0.6, count, 1, 1)
    shade *= 1 - dark * np.clip(0.5 + 4 * (across - uniform(generator, -0.6, 0.6, count, 1, 1)), 0, 1)
    gain = np.exp2(uniform(generator, -1.2, 0.5, count, 1))
    cast = 1 + uniform(generator, -0.12, 0.12, count, 1) * np.array([1, 0, -1], dtype=np.float32)
    light = (gain * cast)[:, :, None, None] * shade[:, None]
    haze = uniform(generator, 0, 1, count, 1, 1, 1) ** 3 * np.float32(0.6)
    image = image * light * (1 - haze) + haze * gain[:, :, None, None] * np.float32(0.75)
    image = np.clip(image, 0, 1) ** uniform(generator, 0.75, 1.15, count, 1, 1, 1)
    grain = uniform(generator, 0.004, 0.05, count, 1, 1, 1)
    image += grain * generator.standard_normal(image.shape, dtype=np.float32)
    return np.clip(image, 0, 1) * np.float32(255)
