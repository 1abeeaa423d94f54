"""Stand-ins for sets of files in runs without training: as many black images with their classes.

Payload and work of a participation depend on the size of images and on the numbers of classes and of a silo's images.
For CIFAR-10 and GTSRB these are known; for other files they are assumed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.data.sets import ImageSet, SteeringSet
from learners.data.splits import BLOCK, Indices, take_first
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


def unread(data: DataSettings, needs: str) -> ImageSet | SteeringSet:
    """Return the stand-in for one of ``FILES`` without ``data.root``, or for a set of traffic not yet recorded.

    ``needs`` is "classes" or "steering angles". InputError if more images are asked for than the set has.
    """
    return _images(data) if needs == "classes" else _frames(data)


def _images(data: DataSettings) -> ImageSet:
    """Return black images with the classes of a set; for sets other than CIFAR-10 and GTSRB the classes are assumed."""
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
        facts={NOT_READ: _words(data, f"{len(train):,} images of {classes} classes, {side_px} px wide", known=known)},
    )


def black_set(name: str, train_labels: Indices, test_labels: Indices, side_px: int, **more: Any) -> ImageSet:
    """Return black images of these classes, shape (N, 3, ``side_px``, ``side_px``); ``more`` is as of ``ImageSet``."""
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


def _frames(data: DataSettings) -> SteeringSet:
    """Return black frames in place of unread ones, with assumed drives, blocks, and angles from -1 to 1."""
    count = data.train_images or _FRAMES
    drives = np.arange(count) * _DRIVES // count
    blocks: NDArray[np.int64] = np.arange(count) // BLOCK + drives * count
    side_px = data.image_px or _FRAME_PX
    return SteeringSet(
        name=data.name,
        train=black_images(count, 1, side_px),
        train_angles=torch.linspace(-1, 1, count),
        train_drives=torch.from_numpy(drives),
        train_blocks=torch.from_numpy(np.unique(blocks, return_inverse=True)[1]),
        test=black_images(data.test_images or _TEST_FRAMES, 1, side_px),
        test_angles=torch.linspace(-1, 1, data.test_images or _TEST_FRAMES),
        facts={NOT_READ: _words(data, f"{count:,} frames of {_DRIVES} drives, {side_px} px wide", known=False)},
    )


def _words(data: DataSettings, images: str, *, known: bool) -> str:
    """Return a sentence for manifest and report on the stand-in; ``known``: whether the set's size is known."""
    taken = "the set's" if known else "an assumed"
    return f"data.root is empty, so no image of {data.name} was read; payload and work are those of {taken} {images}"


def black_images(count: int, channels: int, side_px: int) -> Tensor:
    """Return black images, shape (count, channels, side_px, side_px), which take no memory."""
    return torch.zeros((1, 1, 1, 1), dtype=torch.uint8).expand(count, channels, side_px, side_px)
