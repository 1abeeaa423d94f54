"""A vehicle's participation in a round: download, training on board, upload, backhaul."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import simpy

from vnetsim.learning import Cost, HandoverEffects, ModelKey
from vnetsim.radio.channel import Channel, Transfer
from vnetsim.simulation.backhaul import Backhaul
from vnetsim.simulation.links import Link
from vnetsim.simulation.tasks import Activity, Interrupt, Signal, Task, until
from vnetsim.simulation.vehicle import OpenWindow, Vehicle
from vnetsim.storage.rows import Stage

if TYPE_CHECKING:
    from vnetsim.simulation.aggregator import Aggregator


class HandoverStep(NamedTuple):
    """A handover of a participation."""

    time_s: float  # when ``from_rsu_id`` ended to serve the vehicle (s)
    from_rsu_id: str
    to_rsu_id: str
    stage: Stage  # what the participation was doing before
    moved_bytes: float | None  # what the interrupted stage had moved (B); None if the handover ends the participation
    gap_s: float  # how long no RSU served the vehicle (s)
    policy: str  # the ``handover.policy`` that was applied: ``forward`` where another one could not be


class Segment(NamedTuple):
    """A finished or cut stage of a participation."""

    stage: Stage
    rsu_id: str  # the RSU that served it when the segment began; empty outside coverage
    begin_s: float
    seconds: float
    # received in a download, sent in an upload, or sent to other vehicles in an exchange (B); of a cut transfer, what
    # arrived
    moved_bytes: float


class Coverage(NamedTuple):
    """Where a vehicle is served: its window, the RSU's channel and backhaul, and the radio link."""

    window: OpenWindow
    channel: Channel
    backhaul: Backhaul
    link: Link
    from_s: float  # when it may begin to send and receive there (s), after the interruption of a handover


@dataclass(slots=True, eq=False)
class Work:
    """A vehicle's training on board, which can be interrupted; several participations may share it."""

    planned_share: float | None = None  # share of the whole training to be done; None before it begins
    total_s: float = 0.0  # how long that takes (s)
    trained_s: float = 0.0  # how long the vehicle has trained (s), without a stretch of training under way
    _done_s: float = 0.0
    _begin_s: float = 0.0

    @property
    def share(self) -> float:
        """Share that is done, in [0, 1]; 1 if there is nothing to do."""
        return self._done_s / self.total_s if self.total_s > 0 else 1.0

    def start(self, now_s: float) -> float:
        """Continue the training now (s), and return how long the rest takes (s)."""
        self._begin_s = now_s
        return self.total_s - self._done_s

    def stop(self, now_s: float) -> None:
        """Interrupt the training now (s); only after ``start``."""
        self._done_s = min(self.total_s, self._done_s + now_s - self._begin_s)


class Predicted(NamedTuple):
    """The rest of a window, as predicted at the invitation (s)."""

    straight_s: float  # if the vehicle drives straight on at its present speed; infinite if it stands
    history_s: float | None  # by the mean of earlier windows from the same approach; None before the first


class Invitation(NamedTuple):
    """What a participation begins with."""

    coverage: Coverage  # where the vehicle was invited
    base: ModelKey  # the model to download
    cost: Cost  # payload and work
    predicted: Predicted  # the rest of the window
    train_s: float  # how long the whole training takes on board (s)


