"""Archives of road images with steering angles, in the layout of the CDL and FADNet authors.

``imgs`` are the images (``images_of_array`` says in which forms), ``ground_truths`` their angles in [-1, 1], shape (N,)
or (N, K); of K columns the first is the angle.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from learners.data.image_files import existing, images_of_array, read_archive
from learners.data.sets import SteeringSet
from learners.data.splits import TEST_SHARE, first, renumbered, split_by_time
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

SIDE_PX = 64


@dataclass(frozen=True, kw_only=True)
class SteeringNpz:
    """An archive of frames, ``imgs``, and steering angles, ``ground_truths``; or a folder of them, each a drive."""

    name: ClassVar[str] = "steering-npz"
    source: ClassVar[str] = "layout: Do et al. (2023), arXiv:2303.06305, published code"
    targets: ClassVar[str] = "steering angles"

    def load(self, data: DataSettings, streams: Streams) -> SteeringSet:
        """Return the frames of ``data.root``, split by stretches of time (``split_by_time``).

        Raises:
            InputError: when an archive is missing or damaged, or does not hold images and angles.
        """
        path = existing(data.root, self.name, "an .npz archive or a folder of them")
        archives = sorted(path.glob("*.npz")) if path.is_dir() else [path]
        if not archives:
            raise InputError(f"data.root: there is no .npz archive in '{path}'.")
        recordings = [_read(archive, data.image_px or SIDE_PX) for archive in archives]
        images = np.concatenate([recording[0] for recording in recordings])
        angles = np.concatenate([recording[1] for recording in recordings])
        drives = np.repeat(np.arange(len(recordings)), [len(recording[1]) for recording in recordings])
        train, test, blocks = split_by_time(drives, TEST_SHARE, streams.generator("steering-npz", "test blocks"))
        train = first(train, data.train_images, key="data.train_images", name=self.name)
        test = first(test, data.test_images, key="data.test_images", name=self.name)
        return SteeringSet(
            name=self.name,
            train=torch.from_numpy(images[train]),
            train_angles=torch.from_numpy(angles[train]),
            train_drives=torch.from_numpy(renumbered(drives[train])),
            train_blocks=torch.from_numpy(renumbered(blocks[train])),
            test=torch.from_numpy(images[test]),
            test_angles=torch.from_numpy(angles[test]),
        )


def _read(path: Path, side_px: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return images (N, 1, P, P) and angles (N,) of one archive."""
    arrays = read_archive(path, ("imgs", "ground_truths"))
    images = images_of_array(arrays["imgs"], grey=True, side_px=side_px, where=f"{path}: imgs")
    angles = arrays["ground_truths"]
    where = f"{path}: ground_truths"
    if angles.dtype.kind not in "iuf" or angles.ndim not in {1, 2} or 0 in angles.shape[1:]:
        raise InputError(f"{where}: {angles.dtype} of shape {angles.shape} are not angles: numbers, (N,) or (N, K).")
    angles = angles if angles.ndim == 1 else angles[:, 0]
    if len(angles) != len(images):
        raise InputError(f"{where}: {len(angles)} angles for {len(images)} images in imgs.")
    wrong = np.flatnonzero(~(np.abs(angles) <= 1))  # NaN too
    if len(wrong):
        raise InputError(
            f"{where}: {len(wrong)} of {len(angles)} angles are not in [-1, 1], the first is {angles[wrong[0]]}"
            f" at {wrong[0]}."
        )
    return images, angles.astype(np.float32)
