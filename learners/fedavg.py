"""FLSimCo's baselines: the same contrastive training, aggregated without regard to blur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from learners.contrastive import DUAL_TEMPERATURE, ContrastiveLearner
from learners.mathematics.aggregation import Weights, discard_weights, equal_weights
from learners.tasks.contrastive_settings import ContrastiveSettings
from vnetsim.learning import LearnerContext, Participant
from vnetsim.setting_checks import Within


class FedAvg(ContrastiveLearner):
    """Every committed vehicle counts the same."""

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = (
        "McMahan et al. (2017): Communication-efficient learning of deep networks from decentralized data; "
        "as baseline of FLSimCo"
    )
    equations: ClassVar[tuple[str, ...]] = (
        *DUAL_TEMPERATURE,
        "average: theta^(r+1) = 1 / N sum_n theta_n  (McMahan et al., Algorithm 1, with silos of one size)",
    )
    Settings: ClassVar[type] = ContrastiveSettings

    def weights(self, participants: Sequence[Participant]) -> Weights:
        """Return 1 / N for each of the N participants."""
        return equal_weights(len(participants))


@dataclass(frozen=True, kw_only=True)
class DiscardSettings(ContrastiveSettings):
    """Settings of the baseline that discards fast vehicles.

    Args:
        limit_kmh: uploads of vehicles above this speed are discarded (km/h), > 0.
    """

    limit_kmh: Annotated[float, Within(0.1, 1000, "km/h", "no vehicle on a road is faster")] = 100.0


class Discard(ContrastiveLearner):
    """FedAvg over the vehicles at or below a speed limit; with none of them the global model is kept."""

    name: ClassVar[str] = "discard"
    paper: ClassVar[str] = (
        "Gu, Wu, Fan, Fan (2024), arXiv:2408.00256: FLSimCo's baseline without vehicles above 100 km/h"
    )
    equations: ClassVar[tuple[str, ...]] = (
        *DUAL_TEMPERATURE,
        "average: theta^(r+1) = 1 / |K| sum_(n in K) theta_n, K = {n: v_n <= limit_kmh}; theta^r where K is empty",
    )
    Settings: ClassVar[type] = DiscardSettings

    def __init__(self, context: LearnerContext, settings: DiscardSettings) -> None:
        super().__init__(context, settings)
        self._limit_mps = settings.limit_kmh / 3.6

    def weights(self, participants: Sequence[Participant]) -> Weights:
        """Return 1 / (number at or below the limit) for those and 0 for the others."""
        return discard_weights([participant.speed_mps for participant in participants], limit_mps=self._limit_mps)
