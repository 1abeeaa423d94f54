"""Settings and metrics of the contrastive learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from learners.encoders import require_encoder
from learners.mathematics.robust import AveragingSettings
from learners.tasks.training_settings import Momentum, Temperature, TrainingSettings
from vnetsim.learning import Series
from vnetsim.setting_checks import Images

NEIGHBOURS, NEIGHBOURS_OF = 200, 50_000
"""The neighbours that usually vote, and the training images of CIFAR-10 that they are drawn from (Wu et al. 2018)."""
KNN_TEMPERATURE = 0.1
"""Temperature of their votes."""

KNN_ACCURACY = Series(
    name="knn_accuracy",
    group="Accuracy",
    label="kNN accuracy",
    unit="%",
    caption="Weighted k-nearest-neighbour vote on frozen features, on test images that no vehicle holds.",
)
LINEAR_ACCURACY = Series(
    name="linear_accuracy",
    group="Accuracy",
    label="Linear-probe accuracy",
    unit="%",
    caption="Logistic regression on frozen features, on test images that no vehicle holds.",
)
LEARNING_RATE = Series(
    name="learning_rate",
    result=False,
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
        result=False,
        label="Deviation from equal weights",
        unit="",
        caption="Root mean square of N w_n - 1 over the N uploads of a round: 0 is FedAvg.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class TaskSettings(TrainingSettings, AveragingSettings):
    """Encoder, local training, averaging and evaluation of a contrastive learner.

    The published values are encoder ``resnet18``, batch 512, 2 steps. The defaults take about a minute on two CPU
    cores: a smaller encoder, and as many image views per vehicle as two steps of 256, in more and smaller steps.

    Args:
        encoder: ``small`` (86 thousand parameters), ``resnet18`` (11.2 million, the paper's), or a plug-in of the
            kind encoder, by name or as ``path/to/file.py:Class``; its settings are those of the table ``encoder``.
        batch: images per step, >= 2; a smaller silo gives all it has.
        steps: optimizer steps per local training.
        lr: learning rate of the first round; it falls along a cosine.
        momentum: of SGD, in [0, 1); a new optimizer at each local training.
        weight_decay: of SGD.
        batchnorm: ``average`` sends and averages BatchNorm statistics like weights; ``local`` keeps them in the
            vehicle. Training uses the batch's own statistics either way; for ``local`` evaluation estimates them on
            the bank.
        bank: clean training images, drawn at random, that kNN and linear probe know the labels of; 0 takes all, as is
            usual. Of them 1 in 250 vote, which is the usual 200 of CIFAR-10's 50,000. An evaluation takes time in
            proportion: with the small encoder and all 50,000 of CIFAR-10 about 8 s of a CPU core, and 12 more where the
            linear probe is fitted.
        linear_probe: when the linear probe is fitted.
    """

    encoder: str = "small"
    batch: int = 64
    steps: int = 8
    lr: float = 0.06
    momentum: Momentum = 0.9
    weight_decay: float = 5e-4
    batchnorm: Literal["average", "local"] = "average"
    bank: Images = 0
    linear_probe: Literal["final", "every", "never"] = "final"

    def __post_init__(self) -> None:
        """Refuse values without meaning.

        Raises:
            InputError: naming the key.
        """
        super().__post_init__()
        require_encoder(self.encoder)


@dataclass(frozen=True, kw_only=True)
class ContrastiveSettings(TaskSettings):
    """Settings of FLSimCo and its baselines: the task's, and the dual-temperature loss.

    Args:
        t_alpha: temperature of the loss.
        t_beta: temperature of its weights; equal to ``t_alpha`` it is InfoNCE.
        negatives: what the other images of a batch are compared as. ``second-view``: as their second views, which
            passed the encoder anyway; so does the published code of FLSimCo and of SimCo. ``plain``: as they are,
            without augmentation, which is how FLSimCo's Eq. 5 is printed; a third pass of the encoder.
    """

    t_alpha: Temperature = 0.1
    t_beta: Temperature = 1.0
    negatives: Literal["second-view", "plain"] = "second-view"


def neighbours_of(bank: int) -> int:
    """Return how many of ``bank`` images vote: the usual share, for 200 of 2,000 would come from all over the set."""
    return max(1, round(bank * NEIGHBOURS / NEIGHBOURS_OF))


def reported(series: Sequence[Series], settings: TaskSettings) -> tuple[Series, ...]:
    """Return ``series`` without the linear probe's when it is never fitted."""
    never = settings.linear_probe == "never"
    return tuple(one for one in series if not (never and one is LINEAR_ACCURACY))
