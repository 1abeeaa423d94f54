"""Stand-ins for sets of files in runs without training: as many black images with their classes.

Payload and work of a participation depend on the size of images and on the numbers of classes and of a silo's images.
For CIFAR-10 and GTSRB these are known; for other files they are assumed.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from learners.data.sets import ImageSet, SteeringSet
from learners.data.splits import BLOCK, Indices, renumber, take_first
from vnetsim.experiment import DataSettings
from vnetsim.learner_facts import NOT_READ

_GTSRB = (
    210, 2220, 2250, 1410, 1980, 1860, 420, 1440, 1410, 1470, 2010, 1320, 2100, 2160, 780,
    630, 420, 1110, 1200, 210, 360, 330, 390, 510, 270, 1500, 600, 240, 540, 270,
    450, 780, 240, 689, 420, 1200, 390, 210, 2070, 300, 360, 240, 240,
)  # fmt: skip
"""Training images of each class (Stallkamp et al. 2012), 30 of each sign."""
_GTSRB_SIGN, _GTSRB_TEST = 30, 12_630
_IMAGES, _TEST_IMAGES, _CLASSES, _SIDE_PX = 10_000, 2_000, 10, 32
_FRAMES, _TEST_FRAMES, _DRIVES, _FRAME_PX = 3_300, 600, 11, 64
FILES = ("cifar10", "gtsrb", "npz", "folder", "steering-npz", "driving-log")
"""Sets that are read from files."""


def make_stand_in(data: DataSettings, needs: Literal["classes", "steering angles"]) -> ImageSet | SteeringSet:
    """Return a set of black images in place of one of ``FILES`` without ``data.root``, or of traffic not yet recorded.

    InputError if more images are asked for than the set is known to have.
    """
    return _black_image_set(data) if needs == "classes" else _black_steering_set(data)


def _black_image_set(data: DataSettings) -> ImageSet:
    """Return black images with invented labels, in size and classes as CIFAR-10 or GTSRB, assumed for other sets."""
    groups, known = None, True
    if data.name == "cifar10":
        labels, tested, side_px = np.arange(50_000) % 10, 10_000, _SIDE_PX
    elif data.name == "gtsrb":
        within = [(label, image, count) for label, count in enumerate(_GTSRB) for image in range(count)]
        mixed = np.array(sorted(within, key=lambda one: (one[1] + 0.5) / one[2]))  # the first few have all classes
        labels, groups = mixed[:, 0], mixed[:, 0] * 100 + mixed[:, 1] // _GTSRB_SIGN
        tested, side_px = _GTSRB_TEST, data.image_px or _SIDE_PX
    else:
        labels, tested = np.arange(data.train_images or _IMAGES) % _CLASSES, data.test_images or _TEST_IMAGES
        side_px, known = data.image_px or _SIDE_PX, False
    classes = int(labels.max()) + 1
    train, test = take_first(np.arange(len(labels)), np.arange(tested), data)
    return black_set(
        data.name,
        labels[train],
        test % classes,
        side_px,
        class_names=tuple(map(str, range(classes))),
        train_groups=None if groups is None else torch.from_numpy(groups[train]),
        facts=_describe(data, f"{len(train):,} images of {classes} classes, {side_px} px wide", known=known),
    )


def black_set(name: str, train_labels: Indices, test_labels: Indices, side_px: int, **more: Any) -> ImageSet:
    """Return black images of these classes, ``side_px`` wide and high; ``more`` are other arguments of ``ImageSet``."""
    return ImageSet(
        name=name,
        train=black_images(len(train_labels), 3, side_px),
        train_labels=torch.from_numpy(train_labels),
        test=black_images(len(test_labels), 3, side_px),
        test_labels=torch.from_numpy(test_labels),
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        **more,
    )


def _black_steering_set(data: DataSettings) -> SteeringSet:
    """Return black frames, with assumed numbers, drives and blocks, and angles from -1 to 1."""
    count = data.train_images or _FRAMES
    drives = np.arange(count) * _DRIVES // count
    blocks: Indices = np.arange(count) // BLOCK + drives * count
    side_px = data.image_px or _FRAME_PX
    return SteeringSet(
        name=data.name,
        train=black_images(count, 1, side_px),
        train_angles=torch.linspace(-1, 1, count),
        train_drives=torch.from_numpy(drives),
        train_blocks=torch.from_numpy(renumber(blocks)),
        test=black_images(data.test_images or _TEST_FRAMES, 1, side_px),
        test_angles=torch.linspace(-1, 1, data.test_images or _TEST_FRAMES),
        facts=_describe(data, f"{count:,} frames of {_DRIVES} drives, {side_px} px wide", known=False),
    )


def _describe(data: DataSettings, images: str, *, known: bool) -> dict[str, str]:
    """Return {NOT_READ: a sentence for manifest and report}; ``known``: whether the set's numbers are known."""
    taken = "the set's" if known else "an assumed"
    fact = f"data.root is empty, so no image of {data.name} was read; payload and work are those of {taken} {images}"
    return {NOT_READ: fact}


def black_images(count: int, channels: int, side_px: int) -> Tensor:
    """Return black images, shape (count, channels, side_px, side_px): views of one byte, not to be written to."""
    return torch.zeros((1, 1, 1, 1), dtype=torch.uint8).expand(count, channels, side_px, side_px)
