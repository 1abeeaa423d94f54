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
    moved_bytes: float  # received in a download, else sent (B); of a cut transfer, what arrived


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

    planned_share: float | None = None  # share of the whole training to be done; None before the training begins
    total_s: float = 0.0  # how long the planned share takes (s)
    trained_s: float = 0.0  # how long the vehicle has trained (s), without a stretch of training under way
    _done_s: float = 0.0
    _begin_s: float = 0.0

    @property
    def done_share(self) -> float:
        """Share of the planned training done up to the last ``stop``, in [0, 1]; 1 if there is nothing to do."""
        return self._done_s / self.total_s if self.total_s > 0 else 1.0

    def start(self, now_s: float) -> float:
        """Begin or continue the training at ``now_s`` (s), and return how long the rest takes (s)."""
        self._begin_s = now_s
        return self.total_s - self._done_s

    def stop(self, now_s: float) -> None:
        """Interrupt the training at ``now_s`` (s), and count the time since ``start``, which must come before."""
        self._done_s = min(self.total_s, self._done_s + now_s - self._begin_s)


class PredictedRest(NamedTuple):
    """The rest of a window, as predicted at the invitation (s)."""

    straight_s: float  # if the vehicle drives straight on at its present speed; infinite if it stands
    history_s: float | None  # by the mean of earlier windows from the same approach; None before the first


class Invitation(NamedTuple):
    """What a participation begins with."""

    coverage: Coverage  # where the vehicle was invited
    base: ModelKey  # the model to download
    cost: Cost  # payload and work
    predicted: PredictedRest  # the rest of the window
    train_s: float  # how long the whole training takes on board (s)


