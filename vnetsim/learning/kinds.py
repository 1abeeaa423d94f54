"""Learners, and plug-ins of theirs, data sets and encoders: by an entry point or as a class of a file."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Protocol

from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.learning import KeepsModels, Learner
from vnetsim.plugins import Kind, optional
from vnetsim.random_streams import Streams


class DataSet(Protocol):
    """Images for learners, chosen by ``data.name``: a frozen keyword-only dataclass, whose fields stand beside it.

    ``targets`` says what it knows of an image: ``"classes"`` or ``"steering angles"``. One that does without
    ``data.root``, ``data.download`` or ``data.image_px`` has a tuple ``needs`` that names those of the three that it
    does use; without it all of them count.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    targets: ClassVar[str]

    def load(self, data: DataSettings, streams: Streams) -> Any:
        """Return the images: a ``learners.data.ImageSet``, or a ``learners.data.SteeringSet`` with steering angles.

        Args:
            data: where the set lies and how many images of it are wanted (0: its default); a set takes of it what
                suits it.
            streams: where draws come from: ``streams.generator("a name of its own")``.

        Raises:
            InputError: files are missing or damaged.
        """
        ...

    @optional
    def outline(self, data: DataSettings, streams: Streams) -> Any:
        """Return what ``load`` does with black pictures, of the same shapes and labels, where nobody trains.

        For sets that draw their pictures; of the others ``load`` is asked.
        """
        ...


Trunk = Annotated[tuple[Any, int], "the network and its number of channels, (torch.nn.Module, C)"]


class EncoderTrunk(Protocol):
    """A network for images, chosen by ``learning.encoder``: a frozen keyword-only dataclass; fields: ``encoder``."""

    name: ClassVar[str]
    source: ClassVar[str]

    def build(self) -> Trunk:
        """Return a new ``torch.nn.Module`` and its number of channels C.

        It takes normalised images (N, 3, H, W) to dense features (N, C, H', W'); the projection or the classifier that
        stands on them is added. torch's global generator is seeded for it.
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
    },
)
ENCODERS = Kind(
    name="encoder",
    group="vnetsim.encoders",
    protocol=EncoderTrunk,
    key="learning.encoder",
    table="encoder",
    package="learners",
    built_in={
        "small": "learners.encoders:Small",
        "resnet18": "learners.encoders:ResNet18",
    },
)


LEARNERS = Kind(
    name="learner",
    group="vnetsim.learners",
    protocol=Learner,
    key="learner",
    table="learning",
    package="learners",
)


def require_several_models(learner: type[Learner], setting: str) -> None:
    """Refuse a learner of one model where a setting wants several; what its own settings rule out ``create`` refuses.

    Raises:
        InputError: it is not ``KeepsModels``.
    """
    if not issubclass(learner, KeepsModels):
        raise InputError(
            f"{setting} needs a learner with a model for each aggregator, and {learner.name} has one for all; see "
            "vnetsim.learning.KeepsModels."
        )
