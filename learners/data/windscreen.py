"""Frames of a front camera on the streets of a net, in batches: perspective, buildings, signs and light.

The camera looks along the car's heading from CAMERA_M above a flat ground. A pixel below the horizon shows the ground
where its ray meets it; each column shows the nearest building or trees along its line of sight.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from learners.data.sign_designs import DESIGNS, PAINTS
from learners.data.streets import BLOCK_M, CELL_M, LEVELS, SKYLINE_M, TILE_M, VIEW_M, Floats, Ground, Integers, Signs

Singles = NDArray[np.float32]

FOCAL = 0.8
"""Focal length in image widths: a field of view of 64 degrees."""
CAMERA_M, HORIZON = 1.5, 0.42
"""Height of the camera (m); height of the horizon in image heights from the top."""
SIGN_M, SIGN_HEIGHT_M = 1.5, 2.6
"""Radius of a sign, four times that of a real one, so that 32 pixels show it; height of its middle (m)."""
NEAR_M, FAR_M = 3.5, 26.0
"""Distances at which a sign is visible (m)."""
FACING_RAD = 0.9
"""A sign is visible to a camera whose direction differs by no more from that of the sign's traffic."""
_SHOWN = 2
_CHUNK = 64
_AROUND = 32
_STEPS_M = np.geomspace(5, SKYLINE_M, 30).astype(np.float32)
_HAZE = np.array([0.74, 0.78, 0.83], dtype=np.float32)
_ZENITH = np.array([0.45, 0.6, 0.85], dtype=np.float32)


class Poses(NamedTuple):
    """Where cameras are: time (s), x and y (m), heading (rad, from east counter-clockwise), each of shape (N,)."""

    time_s: Floats
    x_m: Floats
    y_m: Floats
    heading_rad: Floats

    def take(self, rows: Integers | slice) -> Poses:
        """Return the poses of these rows."""
        return Poses(*(column[rows] for column in self))


def find_visible_signs(poses: Poses, signs: Signs) -> tuple[Integers, Floats, Floats]:
    """Return the index of the two nearest visible signs of each pose, nearest first, or -1, and two distances (m).

    The distances are how far ahead and how far to the right each sign is; they have no meaning where it is -1. Each
    array has the shape (N, 2).
    """
    cosine, sine = np.cos(poses.heading_rad), np.sin(poses.heading_rad)
    middle_m = (NEAR_M + FAR_M) / 2
    places = np.column_stack([poses.x_m + middle_m * cosine, poses.y_m + middle_m * sine])
    _, number = cKDTree(signs.at_m).query(places, k=8)
    # of fewer signs the others have a number beyond the last, and are far away
    at_m, heading_rad = np.vstack([signs.at_m, [1e9, 1e9]]), np.append(signs.heading_rad, 0.0)
    dx = at_m[number, 0] - poses.x_m[:, None]
    dy = at_m[number, 1] - poses.y_m[:, None]
    ahead_m = cosine[:, None] * dx + sine[:, None] * dy
    right_m = sine[:, None] * dx - cosine[:, None] * dy
    turned = np.mod(heading_rad[number] - poses.heading_rad[:, None] + np.pi, 2 * np.pi) - np.pi
    visible = (ahead_m >= NEAR_M) & (ahead_m <= FAR_M) & (np.abs(turned) <= FACING_RAD)
    visible &= np.abs(right_m) * FOCAL <= 0.5 * ahead_m
    order = np.argsort(np.where(visible, ahead_m, np.inf), axis=1, kind="stable")[:, :_SHOWN]
    found = np.take_along_axis(np.where(visible, number, -1), order, axis=1)
    return found, np.take_along_axis(ahead_m, order, axis=1), np.take_along_axis(right_m, order, axis=1)


def daylight(time_s: Floats, noon_s: float) -> Floats:
    """Return the light at each time: 1 at noon, 0.4 at midnight (lamps), a cosine between."""
    return 0.7 + 0.3 * np.cos(2 * np.pi * (time_s - noon_s) / 86_400)


def render(
    poses: Poses, ground: Ground, signs: Signs, *, side_px: int, noon_s: float, noise: np.random.Generator
) -> NDArray[np.uint8]:
    """Return the camera's image at each pose, RGB, shape (N, 3, P, P); ``noise`` draws the sensor's noise."""
    images = np.empty((len(poses.x_m), 3, side_px, side_px), dtype=np.uint8)
    shown, ahead_m, right_m = find_visible_signs(poses, signs)
    light = daylight(poses.time_s, noon_s).astype(np.float32)
    for start in range(0, len(images), _CHUNK):  # small enough for the processor's cache
        part = slice(start, start + _CHUNK)
        image = _draw_streets(poses.take(part), ground, side_px)
        for place in range(_SHOWN - 1, -1, -1):  # the nearest last
            _paint_signs(image, signs, shown[part, place], ahead_m[part, place], right_m[part, place])
        image *= light[part, None, None, None]
        image += np.float32(0.02) * noise.standard_normal(image.shape[:3], dtype=np.float32)[..., None]
        np.clip(image, 0, 1, out=image)
        images[part] = np.rint(image * np.float32(255)).transpose(0, 3, 1, 2)
    return images


