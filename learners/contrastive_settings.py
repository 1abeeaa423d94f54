"""Settings and metrics of the contrastive learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from learners.encoders import ENCODERS
from learners.training_settings import TrainingSettings, at_least, in_unit_interval, positive
from vnetsim.errors import unknown_name
from vnetsim.learning import Series

KNN_ACCURACY = Series(
    name="knn_accuracy",
    label="kNN accuracy",
    unit="%",
    caption="Weighted k-nearest-neighbour vote on frozen features, on test images that no vehicle holds.",
)
LINEAR_ACCURACY = Series(
    name="linear_accuracy",
    label="Linear-probe accuracy",
    unit="%",
    caption="Logistic regression on frozen features, on test images that no vehicle holds.",
)
LEARNING_RATE = Series(
    name="learning_rate",
    label="Learning rate",
    unit="",
    caption="Step size of the vehicles that started in this round; a cosine over the rounds.",
)
SERIES = (
    Series(
        name="loss",
        label="Training loss",
        unit="",
        caption="Dual-temperature loss (FLSimCo Eq. 6-8), mean over the aggregated vehicles and their local steps.",
    ),
    KNN_ACCURACY,
    LINEAR_ACCURACY,
    LEARNING_RATE,
    Series(
        name="weight_deviation",
        label="Deviation from equal weights",
        unit="",
        caption="Root mean square of N w_n - 1 over the N uploads of a round: 0 is FedAvg.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class TaskSettings(TrainingSettings):
    """Encoder, local training, averaging and evaluation of a contrastive learner.

    The published values are encoder ``resnet18``, batch 512, 2 steps. The defaults take about a minute on two CPU
    cores: a smaller encoder, and as many image views per visit as a batch of 256 would give, in more and smaller
    steps, from which it learns more.

    Args:
        encoder: ``small`` (86 thousand parameters) or ``resnet18`` (11.2 million, the paper's).
        batch: images per step, >= 2; a smaller silo gives all it has.
        steps: optimizer steps per visit.
        lr: learning rate of the first round; it falls along a cosine.
        momentum: of SGD, in [0, 1); a new optimizer at each visit.
        weight_decay: of SGD.
        batchnorm: ``average`` sends and averages BatchNorm statistics like weights; ``local`` keeps them in the
            vehicle. Training uses the batch's own statistics either way; for ``local`` evaluation estimates them on
            the bank.
        knn_k: neighbours that vote.
        knn_temperature: temperature of their votes.
        bank: clean training images, drawn at random, that kNN and linear probe know the labels of; 0 takes all.
        linear_probe: when the linear probe is fitted.
    """

    encoder: str = "small"
    batch: int = 64
    steps: int = 8
    lr: float = 0.06
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batchnorm: Literal["average", "local"] = "average"
    knn_k: int = 200
    knn_temperature: float = 0.1
    bank: int = 2000
    linear_probe: Literal["final", "every", "never"] = "final"

    def __post_init__(self) -> None:
        """Refuse values without meaning.

        Raises:
            InputError: naming the key.
        """
        super().__post_init__()
        if self.encoder not in ENCODERS:
            raise unknown_name("encoder", self.encoder, ENCODERS, where="learning.encoder")
        at_least(self, knn_k=1, bank=0)
        positive(self, "knn_temperature")
        in_unit_interval(self, "momentum", with_one=False)


@dataclass(frozen=True, kw_only=True)
class ContrastiveSettings(TaskSettings):
    """Settings of FLSimCo and its baselines: the task's, and the dual-temperature loss.

    Args:
        t_alpha: temperature of the loss.
        t_beta: temperature of its weights; equal to ``t_alpha`` it is InfoNCE.
    """

    t_alpha: float = 0.1
    t_beta: float = 1.0

    def __post_init__(self) -> None:
        """Refuse values without meaning.

        Raises:
            InputError: naming the key.
        """
        super().__post_init__()
        positive(self, "t_alpha", "t_beta")


def reported(series: Sequence[Series], settings: TaskSettings) -> tuple[Series, ...]:
    """Return ``series`` without the linear probe's when it is never fitted."""
    never = settings.linear_probe == "never"
    return tuple(one for one in series if not (never and one is LINEAR_ACCURACY))
