"""What the simulator and a learner promise each other: the protocol; how learners are found and checked."""

from vnetsim.learner_facts import AGGREGATOR, Cost, Exchange, ModelCost, Series
from vnetsim.learning.protocol import (
    GRADIENT_NORM,
    SIMILARITY,
    Aggregation,
    Description,
    KeepsModels,
    Learner,
    LearnerContext,
    ModelKey,
    Network,
    Participant,
    Peer,
    Update,
)

__all__ = [
    "AGGREGATOR",
    "GRADIENT_NORM",
    "SIMILARITY",
    "Aggregation",
    "Cost",
    "Description",
    "Exchange",
    "KeepsModels",
    "Learner",
    "LearnerContext",
    "ModelCost",
    "ModelKey",
    "Network",
    "Participant",
    "Peer",
    "Series",
    "Update",
]