def _draw_streets(poses: Poses, ground: Ground, side_px: int) -> Singles:
    """Return ground, sky and buildings in full light, RGB in [0, 1], shape (N, P, P, 3)."""
    count, focal = len(poses.x_m), np.float32(FOCAL * side_px)
    below = (np.arange(side_px) + 0.5 - HORIZON * side_px).astype(np.float32)
    aside = ((np.arange(side_px) + 0.5 - side_px / 2) / focal).astype(np.float32)
    image = np.empty((count, side_px, side_px, 3), dtype=np.float32)
    height = np.clip(-below / (HORIZON * side_px), 0, 1)[:, None]
    image[:] = (_HAZE + height * (_ZENITH - _HAZE))[None, :, None, :]
    (x, y), (first_column, first_row) = _locate_in_squares(poses, TILE_M, ground.origin)
    x, y = x * np.float32(TILE_M), y * np.float32(TILE_M)
    cosine = np.cos(poses.heading_rad).astype(np.float32)[:, None, None]
    sine = np.sin(poses.heading_rad).astype(np.float32)[:, None, None]
    with np.errstate(divide="ignore"):
        ahead_m = np.where(below > 0, focal * np.float32(CAMERA_M) / below, np.inf).astype(np.float32)
    level = np.clip(np.log2(np.maximum(ahead_m / focal / CELL_M, 1)), 0, LEVELS - 1).astype(np.int64)
    side = round(TILE_M / CELL_M)
    for one in range(LEVELS):
        rows = np.flatnonzero((level == one) & (ahead_m <= VIEW_M))
        if not len(rows):
            continue
        z = ahead_m[rows][None, :, None]
        right = z * aside
        column = ((x + cosine * z + sine * right) * np.float32(1 / CELL_M)).astype(np.int32) + side * first_column
        row = ((y + sine * z - cosine * right) * np.float32(1 / CELL_M)).astype(np.int32) + side * first_row
        tile = ground.tile_of[row // side, column // side]
        small = side >> one
        pixel = (tile * small + ((row % side) >> one)) * small + ((column % side) >> one)
        colour = ground.colours[one][pixel] * np.float32(1 / 255)
        clear = np.exp(-z / np.float32(90))[..., None]
        image[:, rows[0] : rows[-1] + 1] = _HAZE + clear * (colour - _HAZE)
    _raise_buildings(image, ground, poses, below, aside)
    return image


def _locate_in_squares(poses: Poses, side_m: float, first: Integers) -> tuple[list[Singles], list[NDArray[np.int32]]]:
    """Return [x, y] of poses, in squares of ``side_m``, from a corner _AROUND before each; and its [column, row]."""
    # columns and rows count from ``first``; shapes are (N, 1, 1). So float32 is accurate, whatever the other poses are
    places = [np.asarray(column)[:, None, None] / side_m for column in (poses.x_m, poses.y_m)]
    own = [np.floor(place) - _AROUND for place in places]
    relative = [(place - square).astype(np.float32) for place, square in zip(places, own, strict=True)]
    return relative, [(square - one).astype(np.int32) for square, one in zip(own, first, strict=True)]


def _raise_buildings(image: Singles, ground: Ground, poses: Poses, below_px: Singles, aside: Singles) -> None:
    """Paint, in place, the nearest building or trees in each column, which looks ``aside`` m right per m ahead."""
    side_px = image.shape[1]
    focal = np.float32(FOCAL * side_px)
    below = below_px[: int(HORIZON * side_px + focal * CAMERA_M / _STEPS_M[0]) + 2]  # the rows that a foot may be in
    image = image[:, : len(below)]
    (x, y), (first_column, first_row) = _locate_in_squares(poses, BLOCK_M, ground.first_block)
    cosine = np.cos(poses.heading_rad).astype(np.float32)[:, None, None]
    sine = np.sin(poses.heading_rad).astype(np.float32)[:, None, None]
    z = _STEPS_M[None, None, :] / np.float32(BLOCK_M)
    right = z * aside[None, :, None]
    across = x + cosine * z + sine * right
    up = y + sine * z - cosine * right
    column, row = across.astype(np.int32) + first_column, up.astype(np.int32) + first_row
    tall = ground.heights_dm[row, column]  # (N, P, steps)
    first = np.argmax(tall > 0, axis=2)[..., None]
    height_m = np.take_along_axis(tall, first, axis=2)[..., 0] * np.float32(0.1)
    row, column = (np.take_along_axis(one, first, axis=2)[..., 0] for one in (row, column))
    along = np.take_along_axis(across + up, first, axis=2)[..., 0]
    away_m = _STEPS_M[first[..., 0]]
    scale = focal / away_m  # px per m, (N, P)
    over_m = np.float32(CAMERA_M) - below[None, :, None] / scale[:, None, :]  # height of each pixel above the ground
    covered = np.clip(0.5 + (height_m[:, None, :] - over_m) * scale[:, None, :], 0, 1)
    covered *= np.clip(0.5 + over_m * scale[:, None, :], 0, 1) * (height_m > 0)[:, None, :]
    tint = ground.tints[row, column] * np.float32(1 / 255)
    windows = (np.mod(over_m, 3) > 1) & (np.mod(along * np.float32(BLOCK_M), 3) > 1)[:, None, :]
    shade = np.where(windows & ~ground.wooded[row, column][:, None, :], np.float32(0.6), np.float32(1))
    clear = np.exp(-away_m / np.float32(90))[:, None, :, None]
    colour = _HAZE + clear * (tint[:, None, :, :] * shade[..., None] - _HAZE)
    image += covered[..., None] * (colour - image)


@cache
def _draw_sprites() -> tuple[Singles, tuple[int, ...]]:
    """Return pictures of all signs, RGB and coverage, (classes, 5 variants, sizes, 32, 32, 4), and the sizes (px)."""
    generator_seed, fine, sizes = 5, 64, (32, 16, 8, 4)
    v, u = (np.mgrid[0:fine, 0:fine].astype(np.float32) + 0.5) * np.float32(2.2 / fine) - np.float32(1.1)
    u, v = (np.repeat(one[None], 64, axis=0) for one in (u, v))
    table = np.zeros((len(DESIGNS), 5, len(sizes), 32, 32, 4), dtype=np.float32)
    for label, design in enumerate(DESIGNS.values()):
        # each image of a design draws its own member; different ones become the variants
        picture = np.zeros((len(u), fine, fine, 4), dtype=np.float32)
        for distance, paint in design(u, v, np.random.default_rng(generator_seed)):
            inside = np.clip(0.5 - distance * np.float32(fine / 2.2), 0, 1)[..., None]
            picture += inside * (np.array([*PAINTS[paint], 1], dtype=np.float32) - picture)
        _, members = np.unique(picture.reshape(len(picture), -1).sum(axis=1).round(2), return_index=True)
        for variant in range(5):
            member = picture[members[variant % len(members)]]
            for place, size in enumerate(sizes):
                step = fine // size
                pooled = member.reshape(size, step, size, step, 4).mean(axis=(1, 3))
                table[label, variant, place] = pooled.repeat(32 // size, axis=0).repeat(32 // size, axis=1)
    return table, sizes


def _paint_signs(image: Singles, signs: Signs, number: Integers, ahead_m: Floats, right_m: Floats) -> None:
    """Paint in place, over each image (P, P, 3), the sign of its ``number`` on a pole; nothing for -1."""
    rows = np.flatnonzero(number >= 0)
    if not len(rows):
        return
    side_px = image.shape[1]
    table, sizes = _draw_sprites()
    scale = (FOCAL * side_px / ahead_m[rows]).astype(np.float32)[:, None, None]  # px per m
    pixel = np.arange(side_px, dtype=np.float32) + np.float32(0.5)
    across = pixel[None, None, :] - side_px / 2 - right_m[rows].astype(np.float32)[:, None, None] * scale
    down = pixel[None, :, None] - HORIZON * side_px + np.float32(SIGN_HEIGHT_M - CAMERA_M) * scale
    part = image[rows]
    pole = np.clip(0.5 + 0.09 * scale - np.abs(across), 0, 1) * (down > 0) * (down < SIGN_HEIGHT_M * scale)
    part += pole[..., None] * (np.float32(0.5) - part)
    # a sprite spans 2.2 radii
    cells = [np.floor((one / (SIGN_M * scale) + 1.1) * (32 / 2.2)).astype(np.int32) for one in (across, down)]
    column, row = (np.clip(cell, 0, 31) for cell in cells)
    inside = (column == cells[0]) & (row == cells[1])
    diameter = 2.2 * SIGN_M * scale[:, 0, 0]
    size = np.argmin(np.abs(np.log2(np.array(sizes)[None, :] / diameter[:, None])), axis=1)
    label, variant = (one[number[rows]][:, None, None] for one in (signs.label, signs.variant))
    sprite = table[label, variant, size[:, None, None], row, column]
    covered = (sprite[..., 3] * inside)[..., None]
    part += covered * (sprite[..., :3] / np.maximum(sprite[..., 3:], 1e-3) - part)
    image[rows] = part
