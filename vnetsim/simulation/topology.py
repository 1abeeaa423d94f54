"""Which aggregator each RSU belongs to, and which RSUs are neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import TopologySettings
from vnetsim.learner_facts import AGGREGATOR, CLOUD
from vnetsim.learning.mixing_weights import metropolis_hastings_row


def aggregator_by_rsu(settings: TopologySettings, rsus: Sequence[Rsu]) -> dict[str, str]:
    """Return the name of each RSU's aggregator, by the RSU's id: this id, or ``AGGREGATOR`` if all RSUs share one."""
    one = settings.kind == "single" or len(rsus) == 1
    return {rsu.id: AGGREGATOR if one else rsu.id for rsu in rsus}


def aggregators(settings: TopologySettings, rsus: Sequence[Rsu]) -> tuple[str, ...]:
    """Return the names of all aggregators, in the order of the RSUs; with a hierarchy, the cloud's is the last.

    InputError if the RSUs are too few for the topology, one has the cloud's name, or not all are connected.
    """
    names = tuple(dict.fromkeys(aggregator_by_rsu(settings, rsus).values()))
    if settings.kind in ("hierarchical", "peers") and len(rsus) < 2:
        raise InputError(
            f"topology.kind: '{settings.kind}' needs two RSUs or more, and this scenario has one ({rsus[0].id}): "
            "there is nobody to average with. Take 'single', or name more RSUs (--rsu)."
        )
    if settings.kind == "peers":
        neighbours(settings, rsus)
    if settings.kind != "hierarchical":
        return names
    if CLOUD in names:
        raise InputError(
            f"topology.kind: an RSU is called '{CLOUD}', the name of the aggregator above the RSUs of a hierarchy; "
            "give the RSU another id."
        )
    return (*names, CLOUD)


def is_mixed(settings: TopologySettings, round_index: int, *, final: bool) -> bool:
    """Return whether the topology averages an RSU's model after a round: every ``edge_rounds``, and if ``final``."""
    if settings.kind not in ("hierarchical", "peers"):
        return False
    return final or (round_index + 1) % settings.edge_rounds == 0


def neighbours(settings: TopologySettings, rsus: Sequence[Rsu]) -> dict[str, set[str]]:
    """Return each RSU's neighbours, by id: in the ring or within ``range_m``; InputError if not all are connected."""
    found: dict[str, set[str]] = {rsu.id: set() for rsu in rsus}
    if settings.peers == "ring":
        for one, other in zip(rsus, [*rsus[1:], rsus[0]], strict=True):
            found[one.id].add(other.id)
            found[other.id].add(one.id)
        return found
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415 - other topologies need not load it

    at_m = np.array([(rsu.x_m, rsu.y_m) for rsu in rsus])
    apart_m = np.linalg.norm(at_m[:, None] - at_m[None], axis=-1)
    for i, j in np.argwhere(apart_m < settings.range_m):
        if i != j:
            found[rsus[i].id].add(rsus[j].id)
    parts = connected_components(apart_m < settings.range_m)[1]
    inside = parts == parts[0]
    if not inside.all():
        gap_m = apart_m[np.ix_(inside, ~inside)].min()
        raise InputError(
            f"topology.range_m: models of RSU {rsus[0].id} never reach RSU {rsus[inside.argmin()].id}: of {len(rsus)} "
            f"RSUs {inside.sum()} are joined within {settings.range_m:g} m, and the next is {gap_m:.0f} m away. Raise "
            "the range, or take topology.peers = 'ring'."
        )
    return found


def metropolis_hastings(graph: Mapping[str, set[str]]) -> dict[str, dict[str, float]]:
    """Return each RSU's averaging weights by RSU, with sum 1: its own first, then its neighbours' in order of id."""
    weights = {}
    for one, unsorted in graph.items():
        others = sorted(unsorted)
        row = metropolis_hastings_row(len(others), [len(graph[other]) for other in others])
        weights[one] = dict(zip([one, *others], row, strict=True))
    return weights
