"""Making an image set of read images and labels, once they were found fit."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from learners.data.image_set import ImageSet, channel_statistics
from vnetsim.errors import InputError

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]


def classed_set(
    name: str, root: str, *, train: Part, test: Part, class_names: tuple[str, ...], pixels: str = ""
) -> ImageSet:
    """Return the set of these images.

    Args:
        name: name of the set.
        root: where it was read, for messages.
        train: images, shape (N, 3, P, P), and their classes, shape (N,).
        test: the same of the test set.
        class_names: label texts, in order of the class index.
        pixels: how wider pixels came to 8 bits; empty where none did.

    Raises:
        InputError: when the training images are not of two classes, or there are no test images.
    """
    require_two_classes(train[1], root, class_names)
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
        pixels=pixels,
    )


def require_two_classes(labels: NDArray[np.int64], root: str, class_names: tuple[str, ...]) -> None:
    """Refuse training images of fewer than two classes.

    Args:
        labels: class of each training image, shape (N,).
        root: where they were read, for the message.
        class_names: label texts, in order of the class index.

    Raises:
        InputError: when there are not two.
    """
    present = [class_names[label] for label in np.unique(labels)]
    if len(present) < 2:
        raise InputError(
            f"data.root: the {len(labels)} training images of '{root}' are of"
            f" {f'one class, {present[0]}' if present else 'no class'}; learning needs at least two classes."
        )
