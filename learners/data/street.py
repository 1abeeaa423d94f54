"""What surrounds a procedural traffic sign: a roadside scene behind it, things before it, light and sensor over it.

Everything is batched: images have shape (N, 3, H, W), float32, RGB in [0, 1]; each image draws its own parameters.
"""

from __future__ import annotations

import numpy as np

from learners.data.sign_designs import Floats

SIDE_PX = 32
_Y: Floats
_X: Floats
_Y, _X = np.mgrid[0:SIDE_PX, 0:SIDE_PX].astype(np.float32)


def uniform(generator: np.random.Generator, low: float, high: float, *shape: int) -> Floats:
    """Draw float32 numbers in [low, high)."""
    return generator.random(shape, dtype=np.float32) * np.float32(high - low) + np.float32(low)


def cover(image: Floats, coverage: Floats, colour: Floats) -> None:
    """Paint over ``image`` in place: coverage in [0, 1] of shape (N, H, W), colour of shape (N, 3) or (N, 3, H, W)."""
    paint = colour if colour.ndim == image.ndim else colour[:, :, None, None]
    image += coverage[:, None] * (paint - image)


def value_noise(generator: np.random.Generator, count: int, cells: int) -> Floats:
    """Return noise of unit variance at its nodes, ``cells`` of them across, interpolated between; (N, H, W)."""
    nodes = generator.standard_normal((count, cells, cells), dtype=np.float32)
    position = np.linspace(0, cells - 1, SIDE_PX, dtype=np.float32)
    weights = np.maximum(0, 1 - np.abs(position[:, None] - np.arange(cells, dtype=np.float32)))
    return np.asarray(weights @ nodes @ weights.T, dtype=np.float32)


def _edge(distance: Floats) -> Floats:
    """Return coverage of a shape from the signed distance to its edge (px)."""
    coverage: Floats = np.clip(0.5 - distance, 0, 1)
    return coverage


def _colour(generator: np.random.Generator, count: int, first: tuple[float, ...], second: tuple[float, ...]) -> Floats:
    """Draw colours between two, with some scatter; (N, 3)."""
    mix = uniform(generator, 0, 1, count, 1)
    ends = np.array([first, second], dtype=np.float32)
    colour: Floats = ends[0] + mix * (ends[1] - ends[0]) + uniform(generator, -0.06, 0.06, count, 3)
    return colour


def scene(generator: np.random.Generator, count: int) -> Floats:
    """Return roadside backgrounds: sky over ground, houses or trees between, passing vehicles; (N, 3, H, W)."""
    horizon = uniform(generator, 0.45, 1.1, count, 1, 1) * SIDE_PX
    zenith = _colour(generator, count, (0.35, 0.55, 0.85), (0.80, 0.82, 0.85))
    haze = _colour(generator, count, (0.75, 0.85, 0.95), (0.90, 0.80, 0.70))
    height = np.clip(_Y / horizon, 0, 1)[:, None]
    image: Floats = zenith[:, :, None, None] * (1 - height) + haze[:, :, None, None] * height
    coarse, fine = value_noise(generator, count, 5), value_noise(generator, count, 14)

    skyline = horizon - uniform(generator, 2, 24, count, 1, 1)
    wooded = uniform(generator, 0, 1, count, 1, 1) < 0.5
    tree = _colour(generator, count, (0.10, 0.26, 0.08), (0.35, 0.45, 0.18))
    trees = _edge(skyline - _Y + 4 * coarse + 1.5 * fine) * wooded
    cover(image, trees, tree[:, :, None, None] * (1 + 0.45 * fine + 0.2 * coarse)[:, None])

    facade = _colour(generator, count, (0.45, 0.30, 0.24), (0.80, 0.74, 0.62))
    left, width = uniform(generator, -20, 20, count, 1, 1), uniform(generator, 18, 44, count, 1, 1)
    house = np.maximum(skyline - _Y, np.abs(_X - left - width / 2) - width / 2)
    built = _edge(house) * ~wooded
    cover(image, built, facade[:, :, None, None] * (1 + 0.08 * fine)[:, None])
    pitch = uniform(generator, 4.5, 9, count, 1, 1)
    column, row = np.mod(_X - left, pitch), np.mod(_Y - skyline, pitch * 1.25)
    windows = _edge(np.maximum(np.abs(column - pitch / 2) - pitch / 4.5, np.abs(row - pitch / 1.6) - pitch / 3.2))
    glass = _colour(generator, count, (0.12, 0.15, 0.20), (0.55, 0.62, 0.68))
    cover(image, windows * built, glass)

    ground = _colour(generator, count, (0.30, 0.30, 0.31), (0.38, 0.46, 0.22))
    cover(image, _edge(horizon - _Y), ground[:, :, None, None] * (1 + 0.12 * fine + 0.1 * coarse)[:, None])
    for _ in range(2):
        _vehicle(generator, image)
    return image


def _vehicle(generator: np.random.Generator, image: Floats) -> None:
    """Paint a blurred box of any colour in place, in two images of five: a lorry, a hoarding, another sign's back."""
    count = len(image)
    x, y = uniform(generator, -4, 36, count, 1, 1), uniform(generator, 0, 36, count, 1, 1)
    half_width, half_height = uniform(generator, 2, 8, count, 1, 1), uniform(generator, 1.5, 7, count, 1, 1)
    box = np.maximum(np.abs(_X - x) - half_width, np.abs(_Y - y) - half_height)
    shown = uniform(generator, 0, 1, count, 1, 1) < 0.4
    muted = uniform(generator, -0.25, 0.25, count, 3)
    cover(image, np.clip(0.5 - box / 2, 0, 1) * shown, muted + uniform(generator, 0.1, 0.85, count, 1))


def occlude(generator: np.random.Generator, image: Floats) -> None:
    """Paint, in place, a branch before a quarter of the images and a pole or lorry's edge before another fifth."""
    count = len(image)
    kind = uniform(generator, 0, 1, count, 1, 1)
    angle = uniform(generator, 0, 2 * np.pi, count, 1, 1)
    outward = np.cos(angle) * (_X - 15.5) + np.sin(angle) * (_Y - 15.5)
    leaves = value_noise(generator, count, 9)
    branch = _edge(uniform(generator, 4, 9, count, 1, 1) - outward + 4 * leaves) * (kind < 0.25)
    green = _colour(generator, count, (0.08, 0.20, 0.05), (0.34, 0.40, 0.14))
    cover(image, branch, green[:, :, None, None] * (1 + 0.35 * value_noise(generator, count, 16))[:, None])
    offset = uniform(generator, -12, 12, count, 1, 1)
    lean = uniform(generator, -0.2, 0.2, count, 1, 1)
    bar = np.abs(_X - 15.5 - offset - lean * (_Y - 15.5)) - uniform(generator, 0.6, 2.2, count, 1, 1)
    cover(image, _edge(bar) * (kind > 0.8), _colour(generator, count, (0.2, 0.2, 0.2), (0.6, 0.6, 0.6)))


def expose(generator: np.random.Generator, image: Floats) -> Floats:
    """Return the images as a camera records them: shade, colour of the light, haze, contrast, sensor noise.

    Values are in [0, 255], not rounded.
    """
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
