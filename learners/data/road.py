"""A procedural set of drives as seen by a front camera, with the steering angle at every frame; made from a seed.

Each drive has its own world: road width and markings, greys, shadows, light, haze, camera height and pitch. The angle
follows from what a frame shows, by pure pursuit (Coulter 1992, "Implementation of the pure pursuit path tracking
algorithm"): an arc through the middle of the road LOOK_AHEAD_M ahead.

Ground coordinates are metres ahead of the camera and to the right of it; the road is flat. Arrays have one drive: N
frames of P x P pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from learners.data.sets import SteeringSet
from learners.data.splits import renumber
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

TRAIN_DRIVES, TEST_DRIVES = 11, 6
TRAIN_IMAGES, TEST_IMAGES = 3300, 600
"""Default numbers of frames: 300 of each training drive."""
BLOCK = 50
"""Length of a stretch of time (frames)."""
SIDE_PX = 64

LOOK_AHEAD_M = 12.0
WHEELBASE_M = 2.7
FULL_LOCK_RAD = 0.25
"""Angle of the front wheels that counts as 1."""

FOCAL = 0.6
"""Focal length in image widths: a field of view of 80 degrees."""
VIEW_M = 120.0
"""Largest visible distance; farther points are drawn at this distance (m)."""
TIGHTEST_M = 12.0
"""Smallest radius of a bend (m)."""
GRID_M = 0.5
"""Distance between two points of a course (m)."""
_TABLE = 512
_CHUNK = 25


@dataclass(frozen=True, kw_only=True)
class Road:
    """Drives on roads drawn by the program, grey, with the steering angle of every frame."""

    name, targets, needs = "road", "steering angles", ("data.image_px",)
    source = "built in"

    def load(self, data: DataSettings, streams: Streams) -> SteeringSet:
        """Return frames of drawn drives, other drives for tests; for numbers of 0 in ``data``, 3300 and 600 frames."""
        side_px = data.image_px or SIDE_PX
        train = _draw_drives(data.train_images or TRAIN_IMAGES, TRAIN_DRIVES, side_px, streams.child("road", "train"))
        test = _draw_drives(data.test_images or TEST_IMAGES, TEST_DRIVES, side_px, streams.child("road", "test"))
        lengths = [len(angles) for _, angles in train]
        drives = np.repeat(np.arange(len(train)), lengths)
        frames = np.concatenate([np.arange(length) for length in lengths])
        images, angles, test_images, test_angles = (
            torch.from_numpy(np.concatenate(part)) for part in (*zip(*train, strict=True), *zip(*test, strict=True))
        )
        return SteeringSet(
            name=self.name,
            train=images[:, None],
            train_angles=angles,
            train_drives=torch.from_numpy(drives),
            train_blocks=torch.from_numpy(renumber(drives * len(drives) + frames // BLOCK)),
            test=test_images[:, None],
            test_angles=test_angles,
        )


def steering_angle(right_m: Doubles, ahead_m: Doubles | float = LOOK_AHEAD_M) -> Doubles:
    """Return the steering angle in [-1, 1], right positive, that leads to a point so far right and ahead (m).

    The arc through the point x to the right and z ahead has curvature 2 x / (x^2 + z^2) (Coulter 1992), and a car of
    wheelbase B follows curvature k with its front wheels at arctan(B k); FULL_LOCK_RAD is 1.
    """
    curvature = 2 * right_m / np.maximum(np.square(right_m) + np.square(ahead_m), 1e-6)
    return np.asarray(np.clip(np.arctan(WHEELBASE_M * curvature) / FULL_LOCK_RAD, -1, 1))


def draw_drive(
    generator: np.random.Generator, frames: int, *, side_px: int = SIDE_PX
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return a new drive's grey images in order, shape (N, P, P), P = ``side_px``, and steering angles, shape (N,)."""
    step_m = generator.uniform(1.5, 2.5)
    points = math.ceil((step_m * frames + VIEW_M) / GRID_M) + 1
    # a cubed smooth process, so that the road is nearly straight most of the time
    curvature = np.tanh(gaussian_process(generator, points, 14.0 / GRID_M)) ** 3 / TIGHTEST_M
    offset_m = 0.4 * gaussian_process(generator, points, 9.0 / GRID_M)
    course = Course(frames=frames, step_m=step_m, curvature=curvature, offset_m=offset_m)
    target_m = course.middle_m(np.full((frames, 1), LOOK_AHEAD_M))[:, 0]
    images = render(World(generator), course, generator, side_px=side_px)
    return images, steering_angle(target_m).astype(np.float32)


