"""Tiny sets, which the learners get instead of real ones: images of three colours, and roads that are a bright line."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from learners.data.augment import NUMBERS_ONE, NUMBERS_TWO, apply_view, first_view_draws, second_view_draws
from learners.data.sets import ImageSet, SteeringSet, channel_statistics

SILOS = 6
Channel = tuple[float, ...]


def tiny_images(train: int = 96, test: int = 24) -> ImageSet:
    """Return noisy images of 16 x 16 whose brightest channel is their class."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(train + test) % 3
    images = torch.randint(0, 120, (train + test, 3, 16, 16), generator=generator, dtype=torch.uint8)
    images[torch.arange(train + test), labels] += 100
    mean, std = channel_statistics(images[:train])
    return ImageSet(
        name="tiny",
        train=images[:train],
        train_labels=labels[:train],
        test=images[train:],
        test_labels=labels[train:],
        class_names=("red", "green", "blue"),
        mean=mean,
        std=std,
    )


def tiny_roads(train: int = 96, test: int = 24) -> SteeringSet:
    """Return noisy frames of 16 x 16 with a bright vertical line at a place that is their steering angle."""
    generator = torch.Generator().manual_seed(6)
    angles = torch.rand(train + test, generator=generator) * 2 - 1
    frames = torch.randint(0, 60, (train + test, 1, 16, 16), generator=generator, dtype=torch.uint8)
    frames[torch.arange(train + test), 0, :, ((angles + 1) * 7.5).round().to(torch.int64)] += 180
    drives = torch.arange(train) // (train // SILOS)
    return SteeringSet(
        name="tiny",
        train=frames[:train],
        train_angles=angles[:train],
        train_drives=drives,
        train_blocks=drives,
        test=frames[train:],
        test_angles=angles[train:],
    )


def draw_view_one(count: int, size: Sequence[int], generator: Generator) -> dict[str, Tensor]:
    """Return the draws of first views of a batch."""
    numbers = torch.rand(1, NUMBERS_ONE * count, generator=generator)
    return {name: one[0] for name, one in first_view_draws(numbers, size).items()}


def draw_view_two(count: int, size: Sequence[int], generator: Generator) -> dict[str, Tensor]:
    """Return the draws of second views of a batch."""
    numbers = torch.rand(1, NUMBERS_TWO * count, generator=generator)
    return {name: one[0] for name, one in second_view_draws(numbers, size).items()}


def view_one(images: Tensor, generator: Generator, mean: Channel = (0.0,) * 3, std: Channel = (1.0,) * 3) -> Tensor:
    """Return newly drawn first views of images (N, 3, H, W)."""
    return apply_view(images, draw_view_one(len(images), images.shape[-2:], generator), mean, std)


def view_two(images: Tensor, generator: Generator, mean: Channel = (0.0,) * 3, std: Channel = (1.0,) * 3) -> Tensor:
    """Return newly drawn second views of images (N, 3, H, W)."""
    return apply_view(images, draw_view_two(len(images), images.shape[-2:], generator), mean, std)
