"""One participation of a vehicle in a round: download, training on board, upload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import simpy

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import VehiclePath
from vnetsim.learning import Cost
from vnetsim.radio.channel import Channel, Transfer
from vnetsim.simulation.links import Link
from vnetsim.simulation.silo_binding import Binding

Stage = Literal["download", "waiting", "exchange", "training", "outside", "upload", "over"]


@dataclass(slots=True, kw_only=True, eq=False)
class Vehicle:
    """A vehicle that was in coverage at least once.

    Args:
        id: the vehicle's id.
        binding: silo and approach.
        entries: windows it had so far, by RSU.
        windows: its open windows, the earliest first.
        participation: the one it is in, if any.
        last_round: the latest round that invited it or took its update; -1 for none.
        flops: speed of its computer (FLOP/s), None until it is needed.
    """

    id: str
    binding: Binding
    entries: dict[str, int] = field(default_factory=dict)
    windows: list[OpenWindow] = field(default_factory=list)
    participation: Participation | None = None
    last_round: int = -1
    flops: float | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class OpenWindow:
    """An open coverage window.

    Args:
        index: order of entry over all RSUs.
        vehicle: who.
        rsu: where.
        path: the path so far.
        earlier_windows: windows this vehicle had at this RSU before.
        link: radio link, None until it is needed.
        train_s: how long its vehicle trains (s), likewise.
        transfers_s: how long download and upload take with the whole airtime (s), where rates never change; likewise.
        straight_exit: how many points of the path were past when it was last reckoned when a vehicle leaves that goes
            straight on from there, and that time (s); likewise.
        invited: whether a participation was started in this window.
    """

    index: int
    vehicle: Vehicle
    rsu: Rsu
    path: VehiclePath
    earlier_windows: int
    link: Link | None = None
    train_s: float | None = None
    transfers_s: tuple[float, float] | None = None
    straight_exit: tuple[int, float] | None = None
    invited: bool = False

    @property
    def enter_s(self) -> float:
        """When the window opened (s)."""
        return self.path.time_s[0]

    @property
    def speed_mps(self) -> float:
        """Speed at entry (m/s), the one a vehicle reports."""
        return self.path.speed_mps[0]


class Predicted(NamedTuple):
    """The rest of a window as predicted at an invitation (s), by predictor.

    Args:
        straight_s: straight on at the present speed; infinite for a vehicle that stands.
        history_s: the mean of earlier windows from the same approach; None before the first.
    """

    straight_s: float
    history_s: float | None


class Participation:
    """A vehicle on its way through one round: download, then training, then upload, from the moment it is made.

    Where the learner has an exchange between vehicles, it waits for that before or after the training: its owner calls
    ``begin_exchange`` and, when the exchanges are over, ``proceed``. A vehicle that leaves coverage while it trains may
    go on: its owner calls ``uncover`` and, when it is covered again, ``cover``. What is trained meanwhile waits.

    Plain callbacks on SimPy events, not a SimPy process: a cut takes effect at once, and whatever a callback raises
    leaves the event loop as the object it is (SimPy re-creates exceptions that pass through a process).

    Args:
        env: clock (s).
        channel: the RSU's airtime.
        window: the window in which it happens.
        link: rates within that window.
        base_round: the round whose global model is downloaded.
        cost: payload and work.
        predicted: the rest of its window, as predicted.
        train_s: seconds of the whole training.
        share: called when the training begins; returns the share of it that is done, in (0, 1].
        on_ready: called when it begins to wait for the round's exchange.
        on_uploaded: called when the last byte of the upload has arrived.

    Attributes:
        stage: what it is doing; ``outside`` is to wait, trained, until it is covered again.
        coverage: the window it is in now; None while it is outside coverage.
        work_share: the share of its training that was to be done; None until that begins.
        upload_rsu_id: the RSU that its upload goes to, empty until that begins.
        peers: with whom its exchange completed.
        neighbours: with how many vehicles it began one.
        start_s: when it was made.
        download_s: seconds spent receiving, likewise ``wait_s``, ``exchange_s``, ``train_s``, ``outside_s`` and
            ``upload_s``.
        download_bytes: bytes received, likewise ``upload_bytes`` sent; also of a transfer that was cut.
        exchange_bytes: bytes over the air for the exchanges in which it is the sender.
    """

    __slots__ = (
        "_channel",
        "_env",
        "_on_ready",
        "_on_uploaded",
        "_share",
        "_since_s",
        "_timer",
        "_train_s",
        "_transfer",
        "_upload_size",
        "base_round",
        "coverage",
        "download_bytes",
        "download_s",
        "exchange_bytes",
        "exchange_s",
        "link",
        "neighbours",
        "outside_s",
        "peers",
        "plan",
        "predicted",
        "stage",
        "start_s",
        "train_s",
        "upload_bytes",
        "upload_rsu_id",
        "upload_s",
        "wait_s",
        "window",
        "work_share",
    )

    def __init__(
        self,
        *,
        env: simpy.Environment,
        channel: Channel,
        window: OpenWindow,
        link: Link,
        base_round: int,
        cost: Cost,
        predicted: Predicted,
        train_s: float,
        share: Callable[[Participation], float],
        on_ready: Callable[[Participation], None],
        on_uploaded: Callable[[Participation], None],
    ) -> None:
        self.window = window
        self.link = link
        self.plan = cost.exchange
        self.peers: tuple[Participation, ...] = ()
        self.neighbours = 0
        self.base_round = base_round
        self.stage: Stage = "download"
        self.start_s: float = env.now
        self.download_s = self.train_s = self.upload_s = 0.0
        self.wait_s = self.exchange_s = self.outside_s = 0.0
        self.download_bytes = self.upload_bytes = self.exchange_bytes = 0.0
        self.predicted = predicted
        self.coverage: OpenWindow | None = window
        self.work_share: float | None = None
        self.upload_rsu_id = ""
        self._env = env
        self._channel = channel
        self._share = share
        self._on_ready = on_ready
        self._on_uploaded = on_uploaded
        self._train_s = train_s
        self._upload_size = cost.upload_bytes
        self._since_s: float = env.now
        self._timer: simpy.Timeout | None = None
        self._transfer: Transfer = channel.send(
            cost.download_bytes, link.downlink_bps, self._downloaded, update_s=link.update_s
        )

    @property
    def needs_coverage(self) -> bool:
        """Whether anything but its exchange still has to happen inside the window."""
        return self.plan is None or self.plan.before_training or self._upload_size > 0

    def begin_exchange(self, neighbours: int) -> None:
        """Stop waiting: the round's exchange, with so many others, begins now."""
        self._book()
        self.stage = "exchange"
        self.neighbours = neighbours

    def proceed(self, peers: tuple[Participation, ...]) -> None:
        """Go on after the exchange, which completed with ``peers``."""
        assert self.plan is not None
        self._book()
        self.peers = peers
        if self.plan.before_training:
            self._start_training()
        else:
            self._start_upload()

    def uncover(self) -> None:
        """Go on with the training outside coverage."""
        assert self.stage == "training"
        self.coverage = None

    def cover(self, window: OpenWindow, channel: Channel, link: Link) -> None:
        """Be covered again: what is left to do happens in another window; a trained one uploads at once."""
        self.coverage, self._channel, self.link = window, channel, link
        if self.stage == "outside":
            self._book()
            self._start_upload()

    def cut(self) -> Stage:
        """End it now, book the seconds and bytes used until now, and return the stage in which it was."""
        stage = self.stage
        self._book()
        if self._timer is not None:
            self._timer.callbacks.clear()  # it stays in SimPy's queue, but keeps nothing alive
        self.stage = "over"
        return stage

    def _book(self) -> None:
        elapsed_s = self._env.now - self._since_s
        self._since_s = self._env.now
        if self.stage == "download":
            self.download_s = elapsed_s
            self.download_bytes = self._channel.abort(self._transfer)
        elif self.stage == "waiting":
            self.wait_s = elapsed_s
        elif self.stage == "exchange":
            self.exchange_s = elapsed_s
        elif self.stage == "training":
            self.train_s = elapsed_s
        elif self.stage == "outside":
            self.outside_s = elapsed_s
        elif self.stage == "upload":
            self.upload_s = elapsed_s
            self.upload_bytes = self._channel.abort(self._transfer)

    def _downloaded(self) -> None:
        self._book()
        if self.plan is not None and self.plan.before_training:
            self._wait()
        else:
            self._start_training()

    def _wait(self) -> None:
        self.stage = "waiting"
        self._on_ready(self)

    def _start_training(self) -> None:
        self.stage = "training"
        self.work_share = self._share(self)
        self._timer = self._env.timeout(self._train_s * self.work_share)
        self._timer.callbacks.append(self._trained)

    def _trained(self, _: object) -> None:
        self._book()
        self._timer = None
        if self.plan is not None and not self.plan.before_training:
            self._wait()
        elif self.coverage is None:
            self.stage = "outside"
        else:
            self._start_upload()

    def _start_upload(self) -> None:
        assert self.coverage is not None
        self.stage = "upload"
        self.upload_rsu_id = self.coverage.rsu.id
        self._transfer = self._channel.send(
            self._upload_size, self.link.uplink_bps, self._uploaded, update_s=self.link.update_s
        )

    def _uploaded(self) -> None:
        self._book()
        self.stage = "over"
        self._on_uploaded(self)
