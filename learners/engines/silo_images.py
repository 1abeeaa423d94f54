"""The vehicles' images: one pool on the device, divided among silos, blurred by the speed of the vehicle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.data.motion import motion_blur
from learners.data.moving import has_fixed_shapes, to_device
from learners.engines.programs import LocalTraining
from vnetsim.errors import InputError, RunError


class SiloImages:
    """Training images on the device, once and as uint8, and the rows of each silo.

    Args:
        images: ``pool``, uint8 of shape (N, C, H, W); RunError if it does not fit on the device.
        indices: ``rows``, the pool's rows of each silo, disjoint. InputError if a silo has fewer than 2: a contrastive
            loss would have no negative, and batch normalisation no variance.
        device: device of the pool.
        kernels_px: the length of each image's own blur, on the CPU, shape (N,); None if the speed of the vehicle that
            trains decides it.
        times_s: when each image was taken (s), on the CPU, shape (N,); None if it was there from the beginning.
    """

    def __init__(
        self,
        images: Tensor,
        indices: Sequence[NDArray[np.int64]],
        *,
        device: torch.device,
        kernels_px: Tensor | None = None,
        times_s: Tensor | None = None,
    ) -> None:
        for silo, rows in enumerate(indices):
            if len(rows) < 2:
                raise InputError(
                    f"silo {silo} holds {len(rows)} images and needs at least 2: "
                    "raise data.min_images or data.train_images, or lower silos.count."
                )
        self.device, self.rows, self._kernels_px = device, indices, kernels_px
        try:
            self.pool = images.to(device)
        except torch.OutOfMemoryError as error:
            size = images.numel() / 1e9
            raise RunError(
                f"out of memory: the images ({size:.3g} GB) do not fit on {device}; lower data.train_images."
            ) from error
        self._indices = [torch.as_tensor(rows, dtype=torch.int64) for rows in indices]
        self._times_s = None if times_s is None else [times_s[rows] for rows in self._indices]
        # of each silo's rows, how many were taken before
        self._ranks = [torch.argsort(torch.argsort(times, stable=True)) for times in self._times_s or ()]

    def size(self, silo: int) -> int:
        """Return the number of images of ``silo``."""
        return len(self._indices[silo])

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of images of every silo."""
        return tuple(len(rows) for rows in self._indices)

    def label_counts(self, labels: Tensor, classes: int) -> NDArray[np.int64]:
        """Return the number of images by silo and class, shape (silos, classes), given the labels of the pool, (N,)."""
        counts = [torch.bincount(labels[rows], minlength=classes) for rows in self._indices]
        return torch.stack(counts).numpy()

    def draw(self, training: LocalTraining, count: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        """Yield the draws of each step: ``rows`` of the pool, int64, and ``kernel_px``, each image's blur, 0 for none.

        Both are on the CPU, of shape (min(count, n),), drawn without replacement from the vehicle's n images: those
        that its silo had until ``until_s``, but at least the ``count`` earliest. The first images of each earlier silo
        replace some of them, by its share. The first ``blurred_fraction`` of the images of each silo blur.
        """
        own = self._taken(training.silo, training.until_s, count)
        earlier = [(self._taken(silo, training.until_s, count), share) for silo, share in training.earlier]
        parts = [rows[: round(share * len(own))] for rows, share in earlier]
        parts = [own[: max(0, len(own) - sum(map(len, parts)))], *parts]
        blurs = torch.cat([torch.arange(len(part)) < training.blurred_fraction * len(part) for part in parts])
        rows = torch.cat(parts)
        lengths_px = torch.where(blurs, training.kernel_px if self._kernels_px is None else self._kernels_px[rows], 0.0)
        for _ in range(training.steps):
            positions = torch.randperm(len(own), generator=generator)[:count]
            yield {"rows": rows[positions], "kernel_px": lengths_px[positions]}

    def _taken(self, silo: int, until_s: float, least: int) -> Tensor:
        """Return a silo's rows taken until a time (s), at least the ``least`` earliest; all if times are unknown."""
        rows = self._indices[silo]
        if self._times_s is None or until_s == math.inf:
            return rows
        taken = int((self._times_s[silo] <= until_s).sum())
        return rows[self._ranks[silo] < max(taken, least)]

    def images(self, drawn: Mapping[str, Tensor]) -> Tensor:
        """Return the images of a step of ``draw``, blurred, float in [0, 1] on the device, shape (B, C, H, W)."""
        there = to_device({name: drawn[name] for name in ("rows", "kernel_px")}, self.device)
        images = self.pool[there["rows"]].to(torch.float32) / 255
        if not has_fixed_shapes(self.device) and not (drawn["kernel_px"] > 1).any():
            return images
        return motion_blur(images, there["kernel_px"])
