"""Images for learners: data sets, their partition over silos, augmentation, and motion blur."""

from __future__ import annotations

from collections.abc import Callable

from learners.data.augment import view_one, view_two
from learners.data.image_set import ImageSet
from learners.data.motion import motion_blur
from learners.data.partition import partition
from vnetsim.errors import unknown_name
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

__all__ = ["ImageSet", "load_images", "motion_blur", "partition", "view_one", "view_two"]


def _signs(data: DataSettings, streams: Streams) -> ImageSet:
    from learners.data.signs import load  # noqa: PLC0415 - a set's module is loaded only when that set is used

    return load(data, streams=streams)


def _cifar10(data: DataSettings, streams: Streams) -> ImageSet:  # noqa: ARG001 - recorded images need no random draws
    from learners.data.cifar10 import load  # noqa: PLC0415 - torchvision takes seconds to import

    return load(data)


_SETS: dict[str, Callable[[DataSettings, Streams], ImageSet]] = {"signs": _signs, "cifar10": _cifar10}


def load_images(data: DataSettings, *, streams: Streams) -> ImageSet:
    """Return the image set that ``data.name`` names.

    Args:
        data: which set, where it lies, how many images of it.
        streams: the branch of the random streams that generated sets draw from.

    Raises:
        InputError: when the set is unknown, or its files are missing or damaged.
    """
    if data.name not in _SETS:
        raise unknown_name("data set", data.name, _SETS, where="data.name")
    return _SETS[data.name](data, streams)
