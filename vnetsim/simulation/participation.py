"""One participation of a vehicle in a round: download, training on board, upload, each a segment of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import simpy

from vnetsim.experiment.camera import Camera
from vnetsim.learning import Cost, ModelKey, Participant, Peer
from vnetsim.simulation.stages import Coverage, Delivery, Handed, Stage, Work
from vnetsim.simulation.vehicle import OpenWindow


class Predicted(NamedTuple):
    """The rest of a window as predicted at an invitation (s), by predictor.

    Args:
        straight_s: straight on at the present speed; infinite for a vehicle that stands.
        history_s: the mean of earlier windows from the same approach; None before the first.
    """

    straight_s: float
    history_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a participation begins with.

    Args:
        coverage: where it was invited.
        base: the model that is downloaded.
        cost: payload and work.
        predicted: the rest of its window, as predicted.
        train_s: seconds of the whole training.
    """

    coverage: Coverage
    base: ModelKey
    cost: Cost
    predicted: Predicted
    train_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a participation that was spent in one stage.

    Args:
        stage: what it was doing.
        rsu_id: the RSU that covered it when the segment began; empty outside coverage.
        begin_s: when it began (s).
        seconds: how long it took, or took until it was cut (s).
        moved_bytes: received in a download, sent in an upload, or sent to other vehicles in an exchange (B); also what
            arrived of a transfer that was cut.
    """

    stage: Stage
    rsu_id: str
    begin_s: float
    seconds: float
    moved_bytes: float


@dataclass(slots=True, kw_only=True, eq=False)
class Origin:
    """From which models a participation has come, and over which RSUs; see ``vnetsim.learning.Participant``.

    Args:
        base: the model that it downloaded first.
        counted_from: the version of its owner's model from which its staleness counts, where ``base`` is another's.
        carried: what its owner takes of it.
        mixed: models that it mixed into its own, with the share of its training that it had done by then.
        arriving: the one that it is downloading for that.
        handovers: in order of time.
    """

    base: ModelKey
    counted_from: int | None = None
    carried: Literal["model", "change"] = "model"
    mixed: tuple[tuple[float, ModelKey], ...] = ()
    arriving: ModelKey | None = None
    handovers: list[Handed] = field(default_factory=list)

    @property
    def version(self) -> int:
        """The version of its owner's model from which its staleness counts."""
        return self.base.version if self.counted_from is None else self.counted_from


class Owner(Protocol):
    """Whose round a participation is to count for, and who is told what becomes of it.

    Attributes:
        name: the aggregator's.
    """

    name: str

    def share(self, participation: Participation) -> float:
        """Return the share of its training that it is to do, in (0, 1]; asked when the training begins."""
        ...

    def ready(self, participation: Participation) -> None:
        """Take note that it waits for the round's exchange from now on."""
        ...

    def uploaded(self, participation: Participation) -> None:
        """Take note that the last byte of its update has arrived."""
        ...


