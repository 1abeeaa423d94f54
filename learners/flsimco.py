"""FLSimCo: federated contrastive learning in which blurred images weigh less in the average.

``learners/flsimco_reference.py`` has the whole method in one short file; tests hold this learner to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from learners.fedavg import DUAL_TEMPERATURE
from learners.federated import FederatedLearner, Parts, federated_averaging
from learners.mathematics.weights import Weights, blur_weights
from learners.tasks.contrastive import CONTRASTIVE_SCALES, ContrastiveSettings, ContrastiveTask
from vnetsim.learning import LearnerContext, Participant


def weigh_by_blur(participants: Sequence[Participant]) -> Weights:
    """Return w_n = (S - L_n) / ((N - 1) S), Eq. 11, L_n blur levels (px), S their sum; 1 / N if N = 1 or S = 0."""
    return blur_weights([participant.level_px for participant in participants])


class FLSimCo(FederatedLearner):
    """Dual-temperature contrastive learning (Eq. 6-8), aggregated by blur level (Eq. 11)."""

    name, task, Settings = "flsimco", "contrastive", ContrastiveSettings
    paper = (
        "Gu, Wu, Fan, Fan (2024): Mobility-aware federated self-supervised learning in vehicular network, "
        "arXiv:2408.00256"
    )
    equations = (
        *DUAL_TEMPERATURE,
        "blur level: L_n = H s v_n / Q  (Eq. 2)",
        "weights: w_n = (S - L_n) / ((N - 1) S), S = sum_n L_n  (Eq. 11); 1 / N where N = 1 or S = 0",
        "average: theta^(r+1) = sum_n w_n theta_n",
    )
    scales = CONTRASTIVE_SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: ContrastiveSettings) -> Parts:
        """Return the contrastive task, local SGD steps, and an RSU that averages by blur level."""
        return federated_averaging(context, settings, ContrastiveTask(context, settings), weights=weigh_by_blur)
