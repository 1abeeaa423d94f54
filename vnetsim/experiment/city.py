"""Settings of many roadside units: who serves a vehicle, who aggregates, and the wires. See ``vnetsim.experiment``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from vnetsim.errors.bounds import HANDOVERS, SEVERAL_RSUS, WIRED, Acts, Within, check_bounds

COMPARED = Acts("association.rule", ("nearest", "strongest"))
MOVES = Acts("handover.policy", unless=("drop", "multi"))
OF_CLOUD = Acts("topology.kind", ("hierarchical",))
OF_PEERS = Acts("topology.kind", ("peers",))


@dataclass(frozen=True, kw_only=True)
class AssociationSettings:
    """Which RSU serves a vehicle that several cover.

    Args:
        rule: ``first`` is the one whose disc it entered first, ``nearest`` the closest, ``strongest`` the one received
            with most power.
        hysteresis: by how much another RSU must be better before it takes over: m for ``nearest``, dB for
            ``strongest``.
        trigger_s: for how long it must be so (s).
    """

    rule: Annotated[Literal["first", "nearest", "strongest"], SEVERAL_RSUS] = "first"
    hysteresis: Annotated[float, Within(0, 1e5, "m or dB", "no disc is larger"), COMPARED, SEVERAL_RSUS] = 0.0
    trigger_s: Annotated[float, Within(0, 1e5, "s", "no vehicle stays as long"), COMPARED, SEVERAL_RSUS] = 0.0

    def __post_init__(self) -> None:
        check_bounds("association", self)


@dataclass(frozen=True, kw_only=True)
class HandoverSettings:
    """What becomes of a vehicle in the middle of a round when another RSU serves it from now on.

    Args:
        policy: ``drop`` ends it. With ``forward`` the new RSU sends its update on to the old one's aggregator; with
            ``carry`` the new RSU's aggregator takes the model as its own, with ``carry-delta`` the change since the
            download; ``mix`` averages what was trained so far with the new RSU's model by likeness, and trains on.
            Where both RSUs have one aggregator, all of these but ``drop`` are ``forward``. With ``multi`` a vehicle in
            several discs downloads from all their RSUs, trains from the mean and uploads to all (FedMes); in a disc
            that it leaves it is ended, as with ``drop``.
        interruption_s: nothing is sent or received for so long (s).
        transfer: a download or upload that was under way begins anew (``restart``) or goes on (``resume``).
        longest_gap_s: how long no RSU at all may cover a vehicle before it is ended (s): it trains on meanwhile, and
            transfers wait. With ``drop`` and ``multi`` it ends at once.
    """

    policy: Annotated[Literal["drop", "forward", "carry", "carry-delta", "mix", "multi"], HANDOVERS] = "drop"
    interruption_s: Annotated[float, Within(0, 1e5, "s", "no vehicle stays as long"), MOVES, HANDOVERS] = 0.1
    transfer: Annotated[Literal["restart", "resume"], MOVES, HANDOVERS] = "restart"
    longest_gap_s: Annotated[float, Within(0, 1e7, "s", "four months"), MOVES] = 0.0

    def __post_init__(self) -> None:
        check_bounds("handover", self)


@dataclass(frozen=True, kw_only=True)
class TopologySettings:
    """How many aggregators there are, and how their models come together.

    Args:
        kind: ``single`` is one aggregator over all RSUs. With the others each RSU aggregates by itself, with rounds of
            its own, for which ``round`` and ``rounds`` hold: ``per-rsu`` never mixes their models, ``hierarchical``
            has a cloud average them, with ``peers`` neighbours average each other's.
        edge_rounds: an RSU's rounds between two rounds of the cloud, or between two averages of neighbours.
        cloud_deadline_s: the cloud's round closes this long after the first RSU's model has arrived, without the others
            (s); left out, it waits for all.
        reset: when an RSU receives the cloud's model, vehicles in flight train on (``none``) or are cut
            (``in-flight``), to start anew from that model.
        peers: neighbours are the previous and the next RSU in the scenario's order, the last beside the first
            (``ring``), or all within ``range_m`` (``distance``).
        range_m: two RSUs closer than this are neighbours (m).
    """

    kind: Literal["single", "per-rsu", "hierarchical", "peers"] = "single"
    edge_rounds: Annotated[
        int, Within(1, 1_000_000, "", "no run has more rounds"), Acts("topology.kind", ("hierarchical", "peers"))
    ] = 1
    cloud_deadline_s: Annotated[
        float | None, Within(0.001, 1e7, "s", "models arrive one by one; four months"), OF_CLOUD
    ] = None
    reset: Annotated[Literal["none", "in-flight"], OF_CLOUD] = "none"
    peers: Annotated[Literal["ring", "distance"], OF_PEERS] = "ring"
    range_m: Annotated[
        float,
        Within(1, 1e6, "m", "from one lamp post to the next; a country"),
        OF_PEERS,
        Acts("topology.peers", ("distance",)),
    ] = 1000.0


class Wire(NamedTuple):
    """What joins an RSU to the network: latency each way (s), and rates towards the RSU and away from it (bit/s)."""

    latency_s: float
    down_bps: float
    up_bps: float
    cloud_latency_s: float


WIRES: Mapping[str, Wire] = {
    "ideal": Wire(0.0, math.inf, math.inf, 0.0),
    "metro-fibre": Wire(0.001, 1e9, 1e9, 0.020),
    "cellular": Wire(0.035, 50e6, 10e6, 0.020),
}
"""``metro-fibre``: a city's transport network, about 1 ms to an edge (Coll-Perales et al., IEEE Trans. Veh. Technol.
71, 2022, find 0.4 to 2.4 ms); ``cellular``: the modem that most RSUs of the pilots in Tampa and New York have, about 31
to 34 ms in the median. A cloud is some 20 ms further."""


@dataclass(frozen=True, kw_only=True)
class BackhaulSettings:
    """The wires of the RSUs: to the aggregator of a ``single`` topology, to the cloud, or to other RSUs.

    With a ``single`` aggregator a new model crosses an RSU's wire once, before the first vehicle there downloads it,
    and every upload crosses it on the way to the aggregator.

    Args:
        preset: ``ideal`` takes no time, ``metro-fibre`` is 1 ms and 1 Gbit/s, ``cellular`` 35 ms, 50 Mbit/s to the RSU
            and 10 Mbit/s from it, shared by all that moves at a time.
        latency_s: of an RSU's wire, each way (s), in place of the preset's.
        down_bps: rate towards the RSU (bit/s), likewise.
        up_bps: rate from the RSU (bit/s), likewise.
        cloud_latency_s: how much further away the ``single`` aggregator or the cloud is (s); 20 ms, and 0 where the
            preset is ``ideal``.
    """

    preset: Annotated[Literal["ideal", "metro-fibre", "cellular"], WIRED] = "ideal"
    latency_s: Annotated[float | None, Within(0, 1e7, "s", "four months"), WIRED] = None
    down_bps: Annotated[float | None, Within(1, 1e15, "bit/s", "a whole sea cable"), WIRED] = None
    up_bps: Annotated[float | None, Within(1, 1e15, "bit/s", "a whole sea cable"), WIRED] = None
    cloud_latency_s: Annotated[
        float | None, Within(0, 1e7, "s", "four months"), Acts("topology.kind", ("single", "hierarchical"))
    ] = None

    @property
    def wire(self) -> Wire:
        """The preset's wire, with what is set in place of it."""
        given = {name: value for name in Wire._fields if (value := getattr(self, name)) is not None}
        return WIRES[self.preset]._replace(**given)
