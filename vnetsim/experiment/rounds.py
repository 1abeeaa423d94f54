"""Settings of participation: rounds, exchange, silos, data, blur, schedule, cost. See ``vnetsim.experiment``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from vnetsim.errors import unknown_name
from vnetsim.errors.bounds import BESIDE, EXCHANGES, TRAINS, Acts, Images, Share, Within, check_bounds, needed, require
from vnetsim.errors.paths import is_partition_file

DIRECT_EXCHANGE = Acts("exchange.topology", unless=("star",))  # with ``star`` everything goes through the RSU


@dataclass(frozen=True, kw_only=True)
class RoundSettings:
    """How many vehicles a round invites and when it closes, for the single aggregator or each RSU (``topology.kind``).

    Args:
        quorum: number of committed uploads that close a round.
        invited: largest number of participations in flight at once, over all RSUs of the aggregator; at least
            ``quorum``.
        deadline_s: a round closes at the latest this long after it opened, with the uploads so far (s).
        max_staleness: 0 ends participations that are in flight when a round closes; n > 0 lets them commit to one of
            the next n rounds.
        distinct_silos: whether a silo takes part at most once a round, whatever the number of vehicles that carry it.
    """

    quorum: Annotated[
        int, Within(1, 100_000, "", "a round of more uploads fits no memory"), needed("pace", "round.quorum")
    ] = 3
    invited: Annotated[
        int, Within(1, 100_000, "", "a round of more uploads fits no memory"), needed("pace", "round.invited")
    ] = 3
    deadline_s: Annotated[float, Within(0.1, 1e7, "s", "taking part needs time; four months")] = 60.0
    max_staleness: Annotated[int, Within(0, 10_000, "", "the model of every round that is still in use is kept")] = 1
    distinct_silos: bool = False

    def __post_init__(self) -> None:
        """Raise InputError for a value out of bounds, or ``invited`` below ``quorum``."""
        check_bounds("round", self)
        require(
            self.invited >= self.quorum,
            f"round.invited must be at least round.quorum ({self.quorum}), got {self.invited}.",
        )


@dataclass(frozen=True, kw_only=True)
class ExchangeSettings:
    """Exchange between vehicles, for learners that have one.

    Vehicles that are ready wait for each other until ``round.quorum`` of them are ready or the round's deadline has
    passed. Then all exchange at once, over a sidelink with the radio model of ``radio``.

    Args:
        topology: ``contact`` pairs the vehicles that are in range of each other when the exchange begins; ``ring`` each
            with the next in order of arrival; ``complete`` all; ``star`` all, only through the RSU. With ``star``,
            vehicles of learners that average at the RSU exchange nothing with each other.
        range_m: two vehicles closer than this are in contact (m).
        relay: pairs out of range exchange through the RSU while both are covered.
        limit_s: an exchange that is not complete this long after it began is cut off (s).
    """

    topology: Annotated[Literal["contact", "star", "ring", "complete"], EXCHANGES] = "contact"
    range_m: Annotated[
        float, Within(0.1, 1e5, "m", "no vehicle's radio reaches further"), EXCHANGES, DIRECT_EXCHANGE
    ] = 150.0
    relay: Annotated[bool, EXCHANGES, DIRECT_EXCHANGE] = False
    limit_s: Annotated[float, Within(0.01, 1e7, "s", "it needs time; four months"), EXCHANGES] = 30.0


@dataclass(frozen=True, kw_only=True)
class SiloSettings:
    """Which silo, a share of the training data, a vehicle carries; bound at its first entry into coverage.

    Args:
        count: number of silos.
        by: ``arrival`` deals silos round robin in order of first entry; ``approach`` does so among the silos of the
            vehicle's approach direction (silo i belongs to direction i mod ``approaches``), ``origin`` among those of
            the RSU that covers it first, its district (of R RSUs, silo i belongs to RSU i mod R). With ``place`` the
            data follow the vehicle's place: an idle vehicle that enters another RSU's disc replaces
            ``replaced_share`` of its images with a silo from there.
        replaced_share: share of a vehicle's images that it replaces at a change of place, in [0, 1]; OpenMobiFL
            replaces 200 of 600.
        approaches: number of equal sectors around the RSU that count as directions, the first centred on north; also
            those of the column ``approach`` of the windows.
    """

    count: Annotated[int, Within(1, 100_000, "", "each has a shard and figures of its own in memory")] = 95
    by: Literal["arrival", "approach", "origin", "place"] = "arrival"
    replaced_share: Annotated[Share, Acts("silos.by", ("place",))] = 1 / 3
    approaches: Annotated[int, Within(1, 360, "", "sectors narrower than a degree tell no road from another")] = 4

    def __post_init__(self) -> None:
        check_bounds("silos", self)
        require(
            self.approaches <= self.count,
            f"silos.approaches must be at most silos.count ({self.count}), got {self.approaches}.",
        )


@dataclass(frozen=True, kw_only=True)
class HostileSettings:
    """Which vehicles are hostile; ``conduct`` says what they do. They take as long as honest ones.

    Args:
        share: share of the vehicles, in [0, 1]. Each vehicle is drawn by its id and the seed of the run, so those of a
            share are among those of a larger one.
        vehicles: ids of further hostile vehicles; ``*`` stands for any letters, as in ``west_east.*``.
    """

    share: Share = 0.0
    vehicles: tuple[str, ...] = ()


PARTITIONS = (
    "iid",
    "dirichlet",
    "approach",
    "label-skew",
    "major-class",
    "district",
    "drive",
    "block",
    "sign",
    "vehicle",
)


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The images and how they are divided among the silos.

    Args:
        name: a data set, by the name of its plug-in or as ``path/to/file.py:Class``; it must suit the learner's task.
            ``vnetsim plugins data_sets`` describes all. The data set's own settings are in this table too.
        root: folder or file that holds (or receives) the data.
        download: fetch missing data into ``root``.
        train_images: number of images for training: a built-in set generates them; of another set the first ones are
            used, and it must have that many. 0 is the default of a built-in set, and all images of another.
        test_images: number of images for testing, like ``train_images``.
        image_px: side of the images (px), for sets that read them from files or draw them in any size; 0 is the set's
            default.
        partition: ``iid``; with classes ``dirichlet`` with ``alpha``, ``approach`` (silos of one direction share
            classes), ``label-skew`` (each silo lacks ``unseen_share`` of the classes), ``major-class`` (each silo has
            ``major_share`` of its images from one class) or ``district`` (silos of one RSU have it from the same
            classes); with steering angles ``drive``, ``block`` (stretches of time) or ``sign`` (of the angle).
            ``vehicle`` gives each silo what its vehicles saw, the default of the data set ``drive``. Or a ``.csv``
            file that says which silo holds which image with a class, as ``partition.csv`` of a run does.
        alpha: concentration of the Dirichlet distribution, > 0.
        unseen_share: share of the other classes that a silo lacks besides its own first one, in [0, 1]: with 0 it
            has all classes, with 1 only one.
        major_share: share of a silo's images from its major class, or from the classes of its district, in [0, 1].
        min_images: every silo gets at least this many images; 0 divides them all, evenly where the partition allows.
    """

    name: str = "signs"
    root: Annotated[str, needed("data set", "data.root")] = ""
    download: Annotated[bool, needed("data set", "data.download")] = False
    train_images: Images = 0
    test_images: Images = 0
    image_px: Annotated[
        int,
        Within(0, 1024, "px", "a set is held in memory, and the networks are small"),
        needed("data set", "data.image_px"),
    ] = 0
    partition: str = "iid"
    alpha: Annotated[
        float,
        Within(1e-9, 1e9, "", "one class to a silo below, equal shares above"),
        Acts("data.partition", ("dirichlet",)),
    ] = 0.1
    unseen_share: Annotated[Share, Acts("data.partition", ("label-skew",))] = 0.5
    major_share: Annotated[Share, Acts("data.partition", ("major-class", "district"))] = 0.8
    min_images: Images = 0
    own: Mapping[str, Any] = field(default_factory=dict, metadata=BESIDE)

    def __post_init__(self) -> None:
        check_bounds("data", self)
        if self.partition not in PARTITIONS and not is_partition_file(self.partition):
            raise unknown_name("partition", self.partition, [*PARTITIONS, "FILE.csv"], where="data.partition")


