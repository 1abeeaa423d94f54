"""The task of learners that classify images: images in silos, a classifier, its local training and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from learners.data.moving import moved
from learners.encoders import Classifier, create_classifier, parameter_count
from learners.engines.programs import Loss, Program, Tensors, frozen, prefixed
from learners.mathematics.aggregation import Weights
from learners.state.global_model import State
from learners.tasks.classification_settings import (
    ACCURACY,
    LOSS,
    SEEN_ACCURACY,
    UNSEEN_ACCURACY,
    ClassificationSettings,
)
from learners.tasks.contrastive_settings import LEARNING_RATE
from learners.tasks.evaluation import passed
from learners.tasks.task import AveragedTask, labelled_silos, payload_bytes
from vnetsim.errors import InputError
from vnetsim.learning import Description, LearnerContext, Network, Series


class ClassificationTask(AveragedTask):
    """Everything of a classification learner but its loss and what it does with the uploads.

    Images are normalised and not augmented: a mirrored sign is another sign. Models hold their BatchNorm statistics,
    which are sent and averaged like weights.

    Args:
        context: what the simulator gives every learner.
        settings: classifier, local training and evaluation.

    Raises:
        InputError: when the images have fewer than two classes, or do not fit the silos.
    """

    inputs: ClassVar[tuple[str, ...]] = ("images", "labels")

    def __init__(self, context: LearnerContext, settings: ClassificationSettings) -> None:
        self._settings = settings
        self._data, indices = labelled_silos(context)
        if len(self._data.class_names) < 2:
            raise InputError(f"data.name: '{self._data.name}' has one class; a classifier needs at least two.")
        classifier = create_classifier(
            settings.encoder,
            classes=len(self._data.class_names),
            seed=context.streams.integer("initial model"),
            settings=context.encoder,
        )
        super().__init__(
            context, settings, train=self._data.train, test=self._data.test, indices=indices, network=classifier
        )
        self._classifier = classifier
        self._labels = self._data.train_labels.to(self.device)
        self._counts = self.silos.label_counts(self._data.train_labels, len(self._data.class_names))
        self._held = torch.from_numpy(self._counts > 0).to(self.device)
        self._mean, self._std = (
            torch.tensor(channel, device=self.device).view(1, -1, 1, 1) for channel in (self._data.mean, self._data.std)
        )
        self._test, self._test_labels = self._data.test.to(self.device), self._data.test_labels.to(self.device)
        order = torch.from_numpy(context.streams.generator("local test").permutation(len(self._test))).to(self.device)
        local = order[: settings.local_test or None]
        self._local_test, self._local_test_labels = self._test[local], self._test_labels[local]

    def classify(self, loss: Loss, *, steps: int = 0) -> Program:
        """Return the local training of the classifier in ``steps`` steps of SGD (those of the settings for 0).

        Its batches hold ``images``, normalised, shape (B, C, H, W), and ``labels``, shape (B,).
        """

        def prepare(images: Tensor, drawn: Tensors) -> Tensors:
            rows = moved({"rows": drawn["rows"]}, self.device)["rows"]
            return {"images": self._normalised(images), "labels": self._labels[rows]}

        return self.program(
            loss, draw=lambda _count, _generator: {}, prepare=prepare,
            optimizer=self.sgd(self._settings.momentum), steps=steps,
        )  # fmt: skip

    def local(self, step: Loss) -> Program:
        """Return the local training of the classifier; see ``classify``."""
        return self.classify(step)

    def loss(self, model: nn.Module, first: Tensor, second: Tensor, base: State) -> Tensor:  # noqa: ARG002
        """Return the cross-entropy over the union of labels, mean over the images ``first``; ``second``: labels."""
        return cross_entropy(model(first), second)

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
        held = self._held[silo][self._local_test_labels]
        numbers = torch.stack([correct & held, held, correct & ~held, ~held]).sum(dim=1, dtype=torch.float64)
        seen, unseen = (numbers[::2] / numbers[1::2]).tolist()
        return seen, unseen

    def evaluate(self, state: State, *, final: bool) -> Mapping[str, float]:  # noqa: ARG002  all is due every time
        """Return the accuracy of a model on the test images."""
        return {"accuracy": self.accuracy(state)}

    def upload_figures(self, state: State, silo: int) -> Mapping[str, float]:
        """Return ``local_accuracies`` by name; NaN stays out."""
        seen, unseen = self.local_accuracies(state, silo)
        figures = {SEEN_ACCURACY.name: seen, UNSEEN_ACCURACY.name: unseen}
        return {name: value for name, value in figures.items() if not math.isnan(value)}

    def round_figures(self, uploads: Sequence[Mapping[str, float]], weights: Weights) -> Mapping[str, float]:  # noqa: ARG002
        """Return the means of ``upload_figures``; one that no upload has is left out."""
        measured = {
            one.name: [figures[one.name] for figures in uploads if one.name in figures]
            for one in (SEEN_ACCURACY, UNSEEN_ACCURACY)
        }
        return {name: sum(values) / len(values) for name, values in measured.items() if values}

    def series(self) -> Sequence[Series]:
        """Return all metrics of a learner that averages; those of unseen labels where silos lack some."""
        unseen = (UNSEEN_ACCURACY,) if self.lacks_labels else ()
        return (LOSS, ACCURACY, SEEN_ACCURACY, *unseen, LEARNING_RATE)

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
            network=Network(
                module=self.network,
                returns="logits of the classes, shape (N, classes)",
                mean=tuple(self._data.mean),
                std=tuple(self._data.std),
            ),
            facts={
                "Forward pass": f"{self.flop / 1e6:.4g} MFLOP per image (convolutions and linear layers)",
                "Model": f"{payload_bytes(self.network.state_dict()) / 1e6:.4g} MB each way",
                "Images per silo": f"{min(sizes)} to {max(sizes)}, {sum(sizes)} in all",
                "Labels per silo": f"{held.min()} to {held.max()} of {len(self._data.class_names)}",
                "Test images": f"{len(self._test)}, held by no vehicle; "
                f"{len(self._local_test)} of them for the uploads by themselves",
                "BatchNorm statistics": "sent and averaged with the same weights as the model",
                **({"Pixels": self._data.pixels} if self._data.pixels else {}),
                **self.engine_facts,
                **facts,
            },
        )

    @torch.inference_mode()
    def _correct(self, state: State, images: Tensor, labels: Tensor) -> Tensor:
        """Return for each uint8 image whether a model labels it correctly, shape (N,)."""
        self._classifier.load_state_dict(state)
        self._classifier.eval()
        logits = passed(lambda part: self._classifier(self._normalised(part)), images)
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


class _Views(nn.Module):
    """A classifier that tells its dense features besides its logits."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        assert isinstance(self.classifier, Classifier)
        dense = self.classifier.dense(images)
        return dense, self.classifier.logits(dense)


def views(model: nn.Module, images: Tensor, state: Tensors | None = None) -> tuple[Tensor, Tensor]:
    """Return dense features (N, C, H', W') and logits (N, classes) of one pass of normalised images.

    Args:
        model: a classifier.
        images: shape (N, 3, H, W).
        state: another model to look with; ``model`` and it stay as they are. ``model`` itself for None.
    """
    both = _Views(model)
    seen: tuple[Tensor, Tensor] = (
        both(images) if state is None else frozen(both, prefixed("classifier.", state), images)
    )
    return seen
