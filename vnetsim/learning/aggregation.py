"""Aggregation rules: what the RSU makes of the uploads of a round, and what a rule is given.

A rule is a pure function of the present model, the uploads and its own memory: what it wants to know in the next round
it returns, and gets back then. So a resumed run goes on with the same bits. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from vnetsim.experiment import DEFAULT_NAMES
from vnetsim.learning import Participant
from vnetsim.plugins import Kind

SYNC = DEFAULT_NAMES["aggregation"]
"""The rule of a run that names none: the weighted mean of the round's uploads."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Upload:
    """One upload that counts.

    Args:
        state: the tensors that arrived, by name; already clipped, around ``base``, where ``learning.clip_norm`` asks
            for it.
        base: the model that the vehicle downloaded, with at least the same names.
        weight: what the learner gives it; all of a round sum to 1.
        staleness: versions of the server's model since the one it downloaded: how often the model has changed, which a
            round without an upload, or one that only fills a buffer, does not do.
        participant: whose it is: the vehicle, its silo, speed and blur, and how long each part took it.
    """

    state: Mapping[str, Any]
    base: Mapping[str, Any]
    weight: float
    staleness: int
    participant: Participant


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundUploads:
    """What a rule is given at the end of a round.

    Args:
        model: the global model of the round, tensors by name; not to be changed in place.
        uploads: those of positive weight, in order of arrival; at least one. Their tensors may be names of a part of
            the model alone: the rest of it stays as it is. With ``needs_uploads = False`` their states may be empty.
        parameters: names of the tensors that are trained; the others are statistics and counters of BatchNorm.
        memory: the tensors that the rule returned last time; empty before the first.
        mean: computes the mean of the uploads as the learner weighs them and ``learning.aggregation`` says.
    """

    model: Mapping[str, Any]
    uploads: Sequence[Upload]
    parameters: frozenset[str]
    memory: Mapping[str, Any]
    mean: Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class NextModel:
    """What a rule makes of a round.

    Args:
        state: new values of all the tensors that the uploads have, of the same shapes and types; or nothing at all,
            which keeps the model.
        shares: what each upload counts, for the record: at least 0, brought to the sum 1; all 0 where the model stays.
        memory: tensors by name that the rule wants back in the next round.
    """

    state: Mapping[str, Any]
    shares: Sequence[float]
    memory: Mapping[str, Any] = field(default_factory=dict)


class AggregationRule(Protocol):
    """Folds uploads into the global model: a frozen keyword-only dataclass, whose fields stand in ``aggregation``.

    Class attributes name it: ``name``; ``source``, a citation; ``equations``, one a line; ``needs_uploads``, whether
    it reads single uploads. One that reads their mean alone, and says so with False, may be asked for rounds of models
    too large to be held, and works on medians and trimmed means (``learning.aggregation``) as well.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    equations: ClassVar[tuple[str, ...]]
    needs_uploads: ClassVar[bool]

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the next model. Not asked in a round without an upload of positive weight: the model then stays."""
        ...


AGGREGATIONS = Kind(
    name="aggregation rule",
    group="vnetsim.aggregations",
    protocol=AggregationRule,
    key="aggregation.name",
    table="aggregation",
    default=SYNC,
    package="learners",
    built_in={
        "sync": "learners.aggregation.means:Sync",
        "fedasync": "learners.aggregation.asynchronous:FedAsync",
        "fedbuff": "learners.aggregation.asynchronous:FedBuff",
        "afl-delay": "learners.aggregation.asynchronous:AflDelay",
        "fedavgm": "learners.aggregation.means:FedAvgM",
        "fedadam": "learners.aggregation.means:FedAdam",
        "flower": "learners.aggregation.flower:Flower",
    },
)
