"""Ten traffic-sign designs as layers of signed distances, after the families of the Vienna Convention on Road Signs.

Coordinates: u points right, v points down, both in units of the sign's radius; distances are negative inside. A design
maps coordinates of shape (N, H, W) to layers, painted one over the other. Where a real family has several members
(limits, directions, hazards), each image draws its own. No design is another's mirror image, so that a horizontal flip
never turns one class into another.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Layer(NamedTuple):
    """A shape, by the signed distance to its edge, (N, H, W), and its paint, a key of ``PAINTS``."""

    distance: Floats
    paint: str


PAINTS: dict[str, tuple[float, float, float]] = {
    "red": (0.74, 0.09, 0.12),
    "blue": (0.06, 0.27, 0.66),
    "yellow": (0.96, 0.76, 0.10),
    "white": (0.93, 0.93, 0.92),
    "black": (0.09, 0.09, 0.10),
}
"""Colours of retroreflective sheeting under white light, RGB in [0, 1]."""
_FAR = np.float32(9.0)
"""A distance larger than any sign: the shape is not drawn."""
_SEGMENTS = (
    ((0, 0), (1, 0)),
    ((1, 0), (1, 1)),
    ((1, 1), (1, 2)),
    ((0, 2), (1, 2)),
    ((0, 1), (0, 2)),
    ((0, 0), (0, 1)),
    ((0, 1), (1, 1)),
)
"""The strokes of a seven-segment numeral."""
_TENS = np.array([[lit == "1" for lit in word] for word in ("1111001", "1011011", "1011111", "1110000", "1111111")])
"""Which segments are lit in 3, 5, 6, 7 and 8."""
_STOP_LETTERS = (
    ((-0.46, -0.22), (-0.66, -0.22), (-0.66, 0.0), (-0.46, 0.0), (-0.46, 0.22), (-0.66, 0.22)),
    ((-0.34, -0.22), (-0.06, -0.22)),
    ((-0.20, -0.22), (-0.20, 0.22)),
    ((0.08, -0.22), (0.28, -0.22), (0.28, 0.22), (0.08, 0.22), (0.08, -0.22)),
    ((0.44, 0.22), (0.44, -0.22), (0.66, -0.22), (0.66, 0.02), (0.44, 0.02)),
)


def disc(u: Floats, v: Floats, radius: float) -> Floats:
    """Return the signed distance, negative inside, to a disc around the origin."""
    return np.hypot(u, v) - np.float32(radius)


def box(u: Floats, v: Floats, half_width: float, half_height: float) -> Floats:
    """Return the signed distance to an upright rectangle around the origin (Chebyshev outside its corners)."""
    return np.maximum(np.abs(u) - np.float32(half_width), np.abs(v) - np.float32(half_height))


def triangle(u: Floats, v: Floats, inradius: float) -> Floats:
    """Return the signed distance to an equilateral triangle around the origin, one corner up."""
    side = np.float32(0.8660254) * np.abs(u) - np.float32(0.5) * v
    return np.maximum(side, v) - np.float32(inradius)


def octagon(u: Floats, v: Floats, inradius: float) -> Floats:
    """Return the signed distance to a regular octagon around the origin, one side down."""
    a, b = np.abs(u), np.abs(v)
    return np.maximum(np.maximum(a, b), np.float32(0.7071068) * (a + b)) - np.float32(inradius)


def stroke(u: Floats, v: Floats, start: tuple[float, float], end: tuple[float, float], width: float) -> Floats:
    """Return the signed distance to a straight stroke with round ends, from the place ``start`` to ``end``."""
    du, dv = np.float32(end[0] - start[0]), np.float32(end[1] - start[1])
    pu, pv = u - np.float32(start[0]), v - np.float32(start[1])
    along = np.clip((pu * du + pv * dv) / (du * du + dv * dv), 0, 1)
    return np.hypot(pu - along * du, pv - along * dv) - np.float32(width / 2)


def path(u: Floats, v: Floats, points: tuple[tuple[float, float], ...], width: float) -> Floats:
    """Return the signed distance to a chain of strokes through ``points``, at least two."""
    distance = stroke(u, v, points[0], points[1], width)
    for start, end in pairwise(points[1:]):
        distance = np.minimum(distance, stroke(u, v, start, end, width))
    return distance


def _choose(generator: np.random.Generator, count: int, options: int) -> list[NDArray[np.bool_]]:
    """Draw one of ``options`` for each of ``count`` images; return, for each option, which drew it, (count, 1, 1)."""
    drawn = generator.integers(options, size=(count, 1, 1))
    return [drawn == option for option in range(options)]


def _number(u: Floats, v: Floats, generator: np.random.Generator) -> Floats:
    """Return the signed distance to the number of a speed limit, drawn for each image: 30, 50, 60, 70 or 80."""
    lit = _TENS[generator.integers(len(_TENS), size=len(u))]
    distance: Floats = np.abs(box(u - 0.27, v, 0.15, 0.30)) - np.float32(0.075)  # the zero
    for number, ((x0, y0), (x1, y1)) in enumerate(_SEGMENTS):
        ends = ((0.30 * x0 - 0.42, 0.30 * y0 - 0.30), (0.30 * x1 - 0.42, 0.30 * y1 - 0.30))
        segment = stroke(u, v, *ends, 0.15)
        distance = np.minimum(distance, np.where(lit[:, number, None, None], segment, _FAR))
    return distance


def _stop(u: Floats, v: Floats, _: np.random.Generator) -> list[Layer]:
    """Return the layers of a stop sign: a red octagon with white edge and letters."""
    letters = path(u, v, _STOP_LETTERS[0], 0.11)
    for letter in _STOP_LETTERS[1:]:
        letters = np.minimum(letters, path(u, v, letter, 0.11))
    return [Layer(octagon(u, v, 0.97), "white"), Layer(octagon(u, v, 0.88), "red"), Layer(letters, "white")]


def _yield(u: Floats, v: Floats, _: np.random.Generator) -> list[Layer]:
    """Return the layers of a yield sign: a triangle with one corner down."""
    down = 0.22 - v
    return [Layer(triangle(u, down, 0.62), "red"), Layer(triangle(u, down, 0.36), "white")]


def _priority(u: Floats, v: Floats, _: np.random.Generator) -> list[Layer]:
    """Return the layers of the sign of a priority road: a yellow square on its corner."""
    distance = np.float32(0.7071068) * (np.abs(u) + np.abs(v))
    layers = ((0.78, "black"), (0.73, "white"), (0.50, "yellow"))
    return [Layer(distance - np.float32(size), paint) for size, paint in layers]


def _no_entry(u: Floats, v: Floats, _: np.random.Generator) -> list[Layer]:
    """Return the layers of a no-entry sign: a white bar on a red disc."""
    return [Layer(disc(u, v, 1.0), "white"), Layer(disc(u, v, 0.94), "red"), Layer(box(u, v, 0.68, 0.17), "white")]


def _limit(u: Floats, v: Floats, generator: np.random.Generator) -> list[Layer]:
    """Return the layers of a speed limit, whose number is drawn for each image."""
    number = _number(u, v, generator)
    return [Layer(disc(u, v, 1.0), "red"), Layer(disc(u, v, 0.76), "white"), Layer(number, "black")]


def _warning(u: Floats, v: Floats, generator: np.random.Generator) -> list[Layer]:
    """Return the layers of a warning sign; each image draws exclamation mark, junction or curve."""
    hazard, junction, _ = _choose(generator, len(u), 3)
    exclamation = np.minimum(stroke(u, v, (0, -0.28), (0, 0.08), 0.17), disc(u, v - 0.32, 0.10))
    cross = np.minimum(stroke(u, v, (0, -0.28), (0, 0.36), 0.17), stroke(u, v, (-0.3, 0.12), (0.3, 0.12), 0.17))
    curve = path(u, v, ((-0.12, 0.36), (-0.12, 0.14), (0.12, -0.02), (0.0, -0.26)), 0.15)
    symbol = np.where(hazard, exclamation, np.where(junction, cross, curve))
    up = v - 0.22
    return [Layer(triangle(u, up, 0.62), "red"), Layer(triangle(u, up, 0.40), "white"), Layer(symbol, "black")]


def _direction(u: Floats, v: Floats, generator: np.random.Generator) -> list[Layer]:
    """Return the layers of a mandatory direction; each image draws an arrow ahead, left or right."""
    ahead, left, _ = _choose(generator, len(u), 3)
    x = np.where(ahead, u, v)  # to either side: an arrow is its own mirror image
    y = np.where(ahead, v, np.where(left, u, -u))
    shaft = stroke(x, y, (0, 0.55), (0, -0.3), 0.20)
    head = np.minimum(stroke(x, y, (0, -0.58), (-0.36, -0.18), 0.20), stroke(x, y, (0, -0.58), (0.36, -0.18), 0.20))
    arrow = np.minimum(shaft, head)
    return [Layer(disc(u, v, 1.0), "white"), Layer(disc(u, v, 0.94), "blue"), Layer(arrow, "white")]


def _board(u: Floats, v: Floats) -> list[Layer]:
    """Return the layers of a blue square with a white edge."""
    return [Layer(box(u, v, 0.86, 0.86), "white"), Layer(box(u, v, 0.79, 0.79), "blue")]


def _parking(u: Floats, v: Floats, _: np.random.Generator) -> list[Layer]:
    """Return the layers of a parking sign: a white P on blue."""
    stem = stroke(u, v, (-0.24, -0.50), (-0.24, 0.52), 0.22)
    bowl = np.abs(box(u - 0.04, v + 0.22, 0.28, 0.28)) - np.float32(0.10)
    return [*_board(u, v), Layer(np.minimum(stem, bowl), "white")]


def _crossing(u: Floats, v: Floats, _: np.random.Generator) -> list[Layer]:
    """Return the layers of a pedestrian crossing: a black walker in a white triangle on blue."""
    body = path(u, v, ((0.02, -0.22), (0.0, 0.10), (-0.18, 0.40)), 0.13)
    leg = path(u, v, ((0.0, 0.08), (0.20, 0.40)), 0.13)
    arms = path(u, v, ((-0.18, 0.02), (0.02, -0.16), (0.20, 0.02)), 0.10)
    walker = np.minimum(np.minimum(body, leg), np.minimum(arms, disc(u - 0.04, v + 0.38, 0.11)))
    return [*_board(u, v), Layer(triangle(u, v - 0.20, 0.44), "white"), Layer(walker, "black")]


def _end(u: Floats, v: Floats, _: np.random.Generator) -> list[Layer]:
    """Return the layers of the end of restrictions: black stripes across a white disc."""
    across = np.float32(0.7071068) * (u + v)
    stripes = np.minimum(np.minimum(np.abs(across), np.abs(across - 0.26)), np.abs(across + 0.26)) - np.float32(0.07)
    inside = disc(u, v, 0.90)
    return [Layer(disc(u, v, 1.0), "black"), Layer(inside, "white"), Layer(np.maximum(stripes, inside), "black")]


DESIGNS: dict[str, Callable[[Floats, Floats, np.random.Generator], list[Layer]]] = {
    "stop": _stop,
    "yield": _yield,
    "priority road": _priority,
    "no entry": _no_entry,
    "speed limit": _limit,
    "warning": _warning,
    "mandatory direction": _direction,
    "parking": _parking,
    "pedestrian crossing": _crossing,
    "end of restrictions": _end,
}
"""The classes, in order of their index."""
