"""A procedural traffic-sign set: ten classes, 32 x 32 RGB, made from a seed.

A sign of random size, place, tilt, turn and wear stands on a pole before a roadside scene, may be partly hidden, and is
seen in random light by a noisy camera. It needs no download and no file, and is hard enough for learning to show:
raw pixels hardly separate the classes, a small convolutional network does.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from learners.data.sets import ImageSet, channel_statistics
from learners.data.sign_designs import DESIGNS, PAINTS, Floats
from learners.data.street import SIDE_PX, cover, expose, occlude, scene, uniform
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

TRAIN_IMAGES = 9500
"""Training images unless ``data.train_images`` says otherwise: 100 for each of 95 silos."""
TEST_IMAGES = 2000
_CHUNK = 250
_Y: Floats
_X: Floats
_Y, _X = np.mgrid[0:SIDE_PX, 0:SIDE_PX].astype(np.float32)


def load(data: DataSettings, *, streams: Streams) -> ImageSet:
    """Return the sign set; training and test images come from streams of their own.

    Args:
        data: ``train_images`` and ``test_images``; 0 takes the defaults.
        streams: where the draws come from.
    """
    train, train_labels = generate(data.train_images or TRAIN_IMAGES, streams.generator("signs", "train"))
    test, test_labels = generate(data.test_images or TEST_IMAGES, streams.generator("signs", "test"))
    images = torch.from_numpy(train)
    mean, std = channel_statistics(images)
    return ImageSet(
        name="signs",
        train=images,
        train_labels=torch.from_numpy(train_labels),
        test=torch.from_numpy(test),
        test_labels=torch.from_numpy(test_labels),
        class_names=tuple(DESIGNS),
        mean=mean,
        std=std,
    )


def generate(count: int, generator: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return ``count`` images (N, 3, 32, 32) and their classes (N,), as even as ``count`` allows, in random order."""
    labels = generator.permutation(np.arange(count) % len(DESIGNS))
    images = np.empty((count, 3, SIDE_PX, SIDE_PX), dtype=np.uint8)
    for label, name in enumerate(DESIGNS):
        members = np.flatnonzero(labels == label)
        for start in range(0, len(members), _CHUNK):  # small enough to stay in the processor's cache
            chunk = members[start : start + _CHUNK]
            images[chunk] = np.rint(_render(name, len(chunk), generator)).astype(np.uint8)
    return images, labels


def _render(name: str, count: int, generator: np.random.Generator) -> Floats:
    """Return images of one class, in [0, 255], shape (N, 3, H, W)."""
    image = scene(generator, count)
    u, v, softness = _pose(generator, count)
    pole = np.maximum(np.abs(u) - np.float32(0.075), -v)
    cover(
        image, np.clip(0.5 - pole / softness, 0, 1), uniform(generator, 0.35, 0.65, count, 1) * np.ones(3, np.float32)
    )
    fading = uniform(generator, 0, 0.25, count, 1)
    for distance, paint in DESIGNS[name](u, v, generator):
        colour = np.array(PAINTS[paint], dtype=np.float32) + uniform(generator, -0.05, 0.05, count, 3)
        cover(image, np.clip(0.5 - distance / softness, 0, 1), colour + fading * (np.float32(0.6) - colour))
    occlude(generator, image)
    return expose(generator, image)


def _pose(generator: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """Draw how each sign stands; return its coordinates at every pixel and a pixel's size in them."""
    radius = uniform(generator, 7.5, 13.5, count, 1, 1)
    reach = 16 - np.float32(0.85) * radius
    x = _X - 15.5 - reach * uniform(generator, -1, 1, count, 1, 1)
    y = _Y - 15.5 - reach * uniform(generator, -1, 1, count, 1, 1)
    tilt = np.clip(generator.standard_normal((count, 1, 1), dtype=np.float32), -2, 2) * np.float32(np.deg2rad(8))
    turn = uniform(generator, 0.65, 1, count, 1, 1)  # cosine of the angle by which the sign faces away
    u = (np.cos(tilt) * x + np.sin(tilt) * y) / (radius * turn)
    v = (np.cos(tilt) * y - np.sin(tilt) * x) / radius + uniform(generator, -0.12, 0.12, count, 1, 1) * u
    return u, v, np.reciprocal(radius * np.sqrt(turn))