class _Moved(Interrupt):
    """Another RSU serves the vehicle from now on, or none does; see ``Participation.move``."""

    def __init__(self, *, keep: bool, model: ModelKey | None) -> None:
        super().__init__()
        self.keep, self.model = keep, model


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Participation:
    """One vehicle's part in one round. It begins when the object is created; ``_life`` lists its stages in order.

    If the learner has an exchange between vehicles, it waits for that before or after the training: its owner calls
    ``begin_exchange`` and, when the exchange is over, ``proceed``. When another RSU begins to serve the vehicle, or
    none does, the owner may ``move`` it: training goes on, and transfers go on over the next RSU. The owner may ``cut``
    it at any time.
    """

    # whether the time in ``waiting`` counts in the energy of this participation
    waiting_needs_energy: ClassVar[bool] = True

    env: simpy.Environment
    invitation: Invitation
    owner: Aggregator  # the aggregator that invited it; another one may take it over
    work: Work = field(default_factory=Work)  # its training; several participations of a vehicle may share one
    coverage: Coverage | None = field(init=False)  # where it is served; None outside coverage
    # what it is doing. ``outside``: waiting to be covered again. ``backhaul``: the update is on its way from the RSU
    # to the aggregator; the vehicle is done.
    stage: Stage = field(init=False)
    base: ModelKey = field(init=False)  # the model that it downloaded first
    # models of other aggregators in its update so far; ``bases`` is empty
    handover: HandoverEffects = field(default_factory=HandoverEffects, init=False)
    # the model being downloaded for mixing; None if there is none
    arriving: ModelKey | None = field(default=None, init=False)
    handovers: list[HandoverStep] = field(default_factory=list, init=False)  # its handovers, in order of time
    segments: list[Segment] = field(default_factory=list, init=False)  # finished stages, in order
    peers: tuple[Participation, ...] = field(default=(), init=False)  # participations with which its exchange completed
    neighbours: int = field(default=0, init=False)  # number of vehicles with which it began an exchange
    exchange_bytes: float = field(default=0.0, init=False)  # bytes over the air in the exchanges that it sent (B)
    worked_s: float = field(default=0.0, init=False)  # how long it computed for others in the exchange (s)
    _stage_begin_s: float = field(init=False)
    _stage_rsu_id: str = field(init=False)
    _on_air: tuple[Channel, Transfer] | None = field(default=None, init=False)
    _exchange_begins: Signal = field(init=False)
    _exchange_ends: Signal = field(init=False)
    _task: Task = field(init=False)

    def __post_init__(self) -> None:
        self.coverage = self.invitation.coverage
        self.base = self.invitation.base
        self._task = Task(self._life())

    @property
    def window(self) -> OpenWindow:
        """The window in which it was invited."""
        return self.invitation.coverage.window

    @property
    def speed_mps(self) -> float:
        """Speed at entry that its vehicle reports (m/s)."""
        return self.window.speed_mps

    @property
    def version(self) -> int:
        """The version of its owner's model from which its staleness counts, also after a handover."""
        return self.base.version if self.handover.counted_from is None else self.handover.counted_from

    @property
    def needs_coverage(self) -> bool:
        """Whether it ends if the vehicle leaves coverage in the exchange; False if only an empty upload follows."""
        cost = self.invitation.cost
        return cost.exchange is None or cost.exchange.before_training or cost.upload_bytes > 0

    @property
    def start_s(self) -> float:
        """When it was invited (s)."""
        return self.segments[0].begin_s if self.segments else self._stage_begin_s

    def bases(self) -> tuple[ModelKey, ...]:
        """Return the models that its training may need; it starts from their mean."""
        return (self.base,)

    def trained_from(self) -> tuple[ModelKey, HandoverEffects]:
        """Return the model that it trained from, and the models of other aggregators in its update."""
        return self.base, self.handover

    def totals(self) -> tuple[Mapping[Stage, float], Mapping[Stage, float]]:
        """Return seconds and moved bytes of its finished segments, by stage; 0 for stages that it was not in."""
        seconds: dict[Stage, float] = defaultdict(float)
        moved_bytes: dict[Stage, float] = defaultdict(float)
        for segment in self.segments:
            seconds[segment.stage] += segment.seconds
            moved_bytes[segment.stage] += segment.moved_bytes
        return seconds, moved_bytes

    def begin_exchange(self, neighbours: int) -> None:
        """Begin the round's exchange now, with ``neighbours`` other vehicles."""
        self.neighbours = neighbours
        self._exchange_begins()

    def proceed(self, peers: tuple[Participation, ...]) -> None:
        """Go on after the exchange, which was completed with ``peers``."""
        self.peers = peers
        self._exchange_ends()

    def move(self, coverage: Coverage | None, *, keep: bool, model: ModelKey | None = None) -> None:
        """Go on elsewhere, or outside coverage.

        Args:
            coverage: where; None outside coverage, where training goes on and transfers wait.
            keep: whether a transfer under way continues; otherwise it starts again.
            model: to be downloaded there before the training ends, in place of the model that it is downloading, or to
                be mixed into its own; None for no other model.
        """
        self.coverage = coverage
        self._task.interrupt(_Moved(keep=keep, model=model))

    def cut(self) -> Stage:
        """End it now and append its stage to ``segments``; return that or, outside coverage, the interrupted one."""
        doing = self.segments[-1].stage if self.stage == "outside" else self.stage
        self._task.stop()
        self._book()
        if self.stage == "training":
            self.work.stop(self.env.now)
        self.stage = "over"
        return doing

    def _life(self) -> Activity:
        """Go through the stages in order, then hand the update to the owner."""
        exchange = self.invitation.cost.exchange
        yield from self._transfer("download")
        if exchange is not None and exchange.before_training:
            yield from self._exchange()
        yield from self._train()
        if exchange is not None and not exchange.before_training:
            yield from self._exchange()
        yield from self._transfer("upload")
        yield from self._backhaul()
        self.stage = "over"
        self.owner.receive_update(self)

    def _transfer(self, stage: Literal["download", "upload"]) -> Activity:
        """Move all bytes over one RSU after another, waiting outside coverage; ``move`` may change the model."""
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
                    if self.work.planned_share is None:
                        self.base = moved.model
                    else:
                        self.arriving = moved.model
            else:
                self._book()
                return

    def _send(self, stage: Literal["download", "upload"], size_bytes: float, coverage: Coverage) -> Activity:
        """Send bytes over one RSU from ``coverage.from_s`` on; a download first waits until the RSU has the model."""
        if coverage.from_s > self.env.now:
            yield self.env.timeout(coverage.from_s - self.env.now)
        link, done = coverage.link, Signal()
        rate_bps = link.uplink_bps
        if stage == "download":
            model, whole_bytes = self.arriving or self.base, self.invitation.cost.download_bytes
            copy = coverage.backhaul.fetch(coverage.window.rsu.id, model, whole_bytes)
            if not copy.fired:
                yield copy
            rate_bps = link.downlink_bps
        transfer = coverage.channel.send(size_bytes, rate_bps, done, update_s=link.update_s)
        self._on_air = coverage.channel, transfer
        if stage == "upload":
            self._upload_begins()
        yield done

    def _upload_begins(self) -> None:
        """Handle that the update is on the air; here nothing."""

    def _exchange(self) -> Activity:
        """Wait for the round's exchange and then for its end; the owner carries it out."""
        self._exchange_begins, self._exchange_ends = Signal(), Signal()
        self._begin("waiting")
        self.owner.wait_for_exchange(self)
        yield from until(self._exchange_begins)
        self._book()
        self._begin("exchange")
        yield from until(self._exchange_ends)
        self._book()

    def _train(self) -> Activity:
        """Train on board, inside coverage or not; pause to download each model from ``move``, and mix it in then."""
        work = self.work
        self._begin("training")
        if work.planned_share is None:
            work.planned_share = self.owner.training_share(self)
            work.total_s = self.invitation.train_s * work.planned_share
        rest = self.env.timeout(work.start(self.env.now))
        while True:
            try:
                yield rest
            except _Moved as moved:
                self._book()
                self.arriving = moved.model
            else:
                self._book()
                return
            if self.arriving is not None:
                work.stop(self.env.now)
                yield from self._transfer("download")
                mixed = (*self.handover.mixed, (work.share, self.arriving))
                self.handover = replace(self.handover, mixed=mixed)
                self.arriving = None
                rest = self.env.timeout(work.start(self.env.now))
            self._begin("training")

    def _backhaul(self) -> Activity:
        """Wait until the backhaul has brought the update from RSU to owner; adds no segment if that takes no time."""
        assert self.coverage is not None
        self._begin("backhaul")
        rsu_id, size_bytes = self.coverage.window.rsu.id, self.invitation.cost.upload_bytes
        yield from until(self.coverage.backhaul.deliver(rsu_id, self.owner.name, size_bytes))
        if self.env.now > self._stage_begin_s:
            self._book()

    def _begin(self, stage: Stage) -> None:
        """Enter a stage now, at the RSU that serves the vehicle."""
        self.stage, self._stage_begin_s = stage, self.env.now
        self._stage_rsu_id = self.coverage.window.rsu.id if self.coverage else ""

    def _book(self) -> float:
        """End the stage now: abort its transfer, append it to ``segments``, and return the bytes that it moved (B)."""
        moved_bytes = 0.0
        if self._on_air is not None:
            channel, transfer = self._on_air
            moved_bytes, self._on_air = channel.abort(transfer), None
        elif self.stage == "exchange":
            moved_bytes = self.exchange_bytes
        seconds = self.env.now - self._stage_begin_s
        if self.stage == "training":
            self.work.trained_s += seconds
        self.segments.append(
            Segment(
                stage=self.stage,
                rsu_id=self._stage_rsu_id,
                begin_s=self._stage_begin_s,
                seconds=seconds,
                moved_bytes=moved_bytes,
            )
        )
        return moved_bytes


