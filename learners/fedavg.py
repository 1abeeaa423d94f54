"""FedAvg and Discard: FLSimCo's contrastive training, with averages that ignore blur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from learners.averaging import WeightSettings
from learners.federated import FederatedLearner, Parts, federated_averaging
from learners.mathematics.weights import Weights, discard_weights
from learners.tasks.contrastive import CONTRASTIVE_SCALES, ContrastiveSettings, ContrastiveTask
from vnetsim.errors.bounds import TRAINS, Within
from vnetsim.learning import LearnerContext, Participant

DUAL_TEMPERATURE = (
    "similarities: s_ij = q_i . k_j,  p_i(t) = exp(s_ii / t) / sum_j exp(s_ij / t),  W_i(t) = 1 - p_i(t)",
    "loss: L_i = stopgrad[ W_i(t_beta) / W_i(t_alpha) ] * ( -log p_i(t_alpha) )  (Eq. 6-8)",
    "mean of L_i over the images (Eq. 9), and over (q, k) and (k, q) as in the published code",
)
"""FLSimCo's loss, as ``vnetsim learners NAME`` shows it."""


@dataclass(frozen=True, kw_only=True)
class FedAvgSettings(WeightSettings, ContrastiveSettings):
    """Settings of contrastive learning and of the average.

    Args:
        weights: ``equal``: 1 / N, as in FLSimCo's baseline, since FLSimCo's weights ignore the number of images;
            ``images``: n_k / n (McMahan et al. 2017, Algorithm 1).
    """

    weights: Annotated[Literal["images", "equal"], TRAINS] = "equal"


class FedAvg(FederatedLearner):
    """Every committed vehicle has the same weight, unless ``learning.weights`` is ``images``."""

    name, task, Settings = "fedavg", "contrastive", FedAvgSettings
    paper = (
        "McMahan et al. (2017): Communication-efficient learning of deep networks from decentralized data; "
        "as baseline of FLSimCo"
    )
    equations = (
        *DUAL_TEMPERATURE,
        "average: theta^(r+1) = 1 / N sum_n theta_n  (McMahan et al., Algorithm 1, with silos of one size)",
        "with learning.weights = images: sum_k n_k / n theta_k, n_k images in silo k, n = sum_k n_k  (Algorithm 1)",
    )
    scales = CONTRASTIVE_SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: FedAvgSettings) -> Parts:
        """Return the contrastive task, local steps, and an RSU that averages."""
        return federated_averaging(context, settings, ContrastiveTask(context, settings))


@dataclass(frozen=True, kw_only=True)
class DiscardSettings(ContrastiveSettings):
    """Settings of the baseline that discards fast vehicles.

    Args:
        limit_kmh: uploads of vehicles faster than this are discarded (km/h), > 0.
    """

    limit_kmh: Annotated[float, Within(0.1, 1000, "km/h", "no vehicle on a road is faster"), TRAINS] = 100.0


class Discard(FederatedLearner):
    """FedAvg over the vehicles at or below a speed limit; if all are faster, the global model stays as it is."""

    name, task, Settings = "discard", "contrastive", DiscardSettings
    paper = "Gu, Wu, Fan, Fan (2024), arXiv:2408.00256: FLSimCo's baseline without vehicles above 100 km/h"
    equations = (
        *DUAL_TEMPERATURE,
        "average: theta^(r+1) = 1 / |K| sum_(n in K) theta_n, K = {n: v_n <= limit_kmh}; theta^r where K is empty",
    )
    scales = CONTRASTIVE_SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: DiscardSettings) -> Parts:
        """Return the contrastive task, local steps, and equal weights at or below the limit, 0 above."""

        def weigh_slow_equally(participants: Sequence[Participant]) -> Weights:
            """Return equal weights for vehicles up to the limit, 0 for faster ones; all 0 if all are faster."""
            return discard_weights([one.speed_mps for one in participants], limit_mps=settings.limit_kmh / 3.6)

        return federated_averaging(context, settings, ContrastiveTask(context, settings), weights=weigh_slow_equally)
