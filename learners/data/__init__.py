"""Images for learners: data sets, their partition over silos, augmentation, and motion blur."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar, cast

import torch

from learners.data.motion import motion_blur
from learners.data.partition import partition
from learners.data.sets import ImageSet, SteeringSet
from learners.data.unread import FILES, make_stand_in
from vnetsim.errors import InputError, RunError
from vnetsim.experiment import DataSettings
from vnetsim.learning.drives import RecordedTraffic
from vnetsim.learning.kinds import DATA_SETS
from vnetsim.plugins import plugin_errors
from vnetsim.random_streams import Streams

T = TypeVar("T")

__all__ = ["ImageSet", "SteeringSet", "load_images", "load_set", "load_steering", "motion_blur", "partition"]


def load_set(
    kind: type[T],
    data: DataSettings,
    *,
    streams: Streams,
    settings: Any = None,
    pictures: bool = True,
    traffic: RecordedTraffic | None = None,
) -> T:
    """Return the set that ``data.name`` names, of the ``kind`` that the learner needs: ImageSet or SteeringSet.

    ``settings`` is an instance of the set's class; None for its defaults. Without ``pictures`` images may be black, and
    the set's files or traffic missing. ``traffic`` is for sets that are made of it; None if none is recorded.

    Raises:
        InputError: the set is unknown or of the other kind, or its files are missing or damaged.
        RunError: a plug-in's set fails, or returns something else.
    """
    needs: Literal["classes", "steering angles"] = "classes" if kind is ImageSet else "steering angles"
    found = DATA_SETS.find(data.name)() if settings is None else settings
    if needs not in found.targets:
        others = [name for name in DATA_SETS.built_in if needs in DATA_SETS.find(name).targets]
        raise InputError(
            f"data.name: the images of '{data.name}' have {found.targets}, and this learner needs {needs}: "
            f"{', '.join(others)}."
        )
    driven = getattr(found, "from_traffic", False)
    if not pictures and data.name in FILES and not data.root:
        return cast("T", make_stand_in(data, needs))
    if not pictures and driven and traffic is None:
        stand_in = make_stand_in(data, needs)
        return cast("T", replace(stand_in, train_silos=torch.arange(len(stand_in.train))))
    method = "load" if pictures or not hasattr(found, "outline") else "outline"
    more: dict[str, Any] = {}
    if driven and traffic is not None:
        method = "load_driven"
        more = {"traffic": traffic, "angles": kind is SteeringSet, "pictures": pictures}
    with plugin_errors(DATA_SETS.name, found.name, f"in {method}"):
        loaded = getattr(found, method)(data, streams, **more)
    if not isinstance(loaded, kind):
        raise RunError(
            f"data set '{found.name}' returned a {type(loaded).__name__}, expected a learners.data.{kind.__name__}."
        )
    return loaded


load_images, load_steering = partial(load_set, ImageSet), partial(load_set, SteeringSet)
