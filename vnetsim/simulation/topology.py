"""Which aggregator an RSU belongs to, and which names its models have."""

from __future__ import annotations

from collections.abc import Sequence

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import TopologySettings
from vnetsim.learner_facts import AGGREGATOR, CLOUD


def by_rsu(settings: TopologySettings, rsus: Sequence[Rsu]) -> dict[str, str]:
    """Return the name of the aggregator that each RSU belongs to: its own id, unless one is over all RSUs."""
    one = settings.kind == "single" or len(rsus) == 1
    return {rsu.id: AGGREGATOR if one else rsu.id for rsu in rsus}


def aggregators(settings: TopologySettings, rsus: Sequence[Rsu]) -> tuple[str, ...]:
    """Return the names of all that have a model, in the order of the RSUs; the cloud's is the last.

    Raises:
        InputError: there are too few RSUs for the topology, or one has the cloud's name.
    """
    names = tuple(dict.fromkeys(by_rsu(settings, rsus).values()))
    if settings.kind in ("hierarchical", "peers") and len(rsus) < 2:
        raise InputError(
            f"topology.kind: '{settings.kind}' needs two RSUs or more, and this scenario has one ({rsus[0].id}): "
            "there is nobody to average with. Take 'single', or name more RSUs (--rsu)."
        )
    if settings.kind != "hierarchical":
        return names
    if CLOUD in names:
        raise InputError(
            f"topology.kind: an RSU is called '{CLOUD}', as is what stands above the RSUs of a hierarchy; give it "
            "another id."
        )
    return (*names, CLOUD)


def is_mixed(settings: TopologySettings, round_index: int, *, final: bool) -> bool:
    """Return whether an RSU's model is averaged with others' after a round: after some rounds, and after the last."""
    if settings.kind not in ("hierarchical", "peers"):
        return False
    return final or (round_index + 1) % settings.edge_rounds == 0
