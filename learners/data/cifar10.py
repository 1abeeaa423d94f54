"""CIFAR-10 (Krizhevsky 2009) as torchvision stores it: 50,000 training and 10,000 test images, 32 x 32, ten classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from learners.data.image_files import of_torchvision
from learners.data.sets import ImageSet, Part, classed_set
from learners.data.splits import first
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams


@dataclass(frozen=True, kw_only=True)
class Cifar10:
    """Photographs of ten classes, 32 x 32, colour; torchvision reads them, and fetches them where asked to."""

    name: ClassVar[str] = "cifar10"
    source: ClassVar[str] = "Krizhevsky (2009): Learning multiple layers of features from tiny images"
    targets: ClassVar[str] = "classes"

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:  # noqa: ARG002 - recorded images need no draws
        """Return CIFAR-10 read from ``data.root``.

        ``data.train_images`` and ``data.test_images`` above 0 keep the first so many images in file order, whose
        classes are mixed. The normalisation constants are those of the training images kept.

        Raises:
            InputError, RunError: see ``of_torchvision``.
        """
        train, test = of_torchvision("CIFAR10", data, train=True), of_torchvision("CIFAR10", data, train=False)
        return classed_set(
            self.name,
            data.root,
            train=_part(train, data.train_images, "data.train_images"),
            test=_part(test, data.test_images, "data.test_images"),
            class_names=tuple(train.classes),
        )


def _part(dataset: Any, count: int, key: str) -> Part:
    """Return the first ``count`` (0: all) images, shape (N, 3, 32, 32), and their labels."""
    kept = first(np.arange(len(dataset)), count, key=key, name="cifar10")
    images = np.ascontiguousarray(dataset.data[kept].transpose(0, 3, 1, 2))
    return images, np.array(dataset.targets, dtype=np.int64)[kept]
