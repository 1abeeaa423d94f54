"""What a learner must offer and what it is given: the only thing the simulator knows of learning.

Nothing here imports torch. Timing never depends on weights: the simulator asks a learner for its cost, settles who
commits, and only then has it train the committed participants, all together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from vnetsim.experiment import DEFAULT_NAMES, Experiment
from vnetsim.learner_facts import AGGREGATOR, Cost, Exchange, ModelCost, Series
from vnetsim.random_streams import Streams

__all__ = ["AGGREGATOR", "Cost", "Exchange", "ModelCost", "Series"]

SIMILARITY, GRADIENT_NORM = "similarity", "gradient norm"
"""What selection policies may ask of an update, over the parameters: MIDDLE's U(w_c, w_n - w_c) = max(0, cos), w_c the
cloud's newest model or, without one, the downloaded; and |w_n - w_base| / (learning rate x local steps)."""


class ModelKey(NamedTuple):
    """Which model: of which aggregator, and how many rounds that aggregator had closed when it became the model."""

    aggregator: str
    version: int


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A vehicle with which a participant completed an exchange; it need not have committed itself.

    Args:
        vehicle_id: the vehicle.
        silo: index of its silo.
        speed_mps: the speed it reports, at entry into coverage (m/s).
        level_px: its blur level (Camera.level_px).
        neighbours: with how many vehicles it began an exchange, as it tells the others.
        earlier: silos whose images still are a part of those that it holds, with their shares; the rest is of ``silo``.
    """

    vehicle_id: str
    silo: int
    speed_mps: float
    level_px: float
    neighbours: int = 0
    earlier: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Participant(Peer):
    """A committed participation that is now to be trained; the vehicle is what it is to its peers as well.

    Args:
        round: index of the round that aggregates it, from 0.
        base: the model it downloaded; its version is smaller than ``round`` when stale. Of another aggregator than the
            one that aggregates it, where the vehicle was handed over and carried its training along.
        rsu_id: the RSU that served it.
        peers: the neighbours with which its exchange completed, in order of arrival in the round: whose model it
            received, or at which its own was worked on and came back. A mutual exchange makes both each other's peers.
        download_s: seconds it spent receiving the model.
        train_s: seconds of its training on board.
        upload_s: seconds it spent sending.
        stay_s: seconds from its entry into the coverage of ``rsu_id`` to the end of its upload.
        work_share: share of its local steps that it did, in (0, 1]; below 1 only where ``Cost.steps`` allows it and the
            pace asked for it.
        counted_from: where ``base`` is of another aggregator: the version of the one that aggregates it from which on
            its staleness counts, that of the time of its download; None where ``base`` is its own.
        carried: what is aggregated of it: its ``model``, or its ``change``, which is added to the aggregator's newest
            model: w + (w_n - w_base), parameters alone. BatchNorm's statistics and counters are then w's.
        mixed: models that it downloaded while it trained, in order, each with the share of its local steps that it had
            done by then, in [0, 1]. There w_n <- (w + u w_n) / (1 + u), u = max(0, cos(w_n, w)) over the parameters
            (MIDDLE's on-device mixing; Zhang et al., ICPP 2023); it goes on with the rest of its steps, and its
            optimizer as it was. BatchNorm's statistics are mixed likewise.
        bases: where it downloaded several models before it trained: all of them, ``base`` the first. It starts from
            their mean (FedMes; Han et al., JSAC 39(12), 2021), and each of their aggregators that its update reaches
            is told of it by a participant of its own. Empty for ``base`` alone.
        passed: share of the run that had passed, in [0, 1]: the version of ``base`` over ``Experiment.rounds``, or the
            simulated time at which it was invited over the run's; the larger one where both end the run. Step sizes
            fall with it.
        chance: how likely it was to be invited, over the mean of those who waited with it; 1 where the selection policy
            tells none. What averages divides its weight by it; what the weights then lack to the sum 1, or exceed, is
            the weight of the aggregator's present model.
    """

    round: int
    base: ModelKey
    rsu_id: str
    peers: tuple[Peer, ...] = ()
    download_s: float = 0.0
    train_s: float = 0.0
    upload_s: float = 0.0
    stay_s: float = 0.0
    work_share: float = 1.0
    counted_from: int | None = None
    carried: Literal["model", "change"] = "model"
    mixed: tuple[tuple[float, ModelKey], ...] = ()
    bases: tuple[ModelKey, ...] = ()
    chance: float = 1.0
    passed: float = 0.0

    @property
    def started(self) -> tuple[str | int, ...]:
        """What tells its random draws from those of the vehicle's other participations.

        The round; with several aggregators the model that it began with, so that it draws the same wherever it ends.
        """
        return (self.round,) if self.base.aggregator == AGGREGATOR else self.base

    def steps_of(self, steps: int) -> int:
        """Return how many of ``steps`` local steps it did: its share of them to the nearest whole one, at least one."""
        return max(1, round(self.work_share * steps))


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """What one participant uploads.

    Args:
        participant: who.
        state: tensors by name, as in ``torch.nn.Module.state_dict``; empty where the learner has averaged it already.
        loss: mean training loss of the vehicle.
        finite: whether every value of ``state`` is finite; others are rejected and not aggregated.
        metrics: further per-participant figures.
        kept: tensors that are not sent and stay with the silo, for the learner's own bookkeeping.
        exchanges: a figure of each of its completed exchanges, by the other vehicle; see ``Description.exchange``.
        figure: what ``LearnerContext.figure`` asks for; None where it asks nothing, or ``state`` is not finite.
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
    """What ``aggregate`` made of a round.

    Args:
        weights: weight of each update, summing to 1, or all 0 when the model was kept.
        metrics: figures of the round.
        exchanges: a figure for completed exchanges by (sender, receiver), both vehicle ids; see
            ``Description.exchange``. For example the weight that the receiver gives to the sender's model.
    """

    weights: Sequence[float]
    metrics: Mapping[str, float]
    exchanges: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """What it takes to use the model that a run leaves, without the learner; ``model.safetensors`` tells it.

    Args:
        module: a ``torch.nn.Module`` of the model's architecture, its tensors named as in ``model.*``; not changed.
        returns: what it gives for images, in words.
        mean: of each channel; what the network is given are images in [0, 1], less ``mean``, over ``std``.
        std: of each channel.
        own_statistics: whether evaluation uses the BatchNorm statistics that the model carries; else it estimates them.
    """

    module: Any
    returns: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    own_statistics: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Description:
    """What the record and the report say of a learner's task.

    Args:
        encoder: name of the network, for example ``"resnet18"``.
        parameters: number of trainable parameters.
        image_shape: (C, H, W).
        class_names: labels in order; empty when the task has no classes. A regression may give the names of ranges.
        silo_label_counts: images per silo and class, shape (silos, classes).
        facts: further lines for the record, by title.
        exchange: what ``Aggregation.exchanges`` tells of an exchange, None for nothing.
        network: what ``model.safetensors`` tells of the network; None for the weights alone.
        partition: makes ``partition.csv``, which says what silo holds which image; None where nothing tells.
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


@dataclass(frozen=True, kw_only=True)
class LearnerContext:
    """Everything a learner is built from, besides its own settings.

    Args:
        streams: the learner's branch of the experiment's random streams.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``, already resolved and available.
        experiment: the settings of the run. Silo ``i`` belongs to the approach direction ``i % silos.approaches``.
        data_set: the data set that ``data.name`` names, with its settings; None for its defaults.
        encoder: likewise the encoder that the learner's setting ``encoder`` names.
        rule: name of the aggregation rule, see ``vnetsim.learning.aggregation``; another one than ``sync`` is given
            only to learners that say ``takes_aggregation_rule``.
        aggregation: the rule with its settings; None for its defaults.
        aggregators: names of all that have a model: one over all RSUs, or several, one at each RSU and perhaps a cloud.
            Several are given only to learners that are ``KeepsModels``.
        districts: number of districts, one around each RSU; silo ``i`` belongs to district ``i % districts``.
        figure: what the selection policy asks of every update, such as ``SIMILARITY``; empty for nothing.
        pictures: whether somebody will look at the images; where nobody trains it is their number alone that counts.
        joint: whether one training may be aggregated by several, each of which trains it for itself, with the same
            result; see ``Participant.bases``.
    """

    streams: Streams
    device: str
    experiment: Experiment
    data_set: Any = None
    encoder: Any = None
    rule: str = DEFAULT_NAMES["aggregation"]
    aggregation: Any = None
    aggregators: tuple[str, ...] = (AGGREGATOR,)
    districts: int
    figure: str = ""
    pictures: bool
    joint: bool = False

    @property
    def max_staleness(self) -> int:
        """How many rounds old a base model may be; older snapshots may be dropped."""
        return self.experiment.round.max_staleness


@runtime_checkable
class Learner(Protocol):
    """A federated learning method.

    Class attributes name it; ``Settings`` is a frozen keyword-only dataclass whose defaults are the method's. Four
    more members are optional:

    - ``payload: str``, what a participation moves over the radio links, in words;
    - ``equations: tuple[str, ...]``, the equations it implements, one a line;
    - ``defaults: Mapping[str, object]``, experiment settings by dotted key that suit it better than the general
      defaults, for example ``{"data.name": "road"}``. What the user sets goes before them;
    - ``takes_aggregation_rule: bool``, whether ``aggregate`` folds uploads by the rule that its context names; without
      it any other rule than ``sync`` is refused.

    One that is also ``KeepsModels`` may be run with several aggregators.
    """

    name: ClassVar[str]
    task: ClassVar[str]
    paper: ClassVar[str]
    Settings: ClassVar[type]

    @classmethod
    def create(cls, context: LearnerContext, settings: Any) -> Learner:
        """Build the learner with its data and initial global model.

        Raises:
            InputError: when data and settings do not fit.
        """
        ...

    def describe(self) -> Description:
        """Return what the record says of the task."""
        ...

    def series(self) -> Sequence[Series]:
        """Return the metrics that ``aggregate`` and ``evaluate`` report, in the order to show them."""
        ...

    def cost(self, silo: int) -> Cost:
        """Return payload and work of a participation by a vehicle that holds ``silo``."""
        ...

    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from its ``base``, the model that it downloaded; one update each, in order.

        Must not change any model, and must give a participant the same result whoever else is in the list.
        """
        ...

    def aggregate(self, updates: Sequence[Update], into: str = AGGREGATOR) -> Aggregation:
        """Fold finite updates into an aggregator's newest model, or into those of their silos, and end its round.

        Called once a round, with an empty list when nobody committed (the model is kept).
        """
        ...

    def evaluate(self, *, final: bool, aggregator: str = AGGREGATOR) -> Mapping[str, float]:
        """Return metrics of an aggregator's newest model; ``final`` asks for the expensive ones as well."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all state that a resumed run needs: flat names to tensors.

        The global model, or the silos' average, stands under ``model.*``; what belongs to silo i under ``silo.i.*``.
        Where ``LearnerContext.aggregators`` names others than ``single``, theirs stand under ``NAME/model.*``.
        One of a silo, or of an aggregator that has a NAME, that has not changed since the last call may be the same
        object, and is then not written again; so tensors that were returned are never changed in place.
        """
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; afterwards training gives the same bits as without interruption."""
        ...

    def sample_images(self, kernels_px: Sequence[float], count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return example images blurred with each kernel length, shape (len(kernels_px), count, H, W, C), uint8."""
        ...


@runtime_checkable
class KeepsModels(Protocol):
    """What a learner offers besides where a run has several aggregators, or hands trained models over between RSUs.

    Whoever offers it keeps a sequence of models for each aggregator, all beginning with the same one, and does what
    ``Participant`` says of ``counted_from``, ``carried``, ``mixed`` and ``bases``. ``Learner.create`` refuses several
    aggregators by an InputError where the learner's settings leave none at an RSU.
    """

    def keep(self, models: Collection[ModelKey]) -> None:
        """Take note of the models that are still needed, however old they are, until the next call.

        Vehicles that have not been aggregated yet started from them or mix them, wherever they will be aggregated, or
        they are on their way over the backhaul. To be called before whatever makes a newer one: ``aggregate`` and
        ``merge``. Without it ``LearnerContext.max_staleness`` alone says which are kept.
        """
        ...

    def merge(self, sources: Mapping[ModelKey, float], into: ModelKey) -> None:
        """Make the weighted mean of models one of an aggregator.

        It takes the place of the aggregator's newest, from which nobody may have started yet, or is added as the next.
        BatchNorm's statistics and counters are averaged like weights. What else belongs to an aggregator stays its own:
        what its aggregation rule remembers, and FedCo's queue of keys. One source alone is copied bit for bit.

        Args:
            sources: models that are kept, and their weights, at least 0 and summing to 1.
            into: the newest model of its aggregator, or the one after that.
        """
        ...

    def spread(self, aggregators: Sequence[str]) -> float:
        """Return how far the aggregators' newest models are from their mean: the mean of |w_r - mean| / |mean|.

        Euclidean norms over the trained parameters; 0 for one aggregator.
        """
        ...
