"""Settings for several RSUs: association, handover, topology and backhaul. See ``vnetsim.experiment``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from vnetsim.errors.bounds import HANDOVERS, SEVERAL_RSUS, WIRED, Acts, Within

COMPARED = Acts("association.rule", ("nearest", "strongest"))
MOVES = Acts("handover.policy", unless=("drop", "multi"))
OF_CLOUD = Acts("topology.kind", ("hierarchical",))
OF_PEERS = Acts("topology.kind", ("peers",))


@dataclass(frozen=True, kw_only=True)
class AssociationSettings:
    """Which RSU serves a vehicle that several cover.

    Args:
        rule: ``first`` is the RSU whose disc the vehicle entered first, ``nearest`` the closest, ``strongest`` the one
            received with the most power.
        hysteresis: by how much another RSU must be better before it takes over: m for ``nearest``, dB for
            ``strongest``.
        trigger_s: for how long it must be better by that much (s).
    """

    rule: Annotated[Literal["first", "nearest", "strongest"], SEVERAL_RSUS] = "first"
    hysteresis: Annotated[float, Within(0, 1e5, "m or dB", "no disc is larger"), COMPARED, SEVERAL_RSUS] = 0.0
    trigger_s: Annotated[float, Within(0, 1e5, "s", "no vehicle stays as long"), COMPARED, SEVERAL_RSUS] = 0.0


@dataclass(frozen=True, kw_only=True)
class HandoverSettings:
    """What happens to a vehicle's participation when another RSU takes over in the middle of a round.

    Args:
        policy: ``drop`` ends the participation. With ``forward`` the new RSU sends the update on to the old RSU's
            aggregator. With ``carry`` the new RSU's aggregator takes the model as its own, with ``carry-delta`` only
            its change since the download. ``mix`` averages the model trained so far with the new RSU's model, weighted
            by their similarity, and training continues. If both RSUs have the same aggregator, ``forward``, ``carry``,
            ``carry-delta`` and ``mix`` do the same. With ``multi`` a vehicle in several discs downloads from all their
            RSUs, trains from the mean and uploads to all (FedMes); in a disc that it leaves, its participation ends.
        interruption_s: nothing is sent or received for this long after a handover (s).
        transfer: an interrupted download or upload starts again (``restart``) or continues (``resume``).
        longest_gap_s: longest time without coverage by any RSU before the participation ends (s). In the gap training
            continues and transfers wait. With ``drop`` and ``multi`` the participation ends at once.
    """

    policy: Annotated[Literal["drop", "forward", "carry", "carry-delta", "mix", "multi"], HANDOVERS] = "drop"
    interruption_s: Annotated[float, Within(0, 1e5, "s", "no vehicle stays as long"), MOVES, HANDOVERS] = 0.1
    transfer: Annotated[Literal["restart", "resume"], MOVES, HANDOVERS] = "restart"
    longest_gap_s: Annotated[float, Within(0, 1e7, "s", "four months"), MOVES] = 0.0


@dataclass(frozen=True, kw_only=True)
class TopologySettings:
    """How many aggregators there are, and how their models are averaged.

    Args:
        kind: ``single`` is one aggregator for all RSUs. Otherwise each RSU aggregates by itself and has its own rounds,
            to which ``round`` and ``rounds`` apply. ``per-rsu`` never averages the models of RSUs; with
            ``hierarchical`` a cloud averages them; with ``peers`` neighbouring RSUs average their models.
        edge_rounds: an RSU's rounds between two rounds of the cloud, or between two averages of neighbours.
        cloud_deadline_s: the cloud's round closes this long after the first RSU's model has arrived, without the others
            (s); left out, it waits for all.
        reset: when an RSU receives the cloud's model, participations in flight continue (``none``) or end
            (``in-flight``), so that their vehicles may start again from that model.
        peers: neighbours are the previous and the next RSU in the scenario's order, where the first follows the last
            (``ring``), or all RSUs within ``range_m`` (``distance``).
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
    """An RSU's backhaul: latency each way (s), rates to and from the RSU (bit/s), extra latency to the cloud (s)."""

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
        latency_s: latency of an RSU's wire each way (s), instead of the preset's.
        down_bps: rate to the RSU (bit/s), instead of the preset's.
        up_bps: rate from the RSU (bit/s), instead of the preset's.
        cloud_latency_s: extra latency to the ``single`` aggregator or to the cloud (s); default 20 ms, or 0 with the
            preset ``ideal``.
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
        """The wire of ``preset``, with the values that are not None in place of the preset's."""
        given = {name: value for name in Wire._fields if (value := getattr(self, name)) is not None}
        return WIRES[self.preset]._replace(**given)
