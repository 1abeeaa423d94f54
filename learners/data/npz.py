"""Archives of images with classes: MedMNIST's layout, or plain ``images`` and ``labels``.

MedMNIST (Yang et al. 2023) has ``train_images``, ``train_labels``, ``test_images`` and ``test_labels``; its ``val_``
arrays are left alone. The plain layout may name its classes in ``classes``, and a test set is held out of it. Images
may have the forms of ``images_of_array``; labels are whole numbers from 0, shape (N,) or (N, 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners.data.image_files import existing, images_of_array, listed, read_archive
from learners.data.sets import ImageSet, classed_set
from learners.data.splits import TEST_SHARE, first, split_by_class
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

SIDE_PX = 32
_HIGHEST = 2**31
_PLAIN = ("images", "labels")
_MEDMNIST = ("train_images", "train_labels", "test_images", "test_labels")

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Npz:
    """An archive of images and labels, in MedMNIST's layout or a plain one."""

    name: ClassVar[str] = "npz"
    source: ClassVar[str] = "layout: Yang et al. (2023): MedMNIST v2, arXiv:2110.14795"
    targets: ClassVar[str] = "classes"

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:
        """Return the images of the archive ``data.root``.

        ``data.train_images`` and ``data.test_images`` above 0 keep the first so many: in the archive's order where it
        has a test set, else in the random order in which it was split class by class (``split_by_class``).

        Raises:
            InputError: when the archive is missing or damaged, or does not hold images of at least two classes.
        """
        path = existing(data.root, self.name, "an .npz archive")
        arrays = read_archive(path, _PLAIN, _MEDMNIST, optional=["classes"])
        classes = arrays.get("classes")
        if "images" in arrays:
            train_name = test_name = "images"
            train_labels = test_labels = _labels(arrays, "labels", "images", path)
            names = _class_names(classes, train_labels, path)
            train, test = split_by_class(train_labels, TEST_SHARE, streams.generator("npz", "test images"))
        else:
            train_name, test_name = "train_images", "test_images"
            train_labels = _labels(arrays, "train_labels", train_name, path)
            test_labels = _labels(arrays, "test_labels", test_name, path)
            names = _class_names(classes, np.concatenate([train_labels, test_labels]), path)
            train, test = np.arange(len(train_labels)), np.arange(len(test_labels))
        train = first(train, data.train_images, key="data.train_images", name=self.name)
        test = first(test, data.test_images, key="data.test_images", name=self.name)

        def images(name: str, kept: NDArray[np.int64]) -> NDArray[np.uint8]:
            side_px = data.image_px or SIDE_PX
            return images_of_array(arrays[name][kept], grey=False, side_px=side_px, where=f"{path}: {name}")

        return classed_set(
            self.name,
            data.root,
            train=(images(train_name, train), train_labels[train]),
            test=(images(test_name, test), test_labels[test]),
            class_names=names,
            train_names=tuple(map(str, train)),
            test_names=tuple(map(str, test)),
        )


def _labels(arrays: Arrays, name: str, of: str, path: Path) -> NDArray[np.int64]:
    """Return the labels called ``name`` of the images called ``of``, int64, shape (N,)."""
    labels, images = arrays[name], len(arrays[of]) if arrays[of].ndim else 0
    where = f"{path}: {name}"
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(f"{where}: shape {labels.shape} is not one label for each image, (N,) or (N, 1).")
    if labels.dtype.kind not in "iub":
        raise InputError(f"{where}: labels of type {labels.dtype} are not whole numbers.")
    if len(labels) != images:
        raise InputError(f"{where}: {len(labels)} labels for {images} images in {of}.")
    if len(labels) and int(labels.min()) < 0:
        raise InputError(f"{where}: label {labels.min()} at {labels.argmin()} is negative; classes count from 0.")
    if len(labels) and int(labels.max()) > _HIGHEST:
        raise InputError(f"{where}: label {labels.max()} at {labels.argmax()} is no class; they count from 0.")
    return labels.astype(np.int64)


def _class_names(classes: NDArray[Any] | None, labels: NDArray[np.int64], path: Path) -> tuple[str, ...]:
    """Return the names of the classes; numbers unless the archive has names."""
    highest = int(labels.max(initial=0))
    if classes is not None:
        names = tuple(str(name) for name in classes.ravel())
        if highest >= len(names):
            raise InputError(
                f"{path}: label {highest} at {labels.argmax()} is out of range for {len(names)} classes:"
                f" {listed(names)}."
            )
        return names
    if highest >= max(len(labels), 1):
        raise InputError(f"{path}: label {highest} is out of range: {len(labels)} images cannot be of so many classes.")
    return tuple(str(label) for label in range(highest + 1))
