"""Images for learners: data sets, their partition over silos, augmentation, and motion blur."""

from __future__ import annotations

import importlib
from typing import Any

from learners.data.augment import view_one, view_two
from learners.data.image_set import ImageSet
from learners.data.motion import motion_blur
from learners.data.partition import partition
from learners.data.steering_set import SteeringSet
from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

__all__ = [
    "ImageSet",
    "SteeringSet",
    "load_images",
    "load_steering",
    "motion_blur",
    "partition",
    "view_one",
    "view_two",
]

# A set's module is loaded only when that set is used: torchvision, for one, takes seconds to import. Each has a
# function load(data: DataSettings, *, streams: Streams).
WITH_CLASSES = {
    "signs": "learners.data.signs",
    "cifar10": "learners.data.cifar10",
    "npz": "learners.data.npz",
    "folder": "learners.data.folder",
}
WITH_ANGLES = {
    "road": "learners.data.road",
    "driving-log": "learners.data.driving_log",
    "steering-npz": "learners.data.steering_npz",
}


def load_images(data: DataSettings, *, streams: Streams) -> ImageSet:
    """Return the set of images with classes that ``data.name`` names.

    Args:
        data: which set, where it lies, how many images of it.
        streams: the branch of the random streams that generated sets draw from.

    Raises:
        InputError: when the set is unknown or has no classes, or its files are missing or damaged.
    """
    images: ImageSet = _load(data, streams, WITH_CLASSES, WITH_ANGLES, "steering angles", "classes")
    return images


def load_steering(data: DataSettings, *, streams: Streams) -> SteeringSet:
    """Return the set of road images with steering angles that ``data.name`` names.

    Args:
        data: which set, where it lies, how many images of it.
        streams: the branch of the random streams that generated sets draw from.

    Raises:
        InputError: when the set is unknown or has no steering angles, or its files are missing or damaged.
    """
    frames: SteeringSet = _load(data, streams, WITH_ANGLES, WITH_CLASSES, "classes", "steering angles")
    return frames


def _load(
    data: DataSettings, streams: Streams, fitting: dict[str, str], others: dict[str, str], has: str, needs: str
) -> Any:
    if data.name in others:
        raise InputError(
            f"data.name: the images of '{data.name}' have {has}, and this learner needs {needs}: {', '.join(fitting)}."
        )
    if data.name not in fitting:
        raise unknown_name("data set", data.name, fitting, where="data.name")
    return importlib.import_module(fitting[data.name]).load(data, streams=streams)
