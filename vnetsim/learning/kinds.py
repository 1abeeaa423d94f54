"""The kinds of plug-ins for learning: learners, data sets and encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Protocol

from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.learning import KeepsModels, Learner
from vnetsim.plugins import Kind, optional
from vnetsim.random_streams import Streams


class DataSet(Protocol):
    """Images for learners, chosen by ``data.name``: a frozen keyword-only dataclass; fields: settings of ``data``.

    ``targets`` is the kind of an image's label: ``"classes"`` or ``"steering angles"``. An optional tuple ``needs``
    names those of ``data.root``, ``data.download`` and ``data.image_px`` that the set uses; without it all three count
    as used.

    With ``from_traffic = True`` the set is made of the run's traffic. A run then calls, instead of ``load``,
    ``load_driven(data, streams, traffic, angles=..., pictures=...)``. ``traffic`` is a
    ``vnetsim.learning.drives.RecordedTraffic``, ``angles`` asks for a ``SteeringSet`` instead of an ``ImageSet``, and
    without ``pictures`` the images are black. A subclass of ``vnetsim.learners.data.driven.Driven`` has all that, and
    says in ``view`` only which picture is seen where.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    targets: ClassVar[str]

    def load(self, data: DataSettings, streams: Streams) -> Any:
        """Return an ``ImageSet`` or, with steering angles, a ``SteeringSet`` of ``learners.data``.

        Args:
            data: folder of the set and numbers of images wanted (0: its default); a set ignores settings that do not
                apply to it.
            streams: source of random draws: ``streams.generator("a name of its own")``.

        Raises:
            InputError: files are missing or damaged.
        """
        ...

    @optional
    def outline(self, data: DataSettings, streams: Streams) -> Any:
        """Return what ``load`` does, with black images of the same shapes and equal labels, for runs without training.

        A set without this method is loaded by ``load``.
        """
        ...


Trunk = Annotated[tuple[Any, int], "the network and its number of channels, (torch.nn.Module, C)"]


class EncoderTrunk(Protocol):
    """A network for images, chosen by ``learning.encoder``: a frozen keyword-only dataclass; fields in ``encoder``."""

    name: ClassVar[str]
    source: ClassVar[str]

    def build(self) -> Trunk:
        """Return a new ``torch.nn.Module`` and its number of channels C.

        It takes normalised images (N, 3, H, W) to dense features (N, C, H', W'), to which projection or classifier are
        added. torch's global generator is seeded before the call.
        """
        ...


DATA_SETS = Kind(
    name="data set",
    group="vnetsim.data_sets",
    protocol=DataSet,
    key="data.name",
    table="data",
    package="learners",
    built_in={
        "signs": "learners.data.signs:Signs",
        "cifar10": "learners.data.torchvision_sets:Cifar10",
        "gtsrb": "learners.data.torchvision_sets:Gtsrb",
        "npz": "learners.data.npz:Npz",
        "folder": "learners.data.folder:ClassFolders",
        "road": "learners.data.road:Road",
        "driving-log": "learners.data.driving_log:DrivingLog",
        "steering-npz": "learners.data.npz:SteeringNpz",
        "drive": "learners.data.drive:Drive",
    },
)
DATA_DEFAULTS: Mapping[str, Mapping[str, object]] = {"drive": {"data.partition": "vehicle"}}
"""Defaults of built-in data sets for settings that all sets share, by dotted key; they precede the learner's."""
ENCODERS = Kind(
    name="encoder",
    group="vnetsim.encoders",
    protocol=EncoderTrunk,
    key="learning.encoder",
    table="encoder",
    package="learners",
    built_in={"small": "learners.encoders:Small", "resnet18": "learners.encoders:ResNet18"},
)
LEARNERS = Kind(
    name="learner", group="vnetsim.learners", protocol=Learner, key="learner", table="learning", package="learners"
)


def require_several_models(learner: type[Learner], setting: str) -> None:
    """Raise InputError unless the learner is ``KeepsModels``; ``setting``, as ``key = value``, is what needs it."""
    if not issubclass(learner, KeepsModels):
        raise InputError(
            f"{setting} needs a learner with a model for each aggregator, and {learner.name} has one for all; see "
            "vnetsim.learning.KeepsModels."
        )
