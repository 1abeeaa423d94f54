"""A labelled image set held in memory: what every learner of images starts from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vnetsim.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """Training and test images with their labels, on the CPU.

    Args:
        name: name of the set, as ``data.name`` has it.
        train: training images, uint8, shape (N, 3, H, W).
        train_labels: their classes, int64, shape (N,).
        test: test images that no silo ever holds, uint8, shape (M, 3, H, W).
        test_labels: their classes, int64, shape (M,).
        class_names: label texts, in order of the class index.
        mean: mean of each channel over the training images scaled to [0, 1].
        std: standard deviation of each channel, likewise.
        pixels: how pixels of more than 8 bits came to 8, for the record; empty where there were none.
    """

    name: str
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    pixels: str = ""

    def __post_init__(self) -> None:
        require_images(self.train, 3)
        require_images(self.test, 3)


def require_images(images: Tensor, channels: int) -> None:
    """Refuse what is no stack of images as learners take them.

    Raises:
        ValueError: another type than uint8, or another shape than (N, channels, H, W).
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != channels:
        raise ValueError(
            f"images are {images.dtype} of shape {tuple(images.shape)}, expected torch.uint8 (0 to 255) of shape "
            f"(N, {channels}, H, W)"
        )


def channel_statistics(images: Tensor) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Return mean and standard deviation of each channel of images scaled to [0, 1].

    Exact in integers up to the last division, so the same on every machine.

    Args:
        images: uint8, shape (N, 3, H, W), N >= 1.

    Raises:
        InputError: when a channel is constant, because it cannot be normalised.
    """
    require_images(images, 3)
    means: list[float] = []
    deviations: list[float] = []
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
        means.append(first / total / 255)
        deviations.append(variance_numerator**0.5 / total / 255)
    return (means[0], means[1], means[2]), (deviations[0], deviations[1], deviations[2])
