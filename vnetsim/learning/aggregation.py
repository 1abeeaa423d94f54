"""Aggregation rules: how the RSU computes its next model from the uploads of a round.

A rule is a pure function of the present model, the uploads and its own memory, which it returns and gets back in the
next round. So a resumed run continues with the same bits. Nothing here imports torch.
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
    """One upload of positive weight.

    Args:
        state: the tensors that arrived, by name; already clipped around ``base`` if ``learning.clip_norm`` is set.
        base: the model that the vehicle downloaded, with at least the same names.
        weight: its weight by the learner; the weights of a round sum to 1.
        staleness: how often the server's model has changed since the vehicle downloaded it. A round without an upload,
            or one that only fills a buffer, does not change it.
        participant: the vehicle, its silo, speed and blur, and how long each of its stages took.
    """

    state: Mapping[str, Any]
    base: Mapping[str, Any]
    weight: float
    staleness: int
    participant: Participant


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundUploads:
    """The input of a rule at the end of a round.

    Args:
        model: the global model of the round, tensors by name; not to be changed in place.
        uploads: those of positive weight, in order of arrival; at least one. They may have only a part of the model's
            tensors: the rest stays as it is. With ``needs_uploads = False`` their states may be empty.
        parameters: names of the tensors that are trained; the others are statistics and counters of BatchNorm.
        memory: the tensors that the rule returned last time; empty before the first.
        mean: returns the mean of the uploads with the learner's weights, or the robust average if
            ``learning.aggregation`` names one.
    """

    model: Mapping[str, Any]
    uploads: Sequence[Upload]
    parameters: frozenset[str]
    memory: Mapping[str, Any]
    mean: Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class NextModel:
    """The result of a rule for a round.

    Args:
        state: new values of all the tensors that the uploads have, of the same shapes and types; empty keeps the model.
        shares: the weight of each upload in ``state``, for the record: at least 0, with the sum 1; all 0 if the model
            is kept.
        memory: tensors by name that the rule gets back in the next round.
    """

    state: Mapping[str, Any]
    shares: Sequence[float]
    memory: Mapping[str, Any] = field(default_factory=dict)


class AggregationRule(Protocol):
    """Computes the next model from uploads: a frozen keyword-only dataclass; fields: settings of ``aggregation``.

    Class attributes: ``name``; ``source``, a citation; ``equations``, one a line; ``needs_uploads``, whether it reads
    single uploads. A rule that only reads their mean sets it to False; it then also works for rounds too large for
    memory, and with robust averages (``learning.aggregation``).
    """

    name: ClassVar[str]
    source: ClassVar[str]
    equations: ClassVar[tuple[str, ...]]
    needs_uploads: ClassVar[bool]

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the next model. Not called in a round without an upload of positive weight: the model then stays."""
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