class Participation:
    """A vehicle on its way through one round: download, then training, then upload, from the moment it is made.

    Where the learner has an exchange between vehicles, it waits for that before or after the training: its owner calls
    ``begin_exchange`` and, when the exchanges are over, ``proceed``. When another RSU serves the vehicle, or none does,
    its owner may let it ``move``: it trains on, and transfers go on over the next RSU.

    Plain callbacks on SimPy events, not a SimPy process: a cut takes effect at once, and whatever a callback raises
    leaves the event loop as the object it is (SimPy re-creates exceptions that pass through a process).

    Args:
        env: clock (s).
        invitation: what it begins with.
        owner: who invited it; another one may take it over.

    Attributes:
        owner: see above.
        stage: what it is doing; ``outside`` is to wait until it is covered again, ``backhaul`` until its update,
            with which the vehicle is done, has come from the RSU to the aggregator.
        coverage: where it is now; None while it is outside coverage.
        origin: the models that it has come from.
        segments: what it has done so far, in order; the present stage is not in it.
        work_share: the share of its training that was to be done; None until that begins.
        peers: with whom its exchange completed.
        neighbours: with how many vehicles it began one.
        exchange_bytes: bytes over the air for the exchanges in which it is the sender.
        worked_s: how long it computed for others in the exchange (s).
    """

    __slots__ = (
        "_began",
        "_delivery",
        "_env",
        "_work",
        "coverage",
        "exchange_bytes",
        "invitation",
        "neighbours",
        "origin",
        "owner",
        "peers",
        "segments",
        "stage",
        "work_share",
        "worked_s",
    )

    def __init__(self, *, env: simpy.Environment, invitation: Invitation, owner: Owner) -> None:
        self.invitation = invitation
        self.coverage: Coverage | None = invitation.coverage
        self.stage: Stage
        self.segments: list[Segment] = []
        self.work_share: float | None = None
        self.peers: tuple[Participation, ...] = ()
        self.neighbours = 0
        self.exchange_bytes = 0.0
        self.worked_s = 0.0
        self.owner = owner
        self.origin = Origin(base=invitation.base)
        self._env = env
        self._delivery = Delivery(env)
        self._work = Work(env)
        self._send("download")

    @property
    def window(self) -> OpenWindow:
        """The window in which it was invited."""
        return self.invitation.coverage.window

    @property
    def needs_coverage(self) -> bool:
        """Whether anything but its exchange still has to happen inside the window."""
        cost = self.invitation.cost
        return cost.exchange is None or cost.exchange.before_training or cost.upload_bytes > 0

    def spent(self) -> tuple[Mapping[Stage, float], Mapping[Stage, float]]:
        """Return how long it was in each stage (s), and the bytes that it moved in it (B); 0 for others."""
        seconds: dict[Stage, float] = defaultdict(float)
        moved_bytes: dict[Stage, float] = defaultdict(float)
        for segment in self.segments:
            seconds[segment.stage] += segment.seconds
            moved_bytes[segment.stage] += segment.moved_bytes
        return seconds, moved_bytes

    def begin_exchange(self, neighbours: int) -> None:
        """Stop waiting: the round's exchange, with so many others, begins now."""
        self._book()
        self._begin("exchange")
        self.neighbours = neighbours

    def proceed(self, peers: tuple[Participation, ...]) -> None:
        """Go on after the exchange, which completed with ``peers``."""
        exchange = self.invitation.cost.exchange
        assert exchange is not None
        self._book()
        self.peers = peers
        if exchange.before_training:
            self._start_training()
        else:
            self._send("upload")

    @property
    def start_s(self) -> float:
        """When it was invited (s)."""
        return self.segments[0].begin_s if self.segments else self._began[0]

    @property
    def doing(self) -> Stage:
        """Its stage, or what leaving coverage interrupted: ``training`` is then done, and waits."""
        return self.segments[-1].stage if self.stage == "outside" else self.stage

    def move(self, coverage: Coverage | None, *, keep: bool, model: ModelKey | None = None) -> None:
        """Be served elsewhere from now on, or nowhere.

        Args:
            coverage: where; None outside coverage, where it trains on, and waits with all else.
            keep: whether what has arrived of a transfer need not be sent again.
            model: to be downloaded there, where it has not finished its training: in place of the model that it was
                downloading, or to be mixed with its own.
        """
        doing = self.doing
        if model is not None and (doing == "download" or self.stage == "training"):
            self._book(keep=False)
            self._work.stop()
            if self.work_share is None:
                self.origin.base = model
            else:
                self.origin.arriving = model
            doing = "download"
        else:
            self._book(keep=keep)
        self.coverage = coverage
        if doing == "training" and self.stage == "training":
            self._begin("training")
        elif coverage is None:
            self._begin("outside")
        else:
            self._send("download" if doing == "download" else "upload")

    def cut(self) -> Stage:
        """End it now, book the seconds and bytes used until now, and return what it was doing."""
        doing = self.doing
        self._book()
        self._work.stop()
        self.stage = "over"
        return doing

    def _begin(self, stage: Stage) -> None:
        self.stage = stage
        self._began: tuple[float, str] = self._env.now, self.coverage.window.rsu.id if self.coverage else ""

    def _book(self, *, keep: bool = False) -> None:
        """Keep the present stage as a segment that ends now, and what has arrived of a transfer if it is to go on."""
        moved_bytes = 0.0
        if self.stage in ("download", "upload", "outside"):
            moved_bytes = self._delivery.stop(keep=keep)
        elif self.stage == "exchange":
            moved_bytes = self.exchange_bytes
        begin_s, rsu_id = self._began
        self.segments.append(
            Segment(
                stage=self.stage,
                rsu_id=rsu_id,
                begin_s=begin_s,
                seconds=self._env.now - begin_s,
                moved_bytes=moved_bytes,
            )
        )

    def _send(self, stage: Literal["download", "upload"]) -> None:
        assert self.coverage is not None
        cost = self.invitation.cost
        self._begin(stage)
        if stage == "download":
            model = self.origin.arriving or self.origin.base
            self._delivery.start(cost.download_bytes, self.coverage, self._downloaded, model)
        else:
            self._delivery.start(cost.upload_bytes, self.coverage, self._uploaded, None)

    def _downloaded(self) -> None:
        self._book()
        exchange, origin = self.invitation.cost.exchange, self.origin
        if origin.arriving is not None:
            origin.mixed += ((self._work.share, origin.arriving),)
            origin.arriving = None
            self._begin("training")
            self._work.go_on(self._trained)
        elif exchange is not None and exchange.before_training:
            self._wait()
        else:
            self._start_training()

    def _wait(self) -> None:
        self._begin("waiting")
        self.owner.ready(self)

    def _start_training(self) -> None:
        self._begin("training")
        self.work_share = self.owner.share(self)
        self._work.plan(self.invitation.train_s * self.work_share)
        self._work.go_on(self._trained)

    def _trained(self, _: object) -> None:
        self._book()
        exchange = self.invitation.cost.exchange
        if exchange is not None and not exchange.before_training:
            self._wait()
        elif self.coverage is None:
            self._begin("outside")
        else:
            self._send("upload")

    def _uploaded(self) -> None:
        self._book()
        assert self.coverage is not None
        self._begin("backhaul")
        rsu_id, size_bytes = self.coverage.window.rsu.id, self.invitation.cost.upload_bytes
        self.coverage.backhaul.deliver(rsu_id, self.owner.name, size_bytes, self._delivered)

    def _delivered(self) -> None:
        if self.stage != "backhaul":  # the round was over before
            return
        if self._env.now > self._began[0]:
            self._book()
        self.stage = "over"
        self.owner.uploaded(self)


