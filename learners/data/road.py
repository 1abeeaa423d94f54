"""A procedural set of drives as seen by a front camera, with the steering angle at every frame; made from a seed.

Each drive has its own world: road width and markings, greys, shadows, light, haze, camera height and pitch. The road
bends smoothly, so frames that follow each other are alike. What a frame shows decides its angle, by pure pursuit
(Coulter 1992, "Implementation of the pure pursuit path tracking algorithm"): the car is to drive an arc through the
middle of the road LOOK_AHEAD_M ahead. Verges are lighter or darker than the road and shadows cross it, so raw pixels
tell little in a linear way; a small convolutional network finds the road.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from learners.data.road_scene import Course, Doubles, World, render
from learners.data.sets import SteeringSet
from learners.data.splits import renumbered
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

TRAIN_DRIVES = 11
TEST_DRIVES = 6
"""Drives of the test set, none of which any silo holds."""
TRAIN_IMAGES = 3300
"""Training frames unless ``data.train_images`` says otherwise: 300 of each drive."""
TEST_IMAGES = 600
BLOCK = 50
"""Frames of a stretch of time."""
SIDE_PX = 64

LOOK_AHEAD_M = 12.0
WHEELBASE_M = 2.7
FULL_LOCK_RAD = 0.25
"""Angle of the front wheels that counts as 1."""


@dataclass(frozen=True, kw_only=True)
class Road:
    """Drives on roads drawn by the program, grey, with the steering angle of every frame."""

    name: ClassVar[str] = "road"
    source: ClassVar[str] = "built in"
    targets: ClassVar[str] = "steering angles"

    def load(self, data: DataSettings, streams: Streams) -> SteeringSet:
        """Return the set; every drive comes from a stream of its own."""
        side_px = data.image_px or SIDE_PX
        train = _drives(data.train_images or TRAIN_IMAGES, TRAIN_DRIVES, side_px, streams.child("road", "train"))
        test = _drives(data.test_images or TEST_IMAGES, TEST_DRIVES, side_px, streams.child("road", "test"))
        lengths = [len(angles) for _, angles in train]
        drives = np.repeat(np.arange(len(train)), lengths)
        frames = np.concatenate([np.arange(length) for length in lengths])
        return SteeringSet(
            name=self.name,
            train=_joined(train, 0)[:, None],
            train_angles=_joined(train, 1),
            train_drives=torch.from_numpy(drives),
            train_blocks=torch.from_numpy(renumbered(drives * len(drives) + frames // BLOCK)),
            test=_joined(test, 0)[:, None],
            test_angles=_joined(test, 1),
        )


def steering_angle(aside_m: Doubles) -> Doubles:
    """Return the steering angle in [-1, 1], to the right positive, that leads to a point LOOK_AHEAD_M ahead.

    The arc through the point x to the right and z ahead has curvature 2 x / (x^2 + z^2) (Coulter 1992), and a car of
    wheelbase B follows curvature k with its front wheels at arctan(B k); FULL_LOCK_RAD is 1, and more is cut.

    ``aside_m`` is how far to the right of the car's axis the point lies (m).
    """
    curvature = 2 * aside_m / (np.square(aside_m) + LOOK_AHEAD_M**2)
    return np.clip(np.arctan(WHEELBASE_M * curvature) / FULL_LOCK_RAD, -1, 1)


def drive(
    generator: np.random.Generator, frames: int, *, side_px: int = SIDE_PX
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return the frames of a new drive in order, shape (N, P, P), and their steering angles, shape (N,)."""
    course = Course.draw(generator, frames=frames, step_m=generator.uniform(1.5, 2.5))
    target_m = course.middle_m(np.full((frames, 1), LOOK_AHEAD_M))[:, 0]
    images = render(World(generator), course, generator, side_px=side_px)
    return images, steering_angle(target_m).astype(np.float32)


def _drives(
    count: int, drives: int, side_px: int, streams: Streams
) -> list[tuple[NDArray[np.uint8], NDArray[np.float32]]]:
    """Return ``count`` frames, dealt as evenly as can be over at most so many drives."""
    drives = min(drives, count)
    return [
        drive(streams.generator(number), count // drives + (number < count % drives), side_px=side_px)
        for number in range(drives)
    ]


def _joined(drives: list[tuple[NDArray[np.uint8], NDArray[np.float32]]], part: int) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([drive[part] for drive in drives]))