@dataclass(eq=False)
class _Moved(Interrupt):
    """Another RSU serves the vehicle from now on, or none does; see ``Participation.move``."""

    resume_transfer: bool
    model: ModelKey | None


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Participation:
    """One vehicle's part in one round. It begins when the object is created; ``_run_stages`` lists its stages in order.

    If the learner has an exchange between vehicles, the participation waits for it before or after the training: its
    owner calls ``begin_exchange`` and, when the exchange is over, ``proceed``. When another RSU begins to serve the
    vehicle, or none does, the owner may call ``move``. The owner may call ``cut`` at any time.
    """

    waiting_needs_energy: ClassVar[bool] = True  # whether the time in ``waiting`` counts in the energy

    env: simpy.Environment
    invitation: Invitation
    owner: Aggregator  # the aggregator that invited it; another one may take it over
    work: Work = field(default_factory=Work)  # its training; several participations of a vehicle may share one
    coverage: Coverage | None = field(init=False)  # where it is served; None outside coverage
    # what it is doing. ``outside``: waiting to be covered again. ``backhaul``: the update is on its way from the RSU
    # to the aggregator; the vehicle is done.
    stage: Stage = field(init=False)
    base: ModelKey = field(init=False)  # the model that it downloaded first
    handover: HandoverEffects = field(default_factory=HandoverEffects, init=False)  # so far; ``bases`` is empty
    arriving: ModelKey | None = field(default=None, init=False)  # the model being downloaded for mixing, if any
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
        self._task = Task(self._run_stages())

    @property
    def window(self) -> OpenWindow:
        """The coverage window in which the vehicle was invited."""
        return self.invitation.coverage.window

    @property
    def speed_mps(self) -> float:
        """Speed at entry into coverage, which the vehicle reports (m/s)."""
        return self.window.speed_mps

    @property
    def version(self) -> int:
        """The version of the owner's model from which staleness counts; after a handover, of the new owner's model."""
        return self.base.version if self.handover.counted_from is None else self.handover.counted_from

    @property
    def needs_coverage(self) -> bool:
        """Whether leaving coverage in the exchange ends the participation; False if only an empty upload follows."""
        cost = self.invitation.cost
        return cost.exchange is None or cost.exchange.before_training or cost.upload_bytes > 0

    @property
    def start_s(self) -> float:
        """When the vehicle was invited (s)."""
        return self.segments[0].begin_s if self.segments else self._stage_begin_s

    def base_models(self) -> tuple[ModelKey, ...]:
        """Return the models that the vehicle downloads before it trains; the training starts from their mean."""
        return (self.base,)

    def training_base(self) -> tuple[ModelKey, HandoverEffects]:
        """Return the model with which the training began, and what handovers changed of the update."""
        return self.base, self.handover

    def stage_totals(self) -> tuple[Mapping[Stage, float], Mapping[Stage, float]]:
        """Return the seconds and the moved bytes of finished segments, each by stage; a stage without any gives 0."""
        seconds: dict[Stage, float] = defaultdict(float)
        moved_bytes: dict[Stage, float] = defaultdict(float)
        for segment in self.segments:
            seconds[segment.stage] += segment.seconds
            moved_bytes[segment.stage] += segment.moved_bytes
        return seconds, moved_bytes

    def begin_exchange(self, neighbours: int) -> None:
        """End the stage ``waiting`` and begin ``exchange``, with this number of other vehicles."""
        self.neighbours = neighbours
        self._exchange_begins()

    def proceed(self, peers: tuple[Participation, ...]) -> None:
        """End the stage ``exchange`` and begin the next; ``peers`` are those with which the exchange was completed."""
        self.peers = peers
        self._exchange_ends()

    def move(self, coverage: Coverage | None, *, resume_transfer: bool, model: ModelKey | None = None) -> None:
        """Continue at another RSU or, with ``coverage`` None, outside coverage: training goes on, transfers wait.

        A transfer under way keeps the bytes that have arrived if ``resume_transfer``; otherwise it starts again. A new
        ``model`` replaces the model being downloaded; a training vehicle downloads it and mixes it into its own model.
        """
        self.coverage = coverage
        self._task.interrupt(_Moved(resume_transfer=resume_transfer, model=model))

    def cut(self) -> Stage:
        """End the participation now; return the stage that it was in or, outside coverage, the stage before that."""
        doing = self.segments[-1].stage if self.stage == "outside" else self.stage
        self._task.stop()
        self._end_stage()
        if self.stage == "training":
            self.work.stop(self.env.now)
        self.stage = "over"
        return doing

    def _run_stages(self) -> Activity:
        """Download, train (with the exchange before or after), upload, wait for the backhaul; then notify the owner."""
        exchange = self.invitation.cost.exchange
        yield from self._transfer("download")
        if exchange is not None and exchange.before_training:
            yield from self._wait_for_exchange()
        yield from self._train()
        if exchange is not None and not exchange.before_training:
            yield from self._wait_for_exchange()
        yield from self._transfer("upload")
        yield from self._wait_for_backhaul()
        self.stage = "over"
        self.owner.receive_update(self)

    def _transfer(self, stage: Literal["download", "upload"]) -> Activity:
        """Download or upload all bytes, RSU after RSU; wait outside coverage. ``move`` may replace the model."""
        cost, arrived_bytes = self.invitation.cost, 0.0
        size_bytes = cost.download_bytes if stage == "download" else cost.upload_bytes
        while True:
            try:
                if self.coverage is None:
                    self._begin_stage("outside")
                    yield Signal()  # never fires: it waits to be moved
                else:
                    self._begin_stage(stage)
                    yield from self._send_over_rsu(stage, size_bytes - arrived_bytes, self.coverage)
            except _Moved as moved:
                moved_bytes = self._end_stage()
                arrived_bytes = arrived_bytes + moved_bytes if moved.resume_transfer else 0.0
                if stage == "download" and moved.model is not None:
                    arrived_bytes = 0.0
                    if self.work.planned_share is None:
                        self.base = moved.model
                    else:
                        self.arriving = moved.model
            else:
                self._end_stage()
                return

    def _send_over_rsu(self, stage: Literal["download", "upload"], size_bytes: float, coverage: Coverage) -> Activity:
        """Move bytes over one RSU, not before ``coverage.from_s``; a download waits until the RSU has the model."""
        if coverage.from_s > self.env.now:
            yield self.env.timeout(coverage.from_s - self.env.now)
        link, done = coverage.link, Signal()
        rate_bps = link.uplink_bps
        if stage == "download":
            model, whole_bytes = self.arriving or self.base, self.invitation.cost.download_bytes
            yield from until(coverage.backhaul.fetch(coverage.window.rsu.id, model, whole_bytes))
            rate_bps = link.downlink_bps
        transfer = coverage.channel.send(size_bytes, rate_bps, done, update_s=link.update_s)
        self._on_air = coverage.channel, transfer
        if stage == "upload":
            self._on_upload_begin()
        yield done

    def _on_upload_begin(self) -> None:
        """Do nothing; a subclass may react to the begin of an upload. Called after each (re)start at an RSU."""

    def _wait_for_exchange(self) -> Activity:
        """Wait until the owner calls ``begin_exchange``, then until ``proceed`` ends the exchange."""
        self._exchange_begins, self._exchange_ends = Signal(), Signal()
        self._begin_stage("waiting")
        self.owner.wait_for_exchange(self)
        yield from until(self._exchange_begins)
        self._end_stage()
        self._begin_stage("exchange")
        yield from until(self._exchange_ends)
        self._end_stage()

    def _train(self) -> Activity:
        """Train, inside coverage or not; pause to download a model that ``move`` brings, and record it as mixed in."""
        work = self.work
        self._begin_stage("training")
        if work.planned_share is None:
            work.planned_share = self.owner.training_share(self)
            work.total_s = self.invitation.train_s * work.planned_share
        rest = self.env.timeout(work.start(self.env.now))
        while True:
            try:
                yield rest
            except _Moved as moved:
                self._end_stage()
                self.arriving = moved.model
            else:
                self._end_stage()
                return
            if self.arriving is not None:
                work.stop(self.env.now)
                yield from self._transfer("download")
                mixed = (*self.handover.mixed, (work.done_share, self.arriving))
                self.handover = replace(self.handover, mixed=mixed)
                self.arriving = None
                rest = self.env.timeout(work.start(self.env.now))
            self._begin_stage("training")

    def _wait_for_backhaul(self) -> Activity:
        """Wait until the backhaul has brought the update from RSU to owner; append no segment if that takes no time."""
        assert self.coverage is not None
        self._begin_stage("backhaul")
        rsu_id, size_bytes = self.coverage.window.rsu.id, self.invitation.cost.upload_bytes
        yield from until(self.coverage.backhaul.deliver(rsu_id, self.owner.name, size_bytes))
        if self.env.now > self._stage_begin_s:
            self._end_stage()

    def _begin_stage(self, stage: Stage) -> None:
        """Begin a stage now; its segment will have the RSU that serves the vehicle now, or "" outside coverage."""
        self.stage, self._stage_begin_s = stage, self.env.now
        self._stage_rsu_id = self.coverage.window.rsu.id if self.coverage else ""

    def _end_stage(self) -> float:
        """End the stage now: abort its transfer, append its segment, and return the bytes that it moved (B)."""
        moved_bytes = 0.0
        if self._on_air is not None:
            channel, transfer = self._on_air
            moved_bytes, self._on_air = channel.abort(transfer), None
        elif self.stage == "exchange":
            moved_bytes = self.exchange_bytes
        seconds = self.env.now - self._stage_begin_s
        if self.stage == "training":
            self.work.trained_s += seconds
        self.segments.append(Segment(self.stage, self._stage_rsu_id, self._stage_begin_s, seconds, moved_bytes))
        return moved_bytes


