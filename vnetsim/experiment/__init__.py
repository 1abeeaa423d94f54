"""The settings of an experiment: one validated tree of dataclasses with all defaults.

Values are in SI units, except where a name says otherwise, such as km/h. ``--set table.key=value`` or the same key in
an experiment TOML file sets any value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from vnetsim.errors.bounds import A_SOURCE, TRAINS, Within, check_bounds, needed, require
from vnetsim.experiment.arithmetic import Arithmetic as Arithmetic
from vnetsim.experiment.camera import Camera as Camera
from vnetsim.experiment.city import AssociationSettings as AssociationSettings
from vnetsim.experiment.city import BackhaulSettings as BackhaulSettings
from vnetsim.experiment.city import HandoverSettings as HandoverSettings
from vnetsim.experiment.city import TopologySettings as TopologySettings
from vnetsim.experiment.rounds import BlurSettings as BlurSettings
from vnetsim.experiment.rounds import CostSettings as CostSettings
from vnetsim.experiment.rounds import DataSettings as DataSettings
from vnetsim.experiment.rounds import ExchangeSettings as ExchangeSettings
from vnetsim.experiment.rounds import HostileSettings as HostileSettings
from vnetsim.experiment.rounds import RoundSettings as RoundSettings
from vnetsim.experiment.rounds import ScheduleSettings as ScheduleSettings
from vnetsim.experiment.rounds import SiloSettings as SiloSettings
from vnetsim.experiment.traffic import ComputeSettings as ComputeSettings
from vnetsim.experiment.traffic import TrafficSettings as TrafficSettings

ALL_ROUNDS = 1_000_000
"""More rounds than any traffic has, so that rounds without training continue until the traffic ends."""

DEFAULT_TIME_S = 600.0  # duration of a run with neither ``time_s`` nor ``rounds``

PLUGIN_KEYS = (
    "learner",
    "schedule.learner",
    "selection.name",
    "pace.name",
    "aggregation.name",
    "aggregation.strategy",
    "codec.name",
    "conduct.name",
    "radio.name",
    "data.name",
    "learning.encoder",
    "schedule.learning.encoder",
)
"""Settings that may name a class in a file; ``scenario`` may too, but it may also be an ordinary path."""

DEFAULT_NAMES = {
    "selection": "random",
    "pace": "quorum",
    "aggregation": "sync",
    "radio": "tr37885",
    "codec": "float32",
    "conduct": "honest",
}
"""Default plug-ins of tables that name none."""

WHOLE_TABLES = {("compute", "fleet"), ("compute", "by_type")}
"""Settings that are one value although written as a table: a new table replaces the old one and is not merged."""

PLUGIN_TABLES = ("selection", "pace", "aggregation", "radio", "source", "encoder", "codec", "conduct")
"""Tables of plug-ins; a record leaves out empty ones."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that decides a run's result.

    Args:
        scenario: ``.sumocfg``, FCD file, or run directory; ``"gaussian"`` for the truncated-Gaussian model; another
            traffic source by its entry point in ``vnetsim.traffic_sources`` or as ``path/to/file.py:Class``.
        seed: seed of every random stream, >= 0.
        time_s: the run ends after this simulated time (s). Left out, it ends after 600 s, or, if ``rounds`` is given,
            when the rounds are done.
        rounds: the run ends after this number of rounds, counted per RSU if each aggregates by itself
            (``topology.kind``). Left out, there are as many as its time allows.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        learner: name of an entry point in ``vnetsim.learners``, or ``path/to/file.py:Class``.
        evaluate_every: rounds between evaluations; the first and the last model are always evaluated.
        learning: the learner's own settings, validated by its ``Settings``.
        selection: who is invited first when more vehicles are waiting than may be invited: a selection policy, by its
            ``name``, or as ``path/to/file.py:Class``, and its settings. ``random`` draws, as is usual in federated
            learning; ``arrival`` takes whoever entered coverage first, and so has least time left;
            `vnetsim plugins selections` lists all.
        pace: how many a round invites and when it closes: a pace, by its ``name``, or as ``path/to/file.py:Class``, and
            its settings. ``quorum`` invites at most ``round.invited`` vehicles at once and closes a round with its
            ``round.quorum``-th upload. ``coverage`` invites every vehicle in coverage, as it enters or when the round
            opens, until the round's first upload has arrived, and closes the round when all of them have uploaded or
            left; vehicles that enter later are invited when the next round opens. ``round.quorum``, ``round.invited``
            and ``selection`` then have no effect. It is for learners whose vehicles exchange nothing with each other.
        aggregation: what the RSU makes of the uploads of a round: an aggregation rule, by its ``name``, or as
            ``path/to/file.py:Class``, and its settings. ``sync`` takes the learner's weighted mean; `vnetsim plugins
            aggregations` lists all. Rules that mix or buffer uploads as they arrive want a small ``round.quorum`` and
            ``round.max_staleness`` above 0.
        radio: the radio model, by its ``name``, or as ``path/to/file.py:Class``, and its settings: ``tr37885`` is the
            line-of-sight path loss of 3GPP TR 37.885 with Shannon capacity; ``constant`` gives every active transfer
            the airtime share of ``rate_bps``.
        codec: how updates are encoded for the upload: a codec, by its ``name``, or as ``path/to/file.py:Class``, and
            its settings. What is encoded is the change of the trained parameters by a local training; the decoded
            change is averaged. ``float32`` changes nothing; with the others, the bytes of an upload follow from the
            number of values of ``cost.model``. `vnetsim plugins codecs` lists all.
        download_codec: how the model is encoded for the download. Vehicles train from what they decode, and a vehicle's
            change is relative to that.
        conduct: what the vehicles of ``hostile`` send: a conduct, by its ``name``, or as ``path/to/file.py:Class``, and
            its settings. `vnetsim plugins conducts` lists all.
        source: settings of the traffic source that ``scenario`` names: of the truncated-Gaussian model, of one by an
            entry point, or of ``path/to/file.py:Class``; those of SUMO and of recordings are in ``traffic``.
        encoder: settings of the encoder that ``learning.encoder`` names, where the learner has that setting.
    """

    scenario: str
    seed: Annotated[int, Within(0, 2**63 - 1, "", "whole numbers of TOML have 64 bits")] = 0
    time_s: Annotated[float | None, Within(0.1, 1e9, "s", "thirty years, beyond any recording")] = None
    rounds: Annotated[int | None, Within(1, ALL_ROUNDS, "", "every round is evaluated, recorded and saved")] = None
    device: str = "auto"
    learner: str = "flsimco"
    evaluate_every: Annotated[int, Within(1, 1_000_000, "", "no run has more rounds"), TRAINS] = 1
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    traffic: TrafficSettings = field(default_factory=TrafficSettings)
    compute: ComputeSettings = field(default_factory=ComputeSettings)
    cost: CostSettings = field(default_factory=CostSettings)
    round: RoundSettings = field(default_factory=RoundSettings)
    topology: TopologySettings = field(default_factory=TopologySettings)
    backhaul: BackhaulSettings = field(default_factory=BackhaulSettings)
    association: AssociationSettings = field(default_factory=AssociationSettings)
    handover: HandoverSettings = field(default_factory=HandoverSettings)
    exchange: ExchangeSettings = field(default_factory=ExchangeSettings)
    silos: SiloSettings = field(default_factory=SiloSettings)
    hostile: HostileSettings = field(default_factory=HostileSettings)
    data: DataSettings = field(default_factory=DataSettings)
    camera: Camera = field(default_factory=Camera)
    blur: BlurSettings = field(default_factory=BlurSettings)
    learning: Mapping[str, Any] = field(default_factory=dict)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    selection: Annotated[Mapping[str, Any], needed("pace", "selection")] = field(default_factory=dict)
    pace: Mapping[str, Any] = field(default_factory=dict)
    aggregation: Annotated[Mapping[str, Any], TRAINS] = field(default_factory=dict)
    radio: Mapping[str, Any] = field(default_factory=dict)
    codec: Mapping[str, Any] = field(default_factory=dict)
    download_codec: Literal["float32", "float16", "int8"] = "float32"
    conduct: Mapping[str, Any] = field(default_factory=dict)
    source: Annotated[Mapping[str, Any], A_SOURCE] = field(default_factory=dict)
    encoder: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lasts_s(self) -> float:
        """Longest duration of the run (s); infinite if only its rounds end it."""
        if self.time_s is not None:
            return self.time_s
        return DEFAULT_TIME_S if self.rounds is None else math.inf

    def value(self, key: str) -> Any:
        """Return the value of a setting by its dotted key, also of plug-ins' own; None if it is unset or unknown."""
        node: Any = self
        for part in key.split("."):
            beside = getattr(node, "own", {})
            node = node.get(part) if isinstance(node, Mapping) else getattr(node, part, beside.get(part))
        return node

    def with_values(self, values: Mapping[str, Any]) -> Experiment:
        """Return a copy of the experiment with new values of the settings with these dotted keys.

        Raises:
            InputError: a value is out of bounds.
        """
        result: Any = self
        for key, value in values.items():
            result = _with_value(result, key.split("."), value)
        return result  # type: ignore[no-any-return]

    def plugins(self) -> dict[str, str]:
        """Return the plug-in named at each of ``PLUGIN_KEYS``, by key; empty text if none is."""
        found = {key: self.value(key) for key in PLUGIN_KEYS}
        return {key: name if isinstance(name, str) else "" for key, name in found.items()}

    def __post_init__(self) -> None:
        """Raise InputError for a value out of bounds, or distinct silos fewer than ``round.quorum``."""
        check_bounds("", self)
        require(
            self.round.quorum <= self.silos.count or not self.round.distinct_silos,
            f"round.quorum must be at most silos.count ({self.silos.count}), got {self.round.quorum}: with "
            "round.distinct_silos a silo takes part at most once a round.",
        )


def _with_value(table: Any, path: list[str], value: Any) -> Any:
    """Return a copy of settings with a new value at a path; in ``data`` a key without a field goes into ``own``."""
    if not path:
        return value
    if isinstance(table, Mapping):
        return {**table, path[0]: _with_value(table.get(path[0], {}), path[1:], value)}
    if hasattr(table, path[0]):
        return replace(table, **{path[0]: _with_value(getattr(table, path[0]), path[1:], value)})
    return replace(table, own=_with_value(table.own, path, value))
