"""The data sets that come with the package, as ``vnetsim.learning.kinds.DataSet``."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

CLASSES, ANGLES = "classes", "steering angles"


@dataclass(frozen=True, kw_only=True)
class _Shipped:
    """A set whose module is loaded only when the set is: torchvision, for one, takes seconds to import."""

    name: ClassVar[str]
    source: ClassVar[str]
    module: ClassVar[str]
    targets: ClassVar[str] = CLASSES

    def load(self, data: DataSettings, streams: Streams) -> Any:
        """Return the images; see ``vnetsim.learning.kinds.DataSet``."""
        return importlib.import_module(self.module).load(data, streams=streams)


@dataclass(frozen=True, kw_only=True)
class Signs(_Shipped):
    """Traffic signs, drawn by the program: 32 x 32, colour."""

    name: ClassVar[str] = "signs"
    source: ClassVar[str] = "built in"
    module: ClassVar[str] = "learners.data.signs"


@dataclass(frozen=True, kw_only=True)
class Cifar10(_Shipped):
    """Photographs of ten classes, 32 x 32, colour; torchvision reads them, and fetches them where told to."""

    name: ClassVar[str] = "cifar10"
    source: ClassVar[str] = "Krizhevsky (2009): Learning multiple layers of features from tiny images"
    module: ClassVar[str] = "learners.data.cifar10"


@dataclass(frozen=True, kw_only=True)
class Npz(_Shipped):
    """An archive of images and labels, in MedMNIST's layout or a plain one."""

    name: ClassVar[str] = "npz"
    source: ClassVar[str] = "layout: Yang et al. (2023): MedMNIST v2, arXiv:2110.14795"
    module: ClassVar[str] = "learners.data.npz"


@dataclass(frozen=True, kw_only=True)
class ClassFolders(_Shipped):
    """One folder of images per class."""

    name: ClassVar[str] = "folder"
    source: ClassVar[str] = "files of one's own"
    module: ClassVar[str] = "learners.data.folder"


@dataclass(frozen=True, kw_only=True)
class Road(_Shipped):
    """Drives on roads drawn by the program, grey, with the steering angle of every frame."""

    name: ClassVar[str] = "road"
    source: ClassVar[str] = "built in"
    targets: ClassVar[str] = ANGLES
    module: ClassVar[str] = "learners.data.road"


@dataclass(frozen=True, kw_only=True)
class DrivingLog(_Shipped):
    """Recorded drives in the layout of Udacity's simulator, ``driving_log.csv``."""

    name: ClassVar[str] = "driving-log"
    source: ClassVar[str] = "files of one's own; layout of Udacity's self-driving-car-sim"
    targets: ClassVar[str] = ANGLES
    module: ClassVar[str] = "learners.data.driving_log"


@dataclass(frozen=True, kw_only=True)
class SteeringNpz(_Shipped):
    """An archive of frames, ``imgs``, and steering angles, ``ground_truths``."""

    name: ClassVar[str] = "steering-npz"
    source: ClassVar[str] = "layout: Do et al. (2023), arXiv:2303.06305, published code"
    targets: ClassVar[str] = ANGLES
    module: ClassVar[str] = "learners.data.steering_npz"


SHIPPED: dict[str, type[_Shipped]] = {
    one.name: one for one in (Signs, Cifar10, Npz, ClassFolders, Road, DrivingLog, SteeringNpz)
}
