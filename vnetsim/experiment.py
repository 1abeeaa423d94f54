"""The experiment's settings: one validated tree, defaults in one place, TOML and dotted overrides.

SI units inside; km/h only where a name says so. Every leaf can be set by ``--set table.key=value`` and by a key of
the same name in an experiment TOML file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vnetsim.blur import Camera
from vnetsim.errors import InputError


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)


def _positive(table: str, settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        _require(math.isfinite(value) and value > 0, f"{table}.{name} must be positive and finite, got {value}.")


def _not_negative(table: str, settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        _require(math.isfinite(value) and value >= 0, f"{table}.{name} must be at least 0 and finite, got {value}.")


@dataclass(frozen=True, kw_only=True)
class TrafficSettings:
    """Where vehicles come from.

    Args:
        backend: ``libsumo`` runs SUMO in this process, ``traci`` beside it, over a socket; ``auto`` is ``libsumo``, but
            ``traci`` where traffic alone is recorded. The traffic is the same.
        gui: show sumo-gui (implies ``traci``).
        seed: SUMO's seed; None honours the .sumocfg's own (SUMO's default 23423 when it sets none).
        repeat: play the scenario again, with the next seed, until the rounds are done; time runs on.
        rsu: RSUs as ``JUNCTION``, ``x,y`` or either with ``:range_m``; empty takes the scenario's POIs, else the
            busiest signalised junction.
        range_m: coverage radius of an RSU that names none (m).
        net: net file for FCD recordings whose RSU is named by junction; empty for none.
    """

    backend: Literal["auto", "libsumo", "traci"] = "auto"
    gui: bool = False
    seed: int | None = None
    repeat: bool = True
    rsu: tuple[str, ...] = ()
    range_m: float = 250.0
    net: str = ""

    def __post_init__(self) -> None:
        _positive("traffic", self, "range_m")


@dataclass(frozen=True, kw_only=True)
class GaussianSettings:
    """The truncated-Gaussian speed model: FLSimCo's mobility, straight through the disc.

    Args:
        v_min_kmh: lowest speed (km/h); ``v_max_kmh`` highest.
        v_max_kmh: see ``v_min_kmh``.
        mean_kmh: mean of the untruncated Gaussian (km/h).
        sd_kmh: its standard deviation (km/h), > 0.
        arrivals_per_s: rate of the Poisson arrivals, all directions together (1/s).
        directions: names of the approaches, equally likely; the k-th comes from bearing 360 k / n degrees, the first
            from the north.
        lateral_m: standard deviation of the distance between a vehicle's line and the RSU (m); 0 drives every
            vehicle through the centre.
        duration_s: length of the simulated time (s).
        range_m: coverage radius (m).
    """

    v_min_kmh: float = 60.0
    v_max_kmh: float = 150.0
    mean_kmh: float = 105.0
    sd_kmh: float = 25.0
    arrivals_per_s: float = 0.5
    directions: tuple[str, ...] = ("north", "east", "south", "west")
    lateral_m: float = 0.0
    duration_s: float = 900.0
    range_m: float = 500.0

    def __post_init__(self) -> None:
        _positive("gaussian", self, "v_min_kmh", "v_max_kmh", "sd_kmh", "arrivals_per_s", "duration_s", "range_m")
        _not_negative("gaussian", self, "lateral_m")
        _require(math.isfinite(self.mean_kmh), f"gaussian.mean_kmh must be finite, got {self.mean_kmh}.")
        _require(
            self.v_min_kmh < self.v_max_kmh,
            f"gaussian.v_min_kmh must be below gaussian.v_max_kmh, got {self.v_min_kmh} and {self.v_max_kmh}.",
        )
        _require(len(self.directions) > 0, "gaussian.directions must name at least one direction.")
        _require(
            len(set(self.directions)) == len(self.directions),
            f"gaussian.directions must differ from each other, got {list(self.directions)}.",
        )


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """The radio link between RSU and vehicle.

    Args:
        model: ``tr37885`` is the urban line-of-sight path loss of 3GPP TR 37.885 with Shannon capacity;
            ``constant`` gives every active transfer the airtime share of ``rate_bps``.
        rate_bps: rate of the ``constant`` model (bit/s).
        carrier_hz: carrier frequency (Hz).
        bandwidth_hz: channel bandwidth (Hz).
        rsu_power_dbm: transmit power of the RSU (dBm).
        vehicle_power_dbm: transmit power of a vehicle (dBm).
        noise_figure_db: receiver noise figure (dB).
        shadowing_db: standard deviation of the shadowing (dB), drawn per window; the TR specifies 3 dB for LOS.
        efficiency: share of the Shannon capacity that is reached, in (0, 1].
        max_spectral_efficiency: cap (bit/s/Hz).
        rsu_height_m: antenna height of the RSU (m).
        vehicle_height_m: antenna height of a vehicle (m).
        update_s: how often a transfer's rate follows the vehicle's position (s).
    """

    model: Literal["tr37885", "constant"] = "tr37885"
    rate_bps: float = 20e6
    carrier_hz: float = 5.9e9
    bandwidth_hz: float = 10e6
    rsu_power_dbm: float = 23.0
    vehicle_power_dbm: float = 23.0
    noise_figure_db: float = 9.0
    shadowing_db: float = 3.0
    efficiency: float = 0.6
    max_spectral_efficiency: float = 5.0
    rsu_height_m: float = 5.0
    vehicle_height_m: float = 1.6
    update_s: float = 1.0

    def __post_init__(self) -> None:
        _positive(
            "link",
            self,
            "rate_bps",
            "carrier_hz",
            "bandwidth_hz",
            "efficiency",
            "max_spectral_efficiency",
            "rsu_height_m",
            "vehicle_height_m",
            "update_s",
        )
        _not_negative("link", self, "noise_figure_db", "shadowing_db")
        _require(self.efficiency <= 1, f"link.efficiency must be at most 1, got {self.efficiency}.")
        for name in ("rsu_power_dbm", "vehicle_power_dbm"):
            _require(math.isfinite(getattr(self, name)), f"link.{name} must be finite, got {getattr(self, name)}.")


@dataclass(frozen=True, kw_only=True)
class ComputeSettings:
    """On-board computers: sustained speed drawn once per vehicle from a log-normal distribution.

    No source gives these; both are assumptions. The default is what a vehicle's control unit can spare beside its
    other work, which suits the small encoder: a visit takes about 20 s, a good part of a stay in coverage. The
    paper's ResNet-18 needs an accelerator, about 1e12.

    Args:
        median_flops: median sustained speed (FLOP/s).
        spread: standard deviation of the natural logarithm; 0 makes all vehicles equal.
    """

    median_flops: float = 1e9
    spread: float = 0.5

    def __post_init__(self) -> None:
        _positive("compute", self, "median_flops")
        _not_negative("compute", self, "spread")


@dataclass(frozen=True, kw_only=True)
class RoundSettings:
    """When a round selects, closes and aggregates.

    Args:
        quorum: committed uploads that close a round.
        invited: most participations in flight at once, over all RSUs; at least ``quorum``.
        deadline_s: a round closes this long after it opened with whatever has committed (s).
        max_staleness: 0 ends whoever is still in flight when a round closes; n > 0 lets them commit to one of the
            next n rounds.
        distinct_silos: whether a silo takes part at most once a round, whatever the number of vehicles that carry it.
        selection: who is invited first when more vehicles are waiting than may be invited: ``random`` draws, as is
            usual in federated learning; ``arrival`` takes whoever entered coverage first, and so has least time left.
    """

    quorum: int = 5
    invited: int = 8
    deadline_s: float = 60.0
    max_staleness: int = 0
    distinct_silos: bool = False
    selection: Literal["arrival", "random"] = "random"

    def __post_init__(self) -> None:
        _positive("round", self, "deadline_s")
        _require(self.quorum >= 1, f"round.quorum must be at least 1, got {self.quorum}.")
        _require(
            self.invited >= self.quorum,
            f"round.invited must be at least round.quorum ({self.quorum}), got {self.invited}.",
        )
        _require(self.max_staleness >= 0, f"round.max_staleness must be at least 0, got {self.max_staleness}.")


@dataclass(frozen=True, kw_only=True)
class ExchangeSettings:
    """Exchange between vehicles, for learners that have one.

    A round first gathers: vehicles that are ready wait for each other until ``round.quorum`` of them are there or the
    round's deadline has come. Then all exchange at once, over the sidelink whose radio is that of ``link``.

    Args:
        topology: ``contact`` pairs the vehicles that are in range of each other when the exchange begins; ``ring`` each
            with the next in order of arrival; ``complete`` all; ``star`` all, through the RSU alone. Learners that
            average at the RSU under ``star`` exchange nothing among vehicles then.
        range_m: two vehicles closer than this are in contact (m).
        relay: pairs out of range exchange through the RSU while both are covered.
        limit_s: an exchange that is not complete this long after the beginning is cut (s).
        shadowing_db: standard deviation of the shadowing between two vehicles (dB), drawn per pair and round; the
            TR specifies 3 dB for LOS.
    """

    topology: Literal["contact", "star", "ring", "complete"] = "contact"
    range_m: float = 150.0
    relay: bool = False
    limit_s: float = 30.0
    shadowing_db: float = 3.0

    def __post_init__(self) -> None:
        _positive("exchange", self, "range_m", "limit_s")
        _not_negative("exchange", self, "shadowing_db")


@dataclass(frozen=True, kw_only=True)
class SiloSettings:
    """Which data shard a vehicle carries; bound at its first entry into coverage.

    Args:
        count: number of silos.
        by: ``arrival`` deals silos round robin in order of first entry; ``approach`` does so among the silos of the
            vehicle's approach direction (silo i belongs to direction i mod ``approaches``).
        approaches: number of equal sectors around the RSU that count as directions, the first centred on north.
    """

    count: int = 95
    by: Literal["arrival", "approach"] = "arrival"
    approaches: int = 4

    def __post_init__(self) -> None:
        _require(self.count >= 1, f"silos.count must be at least 1, got {self.count}.")
        _require(
            1 <= self.approaches <= self.count,
            f"silos.approaches must be in 1..silos.count ({self.count}), got {self.approaches}.",
        )


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The images and how they are dealt to the silos.

    Args:
        name: with classes: ``signs`` is the built-in procedural set, ``cifar10`` reads CIFAR-10 through torchvision,
            ``npz`` an archive of images and labels (MedMNIST's layout or a plain one), ``folder`` one folder of images
            per class. With steering angles: ``road`` is the built-in procedural set, ``driving-log`` reads the
            Udacity simulator's ``driving_log.csv``, ``steering-npz`` an archive of ``imgs`` and ``ground_truths``.
        root: folder or file that holds (or receives) the data.
        download: fetch missing data into ``root``.
        train_images: images for training: how many a built-in set generates, or the first so many of another set, which
            must have them; 0 is the default of a built-in set, and all of another.
        test_images: the same for the test set.
        test_share: share of a set without a test split of its own that is held out, in (0, 1).
        image_px: side to which the images of ``npz``, ``folder``, ``road``, ``driving-log`` and ``steering-npz`` are
            brought (px); 0 is the set's default.
        side_correction: 0 takes the centre camera of a driving log alone; above, the left and right ones too, their
            steering angle corrected by so much towards the centre, in the log's unit.
        partition: ``iid``; with classes ``dirichlet`` with ``alpha``, ``approach`` (silos of one direction share
            classes) or ``label-skew`` (each silo lacks ``unseen_share`` of the classes); with steering angles
            ``drive``, ``block`` (stretches of time) or ``sign`` (of the angle).
        alpha: concentration of the Dirichlet distribution, > 0.
        unseen_share: share of the other classes that a silo lacks besides its own first one, in [0, 1]: at 0 it
            has them all, at 1 only one.
        min_images: every silo gets at least this many images; 0 divides them all, evenly where the partition allows.
    """

    name: str = "signs"
    root: str = ""
    download: bool = False
    train_images: int = 0
    test_images: int = 0
    test_share: float = 0.2
    image_px: int = 0
    side_correction: float = 0.0
    partition: Literal["iid", "dirichlet", "approach", "label-skew", "drive", "block", "sign"] = "iid"
    alpha: float = 0.1
    unseen_share: float = 0.5
    min_images: int = 0

    def __post_init__(self) -> None:
        _positive("data", self, "alpha")
        _not_negative("data", self, "side_correction")
        for name in ("train_images", "test_images", "min_images", "image_px"):
            _require(getattr(self, name) >= 0, f"data.{name} must be at least 0, got {getattr(self, name)}.")
        _require(0 < self.test_share < 1, f"data.test_share must be between 0 and 1, got {self.test_share}.")
        _require(0 <= self.unseen_share <= 1, f"data.unseen_share must be in [0, 1], got {self.unseen_share}.")


@dataclass(frozen=True, kw_only=True)
class BlurSettings:
    """Which images get the physical motion kernel.

    Args:
        threshold_kmh: images of vehicles at or below this speed stay sharp (km/h).
        fraction: share of a vehicle's images that blur, in [0, 1]; the first ones of its silo.
    """

    threshold_kmh: float = 0.0
    fraction: float = 1.0

    def __post_init__(self) -> None:
        _not_negative("blur", self, "threshold_kmh")
        _require(0 <= self.fraction <= 1, f"blur.fraction must be in [0, 1], got {self.fraction}.")


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """Whose payload and work decide who commits.

    Learners differ in what they learn and in what they send, and what they send decides which vehicles are done before
    they leave. With one schedule for all, the same vehicles commit whatever the learner, and only the learning differs.

    Args:
        learner: payload and work of every visit are this learner's, named as ``Experiment.learner``; empty for the
            run's own. Whatever it exchanges between vehicles must be of the same kind as what the run's own does.
        learning: its settings; of the run's own ``learning`` nothing is taken.
    """

    learner: str = ""
    learning: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(bool(self.learner) or not self.learning, "schedule.learning: needs schedule.learner, whose it is.")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that decides a run's result.

    Args:
        scenario: ``.sumocfg``, FCD file, or run directory; ``"gaussian"`` for the truncated-Gaussian model.
        seed: seed of every random stream, >= 0.
        rounds: rounds to run, >= 1.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        learner: name of an entry point in ``vnetsim.learners``, or ``path/to/file.py:Class``.
        evaluate_every: rounds between evaluations; the first and the last model are always evaluated.
        learning: the learner's own settings, validated by its ``Settings``.
    """

    scenario: str
    seed: int = 0
    rounds: int = 20
    device: str = "auto"
    learner: str = "flsimco"
    evaluate_every: int = 1
    traffic: TrafficSettings = field(default_factory=TrafficSettings)
    gaussian: GaussianSettings = field(default_factory=GaussianSettings)
    link: LinkSettings = field(default_factory=LinkSettings)
    compute: ComputeSettings = field(default_factory=ComputeSettings)
    round: RoundSettings = field(default_factory=RoundSettings)
    exchange: ExchangeSettings = field(default_factory=ExchangeSettings)
    silos: SiloSettings = field(default_factory=SiloSettings)
    data: DataSettings = field(default_factory=DataSettings)
    camera: Camera = field(default_factory=Camera)
    blur: BlurSettings = field(default_factory=BlurSettings)
    learning: Mapping[str, Any] = field(default_factory=dict)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)

    def __post_init__(self) -> None:
        _require(self.seed >= 0, f"seed must be at least 0, got {self.seed}.")
        _require(self.rounds >= 1, f"rounds must be at least 1, got {self.rounds}.")
        _require(self.evaluate_every >= 1, f"evaluate_every must be at least 1, got {self.evaluate_every}.")
