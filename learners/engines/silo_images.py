"""The vehicles' images: one pool on the device, dealt to silos, blurred by the speed of whoever carries them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.data.motion import motion_blur
from learners.data.moving import moved
from learners.engines.programs import LocalTraining
from vnetsim.errors import InputError
from vnetsim.learning import LearnerContext

LOGGER = logging.getLogger(__name__)


class SiloImages:
    """Training images on the device, once and as uint8, and which of them each silo holds.

    Args:
        images: the pool, uint8 of shape (N, C, H, W).
        indices: the pool's rows that each silo holds, disjoint, at least 2 per silo.
        device: where the pool lies. When it does not fit there, it stays in this machine's memory, pinned, the images
            of each step are copied as they are needed, and a warning is logged.

    Attributes:
        pool: the images, on the device where they fit.
        resident: whether they do.

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
        self.pool, self.resident = _pool(images, device)
        self._indices = [torch.as_tensor(rows, dtype=torch.int64) for rows in indices]

    @property
    def image_px(self) -> int:
        """Width of an image (px)."""
        return int(self.pool.shape[3])

    def size(self, silo: int) -> int:
        """Return the number of images that ``silo`` holds."""
        return len(self._indices[silo])

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of images of every silo."""
        return tuple(len(rows) for rows in self._indices)

    def label_counts(self, labels: Tensor, classes: int) -> NDArray[np.int64]:
        """Return the number of images per silo and class, shape (silos, classes), given the pool's labels (N,)."""
        counts = [torch.bincount(labels[rows], minlength=classes) for rows in self._indices]
        return torch.stack(counts).numpy()

    def draw(self, training: LocalTraining, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return which images of a vehicle's silo a step sees, and how long each is blurred, both on the CPU.

        They are drawn without replacement; a silo smaller than ``count`` gives all it has.

        Args:
            training: silo and blur; the first ``blurred_fraction`` of a silo's images blur.
            count: how many.
            generator: source of the draw, on the CPU.

        Returns:
            ``rows`` of the pool, int64, and ``kernel_px``, each of shape (min(count, size),).
        """
        held = self._indices[training.silo]
        positions = torch.randperm(len(held), generator=generator)[:count]
        blurs = positions < training.blurred_fraction * len(held)
        return {"rows": held[positions], "kernel_px": torch.where(blurs, training.kernel_px, 0.0)}

    def images(self, drawn: Mapping[str, Tensor]) -> Tensor:
        """Return drawn images as their vehicles see them, float in [0, 1] on the device, shape (B, C, H, W)."""
        rows, lengths = drawn["rows"], drawn["kernel_px"]
        sent = {"rows": rows} if self.resident else {"images": self.pool[rows]}
        there = moved({**sent, "lengths": lengths}, self.device)
        chosen = self.pool[there["rows"]] if self.resident else there["images"]
        images = chosen.to(torch.float32) / 255
        return motion_blur(images, there["lengths"]) if bool((lengths > 1).any()) else images


def _pool(images: Tensor, device: torch.device) -> tuple[Tensor, bool]:
    """Return the pool, and whether it lies on the device."""
    try:
        return images.to(device), True
    except torch.OutOfMemoryError:
        size = images.numel() / 1e9
        LOGGER.warning("vnetsim: the images (%.3g GB) do not fit on %s: they are copied step by step.", size, device)
        return images.pin_memory(), False


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