def _draw_drives(
    count: int, drives: int, side_px: int, streams: Streams
) -> list[tuple[NDArray[np.uint8], NDArray[np.float32]]]:
    """Return images (n, 3, P, P) and angles (n,) of each drive: ``count`` frames, evenly over at most ``drives``."""
    drives = min(drives, count)
    return [
        draw_drive(streams.generator(number), count // drives + (number < count % drives), side_px=side_px)
        for number in range(drives)
    ]


def gaussian_process(generator: np.random.Generator, count: int, scale: float) -> Doubles:
    """Return ``count`` steps of a stationary Gaussian process, mean 0 and variance 1, correlated over ``scale`` steps.

    White noise under a Gaussian window: the correlation of values d apart is exp(-d^2 / (4 scale^2)).
    """
    reach = int(np.ceil(4 * scale))
    window = np.exp(-0.5 * (np.arange(-reach, reach + 1) / scale) ** 2)
    noise = np.convolve(generator.standard_normal(count + 2 * reach), window, mode="valid")
    return np.asarray(noise / np.sqrt(np.square(window).sum()))


def _integrate(values: Doubles) -> Doubles:
    """Return the integral from the first grid point to each (GRID_M apart), by the trapezoidal rule, same shape."""
    steps = GRID_M * (values[1:] + values[:-1]) / 2
    return np.concatenate([[0.0], np.cumsum(steps)])


class Course:
    """The course of the road and of the car on it, which drives ``step_m`` between two of N = ``frames`` frames.

    ``curvature`` is that of the road (1/m), positive to the right, and ``offset_m`` how far right of its middle the car
    is; the slope of this is the heading error. Both are given every GRID_M, from the first frame to VIEW_M beyond the
    last.
    """

    def __init__(self, *, frames: int, step_m: float, curvature: Doubles, offset_m: Doubles) -> None:
        self.position_m: Doubles = step_m * np.arange(frames, dtype=np.float64)
        self._grid_m: Doubles = GRID_M * np.arange(len(curvature), dtype=np.float64)
        self._road_heading_rad = _integrate(curvature)
        self._sideways_m = _integrate(self._road_heading_rad)
        self._offset_m: Doubles = np.interp(self.position_m, self._grid_m, offset_m)
        self._heading_error_rad: Doubles = np.interp(self.position_m, self._grid_m, np.gradient(offset_m, GRID_M))

    @property
    def heading_rad(self) -> Doubles:
        """Direction of the car at every frame, relative to the road's first one, right positive (rad), shape (N,)."""
        along: Doubles = np.interp(self.position_m, self._grid_m, self._road_heading_rad)
        return along + self._heading_error_rad

    def middle_m(self, ahead_m: Doubles) -> Doubles:
        """Return how far right of the camera's axis the road's middle is (m) at each distance ahead, shape (N, R).

        At distance z, up to VIEW_M, ahead of a car at offset e to the right of the middle and turned to the right of
        the road by psi, with curvature k, for small angles:
        x(z) = -e - psi z + integral from 0 to z of (z - t) k(t) dt.
        """
        here = self.position_m[:, None]
        bend = (
            np.interp(here + ahead_m, self._grid_m, self._sideways_m)
            - np.interp(here, self._grid_m, self._sideways_m)
            - ahead_m * np.interp(here, self._grid_m, self._road_heading_rad)
        )
        return np.asarray(bend - self._offset_m[:, None] - ahead_m * self._heading_error_rad[:, None])


class Camera(NamedTuple):
    """The front camera of a drive."""

    height_m: float  # above the road
    horizon: float  # in image heights from the top, by the camera's pitch
    gamma: float  # exponent of its response
    noise: float  # standard deviation


class World:
    """The random properties of a drive that do not change; greys and strengths are in [0, 1].

    Along the road its verges become darker and lighter than the road. Tables are periodic, of length _TABLE.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        uniform = generator.uniform
        self.road = uniform(0.25, 0.6)
        contrast = uniform(0.1, 0.25) * np.stack([_draw_periodic(generator, 25.0) for _ in range(2)])
        coarse, fine = (generator.standard_normal((cells, cells)) for cells in (_TABLE // 16, _TABLE))
        trees = _draw_periodic(generator, uniform(4, 16)) - uniform(0.2, 1.6)
        height_m, horizon = uniform(1.3, 1.8), uniform(0.34, 0.42)
        self.half_width_m = uniform(1.4, 2.3)  # of the road
        self.sky, self.skyline, self.line = uniform(0.55, 1.0), uniform(0.1, 0.5), uniform(0.85, 1.0)
        # left and right of the road, by half metres along it
        self.verges: Floats = np.clip(self.road + contrast, 0.05, 0.9).astype(np.float32)
        self.edge_line = uniform(0.5, 1.0)  # along both edges
        self.dashes = (generator.random() < 0.5) * uniform(0.4, 1.0)  # in the middle
        self.shadow = uniform(0.1, 0.45)  # share of the light that a shadow removes
        self.shade: Floats = np.clip(0.5 + 2 * trees, 0, 1).astype(np.float32)  # by half metres along the road
        self.slant = uniform(-1.5, 1.5)  # how far a shadow's edge advances per metre to the right (m)
        # noise on the ground by 0.25 m ahead and to the right
        self.texture: Floats = (0.3 * np.kron(coarse, np.ones((16, 16))) + 0.6 * fine).astype(np.float32)
        # height of the skyline in image heights, by direction
        self.hills: Floats = (0.09 + 0.05 * _draw_periodic(generator, 6.0)).astype(np.float32)
        self.visibility_m = uniform(80, 300)  # distance at which haze has removed 63 % of the contrast
        self.camera = Camera(height_m, horizon, gamma=uniform(0.7, 1.3), noise=uniform(0.005, 0.03))


def _draw_periodic(generator: np.random.Generator, scale: float) -> Doubles:
    """Return a smooth process of mean 0, variance 1 around a ring of _TABLE steps, correlated over ``scale`` steps."""
    frequencies = np.fft.rfftfreq(_TABLE)
    shaped = np.fft.irfft(
        np.fft.rfft(generator.standard_normal(_TABLE)) * np.exp(-2 * (np.pi * scale * frequencies) ** 2)
    )
    return np.asarray((shaped - shaped.mean()) / shaped.std())


def render(world: World, course: Course, generator: np.random.Generator, *, side_px: int) -> NDArray[np.uint8]:
    """Return the camera's image at every frame of the course, shape (N, P, P).

    The light and the camera's pitch change smoothly from frame to frame, the sensor's noise does not.
    """
    frames = len(course.position_m)
    pitch = 0.006 * gaussian_process(generator, frames, 1.5)
    gain = np.exp2(0.25 * gaussian_process(generator, frames, 25.0)).astype(np.float32)
    horizon_px = side_px * (world.camera.horizon + pitch)[:, None]
    below_px = np.arange(side_px) + 0.5 - horizon_px
    ahead_m = np.minimum(FOCAL * side_px * world.camera.height_m / np.maximum(below_px, 0.5), VIEW_M)
    of_rows: tuple[Doubles, ...] = (below_px, ahead_m, course.position_m[:, None] + ahead_m, course.middle_m(ahead_m))
    by_row = [values[:, :, None].astype(np.float32) for values in of_rows]  # broadcast over the pixels of a row

    images = np.empty((frames, side_px, side_px), dtype=np.uint8)
    for start in range(0, frames, _CHUNK):  # small enough to stay in the processor's cache
        part = slice(start, start + _CHUNK)
        image = _draw_scene(world, course.heading_rad[part], *(values[part] for values in by_row))
        image *= gain[part, None, None]
        np.power(np.clip(image, 0, 1, out=image), np.float32(world.camera.gamma), out=image)
        image += np.float32(world.camera.noise) * generator.standard_normal(image.shape, dtype=np.float32)
        images[part] = np.rint(np.clip(image, 0, 1, out=image) * np.float32(255))
    return images


def _draw_scene(
    world: World, heading_rad: Doubles, below_px: Floats, ahead_m: Floats, along_m: Floats, middle_m: Floats
) -> Floats:
    """Return brightness with haze, (N, P, P), given each image's heading, (N,), and values of image rows, (N, P, 1)."""
    # heading_rad, shape (N,), is the direction of the car; the others, (N, P, 1), are per image row: below_px below
    # the horizon, ahead_m from the car to the ground, along_m the same from the start of the drive along the road,
    # middle_m from the car's axis right to the middle of the road there
    side_px = below_px.shape[1]
    focal_px = np.float32(FOCAL * side_px)
    aside_px = np.arange(side_px, dtype=np.float32) + np.float32(0.5 - side_px / 2)
    px_per_m = focal_px / ahead_m  # across the road
    image = _draw_ground(world, along_m, aside_px / px_per_m - middle_m, px_per_m)
    clear = np.exp(-ahead_m / np.float32(world.visibility_m))
    haze = np.float32(0.85 * world.sky)
    image *= clear
    image += haze * (1 - clear)

    bearing = heading_rad[:, None] + aside_px / focal_px
    ridge_px = side_px * world.hills[_table_index(bearing * (_TABLE / (2 * np.pi)))]
    sky = np.float32(world.sky) * (1 - np.float32(0.3 / side_px) * np.maximum(-below_px, 0))
    hills = np.clip(0.5 + ridge_px[:, None, :] + below_px, 0, 1)
    backdrop = sky + hills * (np.float32(0.5 * (world.skyline + haze)) - sky)
    image += np.clip(0.5 - below_px, 0, 1) * (backdrop - image)
    return image


def _draw_ground(world: World, along_m: Floats, across_m: Floats, px_per_m: Floats) -> Floats:
    """Return the ground's brightness at each pixel, (N, P, P), in even light: verge, road, lines and shadows."""
    # per image row, shape (N, P, 1): along_m along the road, px_per_m across the road;
    # per pixel, shape (N, P, P): across_m to the right of the middle of the road
    half_m = np.float32(world.half_width_m)
    distance_m = np.abs(across_m)
    left, right = world.verges[:, _table_index(2 * along_m)]
    image: Floats = np.where(across_m < 0, left, right)
    image += np.clip(0.5 + (half_m - distance_m) * px_per_m, 0, 1) * (np.float32(world.road) - image)
    texture = world.texture[_table_index(4 * along_m), _table_index(4 * across_m)]
    image *= 1 + np.minimum(np.float32(0.07), px_per_m / 80) * texture  # far grains are smaller than a pixel
    edges = _cover_by_stripe(distance_m - half_m + np.float32(0.2), px_per_m)
    image += np.float32(world.edge_line) * edges * (np.float32(world.line) - image)
    if world.dashes:
        painted = np.float32(world.dashes) * (np.mod(along_m, 9) < 4)
        image += painted * _cover_by_stripe(distance_m, px_per_m) * (np.float32(world.line) - image)
    shade = world.shade[_table_index(2 * along_m + np.float32(2 * world.slant) * across_m)]
    image *= 1 - np.float32(world.shadow) * shade
    return image


def _cover_by_stripe(distance_m: Floats, px_per_m: Floats) -> Floats:
    """Return the share of each pixel that a stripe of 0.16 m covers, in [0, 1], given the distance to its middle."""
    half_m = np.float32(0.08)
    covered: Floats = np.clip(0.5 + (half_m - np.abs(distance_m)) * px_per_m, 0, np.minimum(1, 2 * half_m * px_per_m))
    return covered


def _table_index(place: Floats | Doubles) -> NDArray[np.int32]:
    """Return indices into a periodic table for places, also negative, in steps of it: rounded down, modulo _TABLE."""
    return np.floor(place).astype(np.int32) & (_TABLE - 1)