@dataclass(frozen=True, kw_only=True)
class BlurSettings:
    """Which images get the physical motion kernel.

    Args:
        threshold_kmh: images of vehicles at or below this speed stay sharp (km/h).
        fraction: share of a vehicle's images that blur, in [0, 1]; the first ones of its silo.
    """

    threshold_kmh: Annotated[float, Within(0, 1000, "km/h", "no vehicle on a road is faster"), TRAINS] = 0.0
    fraction: Annotated[Share, TRAINS] = 1.0


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """The learner whose payload and work decide which vehicles commit.

    Learners send payloads of different sizes, which decides which vehicles finish before they leave coverage. With one
    schedule for all learners, the same vehicles commit, and only the learning differs.

    Args:
        learner: every participation has this learner's payload and work, named as ``Experiment.learner``; empty for the
            run's own learner. Its exchange between vehicles must be of the same kind as that of the run's learner.
        learning: settings of this learner; the run's ``learning`` does not apply to it.
    """

    learner: str = ""
    learning: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(bool(self.learner) or not self.learning, "schedule.learning: needs schedule.learner, whose it is.")


class ClockModel(NamedTuple):
    """The model whose transfers and training are timed."""

    bytes: int  # size of one copy on the radio link
    image_flop: float  # floating-point operations of a forward pass over one image
    images: int | None  # number of images of a local training; None for the number that is really trained
    values: int | None = None  # number of values of one copy; None for a quarter of the bytes