def participant_of(participation: Participation, round_index: int, camera: Camera) -> Participant:
    """Return what the learner is told of a participation that committed.

    Args:
        participation: complete.
        round_index: the round for which it counts.
        camera: gives the blur level.
    """
    window, (seconds, _), origin = participation.window, participation.spent(), participation.origin
    last = participation.segments[-1]
    return Participant(
        round=round_index,
        base=origin.base,
        vehicle_id=window.vehicle.id,
        rsu_id=window.rsu.id,
        silo=window.vehicle.silo,
        earlier=window.vehicle.earlier,
        speed_mps=window.speed_mps,
        level_px=camera.level_px(window.speed_mps),
        peers=tuple(_peer(peer, camera) for peer in participation.peers),
        neighbours=participation.neighbours,
        download_s=seconds["download"],
        train_s=seconds["training"],
        upload_s=seconds["upload"],
        stay_s=last.begin_s + last.seconds - window.enter_s,
        work_share=1.0 if participation.work_share is None else participation.work_share,
        counted_from=origin.counted_from,
        carried=origin.carried,
        mixed=origin.mixed,
        chance=window.chance,
    )


def _peer(participation: Participation, camera: Camera) -> Peer:
    window = participation.window
    return Peer(
        vehicle_id=window.vehicle.id,
        silo=window.vehicle.silo,
        earlier=window.vehicle.earlier,
        speed_mps=window.speed_mps,
        level_px=camera.level_px(window.speed_mps),
        neighbours=participation.neighbours,
    )
