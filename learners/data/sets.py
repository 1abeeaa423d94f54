"""Sets of images in memory, with classes or with steering angles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vnetsim.errors import InputError

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images, shape (N, 3, P, P), and their classes, shape (N,)."""


class Film(NamedTuple):
    """Frames of some vehicles, to show: N in all, vehicle after vehicle in order of time; columns of shape (N,)."""

    vehicles: Sequence[str]  # ids of the vehicles that have frames
    mean_mps: NDArray[np.float64]  # mean speed of each of them (m/s)
    path: NDArray[np.int64]  # index in ``vehicles`` of each frame's vehicle
    images: Tensor  # uint8, not blurred, shape (N, C, H, W)
    time_s: NDArray[np.float64]  # when each frame was taken (s)
    speed_mps: NDArray[np.float64]  # the vehicle's speed then (m/s)
    label: NDArray[np.float64]  # class, -1 for none, or steering angle, NaN for none


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pictures:
    """Fields of both kinds of sets; see ``ImageSet``."""

    channels: ClassVar[int]

    name: str
    train: Tensor
    test: Tensor
    train_silos: Tensor | None = None
    train_speeds_mps: Tensor | None = None
    train_times_s: Tensor | None = None
    train_at_m: Tensor | None = None
    film: Callable[[Sequence[str], float], Film] | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError unless both parts are uint8 images with ``channels`` channels."""
        require_images(self.train, self.channels)
        require_images(self.test, self.channels)


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet(_Pictures):
    """Training and test images with their labels, on the CPU.

    Args:
        name: name of the set, as in ``data.name``.
        train: training images, uint8, shape (N, 3, H, W).
        train_labels: their classes, int64, shape (N,).
        test: test images that no silo has, uint8, shape (M, 3, H, W).
        test_labels: their classes, int64, shape (M,).
        class_names: label texts, in order of the class index.
        mean: mean of each channel over the training images scaled to [0, 1].
        std: standard deviation of each channel over the same.
        train_groups: training images of one number, all of one class, go to one silo; int64, shape (N,). None without.
        train_names: a name of each training image that does not depend on random draws, or empty to use its number.
        test_names: likewise of the test images.
        train_silos: the silo of each training image, for ``data.partition = "vehicle"``; None if the set has none.
        train_speeds_mps: the speed (m/s) at which each training image was taken, which alone blurs it; None if the
            speed of the vehicle that trains on it does.
        train_times_s: when each training image was taken (s); vehicles that train earlier do not have it. None if all
            are there from the beginning.
        train_at_m: x and y of the vehicle at each training image (m), shape (N, 2); None if vehicles did not take them.
        train_angles: the vehicle's steering angle at each training image, NaN if unknown, float32, shape (N,); None if
            vehicles did not take them.
        film: returns frames of given vehicles, up to a time (s); None if vehicles did not take the images.
        facts: further lines on the set for manifest and report, by title.
    """

    channels = 3

    train_labels: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    train_groups: Tensor | None = None
    train_names: tuple[str, ...] = ()
    test_names: tuple[str, ...] = ()
    train_angles: Tensor | None = None


def require_images(images: Tensor, channels: int) -> None:
    """Raise ValueError unless images are uint8 of shape (N, channels, H, W)."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != channels:
        raise ValueError(
            f"images are {images.dtype} of shape {tuple(images.shape)}, expected torch.uint8 (0 to 255) of shape "
            f"(N, {channels}, H, W)"
        )


def channel_statistics(images: Tensor) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Return mean and standard deviation of each channel of uint8 images (N, 3, H, W), N >= 1, scaled to [0, 1].

    Sums are exact integers, so the result is the same on every machine. InputError if a channel is constant.
    """
    require_images(images, 3)
    means, deviations = [0.0] * 3, [0.0] * 3
    levels = torch.arange(256, dtype=torch.int64)
    for channel in range(3):
        counts = torch.bincount(images[:, channel].flatten(), minlength=256)
        total = int(counts.sum())
        first, second = int((counts * levels).sum()), int((counts * levels * levels).sum())
        variance_numerator = total * second - first * first
        if variance_numerator <= 0:
            raise InputError(
                f"data: channel {channel} has one value in all {len(images)} training images; use more images."
            )
        means[channel], deviations[channel] = first / total / 255, variance_numerator**0.5 / total / 255
    return (means[0], means[1], means[2]), (deviations[0], deviations[1], deviations[2])


@dataclass(frozen=True, kw_only=True, eq=False)
class SteeringSet(_Pictures):
    """Training and test frames with their steering angles, on the CPU; arguments not listed are as of ``ImageSet``.

    Test frames are whole drives, or stretches of time with a gap before and after, so that none is a close neighbour of
    a training frame.

    Args:
        train: training frames, uint8, shape (N, 1, H, W).
        train_angles: their steering angles in [-1, 1], left negative, float32, shape (N,).
        train_drives: the drive of each frame, int64, shape (N,).
        train_blocks: the stretch of time of each frame, int64, shape (N,); a block is consecutive frames of one drive.
        test: frames that no silo has, uint8, shape (M, 1, H, W).
        test_angles: their steering angles, float32, shape (M,).
    """

    channels = 1

    train_angles: Tensor
    train_drives: Tensor
    train_blocks: Tensor
    test_angles: Tensor


def classed_set(
    name: str,
    root: str,
    *,
    train: Part,
    test: Part,
    class_names: tuple[str, ...],
    train_groups: NDArray[np.int64] | None = None,
    **more: Any,
) -> ImageSet:
    """Return an ImageSet with its channels' statistics; ``more`` are further arguments of ``ImageSet``.

    InputError if the training images, read from ``root``, have fewer than two classes or a constant channel, or there
    are no test images.
    """
    present = [class_names[label] for label in np.unique(train[1])]
    if len(present) < 2:
        raise InputError(
            f"data.root: the {len(train[1])} training images of '{root}' are of"
            f" {f'one class, {present[0]}' if present else 'no class'}; learning needs at least two classes."
        )
    if len(test[1]) == 0:
        raise InputError(f"data.root: '{root}' has no test images.")
    images = torch.from_numpy(train[0])
    mean, std = channel_statistics(images)
    return ImageSet(
        name=name,
        train=images,
        train_labels=torch.from_numpy(train[1]),
        test=torch.from_numpy(test[0]),
        test_labels=torch.from_numpy(test[1]),
        class_names=class_names,
        mean=mean,
        std=std,
        train_groups=None if train_groups is None else torch.from_numpy(train_groups),
        **more,
    )