MODELS: Mapping[str, ClockModel] = {
    "resnet18": ClockModel(44_976_544, 1_110_966_272.0, 640, 11_244_136),
    "resnet18-half": ClockModel(22_488_272, 1_110_966_272.0, 640, 11_244_136),
}
"""Models that can be timed: ``resnet18`` as FLSimCo's code and ``learners.encoders`` build it, for images of 32 x 32
pixels, with projection and BatchNorm statistics; ``resnet18-half`` is sent with 16 bits per number.
``docs/explanation/defaults.md`` gives the reason for the number of images."""


@dataclass(frozen=True, kw_only=True)
class CostSettings:
    """The model whose radio transfers and on-board training are timed; it is the same for all learners.

    The timed model may differ from the trained one. A small network can be trained on a laptop while vehicles take as
    long, and send as much, as with a large one: each copy of the trained model, and each pass of an image through it,
    counts as one of the timed model. A method's extras are added: a second network, copies for neighbours, keys.

    Args:
        model: ``resnet18-half`` is the network of FLSimCo's paper, sent with 16 bits per number (22.5 MB), ``resnet18``
            the same with 32 bits (45 MB), ``trained`` the network that is trained; any other name is your own model,
            which needs ``model_bytes`` and ``image_flop``.
        model_bytes: size of one copy of your model on the radio link (B); a codec other than ``float32`` takes a
            quarter of it as the number of values.
        image_flop: floating-point operations of its forward pass over one image.
        images: number of images of a local training that is timed, whatever number is trained; left out, 640 for
            ``resnet18`` and ``resnet18-half``, and for others the number that is trained. A learner that uses each
            image twice takes twice as long.
    """

    model: str = "resnet18-half"
    model_bytes: Annotated[int | None, Within(1, 10**15, "B", "a petabyte fits no vehicle")] = None
    image_flop: Annotated[float | None, Within(1, 1e18, "FLOP", "a second of an exascale computer")] = None
    images: Annotated[
        int | None, Within(1, 10_000_000, "images", "eight times ImageNet"), Acts("cost.model", unless=("trained",))
    ] = None

    def __post_init__(self) -> None:
        """Raise InputError: out of bounds, a known model with its own bytes or operations, or another without both."""
        check_bounds("cost", self)
        given = self.model_bytes is not None, self.image_flop is not None
        if self.model in ("trained", *MODELS):
            require(
                not any(given),
                f"cost.model: '{self.model}' brings its own bytes and operations; name yours otherwise, or leave "
                "cost.model_bytes and cost.image_flop out.",
            )
        else:
            require(
                all(given),
                f"cost.model: '{self.model}' is none of trained, {', '.join(MODELS)}; give its cost.model_bytes and "
                "cost.image_flop.",
            )

    @property
    def on_the_clock(self) -> ClockModel | None:
        """The model whose transfers and training are timed; None if that is the trained one."""
        if self.model_bytes is not None and self.image_flop is not None:
            return ClockModel(self.model_bytes, self.image_flop, self.images)
        model = MODELS.get(self.model)
        return model if model is None or self.images is None else model._replace(images=self.images)
