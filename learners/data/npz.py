"""Archives of images with classes or steering angles: MedMNIST's layout, a plain one, and that of CDL's authors.

MedMNIST (Yang et al. 2023) has ``train_images``, ``train_labels``, ``test_images`` and ``test_labels``; its ``val_``
arrays are not used. The plain layout may name its classes in ``classes``, and a test set is held out of it. Labels are
whole numbers from 0, shape (N,) or (N, 1). For steering (CDL, FADNet), ``imgs`` are the images and ``ground_truths``
their angles in [-1, 1], shape (N,) or (N, K), the first of K columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learners.data.image_files import convert_images, join_first, read_archive, require_root
from learners.data.sets import ImageSet, SteeringSet, classed_set
from learners.data.splits import TEST_SHARE, Indices, renumber, split_by_class, split_by_time, take_first
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

SIDE_PX, FRAME_PX = 32, 64
_HIGHEST = 2**31
_PLAIN = ("images", "labels")
_MEDMNIST = ("train_images", "train_labels", "test_images", "test_labels")

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Npz:
    """An archive of images and labels, in MedMNIST's layout or a plain one."""

    name, targets, needs = "npz", "classes", ("data.root", "data.image_px")
    source = "layout: Yang et al. (2023): MedMNIST v2, arXiv:2110.14795"

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:
        """Return the images of the archive ``data.root``; InputError if it is damaged or has fewer than two classes.

        ``data.train_images`` and ``data.test_images`` above 0 take the first images: in the archive's order if it has a
        test set, otherwise in the random order of ``split_by_class``.
        """
        path = require_root(data.root, self.name, "an .npz archive")
        arrays = read_archive(path, _PLAIN, _MEDMNIST, optional=["classes"])
        classes = arrays.get("classes")
        of_train, of_test = (_PLAIN, _PLAIN) if "images" in arrays else (_MEDMNIST[:2], _MEDMNIST[2:])
        train_labels, test_labels = (_read_labels(arrays, *names, path) for names in (of_train, of_test))
        plain = of_train == of_test
        names = _class_names(classes, train_labels if plain else np.concatenate([train_labels, test_labels]), path)
        if plain:
            train, test = split_by_class(train_labels, TEST_SHARE, streams.generator("npz", "test images"))
        else:
            train, test = np.arange(len(train_labels)), np.arange(len(test_labels))
        train, test = take_first(train, test, data)

        def read_rows(name: str, rows: Indices) -> NDArray[np.uint8]:
            """Return the images ``rows`` of the array ``name``, uint8, resized to P x P."""
            side_px = data.image_px or SIDE_PX
            return convert_images(arrays[name][rows], grey=False, side_px=side_px, where=f"{path}: {name}")

        return classed_set(
            self.name,
            data.root,
            train=(read_rows(of_train[0], train), train_labels[train]),
            test=(read_rows(of_test[0], test), test_labels[test]),
            class_names=names,
            train_names=tuple(map(str, train)),
            test_names=tuple(map(str, test)),
        )


@dataclass(frozen=True, kw_only=True)
class SteeringNpz:
    """An archive of frames, ``imgs``, and steering angles, ``ground_truths``; or a folder of them, one per drive."""

    name, targets, needs = "steering-npz", "steering angles", ("data.root", "data.image_px")
    source = "layout: Do et al. (2023), arXiv:2303.06305, published code"

    def load(self, data: DataSettings, streams: Streams) -> SteeringSet:
        """Return the frames of ``data.root``, split by ``split_by_time``; of a folder, each archive is a drive.

        InputError if an archive is missing or damaged, or does not have images and angles.
        """
        path = require_root(data.root, self.name, "an .npz archive or a folder of them")
        archives = sorted(path.glob("*.npz")) if path.is_dir() else [path]
        if not archives:
            raise InputError(f"data.root: there is no .npz archive in '{path}'.")
        recordings = [_read_frames(archive, data.image_px or FRAME_PX) for archive in archives]
        images, angles = map(np.concatenate, zip(*recordings, strict=True))
        drives = np.repeat(np.arange(len(recordings)), [len(recording[1]) for recording in recordings])
        train, test, blocks = split_by_time(drives, TEST_SHARE, streams.generator("steering-npz", "test blocks"))
        train, test = take_first(train, test, data)
        return SteeringSet(
            name=self.name,
            train=torch.from_numpy(images[train]),
            train_angles=torch.from_numpy(angles[train]),
            train_drives=torch.from_numpy(renumber(drives[train])),
            train_blocks=torch.from_numpy(renumber(blocks[train])),
            test=torch.from_numpy(images[test]),
            test_angles=torch.from_numpy(angles[test]),
        )


def _read_labels(arrays: Arrays, images: str, name: str, path: Path) -> Indices:
    """Return the array ``name``, a label for each of ``images``, (N,); InputError for wrong type, shape or values."""
    labels, count = arrays[name], len(arrays[images]) if arrays[images].ndim else 0
    where = f"{path}: {name}"
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iub":
        raise InputError(f"{where}: {labels.dtype} of shape {labels.shape} are not whole numbers, (N,) or (N, 1).")
    if len(labels) != count:
        raise InputError(f"{where}: {len(labels)} labels for {count} images in {images}.")
    wrong = np.flatnonzero((labels < 0) | (labels > _HIGHEST))
    if len(wrong):
        raise InputError(f"{where}: label {labels[wrong[0]]} at {wrong[0]} is no class; they count from 0.")
    return labels.astype(np.int64)


def _class_names(classes: NDArray[Any] | None, labels: Indices, path: Path) -> tuple[str, ...]:
    """Return the names of ``classes``; for None, "0" to the highest label. InputError if a label is out of range."""
    highest = int(labels.max(initial=0))
    if classes is not None:
        names = tuple(str(name) for name in classes.ravel())
        if highest >= len(names):
            raise InputError(
                f"{path}: label {highest} at {labels.argmax()} is out of range for {len(names)} classes:"
                f" {join_first(names)}."
            )
        return names
    if highest >= max(len(labels), 1):
        raise InputError(f"{path}: label {highest} is out of range: {len(labels)} images cannot be of so many classes.")
    return tuple(str(label) for label in range(highest + 1))


def _read_frames(path: Path, side_px: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return grey images (N, 1, P, P) and angles (N,) of an archive; InputError for angles that are not in [-1, 1]."""
    arrays = read_archive(path, ("imgs", "ground_truths"))
    images = convert_images(arrays["imgs"], grey=True, side_px=side_px, where=f"{path}: imgs")
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
