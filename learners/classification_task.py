"""The task of learners that classify images: images in silos, a classifier, its local training and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from learners.classification_settings import ClassificationSettings
from learners.encoders import Classifier, create_classifier, parameter_count
from learners.evaluation import in_passes
from learners.global_model import State
from learners.task import Task, labelled_silos, payload_bytes
from learners.training import Program, Tensors
from vnetsim.errors import InputError
from vnetsim.learning import Description, LearnerContext

Objective: TypeAlias = Callable[[nn.Module, Tensor, Tensor, Tensors], Tensor]
"""Loss of a classifier on normalised images (B, C, H, W) and their labels (B,), given what the visit was given."""


class ClassificationTask(Task):
    """Everything of a classification learner but its loss and what it does with the uploads.

    Images are normalised and not augmented: a mirrored sign is another sign. Models hold their BatchNorm statistics,
    which are sent and averaged like weights.

    Args:
        context: what the simulator gives every learner.
        settings: classifier, local training and evaluation.

    Raises:
        InputError: when the images have fewer than two classes, or do not fit the silos.
    """

    def __init__(self, context: LearnerContext, settings: ClassificationSettings) -> None:
        self._settings = settings
        self._data, indices = labelled_silos(context)
        if len(self._data.class_names) < 2:
            raise InputError(f"data.name: '{self._data.name}' has one class; a classifier needs at least two.")
        classifier = create_classifier(
            settings.encoder,
            classes=len(self._data.class_names),
            seed=context.streams.integer("initial model"),
        )
        super().__init__(
            context, settings, train=self._data.train, test=self._data.test, indices=indices, network=classifier
        )
        self._classifier = classifier
        self._labels = self._data.train_labels.to(self.device)
        self._counts = self.silos.label_counts(self._data.train_labels, len(self._data.class_names))
        self._mean, self._std = (
            torch.tensor(channel, device=self.device).view(1, -1, 1, 1) for channel in (self._data.mean, self._data.std)
        )
        self._test, self._test_labels = self._data.test.to(self.device), self._data.test_labels.to(self.device)
        order = torch.from_numpy(context.streams.generator("local test").permutation(len(self._test))).to(self.device)
        local = order[: settings.local_test or None]
        self._local_test, self._local_test_labels = self._test[local], self._test_labels[local]

    def classify(self, objective: Objective, *, steps: int = 0) -> Program:
        """Return the local training of the classifier in ``steps`` steps of SGD (those of the settings for 0).

        Its batches hold ``images``, normalised, and ``labels``.
        """

        def loss(network: nn.Module, batch: Tensors, given: Tensors) -> tuple[Tensor, Tensors]:
            value = objective(network, batch["images"], batch["labels"], given)
            return value, {"loss": value}

        def prepare(images: Tensor, drawn: Tensors) -> Tensors:
            return {"images": self._normalised(images), "labels": self._labels[self.silos.on_device(drawn["rows"])]}

        return self.program(
            loss, draw=lambda _count, _generator: {}, prepare=prepare,
            optimizer=self.sgd(self._settings.momentum), steps=steps,
        )  # fmt: skip

    @property
    def largest_batch(self) -> int:
        """How many images a step takes at the silo that holds most."""
        return min(self._settings.batch, max(self.silos.sizes))

    def accuracy(self, state: State) -> float:
        """Return the share of the test images that a model labels correctly."""
        return float(self._correct(state, self._test, self._test_labels).double().mean())

    def local_accuracies(self, state: State, silo: int) -> tuple[float, float]:
        """Return a model's accuracy on labels that ``silo`` holds and on those it lacks; NaN where none is tested.

        The test images are the ``local_test`` ones.
        """
        correct = self._correct(state, self._local_test, self._local_test_labels)
        held = torch.as_tensor(self._counts[silo] > 0, device=self.device)[self._local_test_labels]
        return float(correct[held].double().mean()), float(correct[~held].double().mean())

    @property
    def lacks_labels(self) -> bool:
        """Whether some silo holds no image of some label."""
        return bool((self._counts == 0).any())

    def describe(self, facts: Mapping[str, str]) -> Description:
        """Return classifier, data distribution and what else the record says, the learner's ``facts`` at the end."""
        sizes = self.silos.sizes
        held = (self._counts > 0).sum(axis=1)
        return Description(
            encoder=self._settings.encoder,
            parameters=parameter_count(self.network),
            image_shape=self.image_shape,
            class_names=tuple(self._data.class_names),
            silo_label_counts=self._counts,
            facts={
                "Forward pass": f"{self.flop / 1e6:.4g} MFLOP per image (convolutions and linear layers)",
                "Model": f"{payload_bytes(self.network.state_dict()) / 1e6:.4g} MB each way",
                "Images per silo": f"{min(sizes)} to {max(sizes)}, {sum(sizes)} in all",
                "Labels per silo": f"{held.min()} to {held.max()} of {len(self._data.class_names)}",
                "Test images": f"{len(self._test)}, held by no vehicle; "
                f"{len(self._local_test)} of them for the uploads by themselves",
                "BatchNorm statistics": "sent and averaged with the same weights as the model",
                **facts,
            },
        )

    @torch.inference_mode()
    def _correct(self, state: State, images: Tensor, labels: Tensor) -> Tensor:
        """Return for each uint8 image whether a model labels it correctly, shape (N,)."""
        self._classifier.load_state_dict(state)
        self._classifier.eval()
        logits = torch.cat([self._classifier(self._normalised(part)) for part in in_passes(images)])
        return logits.argmax(dim=1) == labels

    def _normalised(self, images: Tensor) -> Tensor:
        return (images - self._mean) / self._std


@torch.no_grad()
def dense_features(network: nn.Module, state: State, images: Tensor) -> Tensor:
    """Return a model's dense features of normalised images, shape (N, C, H', W').

    Like a student it normalises with the statistics of the batch, so that equal parameters give equal features.

    Args:
        network: a classifier as a workspace.
        state: the model.
        images: shape (N, 3, H, W).
    """
    assert isinstance(network, Classifier)
    network.load_state_dict(state)
    network.train()
    return network.dense(images)


def label_loss(model: nn.Module, images: Tensor, labels: Tensor, _: Tensors) -> Tensor:
    """Return the cross-entropy over the union of labels, mean over the images; an ``Objective``."""
    return cross_entropy(model(images), labels)
