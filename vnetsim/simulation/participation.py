"""One participation of a vehicle in a round: download, training on board, upload, each a segment of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import simpy

from vnetsim.learning import Cost, ModelKey
from vnetsim.radio.channel import Channel, Transfer
from vnetsim.simulation.stages import Coverage, HandoverStep, Segment, Work
from vnetsim.simulation.tasks import Activity, Interrupt, Signal, Task, until
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


class Invitation(NamedTuple):
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
    handovers: list[HandoverStep] = field(default_factory=list)
    together: list[Participation] = field(default_factory=list)
    arrived: bool = False

    @property
    def version(self) -> int:
        """The version of its owner's model from which its staleness counts."""
        return self.base.version if self.counted_from is None else self.counted_from


class Owner(Protocol):
    """Whose round a participation is to count for, and who is told what becomes of it."""

    name: str

    def training_share(self, participation: Participation) -> float:
        """Return the share of its training that it is to do, in (0, 1]; asked when the training begins."""
        ...

    def wait_for_exchange(self, participation: Participation) -> None:
        """Take note that it waits for the round's exchange from now on."""
        ...

    def receive_update(self, participation: Participation) -> None:
        """Take note that the last byte of its update has arrived."""
        ...


class _Moved(Interrupt):
    """Another RSU serves the vehicle from now on, or none does.

    Args:
        keep: whether what has arrived of a transfer need not be sent again.
        model: to be downloaded there; None to go on with what it was doing.
    """

    def __init__(self, *, keep: bool, model: ModelKey | None) -> None:
        super().__init__()
        self.keep, self.model = keep, model


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Participation:
    """A vehicle's way through one round, from the moment it is made: ``_life`` tells it in order.

    Where the learner has an exchange between vehicles, it waits for that before or after the training: its owner calls
    ``begin_exchange`` and, when the exchanges are over, ``proceed``. When another RSU serves the vehicle, or none does,
    its owner may ``move`` it: it trains on, and transfers go on over the next RSU. It may be ``cut`` at any time.

    Participations of one vehicle for several aggregators may have one training (``beside``). Once each has its model,
    or has ended, the first that is left trains and the others wait; then all upload.

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
        turn: fires when it is the one to train for all that wait, or when another one has trained for it.
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
    turn: Signal = field(init=False)
    _stage_begin_s: float = field(init=False)
    _stage_rsu_id: str = field(init=False)
    _on_air: tuple[Channel, Transfer] | None = field(default=None, init=False)
    _exchange_begins: Signal = field(init=False)
    _exchange_ends: Signal = field(init=False)
    _task: Task = field(init=False)

    def __post_init__(self, beside: Participation | None) -> None:
        self.coverage = self.invitation.coverage
        base = self.invitation.base
        self.origin = replace(beside.origin, base=base, handovers=[]) if beside else Origin(base=base, work=Work())
        self.origin.together.append(self)
        self._task = Task(self._life())

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

    @property
    def start_s(self) -> float:
        """When it was invited (s)."""
        return self.segments[0].begin_s if self.segments else self._stage_begin_s

    @property
    def train_s(self) -> float:
        """How long its vehicle has trained for it, also where another one of ``together`` has booked that (s)."""
        return sum(
            segment.seconds for one in self.origin.together for segment in one.segments if segment.stage == "training"
        )

    def totals(self) -> tuple[Mapping[Stage, float], Mapping[Stage, float]]:
        """Return how long it was in each stage (s), and the bytes that it moved in it (B); 0 for others."""
        seconds: dict[Stage, float] = defaultdict(float)
        moved_bytes: dict[Stage, float] = defaultdict(float)
        for segment in self.segments:
            seconds[segment.stage] += segment.seconds
            moved_bytes[segment.stage] += segment.moved_bytes
        return seconds, moved_bytes

    def begin_exchange(self, neighbours: int) -> None:
        """Stop waiting: the round's exchange begins now, for this one with so many others."""
        self.neighbours = neighbours
        self._exchange_begins()

    def proceed(self, peers: tuple[Participation, ...]) -> None:
        """Go on after the exchange, which completed with ``peers``."""
        self.peers = peers
        self._exchange_ends()

    def move(self, coverage: Coverage | None, *, keep: bool, model: ModelKey | None = None) -> None:
        """Be served elsewhere from now on, or nowhere.

        Args:
            coverage: where; None outside coverage, where it trains on, and waits with all else.
            keep: whether what has arrived of a transfer need not be sent again.
            model: to be downloaded there, where it has not finished its training: in place of the model that it was
                downloading, or to be mixed with its own.
        """
        self.coverage = coverage
        self._task.interrupt(_Moved(keep=keep, model=model))

    def cut(self) -> Stage:
        """End it now, book the seconds and bytes used until now, and return what it was doing.

        That is ``training`` also while it waits for another one's download or training; outside coverage it is what
        leaving interrupted, and ``training`` where only the upload is left.
        """
        doing = self.segments[-1].stage if self.stage == "outside" else self.stage
        if self.stage == "waiting" and self.origin.arrived:
            doing = "training"
        self._task.stop()
        self._book()
        if self.stage == "training":
            self.origin.work.stop(self.env.now)
        self.stage = "over"
        self._let_first_train()
        return doing

    def _life(self) -> Activity:
        exchange = self.invitation.cost.exchange
        yield from self._transfer("download")
        if exchange is not None and exchange.before_training:
            yield from self._exchange()
        yield from self._train() if len(self.origin.together) == 1 else self._train_together()
        if exchange is not None and not exchange.before_training:
            yield from self._exchange()
        yield from self._transfer("upload")
        yield from self._backhaul()
        self.stage = "over"
        self.owner.receive_update(self)

    def _transfer(self, stage: Literal["download", "upload"]) -> Activity:
        """Move all bytes, over one RSU after the other; wait while there is none."""
        cost, arrived_bytes = self.invitation.cost, 0.0
        size_bytes = cost.download_bytes if stage == "download" else cost.upload_bytes
        while True:
            try:
                if self.coverage is None:
                    self._begin("outside")
                    yield Signal()  # never fires: it waits to be moved
                else:
                    self._begin(stage)
                    yield from self._send(stage, size_bytes - arrived_bytes, self.coverage)
            except _Moved as moved:
                moved_bytes = self._book()
                arrived_bytes = arrived_bytes + moved_bytes if moved.keep else 0.0
                if stage == "download" and moved.model is not None:
                    arrived_bytes = 0.0
                    if self.work_share is None:
                        self.origin.base = moved.model
                    else:
                        self.origin.arriving = moved.model
            else:
                self._book()
                return

    def _send(self, stage: Literal["download", "upload"], size_bytes: float, coverage: Coverage) -> Activity:
        """Move bytes over one RSU, once the vehicle may and, for a download, the RSU has the model."""
        if coverage.from_s > self.env.now:
            yield self.env.timeout(coverage.from_s - self.env.now)
        link, done = coverage.link, Signal()
        rate_bps = link.uplink_bps
        if stage == "download":
            model, whole_bytes = self.origin.arriving or self.origin.base, self.invitation.cost.download_bytes
            copy = coverage.backhaul.fetch(coverage.window.rsu.id, model, whole_bytes)
            if not copy.fired:
                yield copy
            rate_bps = link.downlink_bps
        transfer = coverage.channel.send(size_bytes, rate_bps, done, update_s=link.update_s)
        self._on_air = coverage.channel, transfer
        if stage == "upload":
            self._let_others_upload()
        yield done

    def _exchange(self) -> Activity:
        """Wait for the round's exchange and then for its end; the owner has the vehicles exchange."""
        self._exchange_begins, self._exchange_ends = Signal(), Signal()
        self._begin("waiting")
        self.owner.wait_for_exchange(self)
        yield from until(self._exchange_begins)
        self._book()
        self._begin("exchange")
        yield from until(self._exchange_ends)
        self._book()

    def _train(self) -> Activity:
        """Do what is left of the training, wherever the vehicle is; download the models that are to be mixed in."""
        work = self.origin.work
        self._begin("training")
        if self.work_share is None:
            share = self.owner.training_share(self)
            for one in self.origin.together:
                one.work_share = share
            work.total_s = self.invitation.train_s * share
        rest = self.env.timeout(work.start(self.env.now))
        while True:
            try:
                yield rest
            except _Moved as moved:
                self._book()
                self.origin.arriving = moved.model
            else:
                self._book()
                return
            if self.origin.arriving is not None:
                work.stop(self.env.now)
                yield from self._transfer("download")
                self.origin.mixed += ((work.share, self.origin.arriving),)
                self.origin.arriving = None
                rest = self.env.timeout(work.start(self.env.now))
            self._begin("training")

    def _train_together(self) -> Activity:
        """Train for all of ``together``, or wait for the one that does."""
        self.turn, self.origin.arrived = Signal(), True
        self._begin("waiting")
        self._let_first_train()
        yield from until(self.turn)
        self._book()
        if not self.origin.work.done:
            yield from self._train()
            self.origin.work.done = True

    def _let_first_train(self) -> None:
        """Let the first that is left train, where all that are left have their models and none trains."""
        left = [one for one in self.origin.together if one.stage != "over"]
        if left and all(one.origin.arrived and one.stage == "waiting" for one in left):
            left[0].turn()

    def _let_others_upload(self) -> None:
        for one in self.origin.together:
            if one.stage == "waiting":
                one.turn()

    def _backhaul(self) -> Activity:
        """Bring the update from the RSU to the owner; no time at all is no segment."""
        assert self.coverage is not None
        self._begin("backhaul")
        rsu_id, size_bytes = self.coverage.window.rsu.id, self.invitation.cost.upload_bytes
        yield from until(self.coverage.backhaul.deliver(rsu_id, self.owner.name, size_bytes))
        if self.env.now > self._stage_begin_s:
            self._book()

    def _begin(self, stage: Stage) -> None:
        self.stage, self._stage_begin_s = stage, self.env.now
        self._stage_rsu_id = self.coverage.window.rsu.id if self.coverage else ""

    def _book(self) -> float:
        """Keep the present stage as a segment that ends now; return what a transfer in it moved (B)."""
        moved_bytes = 0.0
        if self._on_air is not None:
            channel, transfer = self._on_air
            moved_bytes, self._on_air = channel.abort(transfer), None
        elif self.stage == "exchange":
            moved_bytes = self.exchange_bytes
        self.segments.append(
            Segment(
                stage=self.stage,
                rsu_id=self._stage_rsu_id,
                begin_s=self._stage_begin_s,
                seconds=self.env.now - self._stage_begin_s,
                moved_bytes=moved_bytes,
            )
        )
        return moved_bytes
