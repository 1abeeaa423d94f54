"""One participation of a vehicle in a round: download, training on board, upload, each a segment of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import simpy

from vnetsim.learning import Cost, ModelKey
from vnetsim.simulation.stages import Coverage, Delivery, Handed, Segment, Work
from vnetsim.simulation.vehicle import OpenWindow
from vnetsim.storage.rows import Stage


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
    """What a participation begins with."""

    coverage: Coverage
    base: ModelKey
    cost: Cost
    predicted: Predicted
    train_s: float


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
        work: its training.
        together: all whose training that is, the one that was invited first.
        arrived: whether ``base`` is one of the models whose mean they train from.
    """

    base: ModelKey
    work: Work
    counted_from: int | None = None
    carried: Literal["model", "change"] = "model"
    mixed: tuple[tuple[float, ModelKey], ...] = ()
    arriving: ModelKey | None = None
    handovers: list[Handed] = field(default_factory=list)
    together: list[Participation] = field(default_factory=list)
    arrived: bool = False

    @property
    def version(self) -> int:
        """The version of its owner's model from which its staleness counts."""
        return self.base.version if self.counted_from is None else self.counted_from


class Owner(Protocol):
    """Whose round a participation is to count for, and who is told what becomes of it."""

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


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Participation:
    """A vehicle on its way through one round: download, then training, then upload, from the moment it is made.

    Where the learner has an exchange between vehicles, it waits for that before or after the training: its owner calls
    ``begin_exchange`` and, when the exchanges are over, ``proceed``. When another RSU serves the vehicle, or none does,
    its owner may let it ``move``: it trains on, and transfers go on over the next RSU.

    Participations of one vehicle for several aggregators may have one training (``beside``). Once each has its model,
    or has ended, the first that is left trains and the others wait; then all upload.

    Plain callbacks on SimPy events, not a SimPy process: a cut takes effect at once, and whatever a callback raises
    leaves the event loop as the object it is (SimPy re-creates exceptions that pass through a process).

    Args:
        env: clock (s).
        invitation: what it begins with.
        owner: who invited it; another one may take it over.
        beside: one of the same vehicle that has just begun, with which it trains.

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

    env: simpy.Environment
    invitation: Invitation
    owner: Owner
    beside: InitVar[Participation | None] = None
    coverage: Coverage | None = field(init=False)
    stage: Stage = field(init=False)
    origin: Origin = field(init=False)
    segments: list[Segment] = field(default_factory=list, init=False)
    work_share: float | None = field(default=None, init=False)
    peers: tuple[Participation, ...] = field(default=(), init=False)
    neighbours: int = field(default=0, init=False)
    exchange_bytes: float = field(default=0.0, init=False)
    worked_s: float = field(default=0.0, init=False)
    _began: tuple[float, str] = field(init=False)
    _delivery: Delivery = field(init=False)

    def __post_init__(self, beside: Participation | None) -> None:
        self.coverage = self.invitation.coverage
        of = beside.origin if beside else Origin(base=self.invitation.base, work=Work(self.env))
        self.origin = replace(of, base=self.invitation.base, handovers=[])
        self.origin.together.append(self)
        self._delivery = Delivery(self.env)
        self._send("download")

    @property
    def window(self) -> OpenWindow:
        """The window in which it was invited."""
        return self.invitation.coverage.window

    @property
    def speed_mps(self) -> float:
        """The speed that its vehicle reports (m/s), one for all of ``together``."""
        return self.origin.together[0].window.speed_mps

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
        """Its stage, or what leaving coverage interrupted: ``training`` is then done, and waits.

        To wait for another one's download or training is ``training``.
        """
        if self.stage == "waiting" and self.origin.arrived:
            return "training"
        return self.segments[-1].stage if self.stage == "outside" else self.stage

    @property
    def train_s(self) -> float:
        """How long its vehicle has trained for it, also where another one of ``together`` has booked that (s)."""
        return sum(one.spent()[0]["training"] for one in self.origin.together)

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
            self.origin.work.stop()
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
        if self.stage == "training":
            self.origin.work.stop()
        self.stage = "over"
        self._train_together()
        return doing

    def _begin(self, stage: Stage) -> None:
        self.stage = stage
        self._began = self.env.now, self.coverage.window.rsu.id if self.coverage else ""

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
                seconds=self.env.now - begin_s,
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
            origin.mixed += ((self.origin.work.share, origin.arriving),)
            origin.arriving = None
            self._begin("training")
            self.origin.work.go_on(self._trained)
        elif exchange is not None and exchange.before_training:
            self._wait()
        elif len(origin.together) > 1:
            origin.arrived = True
            self._begin("waiting")
            self._train_together()
        else:
            self._start_training()

    def _train_together(self) -> None:
        """Let the first that is left train, where all that are left have their models and none trains."""
        left = [one for one in self.origin.together if one.stage != "over"]
        if left and all(one.origin.arrived and one.stage == "waiting" for one in left):
            left[0].lead()

    def lead(self) -> None:
        """Train for all of ``together``, or do the rest of that."""
        self._book()
        if self.work_share is None:
            self._start_training()
        else:
            self._begin("training")
            self.origin.work.go_on(self._trained)

    def _wait(self) -> None:
        self._begin("waiting")
        self.owner.ready(self)

    def _start_training(self) -> None:
        self._begin("training")
        share = self.owner.share(self)
        for one in self.origin.together:
            one.work_share = share
        self.origin.work.total_s = self.invitation.train_s * share
        self.origin.work.go_on(self._trained)

    def _trained(self, _: object) -> None:
        self._book()
        exchange = self.invitation.cost.exchange
        if exchange is not None and not exchange.before_training:
            self._wait()
        elif self.coverage is None:
            self._begin("outside")
        else:
            self._send("upload")
            for one in self.origin.together:
                one.hand_in()

    def hand_in(self) -> None:
        """Upload what another one has trained, if it waits for that."""
        if self.stage == "waiting":
            self._book()
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
        if self.env.now > self._began[0]:
            self._book()
        self.stage = "over"
        self.owner.uploaded(self)
