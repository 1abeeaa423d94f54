"""What the simulator and a learner promise each other: the protocol; how learners are found and checked."""

from vnetsim.learning.protocol import (
    Aggregation,
    Cost,
    Description,
    Exchange,
    Learner,
    LearnerContext,
    Network,
    Participant,
    Peer,
    Series,
    Update,
)

__all__ = [
    "Aggregation",
    "Cost",
    "Description",
    "Exchange",
    "Learner",
    "LearnerContext",
    "Network",
    "Participant",
    "Peer",
    "Series",
    "Update",
]
