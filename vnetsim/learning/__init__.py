"""The interface between simulator and learners: what a learner must offer, and what it is given.

Nothing here imports torch. Timing never depends on weights: the simulator asks a learner for its cost, decides who
commits, and only then lets it train all committed participants in one call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vnetsim.experiment import DEFAULT_NAMES, Experiment
from vnetsim.learner_facts import AGGREGATOR, Cost, Exchange, ModelCost, Series
from vnetsim.learning.drives import Floats, RecordedTraffic
from vnetsim.random_streams import Streams

__all__ = ["AGGREGATOR", "Cost", "Exchange", "ModelCost", "Series"]

SIMILARITY, GRADIENT_NORM = "similarity", "gradient norm"
"""Names of the values of an update that a selection policy may request, both over the trained parameters.

Similarity is MIDDLE's U(w_c, w_n - w_c) = max(0, cos), where w_c is the cloud's newest model, or without a cloud the
downloaded one. Gradient norm is |w_n - w_base| / (learning rate x local steps)."""


class ModelKey(NamedTuple):
    """A model: its aggregator, and how many rounds that aggregator had closed when the model was made."""

    aggregator: str
    version: int


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A vehicle with which a participant completed an exchange; it need not have committed itself.

    Args:
        vehicle_id: the vehicle.
        silo: index of its silo.
        speed_mps: the speed it reports, measured at entry into coverage (m/s).
        level_px: its blur level (Camera.level_px).
        neighbours: number of vehicles with which it began an exchange.
        earlier: (silo, share of its data) of other silos whose images it still has; the rest is from ``silo``.
    """

    vehicle_id: str
    silo: int
    speed_mps: float
    level_px: float
    neighbours: int = 0
    earlier: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class HandoverEffects:
    """How ``handover.policy`` brought models of several aggregators into one participation.

    Args:
        counted_from: the present aggregator's newest version at the time of the download, from which staleness counts,
            if ``Participant.base`` belongs to another aggregator; None otherwise.
        carried: what is aggregated: the vehicle's ``model``, or its ``change``, added to the aggregator's newest model:
            w + (w_n - w_base), for parameters only; BatchNorm's statistics and counters are then those of w.
        mixed: models that the vehicle downloaded during training, in order, each with the share of its local steps done
            by then, in [0, 1]. At that step w_n <- (w + u w_n) / (1 + u), u = max(0, cos(w_n, w)) over the parameters
            (MIDDLE's on-device mixing; Zhang et al., ICPP 2023), and BatchNorm's statistics likewise; the optimizer
            keeps its state.
        bases: if the vehicle downloaded several models before it trained: all of them, ``Participant.base`` first. It
            starts from their mean (FedMes; Han et al., JSAC 39(12), 2021), and each aggregator that its update reaches
            gets a participant of its own. Empty otherwise.
    """

    counted_from: int | None = None
    carried: Literal["model", "change"] = "model"
    mixed: tuple[tuple[float, ModelKey], ...] = ()
    bases: tuple[ModelKey, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Participant(Peer):
    """A committed participation that is to be trained; all fields of ``Peer`` describe its own vehicle.

    Args:
        round: index of the round that aggregates it, from 0.
        base: the model it downloaded. Its version is below ``round`` if the participant is stale; its aggregator is
            another one if the vehicle was handed over and took its training along.
        rsu_id: the RSU that served it.
        start_s: simulated time of its invitation (s); infinite if unknown.
        peers: the neighbours with which its exchange completed, in order of arrival in the round: it received their
            model, or its own came back from them. A mutual exchange makes both peers of each other.
        download_s: seconds it spent receiving the model.
        train_s: seconds of its training on board.
        upload_s: seconds it spent sending.
        stay_s: seconds from its entry into the coverage of ``rsu_id`` to the end of its upload.
        work_share: share of the local steps that it did, in (0, 1]; below 1 only if ``Cost.steps`` allows it and the
            pace asked for it.
        handover: models of other aggregators in it; the defaults if its vehicle stayed with one RSU.
        passed: share of the run that had passed at the start, in [0, 1], with which step sizes fall: version of
            ``base`` / rounds of the run, or time of the invitation / time of the run; the larger one if both end it.
        chance: its probability of being invited, divided by the mean of those who waited with it; 1 if the selection
            policy gives none. Averaging divides the weight by ``chance``; the remainder to 1 (possibly negative) is the
            weight of the aggregator's present model.
    """

    round: int
    base: ModelKey
    rsu_id: str
    start_s: float = math.inf
    peers: tuple[Peer, ...] = ()
    download_s: float = 0.0
    train_s: float = 0.0
    upload_s: float = 0.0
    stay_s: float = 0.0
    work_share: float = 1.0
    handover: HandoverEffects = HandoverEffects()
    chance: float = 1.0
    passed: float = 0.0

    @property
    def started(self) -> tuple[str | int, ...]:
        """Key that seeds its random draws: (``round``,) with one aggregator; with several, ``base``, its base model."""
        return (self.round,) if self.base.aggregator == AGGREGATOR else self.base

    def steps_of(self, steps: int) -> int:
        """Return how many of ``steps`` local steps it did: ``work_share`` of them, rounded, at least one."""
        return max(1, round(self.work_share * steps))


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """The upload of one participant.

    Args:
        participant: the participant.
        state: tensors by name, as in ``torch.nn.Module.state_dict``; empty if the learner has already averaged it.
        loss: mean training loss of the vehicle.
        finite: whether every value of ``state`` is finite; otherwise the update is rejected, not aggregated.
        metrics: further measurements of the participant, by name.
        kept: tensors that are not sent and stay with the silo, for the learner's own use.
        exchanges: a number for each completed exchange, by id of the other vehicle; ``Description.exchange`` names it.
        figure: the value that ``LearnerContext.figure`` names; None if it names none, or ``state`` is not finite.
    """

    participant: Participant
    state: Mapping[str, Any]
    loss: float
    finite: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    exchanges: Mapping[str, float] = field(default_factory=dict)
    figure: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Aggregation:
    """The result of ``aggregate``.

    Args:
        weights: weight of each update; they sum to 1, or all are 0 if the model was kept.
        metrics: measurements of the round, by name.
        exchanges: a number for completed exchanges by (sender, receiver), both vehicle ids;
            ``Description.exchange`` names it. For example the weight that the receiver gives to the sender's model.
    """

    weights: Sequence[float]
    metrics: Mapping[str, float]
    exchanges: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """Metadata needed to use the trained model without its learner; stored in ``model.safetensors``.

    Args:
        module: a ``torch.nn.Module`` of the model's architecture, its tensors named as in ``model.*``; not changed.
        returns: what it returns for images, in words.
        mean: of each channel; the input is (images in [0, 1] - ``mean``) / ``std``.
        std: of each channel.
        own_statistics: whether evaluation uses the model's BatchNorm statistics; otherwise it estimates them.
    """

    module: Any
    returns: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    own_statistics: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class PathFrames:
    """What V vehicles see on their paths, to show: N frames, vehicle after vehicle in order of time."""

    vehicles: NDArray[np.str_]  # ids of the vehicles that have frames, shape (V,)
    mean_mps: Floats  # mean speed of each vehicle (m/s), shape (V,)
    path: NDArray[np.int64]  # index in ``vehicles`` of each frame's vehicle, shape (N,), as all below
    images: NDArray[np.uint8]  # shape (N, H, W, C)
    blurred: NDArray[np.uint8]  # the same, each with its own blur
    time_s: Floats  # when each was taken (s)
    speed_mps: Floats  # the vehicle's speed then (m/s)
    kernel_px: Floats  # length of the blur (px)
    label: Floats  # class (-1: none) or steering angle in [-1, 1] (NaN: none)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sights:
    """Where vehicles took the N training images, and what these show; all arrays have the shape (N,)."""

    x_m: Floats  # place of the vehicle, in the net's coordinates (m)
    y_m: Floats
    time_s: Floats  # when (s)
    speed_mps: Floats  # the vehicle's speed then (m/s)
    kernel_px: Floats  # length of the image's blur (px)
    angle: Floats  # the vehicle's steering angle in [-1, 1]; NaN if unknown
    label: NDArray[np.int64]  # the image's class; -1 without classes


@dataclass(frozen=True, kw_only=True, eq=False)
class Description:
    """A learner's task, for the run's record and the report.

    Args:
        encoder: name of the network, for example ``"resnet18"``.
        parameters: number of trainable parameters.
        image_shape: (C, H, W).
        class_names: labels in order; empty if the task has no classes. A regression may give the names of ranges.
        silo_label_counts: images per silo and class, shape (silos, classes).
        facts: further lines for the record, by title.
        exchange: name and unit of the numbers in ``exchanges`` of updates and aggregations; None if there are none.
        network: metadata of the network for ``model.safetensors``; None stores the weights only.
        partition: returns ``partition.csv``, which lists the images of each silo; None if there is none.
        path_frames: returns frames of given vehicles, up to a time (s); None if vehicles did not take the images.
        sights: returns where the training images were taken; None if vehicles did not take them.
    """

    encoder: str
    parameters: int
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    silo_label_counts: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    facts: Mapping[str, str] = field(default_factory=dict)
    exchange: Series | None = None
    network: Network | None = None
    partition: Callable[[], bytes] | None = None
    path_frames: Callable[[Sequence[str], float], PathFrames] | None = None
    sights: Callable[[], Sights] | None = None


@dataclass(frozen=True, kw_only=True)
class LearnerContext:
    """Everything a learner is built from, apart from its own settings.

    Plug-ins (data set, encoder, rule) are objects with their settings; None stands for the plug-in with its defaults.
    Only learners with ``takes_codec`` get codecs and a conduct; only those with ``takes_aggregation_rule`` get another
    rule than ``sync``.

    Args:
        streams: the learner's branch of the experiment's random streams.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``, already resolved and available.
        experiment: the settings of the run. Silo ``i`` belongs to the approach direction ``i % silos.approaches``.
        data_set: the data set that ``data.name`` names.
        traffic: the recorded traffic, if the data set is made of it; else None.
        encoder: the encoder that the learner's setting ``encoder`` names.
        rule: name of the aggregation rule, see ``vnetsim.learning.aggregation``.
        aggregation: the rule itself.
        codec: the codec of uploads; None for ``float32``.
        download_codec: the same for downloads.
        conduct: what hostile vehicles send; None if nobody is hostile.
        aggregators: names of all aggregators: one for all RSUs, or one at each RSU and perhaps a cloud above them. Only
            learners that are ``KeepsModels`` get several.
        districts: number of districts, one around each RSU; silo ``i`` belongs to district ``i % districts``.
        figure: the value that the selection policy needs of every update, such as ``SIMILARITY``; empty for none.
        pictures: whether the images are needed; a run without training needs only their number.
        joint: whether one vehicle's training may go to several aggregators; each of them repeats it, with the same
            result; see ``HandoverEffects.bases``.
    """

    streams: Streams
    device: str
    experiment: Experiment
    data_set: Any = None
    traffic: RecordedTraffic | None = None
    encoder: Any = None
    rule: str = DEFAULT_NAMES["aggregation"]
    aggregation: Any = None
    codec: Any = None
    download_codec: Any = None
    conduct: Any = None
    aggregators: tuple[str, ...] = (AGGREGATOR,)
    districts: int
    figure: str = ""
    pictures: bool
    joint: bool = False

    @property
    def max_staleness(self) -> int:
        """How many rounds old a base model may be (``round.max_staleness``); older models may be dropped."""
        return self.experiment.round.max_staleness


@runtime_checkable
class Learner(Protocol):
    """A federated learning method.

    Class attributes name it; ``Settings`` is a frozen keyword-only dataclass with the method's defaults. A learner that
    is also ``KeepsModels`` can be run with several aggregators. Six more members are optional:

    - ``payload: str``, what a participation sends over the radio links, in words;
    - ``equations: tuple[str, ...]``, the equations it implements, one a line;
    - ``defaults: Mapping[str, object]``, experiment settings by dotted key that suit it better than the general
      defaults, for example ``{"data.name": "road"}``. The user's settings take precedence;
    - ``scales: Mapping[str, Mapping[str, object]]``, other defaults by the name of a scale, such as ``{"paper":
      {"learning.encoder": "resnet18"}}``, in the tables ``learning``, ``encoder`` and ``data``. They must change only
      what is trained, not what ``cost`` returns for a timed model;
    - ``takes_aggregation_rule: bool``, whether ``aggregate`` uses the rule of its context; if not, any rule other than
      ``sync`` is refused;
    - ``takes_codec: bool``, whether ``train`` passes models and updates through the codecs and the conduct of its
      context; if not, they are refused.
    """

    name: ClassVar[str]
    task: ClassVar[str]
    paper: ClassVar[str]
    Settings: ClassVar[type]

    @classmethod
    def create(cls, context: LearnerContext, settings: Any) -> Learner:
        """Build the learner with its data and initial global model; InputError if data and settings do not fit.

        Torch's, NumPy's and Python's global random generators are seeded before the call.
        """
        ...

    def describe(self) -> Description:
        """Return the task's description for the run's record."""
        ...

    def series(self) -> Sequence[Series]:
        """Return the metrics that ``aggregate`` and ``evaluate`` report, in the order to show them."""
        ...

    def cost(self, silo: int) -> Cost:
        """Return payload (bytes) and work (FLOP) of a participation by a vehicle with the data of ``silo``."""
        ...

    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant (at least one) from its model ``base``, and return one update each, in order.

        It must not change any model, and a participant's result must not depend on who else is in the list.
        """
        ...

    def aggregate(self, updates: Sequence[Update], into: str = AGGREGATOR) -> Aggregation:
        """Aggregate finite updates into the newest model of the aggregator ``into``, and end its round.

        Called once a round, with an empty list if nobody committed (the model is kept). A learner with one model per
        silo updates the models of the updates' silos instead; ``into`` is then always ``single``.
        """
        ...

    def evaluate(self, *, final: bool, aggregator: str = AGGREGATOR) -> Mapping[str, float]:
        """Return finite metrics of an aggregator's newest model by name; ``final`` asks for expensive ones too."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all state that a resumed run needs: flat names to tensors.

        The global model, or the mean of the silos' models, is under ``model.*``. An aggregator other than ``single``
        has ``NAME/model.*``. The state of silo i is under ``silo.i.*``. An unchanged tensor of a silo or of a named
        aggregator may be the same object as at the last call, and is then not written again; so tensors must never be
        changed in place.
        """
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; training then gives the same bits as without interruption."""
        ...

    def sample_images(self, kernels_px: Sequence[float], count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return example images blurred with each kernel length, shape (len(kernels_px), count, H, W, C), uint8."""
        ...


@runtime_checkable
class KeepsModels(Protocol):
    """Further methods of a learner for several aggregators, or for trained models that are handed over between RSUs.

    Such a learner keeps a sequence of models for each aggregator, all starting from the same one, and follows
    ``Participant.handover``. ``Learner.create`` raises InputError if there are several aggregators and the settings
    leave no model at an RSU.
    """

    def keep(self, models: Collection[ModelKey]) -> None:
        """Keep these models, however old, until the next call; drop others older than ``max_staleness`` versions.

        Participants not yet aggregated started from these models or mix them, or the backhaul still carries them.
        Called before ``aggregate`` and ``merge``, which make newer models.
        """
        ...

    def merge(self, sources: Mapping[ModelKey, float], into: ModelKey) -> None:
        """Store the weighted mean of models as a model of an aggregator.

        BatchNorm's statistics and counters are averaged like weights. The memory of the aggregation rule, and FedCo's
        queue of keys, stay those of the aggregator. A single source is copied bit for bit.

        Args:
            sources: models that are kept, and their weights, at least 0 and summing to 1.
            into: the aggregator's newest model, which is replaced (nobody has started from it), or the one after that.
        """
        ...

    def spread(self, aggregators: Sequence[str]) -> float:
        """Return how far aggregators' newest models are from their mean: the mean of |w_r - mean| / |mean| over r.

        Norms are Euclidean, over the trained parameters; 0 for one aggregator.
        """
        ...