class InFlight:
    """The participations of an aggregator that are under way, one for each vehicle; ``len`` counts those in coverage.

    Iteration yields all, in order of beginning or takeover; they may be removed meanwhile.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._by_vehicle: dict[Vehicle, Participation] = {}
        self._outside = 0

    def __len__(self) -> int:
        return len(self._by_vehicle) - self._outside

    def __iter__(self) -> Iterator[Participation]:
        return iter(tuple(self._by_vehicle.values()))

    def of(self, vehicle: Vehicle) -> Participation:
        """Return a vehicle's participation; KeyError if it has none."""
        return self._by_vehicle[vehicle]

    def add(self, participation: Participation) -> None:
        """Add a participation inside coverage, and enter the aggregator in its vehicle's ``served_by``."""
        vehicle = participation.window.vehicle
        self._by_vehicle[vehicle] = participation
        vehicle.served_by.append(self._name)

    def remove(self, participation: Participation) -> None:
        """Remove a participation that has ended or that another aggregator takes over."""
        vehicle = participation.window.vehicle
        del self._by_vehicle[vehicle]
        self._outside -= participation.coverage is None
        vehicle.served_by.remove(self._name)

    def move(
        self, participation: Participation, coverage: Coverage | None, *, keep: bool, model: ModelKey | None
    ) -> None:
        """Let a participation go on at another RSU, or outside coverage with None; see ``Participation.move``."""
        self._outside += (coverage is None) - (participation.coverage is None)
        participation.move(coverage, keep=keep, model=model)

    def models(self) -> Iterator[ModelKey]:
        """Yield the models that are needed to train the participations; a model may come more than once."""
        for participation in self._by_vehicle.values():
            yield from (*participation.bases(), *(model for _, model in participation.handover.mixed))
            if participation.arriving is not None:
                yield participation.arriving
