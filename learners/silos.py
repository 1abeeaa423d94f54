"""The vehicles' images: one pool on the device, dealt to silos, blurred by the speed of whoever carries them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.data.motion import motion_blur
from vnetsim.errors import InputError
from vnetsim.learning import LearnerContext


class Silos:
    """Training images on the device, once and as uint8, and which of them each silo holds.

    Args:
        images: the pool, uint8 of shape (N, C, H, W).
        indices: the pool's rows that each silo holds, disjoint, at least 2 per silo.
        device: where the pool lies.

    Raises:
        InputError: when a silo holds fewer than 2 images, which leaves a contrastive loss without a negative and batch
            normalisation without a spread.
    """

    def __init__(self, images: Tensor, indices: Sequence[NDArray[np.int64]], *, device: torch.device) -> None:
        for silo, rows in enumerate(indices):
            if len(rows) < 2:
                raise InputError(
                    f"silo {silo} holds {len(rows)} images and needs at least 2: "
                    "raise data.min_images or data.train_images, or lower silos.count."
                )
        self.device = device
        self._images = images.to(device)
        self._indices = [torch.as_tensor(rows, dtype=torch.int64, device=device) for rows in indices]

    @property
    def image_px(self) -> int:
        """Width of an image (px)."""
        return int(self._images.shape[3])

    def size(self, silo: int) -> int:
        """Return the number of images that ``silo`` holds."""
        return len(self._indices[silo])

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of images of every silo."""
        return tuple(len(rows) for rows in self._indices)

    def label_counts(self, labels: Tensor, classes: int) -> NDArray[np.int64]:
        """Return the number of images per silo and class, shape (silos, classes), given the pool's labels (N,)."""
        counts = [torch.bincount(labels[rows.cpu()], minlength=classes) for rows in self._indices]
        return torch.stack(counts).numpy()

    def draw(
        self, silo: int, count: int, *, kernel_px: float, blurred_fraction: float, generator: torch.Generator
    ) -> Tensor:
        """Return random images of a silo as its vehicle sees them, float in [0, 1], shape (min(count, size), C, H, W).

        See ``draw_with_rows``.
        """
        return self.draw_with_rows(
            silo, count, kernel_px=kernel_px, blurred_fraction=blurred_fraction, generator=generator
        )[0]

    def draw_with_rows(
        self, silo: int, count: int, *, kernel_px: float, blurred_fraction: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return random images of a silo and their rows in the pool, int64 of shape (min(count, size),).

        The images are as its vehicle sees them, float in [0, 1], shape (min(count, size), C, H, W). They are drawn
        without replacement; a silo smaller than ``count`` gives all it has.

        Args:
            silo: which.
            count: how many.
            kernel_px: length of the motion kernel (px); up to 1 px leaves images as they are.
            blurred_fraction: share of the silo that blurs, its first images.
            generator: source of the draw, on the pool's device.
        """
        held = self._indices[silo]
        positions = torch.randperm(len(held), generator=generator, device=self.device)[:count]
        rows = held[positions]
        images = self._images[rows].to(torch.float32) / 255
        if kernel_px > 1 and blurred_fraction > 0:
            lengths = torch.where(positions < blurred_fraction * len(held), kernel_px, 0.0)
            images = motion_blur(images, lengths)
        return images, rows


def kernel_px(context: LearnerContext, speed_mps: float, image_px: int) -> float:
    """Return the motion kernel's length (px) in images ``image_px`` wide at a speed (m/s), 0 up to the threshold."""
    blurs = speed_mps > context.blur.threshold_kmh / 3.6
    return context.camera.kernel_px(speed_mps, image_px) if blurs else 0.0


def blurred_samples(images: Tensor, kernels_px: Sequence[float]) -> NDArray[np.uint8]:
    """Return images, uint8 of shape (N, C, H, W), blurred with each kernel length: (len(kernels_px), N, H, W, C)."""
    sharp = images.to(torch.float32) / 255
    rows = [motion_blur(sharp, torch.full((len(sharp),), float(kernel))) for kernel in kernels_px]
    blurred = torch.stack(rows).mul(255).round().clamp(0, 255).to(torch.uint8)
    return blurred.permute(0, 1, 3, 4, 2).contiguous().numpy()
