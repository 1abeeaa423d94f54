"""Images for learners: data sets, their partition over silos, augmentation, and motion blur."""

from __future__ import annotations

from typing import Any

from learners.data.augment import view_one, view_two
from learners.data.motion import motion_blur
from learners.data.partition import partition
from learners.data.sets import ImageSet, SteeringSet
from learners.data.shipped import ANGLES, CLASSES, SHIPPED
from vnetsim.errors import InputError, RunError, unknown_name
from vnetsim.experiment import DataSettings
from vnetsim.learning.kinds import DATA_SETS, DataSet
from vnetsim.plugins import is_class
from vnetsim.plugins.checked import checked
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

WITH_CLASSES = tuple(name for name, one in SHIPPED.items() if one.targets == CLASSES)
WITH_ANGLES = tuple(name for name, one in SHIPPED.items() if one.targets == ANGLES)


def load_images(data: DataSettings, *, streams: Streams, settings: Any = None) -> ImageSet:
    """Return the set of images with classes that ``data.name`` names.

    Args:
        data: which set, where it lies, how many images of it.
        streams: the branch of the random streams that generated sets draw from.
        settings: the set with its settings; its defaults for None.

    Raises:
        InputError: when the set is unknown or has no classes, or its files are missing or damaged.
        RunError: a set of one's own fails, or returns something else.
    """
    images: ImageSet = _load(data, streams, settings, CLASSES, WITH_CLASSES, ImageSet)
    return images


def load_steering(data: DataSettings, *, streams: Streams, settings: Any = None) -> SteeringSet:
    """Return the set of road images with steering angles that ``data.name`` names; see ``load_images``."""
    frames: SteeringSet = _load(data, streams, settings, ANGLES, WITH_ANGLES, SteeringSet)
    return frames


def _load(data: DataSettings, streams: Streams, settings: Any, needs: str, shipped: tuple[str, ...], kind: type) -> Any:
    if settings is None and not is_class(data.name) and data.name not in DATA_SETS.names():
        others = [other for other in DATA_SETS.names() if other not in SHIPPED]
        raise unknown_name("data set", data.name, [*shipped, *others], where="data.name")
    found = DATA_SETS.find(data.name)() if settings is None else settings
    if found.targets != needs:
        raise InputError(
            f"data.name: the images of '{data.name}' have {found.targets}, and this learner needs {needs}: "
            f"{', '.join(shipped)}."
        )
    loaded = checked(found, DATA_SETS.name, DataSet).load(data, streams)
    if not isinstance(loaded, kind):
        raise RunError(
            f"data set '{found.name}' returned a {type(loaded).__name__}, expected a learners.data.{kind.__name__}."
        )
    return loaded
