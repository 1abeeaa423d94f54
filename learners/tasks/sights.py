"""Images that vehicles took, as the page shows them: frames along paths, and where each training image was taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.data.motion import motion_blur
from learners.data.sets import ImageSet
from vnetsim.learning import PathFrames, Sights
from vnetsim.learning.kinds import DATA_SETS
from vnetsim.plugins import plugin_errors

Kernels = Callable[[Tensor], Tensor]
"""Returns the length of the motion blur (px) of images taken at speeds (m/s), both of shape (N,)."""


def path_frames(data: Any, kernels_px: Kernels, vehicles: Sequence[str], until_s: float) -> PathFrames:
    """Return the vehicles' camera frames until a time (s), sharp, and blurred by each frame's speed."""
    with plugin_errors(DATA_SETS.name, data.name, "for the frames of vehicles"):
        film = data.film(vehicles, until_s)
    kernel_px = kernels_px(torch.from_numpy(film.speed_mps.astype(np.float32)))
    return PathFrames(
        vehicles=np.array(film.vehicles, dtype=np.str_),
        mean_mps=film.mean_mps,
        path=film.path,
        images=blurred(film.images, torch.zeros(len(kernel_px))),
        blurred=blurred(film.images, kernel_px),
        time_s=film.time_s,
        speed_mps=film.speed_mps,
        kernel_px=kernel_px.to(torch.float64).numpy(),
        label=film.label,
    )


def sights(data: Any, kernels_px: Kernels) -> Sights:
    """Return where the training images were taken, and what they show; the label is -1 in a set without classes."""
    kernel_px = kernels_px(data.train_speeds_mps)
    labels = data.train_labels if isinstance(data, ImageSet) else torch.full((len(kernel_px),), -1)
    return Sights(
        x_m=data.train_at_m[:, 0].numpy(),
        y_m=data.train_at_m[:, 1].numpy(),
        time_s=data.train_times_s.to(torch.float64).numpy(),
        speed_mps=data.train_speeds_mps.to(torch.float64).numpy(),
        kernel_px=kernel_px.to(torch.float64).numpy(),
        angle=data.train_angles.to(torch.float64).numpy(),
        label=labels.numpy(),
    )


def blurred(images: Tensor, kernel_px: Tensor) -> NDArray[np.uint8]:
    """Return uint8 images (N, C, H, W), each with its own blur, as (N, H, W, C)."""
    made = motion_blur(images.to(torch.float32) / 255, kernel_px).mul(255).round().to(torch.uint8)
    return made.permute(0, 2, 3, 1).contiguous().numpy()
