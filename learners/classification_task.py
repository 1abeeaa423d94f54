"""The task of learners that classify images: images in silos, a classifier, its local training and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from learners.classification_settings import ClassificationSettings
from learners.contrastive_task import BACKWARD_FACTOR, payload_bytes
from learners.data import load_images
from learners.data.partition import partition
from learners.encoders import Classifier, create_classifier, forward_flop, parameter_count
from learners.global_model import State
from learners.silos import Silos, blurred_samples, kernel_px
from learners.training import Sgd, Trained, Visit, copy_state, cosine
from vnetsim.errors import InputError
from vnetsim.learning import Description, LearnerContext

Objective: TypeAlias = Callable[[Classifier, Tensor, Tensor], Tensor]
"""Loss of a classifier on normalised images (B, C, H, W) and their labels (B,)."""

CHUNK = 256
"""Images per pass of an evaluation."""


class ClassificationTask:
    """Everything of a classification learner but its loss and what it does with the uploads.

    Images are normalised and not augmented: a mirrored sign is another sign. Models hold their BatchNorm statistics,
    which are sent and averaged like weights.

    Args:
        context: what the simulator gives every learner.
        settings: classifier, local training and evaluation.

    Raises:
        InputError: when the images have fewer than two classes, or do not fit the silos.

    Attributes:
        classifier: the workspace model that training and evaluation load a state into.
        flop: floating-point operations of its forward pass over one image.
        device: where it and the images lie.
    """

    def __init__(self, context: LearnerContext, settings: ClassificationSettings) -> None:
        self._context = context
        self._settings = settings
        self.device = torch.device(context.device)
        streams = context.streams
        self._data = load_images(context.data, streams=streams.child("data"))
        if len(self._data.class_names) < 2:
            raise InputError(f"data.name: '{self._data.name}' has one class; a classifier needs at least two.")
        indices = partition(
            self._data.train_labels.numpy(),
            silos=context.silos,
            approaches=context.approaches,
            settings=context.data,
            generator=streams.generator("silos"),
        )
        self._silos = Silos(self._data.train, indices, device=self.device)
        self._labels = self._data.train_labels.to(self.device)
        self._counts = self._silos.label_counts(self._data.train_labels, len(self._data.class_names))
        self._mean, self._std = (
            torch.tensor(channel, device=self.device).view(1, -1, 1, 1) for channel in (self._data.mean, self._data.std)
        )
        self._test, self._test_labels = self._data.test.to(self.device), self._data.test_labels.to(self.device)
        order = torch.from_numpy(streams.generator("local test").permutation(len(self._test))).to(self.device)
        local = order[: settings.local_test or None]
        self._local_test, self._local_test_labels = self._test[local], self._test_labels[local]
        classifier = create_classifier(
            settings.encoder, classes=len(self._data.class_names), seed=streams.integer("initial model")
        )
        self.flop = forward_flop(classifier, self._image_shape)
        # channels last is what CPU and CUDA convolve fastest
        self.classifier = classifier.to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def initial_state(self) -> State:
        """Return a copy of the classifier's present state: before any training, theta^0."""
        return copy_state(self.classifier.state_dict())

    def visit(self, silo: int, *, speed_mps: float, base_round: int, seed: int) -> Visit:
        """Return a training on a silo's images as a vehicle of this speed (m/s) sees them, from ``base_round``."""
        return Visit(
            silo=silo,
            kernel_px=kernel_px(self._context, speed_mps, self._silos.image_px),
            blurred_fraction=self._context.blur.fraction,
            learning_rate=self.learning_rate(base_round),
            seed=seed,
        )

    def learning_rate(self, base_round: int) -> float:
        """Return the step size of a visit that started in ``base_round``: a cosine over the rounds."""
        return cosine(self._settings.lr, base_round, self._context.rounds)

    def train(self, base: State, visit: Visit, objective: Objective, *, steps: int) -> Trained:
        """Return what a vehicle makes of the model ``base``, which stays as it is, in ``steps`` steps of SGD.

        It depends on the arguments alone: optimizer and random draws are the visit's own.
        """
        generator = torch.Generator(self.device).manual_seed(visit.seed)
        model = self.classifier
        model.load_state_dict(base)
        model.train()
        optimizer = Sgd(
            model.parameters(),
            learning_rate=visit.learning_rate,
            momentum=self._settings.momentum,
            weight_decay=self._settings.weight_decay,
        )
        losses = []
        for _ in range(steps):
            loss = objective(model, *self.batch(visit, generator))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.detach())
        state = copy_state(model.state_dict())
        mean_loss = float(torch.stack(losses).mean())
        finite = math.isfinite(mean_loss) and all(bool(tensor.isfinite().all()) for tensor in state.values())
        return Trained(state=state, loss=mean_loss, finite=finite)

    def batch(self, visit: Visit, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images of the visit's silo, normalised, shape (B, C, H, W), and their labels (B,)."""
        images, rows = self._silos.draw_with_rows(
            visit.silo,
            self._settings.batch,
            kernel_px=visit.kernel_px,
            blurred_fraction=visit.blurred_fraction,
            generator=generator,
        )
        return self._normalised(images), self._labels[rows]

    def batch_size(self, silo: int) -> int:
        """Return how many images a step on ``silo`` takes."""
        return min(self._settings.batch, self._silos.size(silo))

    @property
    def largest_batch(self) -> int:
        """How many images a step takes at the silo that holds most."""
        return min(self._settings.batch, max(self._silos.sizes))

    def training_flop(self, images: int) -> float:
        """Return the operations of training on so many images, forward and backward."""
        return float(images * BACKWARD_FACTOR * self.flop)

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
        sizes = self._silos.sizes
        held = (self._counts > 0).sum(axis=1)
        return Description(
            encoder=self._settings.encoder,
            parameters=parameter_count(self.classifier),
            image_shape=self._image_shape,
            class_names=tuple(self._data.class_names),
            silo_label_counts=self._counts,
            facts={
                "Forward pass": f"{self.flop / 1e6:.4g} MFLOP per image (convolutions and linear layers)",
                "Model": f"{payload_bytes(self.classifier.state_dict()) / 1e6:.4g} MB each way",
                "Images per silo": f"{min(sizes)} to {max(sizes)}, {sum(sizes)} in all",
                "Labels per silo": f"{held.min()} to {held.max()} of {len(self._data.class_names)}",
                "Test images": f"{len(self._test)}, held by no vehicle; "
                f"{len(self._local_test)} of them for the uploads by themselves",
                "BatchNorm statistics": "sent and averaged with the same weights as the model",
                **facts,
            },
        )

    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return the first test images blurred with each kernel length, shape (len(kernels_px), count, H, W, C)."""
        return blurred_samples(self._data.test[:count], kernels_px)

    @torch.inference_mode()
    def _correct(self, state: State, images: Tensor, labels: Tensor) -> Tensor:
        """Return for each uint8 image whether a model labels it correctly, shape (N,)."""
        self.classifier.load_state_dict(state)
        self.classifier.eval()
        chunks = [
            self.classifier(self._normalised(chunk.to(torch.float32) / 255)) for chunk in torch.split(images, CHUNK)
        ]
        return torch.cat(chunks).argmax(dim=1) == labels

    def _normalised(self, images: Tensor) -> Tensor:
        return (images - self._mean) / self._std

    @property
    def _image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self._data.train.shape[1:]
        return int(channels), int(height), int(width)


def label_loss(model: Classifier, images: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy over the union of labels, mean over the images; an ``Objective``."""
    return cross_entropy(model(images), labels)