class InFlight:
    """The participations of an aggregator that are under way, one for each vehicle; ``len`` counts those in coverage.

    Iteration yields all, in order of beginning or takeover; the loop's body may remove them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._by_vehicle: dict[Vehicle, Participation] = {}
        self._outside = 0

    def __len__(self) -> int:
        """Return the number of participations inside coverage."""
        return len(self._by_vehicle) - self._outside

    def __iter__(self) -> Iterator[Participation]:
        """Yield all participations, inside coverage or not, from a copy."""
        return iter(tuple(self._by_vehicle.values()))

    def participation_of(self, vehicle: Vehicle) -> Participation:
        """Return a vehicle's participation for this aggregator; KeyError if there is none."""
        return self._by_vehicle[vehicle]

    def add(self, participation: Participation) -> None:
        """Add a participation inside coverage, and append the aggregator's name to the vehicle's ``owner_names``."""
        vehicle = participation.window.vehicle
        self._by_vehicle[vehicle] = participation
        vehicle.owner_names.append(self._name)

    def remove(self, participation: Participation) -> None:
        """Remove a participation, and the aggregator's name from the vehicle's ``owner_names``."""
        vehicle = participation.window.vehicle
        del self._by_vehicle[vehicle]
        self._outside -= participation.coverage is None
        vehicle.owner_names.remove(self._name)

    def move(
        self, participation: Participation, coverage: Coverage | None, *, resume_transfer: bool, model: ModelKey | None
    ) -> None:
        """Call ``Participation.move``, and count the participation as inside or, with ``coverage`` None, outside."""
        self._outside += (coverage is None) - (participation.coverage is None)
        participation.move(coverage, resume_transfer=resume_transfer, model=model)

    def needed_models(self) -> Iterator[ModelKey]:
        """Yield the models still needed to train the participations; a model may come more than once."""
        for participation in self._by_vehicle.values():
            yield from (*participation.base_models(), *(model for _, model in participation.handover.mixed))
            if participation.arriving is not None:
                yield participation.arriving
