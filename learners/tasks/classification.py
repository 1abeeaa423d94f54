"""The task of the learners that classify images: images in silos, a classifier, local training and evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from learners.data.moving import to_device
from learners.encoders import create_classifier
from learners.engines.programs import State, Tensors
from learners.mathematics.weights import Weights
from learners.tasks.evaluation import forward_all
from learners.tasks.settings import EncoderSettings
from learners.tasks.task import LEARNING_RATE, Task, labelled_silos, training_loss
from vnetsim.errors import InputError
from vnetsim.errors.bounds import TRAINS, Images
from vnetsim.learning import Description, LearnerContext, Series

DEFAULTS: Mapping[str, object] = {
    # silos of a few hundred images each, without half of the labels
    "data.partition": "label-skew",
    "silos.count": 20,
    # two vehicles with the same images could teach each other nothing
    "round.distinct_silos": True,
}
"""Experiment settings of the learners that classify."""

SCALES: Mapping[str, Mapping[str, object]] = {"paper": {"learning.encoder": "resnet18"}}
"""FedEFM publishes neither batch nor steps: they stay."""

LOSS = training_loss("Cross-entropy over the union of labels")
ACCURACY = Series(
    name="accuracy",
    group="Accuracy",
    label="Accuracy",
    unit="%",
    caption="Accuracy of the global model on test images that no vehicle has; without a server, of the mean of the "
    "models of the silos that took part so far.",
)
SEEN_ACCURACY = Series(
    name="seen_accuracy",
    group="Accuracy",
    label="Local models, seen labels",
    unit="%",
    caption="Accuracy of each aggregated upload by itself on test images whose label its silo has, mean over the "
    "uploads.",
)
UNSEEN_ACCURACY = Series(
    name="unseen_accuracy",
    group="Accuracy",
    label="Local models, unseen labels",
    unit="%",
    caption="Accuracy of each aggregated upload by itself on test images whose label its silo lacks, mean over those "
    "of silos that lack one.",
)


@dataclass(frozen=True, kw_only=True)
class ClassificationSettings(EncoderSettings):
    """Encoder, local training, averaging and evaluation of a learner that classifies images.

    The defaults suit the built-in signs on two CPU cores.

    Args:
        local_test: number of test images, drawn at random, on which each upload of a round is measured; 0 takes all.
    """

    steps: int = 12
    local_test: Annotated[Images, TRAINS] = 500


class ClassificationTask(Task):
    """Images in silos, a classifier, the cross-entropy, and accuracies.

    Images are normalised and not augmented, since a mirrored sign is another sign. BatchNorm statistics are sent and
    averaged like weights. InputError if images have fewer than two classes, or do not fit the silos.
    """

    settings: ClassificationSettings
    has_labels: ClassVar[bool] = True

    def __init__(self, context: LearnerContext, settings: ClassificationSettings) -> None:
        data, indices = labelled_silos(context)
        if len(data.class_names) < 2:
            raise InputError(f"data.name: '{data.name}' has one class; a classifier needs at least two.")
        classifier = create_classifier(
            settings.encoder,
            classes=len(data.class_names),
            seed=context.streams.integer("initial model"),
            settings=context.encoder,
        )
        super().__init__(context, settings, data, indices, classifier)
        self._labels = self._data.train_labels.to(self.device)
        self._counts = self.silos.label_counts(self._data.train_labels, len(self._data.class_names))
        self._held = torch.from_numpy(self._counts > 0).to(self.device)
        self._test, self._test_labels = self._data.test.to(self.device), self._data.test_labels.to(self.device)
        order = torch.from_numpy(context.streams.generator("local test").permutation(len(self._test))).to(self.device)
        local = order[: settings.local_test or None]
        self._local_test, self._local_test_labels = self._test[local], self._test_labels[local]

    def prepare(self, images: Tensor, drawn: Tensors) -> Tensors:
        """Return ``images``, normalised, shape (B, C, H, W), and their ``labels``, shape (B,).

        Where the draw ``flipped`` is true, the label is C - 1 - c for the class c of C classes.
        """
        there = to_device({name: drawn[name] for name in ("rows", "flipped") if name in drawn}, self.device)
        labels = self._labels[there["rows"]]
        if "flipped" in there:
            labels = torch.where(there["flipped"], len(self._data.class_names) - 1 - labels, labels)
        return {"images": self.normalised(images), "labels": labels}

    def constants(self) -> Sequence[Tensor]:
        """Return the tensors that a step reads besides its arguments: the labels as well."""
        return (*super().constants(), self._labels)

    def loss(self, model: nn.Module, batch: Tensors, base: Tensors) -> Tensor:  # noqa: ARG002 - see ``StepLoss``
        """Return the mean cross-entropy, shape (), of the batch's logits ``outputs``, or if it has none the model's."""
        return cross_entropy(batch["outputs"] if "outputs" in batch else model(batch["images"]), batch["labels"])

    def evaluate(self, state: State, *, final: bool) -> Mapping[str, float]:  # noqa: ARG002  all is due every time
        """Return ``accuracy``, the share of test images that a model labels correctly; ``final`` changes nothing."""
        return {"accuracy": float(self._correct(state, self._test, self._test_labels).double().mean())}

    def upload_figures(self, uploads: Sequence[tuple[State, int]]) -> list[Mapping[str, float]]:
        """Return ``seen_accuracy`` and ``unseen_accuracy`` of each model, in order.

        The first is the accuracy on local test images whose label the silo of the upload has, the second on those whose
        label the silo lacks; one without such images is left out. Waits for the device once.
        """
        shares = []
        for state, silo in uploads:
            correct = self._correct(state, self._local_test, self._local_test_labels)
            held = self._held[silo][self._local_test_labels]
            numbers = torch.stack([correct & held, held, correct & ~held, ~held]).sum(dim=1, dtype=torch.float64)
            shares.append(numbers[::2] / numbers[1::2])
        names = SEEN_ACCURACY.name, UNSEEN_ACCURACY.name
        return [
            {name: value for name, value in zip(names, values, strict=True) if not math.isnan(value)}
            for values in (torch.stack(shares).tolist() if shares else ())
        ]

    def round_figures(self, uploads: Sequence[Mapping[str, float]], weights: Weights) -> Mapping[str, float]:  # noqa: ARG002
        """Return the plain means of ``upload_figures`` over the uploads; a metric that no upload has is left out."""
        measured = {
            one.name: [figures[one.name] for figures in uploads if one.name in figures]
            for one in (SEEN_ACCURACY, UNSEEN_ACCURACY)
        }
        return {name: sum(values) / len(values) for name, values in measured.items() if values}

    def series(self) -> Sequence[Series]:
        """Return all metrics of a learner that averages; ``unseen_accuracy`` only if a silo lacks a label."""
        unseen = (UNSEEN_ACCURACY,) if (self._counts == 0).any() else ()
        return (LOSS, ACCURACY, SEEN_ACCURACY, *unseen, LEARNING_RATE)

    def describe(self, facts: Mapping[str, str]) -> Description:
        """Return network, data distribution and facts for the run's record; the learner's own ``facts`` come last."""
        held = (self._counts > 0).sum(axis=1)
        names = self._data.class_names
        return self.described(
            {
                "Labels per silo": f"{held.min()} to {held.max()} of {len(names)}",
                "Test images": f"{len(self._test)}, held by no vehicle; "
                f"{len(self._local_test)} of them for the uploads by themselves",
                "BatchNorm statistics": "sent and averaged with the same weights as the model",
                **facts,
            },
            encoder=self.settings.encoder,
            returns="logits of the classes, shape (N, classes)",
            classes=names,
            labels=self._data.train_labels,
        )

    @torch.inference_mode()
    def _correct(self, state: State, images: Tensor, labels: Tensor) -> Tensor:
        """Return whether a model labels each uint8 image correctly, shape (N,); ``network`` then holds the model."""
        self.network.load_state_dict(state)
        self.network.eval()
        logits = forward_all(self.network, images, scale=self._scale)
        return logits.argmax(dim=1) == labels
