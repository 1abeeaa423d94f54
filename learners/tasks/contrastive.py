"""The task of the contrastive learners: two random views of each image, an encoder, and its evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor, nn

from learners.data.augment import NUMBERS_ONE, NUMBERS_TWO, apply_view, first_view_draws, second_view_draws
from learners.encoders import Encoder, create_encoder
from learners.engines.programs import State, Tensors, add_prefix, remove_prefix
from learners.mathematics.losses import dual_temperature_loss
from learners.mathematics.weights import Weights
from learners.tasks.evaluation import (
    PASS,
    as_floats,
    estimate_statistics,
    forward_all,
    knn_predict,
    linear_probe_accuracy,
)
from learners.tasks.settings import EncoderSettings, Temperature
from learners.tasks.task import LEARNING_RATE, Task, labelled_silos, training_loss
from vnetsim.errors.bounds import TRAINS, Images
from vnetsim.learning import Description, LearnerContext, Series

NEIGHBOURS, NEIGHBOURS_OF = 200, 50_000
"""The usual number of voting neighbours, and of CIFAR-10's training images (Wu et al. 2018)."""
KNN_TEMPERATURE = 0.1
"""Temperature of the neighbours' votes."""

KNN_ACCURACY = Series(
    name="knn_accuracy",
    group="Accuracy",
    label="kNN accuracy",
    unit="%",
    caption="Weighted k-nearest-neighbour vote on frozen features, on test images that no vehicle has.",
)
LINEAR_ACCURACY = Series(
    name="linear_accuracy",
    group="Accuracy",
    label="Linear-probe accuracy",
    unit="%",
    caption="Logistic regression on frozen features, on test images that no vehicle has.",
)
SERIES = (
    training_loss("Dual-temperature loss (FLSimCo Eq. 6-8)"),
    KNN_ACCURACY,
    LINEAR_ACCURACY,
    LEARNING_RATE,
    Series(
        name="weight_deviation",
        result=False,
        label="Deviation from equal weights",
        caption="Root mean square of N w_n - 1 over the N uploads of a round: 0 is FedAvg.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class TaskSettings(EncoderSettings):
    """Encoder, local training, averaging and evaluation of a contrastive learner.

    The published values are encoder ``resnet18``, batch 512, 2 steps. The defaults take about a minute on two CPU
    cores: a smaller encoder, and as many image views per vehicle as two steps of 256, in more and smaller steps.

    Args:
        batchnorm: ``average`` sends and averages BatchNorm statistics like weights; ``local`` keeps them in the
            vehicle. Training uses the batch's own statistics in both cases; with ``local``, evaluation estimates them
            on the bank.
        bank: number of clean training images, drawn at random, whose labels kNN and linear probe use; 0 takes all, as
            is usual. 1 in 250 of them vote, which is the usual 200 of CIFAR-10's 50,000. The time of an evaluation is
            proportional to the bank: with the small encoder and all 50,000 images of CIFAR-10 about 8 s of a CPU core,
            and 12 s more when the linear probe is fitted.
        linear_probe: when the linear probe is fitted: ``final`` at the end of the run, ``every`` at each evaluation.
    """

    batch: int = 64
    lr: float = 0.06
    batchnorm: Literal["average", "local"] = "average"
    bank: Annotated[Images, TRAINS] = 0
    linear_probe: Annotated[Literal["final", "every", "never"], TRAINS] = "final"


@dataclass(frozen=True, kw_only=True)
class ContrastiveSettings(TaskSettings):
    """Settings of FLSimCo and its baselines: the task's, and the dual-temperature loss.

    Args:
        t_alpha: temperature of the loss.
        t_beta: temperature of its weights; if equal to ``t_alpha``, the loss is InfoNCE.
        negatives: how the other images of a batch are compared. ``second-view``: by their second views, which pass the
            encoder anyway, as in the published code of FLSimCo and of SimCo. ``plain``: without augmentation, as in
            FLSimCo's Eq. 5; this takes a third pass of the encoder.
    """

    t_alpha: Temperature = 0.1
    t_beta: Temperature = 1.0
    negatives: Literal["second-view", "plain"] = "second-view"


def count_neighbours(bank_images: int) -> int:
    """Return how many neighbours vote in a bank of so many images: 200 of 50,000, others in proportion, at least 1."""
    return max(1, round(bank_images * NEIGHBOURS / NEIGHBOURS_OF))


def reported_series(series: Sequence[Series], settings: TaskSettings) -> tuple[Series, ...]:
    """Return ``series``, without the linear probe's if it is never fitted."""
    never = settings.linear_probe == "never"
    return tuple(one for one in series if not (never and one is LINEAR_ACCURACY))


CONTRASTIVE_SCALES: Mapping[str, Mapping[str, object]] = {
    "paper": {
        "learning.encoder": "resnet18",
        "learning.batch": 512,
        "learning.steps": 2,
        "data.train_images": 95 * 520,  # as many as each of FLSimCo's 95 vehicles has
    }
}
"""FLSimCo's published training, which its baselines share."""

FIRST, SECOND = "first.", "second."
NEGATIVES = {
    "second-view": "the other images' second views, as in the published code",
    "plain": "the other images without augmentation, as Eq. 5 is printed",
}


class ContrastiveTask(Task):
    """Images in silos, two random views of each, an encoder, the dual-temperature loss, kNN and a linear probe."""

    settings: TaskSettings
    network: Encoder

    def __init__(self, context: LearnerContext, settings: TaskSettings) -> None:
        self._plain = isinstance(settings, ContrastiveSettings) and settings.negatives == "plain"
        data, indices = labelled_silos(context)
        encoder = create_encoder(
            settings.encoder, seed=context.streams.integer("initial model"), settings=context.encoder
        )
        super().__init__(context, settings, data, indices, encoder)
        bank = context.streams.generator("bank").permutation(len(self._data.train))[: settings.bank or None]
        self._neighbours = count_neighbours(len(bank))
        self._bank = torch.from_numpy(bank).to(self.device)
        self._bank_labels = self._data.train_labels[bank].to(self.device)
        self._test, self._test_labels = self._data.test.to(self.device), self._data.test_labels.to(self.device)

    @property
    def passes(self) -> int:
        """The number of encoder passes per image: two views, and the image itself if negatives are plain."""
        return 3 if self._plain else 2

    def draw(self, count: int, generator: torch.Generator) -> Tensors:
        """Return ``numbers``, a vector uniform in [0, 1); ``finish_draws`` makes two views of each image from it."""
        return {"numbers": torch.rand((NUMBERS_ONE + NUMBERS_TWO) * count, generator=generator)}

    def finish_draws(self, drawn: Sequence[Tensors]) -> Sequence[Tensors]:
        """Return the draws of both views of each image, named ``first.*`` and ``second.*``, for each step."""
        numbers, size = torch.stack([one["numbers"] for one in drawn]), self.image_shape[1:]
        count = numbers.shape[1] // (NUMBERS_ONE + NUMBERS_TWO)
        one, two = torch.split(numbers, [NUMBERS_ONE * count, NUMBERS_TWO * count], dim=1)
        views = add_prefix(FIRST, first_view_draws(one, size)) | add_prefix(SECOND, second_view_draws(two, size))
        return [dict(zip(views, step, strict=True)) for step in zip(*views.values(), strict=True)]

    def prepare(self, images: Tensor, drawn: Tensors) -> Tensors:
        """Return normalised views ``first`` and ``second``, (B, C, H, W); for plain negatives also images ``plain``."""
        views = {
            "first": apply_view(images, remove_prefix(FIRST, drawn), *self._scale),
            "second": apply_view(images, remove_prefix(SECOND, drawn), *self._scale),
        }
        return {**views, "plain": self.normalised(images)} if self._plain else views

    def sent(self, state: State) -> dict[str, Tensor]:
        """Return the part of a model's state that is sent; if ``batchnorm`` is ``local``, no BatchNorm statistics."""
        if self.settings.batchnorm == "average":
            return dict(state)
        statistics = ("running_mean", "running_var", "num_batches_tracked")
        return {name: tensor for name, tensor in state.items() if not name.endswith(statistics)}

    @torch.inference_mode()
    def evaluate(self, state: State, *, final: bool) -> Mapping[str, float]:
        """Return ``knn_accuracy`` and, if ``linear_probe`` asks for it now, ``linear_accuracy``, both in [0, 1]."""
        self.network.load_state_dict(state)
        if self.settings.batchnorm == "local":
            batches = (self.silos.pool[rows] for rows in torch.split(self._bank, PASS))
            estimate_statistics(self.network, (self.normalised(as_floats(batch)) for batch in batches))
        self.network.eval()
        bank = forward_all(self.network.features, self.silos.pool, self._bank, scale=self._scale)
        test = forward_all(self.network.features, self._test, scale=self._scale)
        known, classes = self._bank_labels, len(self._data.class_names)
        predicted = knn_predict(test, bank, known, classes=classes, k=self._neighbours, temperature=KNN_TEMPERATURE)
        figures = {"knn_accuracy": float((predicted == self._test_labels).double().mean())}
        probe = self.settings.linear_probe
        if probe == "every" or (final and probe == "final"):
            figures["linear_accuracy"] = linear_probe_accuracy(test, self._test_labels, bank, known, classes=classes)
        return figures

    def describe(self, facts: Mapping[str, str]) -> Description:
        """Return network, data distribution and facts for the run's record; the learner's own ``facts`` come last."""
        own, settings = self.settings.batchnorm == "average", self.settings
        contrast = {"Negatives": NEGATIVES[settings.negatives]} if isinstance(settings, ContrastiveSettings) else {}
        return self.described(
            {
                "kNN": f"{self._neighbours} of {len(self._bank)} clean training images vote",
                "BatchNorm statistics": "sent and averaged with the same weights as the model"
                if own
                else "kept in the vehicles; estimated on the bank for evaluation",
                **contrast,
                **facts,
            },
            encoder=self.settings.encoder,
            returns="projections of unit length, shape (N, 128), for contrast alone; features are what fc is given",
            classes=self._data.class_names,
            labels=self._data.train_labels,
            own_statistics=own,
        )

    def loss(self, model: nn.Module, batch: Tensors, base: Tensors) -> Tensor:  # noqa: ARG002 - see ``StepLoss``
        """Return FLSimCo's loss, shape (); negatives are the batch's ``plain``, or if it has none other ``second``."""
        assert isinstance(self.settings, ContrastiveSettings)
        return dual_temperature_loss(
            model(batch["first"]),
            model(batch["second"]),
            t_alpha=self.settings.t_alpha,
            t_beta=self.settings.t_beta,
            negatives=model(batch["plain"]) if "plain" in batch else None,
        )

    def series(self) -> Sequence[Series]:
        """Return all metrics of a learner that averages on this task; ``linear_accuracy`` only if it is measured."""
        return reported_series(SERIES, self.settings)

    def round_figures(self, uploads: Sequence[Mapping[str, float]], weights: Weights) -> Mapping[str, float]:
        """Return ``weight_deviation``, the root mean square of N w - 1 over N uploads; empty if all weights are 0."""
        return {"weight_deviation": float(np.sqrt(np.mean((weights * len(uploads) - 1) ** 2)))} if weights.any() else {}
